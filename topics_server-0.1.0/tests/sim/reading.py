"""The check of a read: which records, which tombstone and which cursor the contract allows.

Owns the rules of §3 and of explicit loss as predicates over one answer and the model.  Refuses to
know how a page was made.
"""

import json
from dataclasses import dataclass
from typing import Any

from .invariants import check, i14_times_do_not_fall, i28_nobody_reads_its_own
from .model import Record, Topic, tag_matches


@dataclass(frozen=True, slots=True)
class Ask:
    """A `diff` as a client words it."""

    from_seq: int = 0
    from_ts: int | None = None
    limit: int = 256
    budget_bytes: int = 1 << 20
    nodes: tuple[str, ...] = ()
    match: str | None = None
    include_tags: bool = False
    include_meta: bool = True
    epoch: str | None = None

    def wants(self, topic: Topic, record: Record) -> bool:
        skips = self.nodes if topic.config.dedupe_node else ()
        if record.entry.node in skips:
            return False
        return self.match is None or tag_matches(self.match, record.entry.tag)


@dataclass(frozen=True, slots=True)
class Page:
    """A response: its fields, and the records' bytes as they came."""

    fields: dict[str, Any]
    text: bytes

    @property
    def next_seq(self) -> int:
        return int(self.fields["next_from_seq"])

    @property
    def seqs(self) -> list[int]:
        return [record["$seq"] for record in self.fields["records"]]


def check_page(topic: Topic, ask: Ask, page: Page) -> None:
    """One response against the model, given the head that it shows (§3)."""
    head_seq = page.fields["head_seq"]
    earliest = topic.earliest(head_seq)
    what = f"{topic.name} {ask} {page.fields | {'records': page.seqs}}"
    check(page.fields["earliest_seq"] == earliest, "I8", f"earliest is {earliest}: {what}")
    check(topic.floor(head_seq) <= earliest <= head_seq + 1, "I8", f"{topic.evict_floor}: {what}")
    check(page.fields["lag"] == head_seq - page.next_seq, "I12", what)
    check(page.fields["caught_up"] == (page.next_seq == head_seq), "I12", what)
    start = _check_tombstone(topic, ask, page, earliest, what)
    _check_records(topic, ask, page, start, what)


def _check_tombstone(topic: Topic, ask: Ask, page: Page, earliest: int, what: str) -> int:
    """The tombstone, if and only if the cursor lost something; returns where records begin."""
    head_seq, stone = page.fields["head_seq"], page.fields["tombstone"]
    if ask.from_ts is not None:
        start = _start_of_time(topic, ask, head_seq)
        if start < head_seq:
            _check_loss_of_time(topic, ask, stone, what)
        return start
    if ask.from_seq > head_seq or ask.epoch not in (None, topic.epoch):
        check(stone is not None and stone["reason"] == "recreated", "I29", what)
        check((stone["gap_from"], stone["gap_to"]) == (1, head_seq), "I29", what)
        return earliest - 1
    check(page.next_seq >= ask.from_seq, "I12", what)
    if ask.from_seq + 1 < topic.floor(head_seq):
        check(stone is not None, "I9", f"no tombstone, floor {topic.evict_floor}: {what}")
        gap = (stone["gap_from"], stone["gap_to"])
        check(gap == (ask.from_seq + 1, earliest - 1), "I9", what)
        check(stone["reason"] in ("cap", "ttl", "mixed", "crash"), "I9", what)
        start = earliest - 1
    else:
        start = _check_hole(topic, ask, page, what)
    passed = [h for h in topic.holes if start < h[1] and h[0] <= page.next_seq]
    check(not passed, "I9", f"{passed}: {what}")
    return start


def _check_hole(topic: Topic, ask: Ask, page: Page, what: str) -> int:
    stone = page.fields["tombstone"]
    if stone is None:
        return ask.from_seq
    ahead = [hole for hole in topic.holes if hole[1] > ask.from_seq]
    check(bool(ahead), "I9", f"a tombstone for nothing, floor {topic.evict_floor}: {what}")
    first, last = ahead[0]
    check(stone["reason"] in ("crash", "source_trim"), "I9", what)
    check(stone["gap_to"] == last, "I9", f"{ahead[0]}: {what}")
    check(ask.from_seq < stone["gap_from"] <= max(first, ask.from_seq + 1), "I9", what)
    skipped = [seq for seq in topic.records if ask.from_seq < seq < stone["gap_from"]]
    check(not skipped, "I11", f"{skipped}: {what}")
    return last


def _start_of_time(topic: Topic, ask: Ask, head_seq: int) -> int:
    """The cursor before the first live record of that time or later."""
    assert ask.from_ts is not None
    for record in topic.shown(head_seq):
        if record.ts_ms >= ask.from_ts:
            return record.seq - 1
    return head_seq


def _check_loss_of_time(topic: Topic, ask: Ask, stone: Any, what: str) -> None:
    """The times of lost records are unknown: a floor is reported where no older record is left."""
    assert ask.from_ts is not None
    head_seq = topic.head_seq
    has_older = any(r.ts_ms < ask.from_ts for r in topic.shown(head_seq))
    if has_older:
        check(stone is None or bool(topic.holes), "I9", f"a tombstone for nothing: {what}")
    elif topic.evict_floor > 1:
        check(stone is not None, "I9", f"no tombstone, floor {topic.evict_floor}: {what}")


def _check_records(topic: Topic, ask: Ask, page: Page, start: int, what: str) -> None:
    head_seq = page.fields["head_seq"]
    wanted = [r for r in topic.shown(head_seq) if r.seq > start and ask.wants(topic, r)]
    got = len(page.seqs)
    check(got <= ask.limit, "I11", what)
    texts = [r.text(tags=ask.include_tags, meta=ask.include_meta) for r in wanted]
    seqs = [r.seq for r in wanted]
    check(page.seqs == seqs[:got], "I11", f"expected {seqs[: got + 1]}: {what}")
    check(page.text == b",".join(texts[:got]), "I4", f"other bytes: {what}")
    i14_times_do_not_fall(topic.name, texts[:got])
    i28_nobody_reads_its_own(ask.nodes if topic.config.dedupe_node else (), page.fields["records"])
    sizes = [len(r.text()) for r in wanted]
    check(got <= 1 or sum(sizes[:got]) <= ask.budget_bytes, "I11", what)
    if got:
        check(page.next_seq >= seqs[got - 1], "I12", what)
    if got < len(wanted):
        check(page.next_seq < seqs[got], "I11", f"{seqs[got]} skipped: {what}")
    is_over = sum(sizes[: got + 1]) + got + 1 > ask.budget_bytes
    hole_ahead = any(hole[0] > page.next_seq for hole in topic.holes)
    if got < ask.limit and not (is_over and got) and not hole_ahead:
        check(page.next_seq == head_seq, "I11", f"stopped before the head: {what}")


def split_texts(joined: bytes) -> list[bytes]:
    """The bytes of each of some records with commas between them."""
    text, at, out = joined.decode(), 0, []
    decoder = json.JSONDecoder()
    while at < len(text):
        _, end = decoder.raw_decode(text, at)
        out.append(text[at:end].encode())
        at = end + 1
    return out
