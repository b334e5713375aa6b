"""Topics of a server, read by its HTTP API.

Owns the pages of a scan (`POST /v0/topics/:topic/diff`, §3): several are asked for at once, each for
seqs of its own, and are given back in order.  `data` and `meta` stay the text that the server sent.

A server shows what is written, and no answer says how far that is durable.  Of class `fsync` it shows
nothing else (§2.3), so a read of durable records by URL is of such topics only.
"""

import secrets
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa

from topics.arrow.columns import GAP, MARKS, PARTITION, schema
from topics.arrow.loss import DELETED, Gap, add_gap
from topics.arrow.source import Bounds, Consistency, NoSuchTopic, NotDurable, Wanted
from topics.client import (
    Client,
    PartitionNotFound,
    PartitionRequired,
    PartitionState,
    Retry,
    TopicNotFound,
    TopicsError,
    TopicState,
)
from topics.client.call import Call
from topics.client.endpoints import topic_path
from topics.nesting import deep
from topics.protocol.model.names import partition_name, partition_of

PAGE_RECORDS: Final = 1000
"""The most that a server gives (§3.1)."""
PAGE_BYTES: Final = 8 << 20
PAGE_BYTES_MIN: Final = 64 << 10
"""Of a page that is read for the sizes of its records: less costs more requests than it spares text."""
_NO_TAG: Final = secrets.token_hex(16)
PATIENCE: Final = Retry()
BEHIND_MS: Final = 5000
BEHIND_MAX: Final = 6
"""How often, and how long, a server is waited for that has less than another one told."""
AHEAD: Final = 4
"""Pages asked for at once: one is decoded while the server makes others."""


_ABSENT: Final = msgspec.Raw()
_MARKS: Final = (b'"$form":', b'"$key":', b'"$time":', b'"$headers":')


class _Record(msgspec.Struct, gc=False):
    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    data: msgspec.Raw
    node: str | None = msgspec.field(name="$node", default=None)
    tag: str | None = msgspec.field(name="$tag", default=None)
    meta: msgspec.Raw = _ABSENT
    form: msgspec.Raw = msgspec.field(name="$form", default=_ABSENT)
    key: msgspec.Raw = msgspec.field(name="$key", default=_ABSENT)
    time: msgspec.Raw = msgspec.field(name="$time", default=_ABSENT)
    headers: msgspec.Raw = msgspec.field(name="$headers", default=_ABSENT)

    @property
    def marks(self) -> bytes | None:
        """The members that a client of Kafka's added, as `columns.ASKED_FIELDS` says."""
        named = zip(_MARKS, (self.form, self.key, self.time, self.headers), strict=True)
        found = [name + bytes(value) for name, value in named if bytes(value)]
        return b"{%b}" % b",".join(found) if found else None


class _Stone(msgspec.Struct):
    gap_from: int
    gap_to: int
    reason: str


class _Page(msgspec.Struct):
    records: list[_Record]
    next_from_seq: int
    head_seq: int
    tombstone: _Stone | None = None


_decode: Final = deep(msgspec.json.Decoder(_Page).decode)


class RemoteSource:
    """The topics of one server.  Implements `source.Source`.

    Raises:
        TopicsError: From every method: the server refused, or could not be reached.
    """

    def __init__(
        self,
        server: str | Client,
        *,
        api_key: str | None = None,
        retry: Retry = PATIENCE,
        ahead: int = AHEAD,
        consistency: Consistency = "visible",
    ) -> None:
        """A client that is given stays its owner's, with its key and its patience.

        Args:
            ahead: Pages asked for at once.
            consistency: `durable` refuses topics of which a power loss could take back what was read.
        """
        self._ahead = ahead
        self._is_durable = consistency == "durable"
        self._owns = isinstance(server, str)
        self._client = (
            Client(server, api_key=api_key, retry=retry) if isinstance(server, str) else server
        )
        self._threads = ThreadPoolExecutor(ahead, "topics-scan")
        self._partitioned: set[str] = set()
        """Topics whose first partition has to be named: a server of before there were partitions knows no
        such field."""

    def __enter__(self) -> "RemoteSource":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._threads.shutdown(cancel_futures=True)
        if self._owns:
            self._client.close()

    @property
    def address(self) -> tuple[str, str | None]:
        """URL and API key of the server, for another process that is to read it."""
        target = self._client.session.target
        return target.url, target.api_key

    def refresh(self) -> None:
        """Every call asks the server anew."""

    def topics(self) -> list[str]:
        return sorted(found.topic for found in self._client.topics())

    def partitions(self, topic: str) -> list[str]:
        with _named(topic):
            state = self._client.topic(topic, touch=False)
        return [partition_name(topic, each.partition) for each in state.partitions] or [topic]

    def _state(self, name: str) -> tuple[TopicState, TopicState | PartitionState]:
        """The state of a topic, and of the partition of this name."""
        topic, number = partition_of(name)
        with _named(name):
            state = self._client.topic(topic, touch=False)
        found = {each.partition: each for each in state.partitions}
        if number and number not in found:
            raise NoSuchTopic(name)
        return state, found.get(number, state)

    def bounds(self, name: str) -> Bounds:
        whole, state = self._state(name)
        if self._is_durable and whole.config.durability != "fsync":
            raise NotDurable(
                f'topic "{whole.topic}" is of class {whole.config.durability}: its server does not say which of '
                "its records are durable; read it by path, or give it the class fsync"
            )
        return Bounds(state.epoch or "", state.head_seq, state.earliest_seq)

    def seek(self, name: str, from_ts: int) -> int:
        page = self._ask(name, {"from_ts": from_ts, "limit": 1})
        return page.records[0].seq if page.records else page.head_seq + 1

    def borders(self, name: str, first_seq: int, last_seq: int) -> list[int]:
        return []

    def text_bytes(self, name: str, first_seq: int, last_seq: int) -> int:
        _, state = self._state(name)
        first, last = max(first_seq, state.earliest_seq), min(last_seq, state.head_seq)
        seqs = state.head_seq - state.earliest_seq + 1
        return state.bytes * max(last - first + 1, 0) // max(seqs, 1)

    def reach(
        self, name: str, first_seq: int, last_seq: int, wanted: Wanted, budget_bytes: int
    ) -> tuple[int, int]:
        """As `Source.reach`.  No answer tells the sizes of records without their text, so this reads it."""
        whole = self._state(name)[1].bytes
        if whole <= budget_bytes:
            return last_seq, whole
        used = 0
        text = replace(wanted, columns=schema(["data", "meta"]))
        page_bytes = min(max(budget_bytes, PAGE_BYTES_MIN), PAGE_BYTES)
        for page, _, last in self._pages(name, first_seq, last_seq, text, page_bytes):
            for record in page.records:
                size = len(bytes(record.data)) + len(bytes(record.meta))
                if record.seq > last:
                    break
                if used + size > budget_bytes:
                    return record.seq - 1, used
                used += size
        return last_seq, used

    def gaps(
        self, name: str, first_seq: int, last_seq: int, *, asof_ms: int, until: int | None = None
    ) -> list[Gap]:
        """As `Source.gaps`: pages of a tag that no record has tell gaps alone."""
        found: list[Gap] = []
        end = last_seq if until is None else max(until, last_seq)
        seq = first_seq
        asked = {"limit": 1, "match": ["tag", "Eq", _NO_TAG], "include_tags": False}
        while seq <= last_seq:
            page = self._ask(name, {**asked, "from_seq": seq - 1})
            gap = _gap(name, page, seq, end)
            if gap is not None and gap.first_seq > last_seq:
                break
            if gap is not None:
                add_gap(found, gap)
            if page.next_from_seq < seq:
                # Another node of a cluster, which has not come as far yet.
                break
            seq = page.next_from_seq + 1
        return found

    def evict_floor(self, name: str) -> int:
        """As `Source.evict_floor`; no answer tells it, but a read behind `from_seq` has a tombstone
        iff `from_seq + 1` is below it, so that a few reads find it."""
        low, high = 0, self.bounds(name).earliest_seq
        while low < high:
            middle = (low + high) // 2
            stone = self._ask(name, {"from_seq": middle, "limit": 1}).tombstone
            if stone is not None and stone.gap_from == middle + 1:
                low = middle + 1
            else:
                high = middle
        return low + 1

    def read(
        self, name: str, first_seq: int, last_seq: int, wanted: Wanted
    ) -> Iterator[pa.RecordBatch | Gap]:
        """As `Source.read`.  Records expire by the server's clock, whatever `asof_ms` is."""
        held: list[_Record] = []
        for page, first, last in self._pages(name, first_seq, last_seq, wanted):
            gap = _gap(name, page, first, last)
            if gap is not None:
                yield from _batches(name, held, wanted)
                held = []
                yield gap
            held += [record for record in page.records if record.seq <= last]
            if len(held) >= wanted.batch_rows:
                whole = len(held) - len(held) % wanted.batch_rows
                yield from _batches(name, held[:whole], wanted)
                held = held[whole:]
        yield from _batches(name, held, wanted)

    def _pages(
        self,
        name: str,
        first_seq: int,
        last_seq: int,
        wanted: Wanted,
        page_bytes: int = PAGE_BYTES,
    ) -> Iterator[tuple[_Page, int, int]]:
        """Pages in order, each with the seqs [first, last] that it was asked for and that it covers.

        Each page in flight has seqs of its own.  How many is learned from the pages before: where
        most records are deleted or left out by a filter, a page reaches far.
        """
        asked = _asked(wanted, page_bytes)
        flying: deque[tuple[Future[_Page], int, int]] = deque()
        reach, begin = PAGE_RECORDS, first_seq
        try:
            while flying or begin <= last_seq:
                while len(flying) < self._ahead and begin <= last_seq:
                    end = min(begin + reach - 1, last_seq)
                    flying.append((self._later(name, asked, begin), begin, end))
                    begin = end + 1
                future, first, last = flying.popleft()
                try:
                    page = future.result()
                except NoSuchTopic:
                    if not wanted.epoch:
                        raise
                    # It was there when its epoch was asked for.
                    gone = _Stone(first, last_seq, DELETED)
                    yield _Page([], last_seq, last_seq, gone), first, last_seq
                    return
                reached = page.next_from_seq
                if page.tombstone is not None and page.tombstone.reason == "recreated":
                    # The seqs of the range were another instance's: none of this one's is meant.
                    whole = _Stone(first, last_seq, "recreated")
                    yield _Page([], last_seq, page.head_seq, whole), first, last_seq
                    return
                if reached < first:
                    page = self._waited_for(name, asked, first)
                    reached = page.next_from_seq
                yield page, first, min(last, reached)
                if reached < last:
                    # By its bytes, or by what the server looks at in one go, the page ended early.
                    reach = max(reached - first + 1, 1)
                    flying.appendleft((self._later(name, asked, reached + 1), reached + 1, last))
                else:
                    reach = max(reached - first + 1, PAGE_RECORDS)
        finally:
            for future, *_ in flying:
                future.cancel()

    def _later(self, name: str, asked: dict[str, Any], first_seq: int) -> "Future[_Page]":
        return self._threads.submit(self._ask, name, {**asked, "from_seq": first_seq - 1})

    def _waited_for(self, name: str, asked: dict[str, Any], first_seq: int) -> _Page:
        """The page from a seq that the topic has, and the server that answered did not: behind a balancer,
        another node of a cluster than the one that told the bounds may answer, and be a moment behind."""
        for _ in range(BEHIND_MAX):
            page = self._ask(name, {**asked, "from_seq": first_seq - 1, "wait_ms": BEHIND_MS})
            if page.next_from_seq >= first_seq:
                return page
        what = f'the server does not have record {first_seq} of topic "{name}" yet, which another told of'
        raise TopicsError("replica_behind", 503, what)

    def _ask(self, name: str, asked: dict[str, Any]) -> _Page:
        topic, partition = partition_of(name)
        if partition or topic in self._partitioned:
            asked = {**asked, "partition": partition}
        call = Call("POST", topic_path(topic, "diff"), _decode, body=orjson.dumps(asked))
        with _named(name):
            try:
                return self._client.session.do(call)
            except PartitionRequired:
                self._partitioned.add(topic)
        return self._ask(name, asked)


@contextmanager
def _named(name: str) -> Iterator[None]:
    """Names the topic in the error of a topic that is not there."""
    try:
        yield
    except (TopicNotFound, PartitionNotFound) as error:
        raise NoSuchTopic(name) from error


def _gap(name: str, page: _Page, first_seq: int, last_seq: int) -> Gap | None:
    stone = page.tombstone
    if stone is None or stone.gap_from > last_seq:
        return None
    return Gap(name, max(stone.gap_from, first_seq), min(stone.gap_to, last_seq), stone.reason)


def _batches(name: str, records: list[_Record], wanted: Wanted) -> Iterator[pa.RecordBatch]:
    for at in range(0, len(records), wanted.batch_rows):
        yield _batch(name, records[at : at + wanted.batch_rows], wanted.columns)


def _batch(name: str, records: list[_Record], columns: pa.Schema) -> pa.RecordBatch:
    topic, partition = partition_of(name)
    makers: dict[str, Any] = {
        "topic": lambda: [topic] * len(records),
        PARTITION: lambda: [partition] * len(records),
        "seq": lambda: [record.seq for record in records],
        "ts": lambda: [record.ts * 1000 for record in records],
        "node": lambda: [record.node for record in records],
        "tag": lambda: [record.tag for record in records],
        "data": lambda: [bytes(record.data) for record in records],
        "meta": lambda: [bytes(r.meta) or None for r in records],
        MARKS: lambda: [r.marks for r in records],
        "_kind": lambda: ["record"] * len(records),
        "_gap": lambda: [None] * len(records),
    }
    arrays = []
    for field in columns:
        made = makers[field.name]()
        if field.name in ("data", "meta", MARKS):
            # Verbatim bytes of a JSON text that the server made: they are UTF-8.
            arrays.append(pa.array(made, pa.binary()).view(pa.string()))
        else:
            arrays.append(pa.array(made, GAP if field.name == "_gap" else field.type))
    return pa.record_batch(arrays, schema=columns)


def _asked(wanted: Wanted, page_bytes: int) -> dict[str, Any]:
    """The body that asks for pages of a scan, but for where they begin."""
    asked: dict[str, Any] = {
        "limit": PAGE_RECORDS,
        "max_batch_bytes": page_bytes,
        "include_tags": not {"tag", MARKS}.isdisjoint(wanted.columns.names),
        "include_meta": not {"meta", MARKS}.isdisjoint(wanted.columns.names),
    }
    if wanted.epoch:
        asked["epoch"] = wanted.epoch
    if wanted.tag is not None:
        asked["match"] = ["tag", "Eq", wanted.tag]
    elif wanted.tag_prefix is not None:
        asked["match"] = ["tag", "Glob", wanted.tag_prefix + "*"]
    if wanted.exclude_nodes:
        asked["node"] = list(wanted.exclude_nodes)
    return asked
