"""Whether the nodes of a cluster have the same, record by record, and nothing that was acknowledged is
missing.

Each function returns sentences, one a violation.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from linearizability.checker import check_log, check_queue
from linearizability.history import ENDLESS, LogHistory, Read

from tests.nodes import NodeServer

from .load import AGING, CONFIG, COPIES, KEPT, LOGS, LOSSY, PASSING, QUEUE, Load
from .watchers import Watcher

LIMIT = 1000


def pages(node: NodeServer, topic: str, position: str) -> Iterator[tuple[int, int, dict[str, Any]]]:
    """(sent, answered, page) of a topic from its beginning to its end."""
    seq, head = 0, 1
    while seq < head:
        body = {"from_seq": seq, "limit": LIMIT, "include_tags": True}
        sent = time.monotonic_ns()
        page, _ = node.ask_with_headers(
            f"/v0/topics/{topic}/diff", body, headers={"x-topics-position": position}
        )
        yield sent, time.monotonic_ns(), page
        seq, head = page["next_from_seq"], page["head_seq"]


@dataclass
class Copy:
    """All that one node has.

    Attributes:
        number: The node's.
        records: Of each topic, whole.
        reads: The same as calls, for the checker.
        state: What the node says of each topic, but for its own figures.
    """

    number: int
    records: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    reads: dict[str, list[Read]] = field(default_factory=dict)
    state: dict[str, dict[str, Any]] = field(default_factory=dict)

    def texts(self, topic: str) -> list[str]:
        return [record["data"] for record in self.records[topic]]


def copy_of(node: NodeServer, position: str) -> Copy:
    """What a node has at this position of the cluster's log."""
    copy = Copy(node.number)
    for topic in CONFIG:
        from_seq, reads = 0, []
        for sent, answered, page in pages(node, topic, position):
            copy.records.setdefault(topic, []).extend(page["records"])
            records = tuple((record["$seq"], record["data"]) for record in page["records"])
            next_from, has_tombstone = page["next_from_seq"], page["tombstone"] is not None
            reads.append(
                Read(sent, answered, from_seq, records, next_from, page["head_seq"], has_tombstone)
            )
            from_seq = next_from
        copy.reads[topic] = reads
        copy.state[topic] = told(node.ask(f"/v0/topics/{topic}"))
    return copy


def told(document: dict[str, Any]) -> dict[str, Any]:
    """Without what differs between nodes that agree: times of requests, files, and when a node noticed
    that records had expired."""
    own = ("performance", "last_read_ts", "disk_bytes", "watchers", "lost_24h")
    kept = {name: value for name, value in document.items() if name not in own}
    return kept | {"lost": {loss["reason"]: loss["records"] for loss in document["lost_24h"]}}


def differences(copies: list[Copy]) -> Iterator[str]:
    for one, other in pairwise(copies):
        for topic in CONFIG:
            pair = f"{topic}: nodes {one.number} and {other.number}"
            if one.records[topic] != other.records[topic]:
                mine, theirs = one.texts(topic), other.texts(topic)
                yield f"{pair} have other records: {len(mine)} and {len(theirs)}"
            if one.state[topic] != other.state[topic]:
                yield f"{pair} say {one.state[topic]} and {other.state[topic]}"


def wrongs(copy: Copy, load: Load) -> Iterator[str]:
    """What one node lacks, or has and should not."""
    for topic in LOGS:
        known = load.logs[topic]
        history = LogHistory(list(known.appends), copy.reads[topic], list(known.deletes))
        yield from (f"node {copy.number}, {topic}: {what}" for what in check_log(history))
        yield from doubled(copy, topic)
    for source, destination in COPIES.items():
        if copy.texts(source) != copy.texts(destination):
            yield (
                f"node {copy.number}: {len(copy.texts(source))} records of {source}, "
                f"{len(copy.texts(destination))} copies in {destination}"
            )
    refused = set(load.not_applied)
    for topic in CONFIG:
        if found := refused.intersection(copy.texts(topic)):
            yield f"node {copy.number} has in {topic} what was not applied: {found}"
    places = {(topic, r["$seq"]): r["data"] for topic in CONFIG for r in copy.records[topic]}
    deleted = gone(load)
    for topic, seq, text in load.seen:
        if places.get((topic, seq)) != text and (topic, seq) not in deleted:
            yield f"node {copy.number} lacks what was shown: {text} at {seq} of {topic}"


def doubled(copy: Copy, topic: str) -> Iterator[str]:
    texts = copy.texts(topic)
    if len(texts) != len(set(texts)):
        yield f"node {copy.number}, {topic}: {len(texts) - len(set(texts))} records twice"


def gone(load: Load) -> set[tuple[str, int]]:
    """Seqs that a delete named, also one without an answer."""
    return {
        (topic, seq) for topic in LOGS for delete in load.logs[topic].deletes for seq in delete.seqs
    }


def missed(watcher: Watcher, copy: Copy, load: Load) -> Iterator[str]:
    """What a watcher should have seen and did not, or saw and should not have."""
    deleted = gone(load)
    for topic, seen in watcher.seen.items():
        name = f"{watcher.name}, {topic}"
        yield from (f"{name}: {fault}" for fault in seen.faults)
        if seen.position != load.ends[topic]:
            yield f"{name}: not seen to its end, but to {seen.position}"
        if silent := {seq for seq in seen.skipped if (topic, seq) not in deleted}:
            yield f"{name}: skipped without a word: {sorted(silent)[:20]}"
        for record in copy.records[topic]:
            text = seen.records.get(record["$seq"])
            if text != record["data"] and not (topic in LOSSY and text is None):
                yield f"{name}: {text} at {record['$seq']}, not {record['data']}"
        if topic not in (AGING, PASSING):
            continue
        answered = {
            seq: text
            for append in load.logs[topic].appends
            if append.first_seq is not None and append.returned < ENDLESS
            for seq, text in enumerate(append.texts, append.first_seq)
        }
        for seq, text in seen.records.items():
            if answered.get(seq, text) != text:
                yield f"{name}: {text} at {seq}, where {answered[seq]} was acknowledged"


def verdict(copies: list[Copy], watchers: Sequence[Watcher], load: Load) -> list[str]:
    found = list(load.faults)
    found += differences(copies)
    for copy in copies:
        found += wrongs(copy, load)
    for watcher in watchers:
        found += missed(watcher, copies[0], load)
    found += check_queue(load.jobs)
    for copy in copies:
        if left := [text for text in copy.texts(QUEUE) if text != KEPT]:
            found.append(f"node {copy.number}: jobs are left: {left}")
    return found
