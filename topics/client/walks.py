"""What takes several requests: reading a topic, listing topics, appending without end.

A walk says what to ask next and is told the answer; it sends nothing, so both faces walk alike.
"""

import secrets
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, Protocol, TypeVar, Unpack

from topics.client import calls
from topics.client.calls import PAGE_RECORDS, WAIT_MS_MAX, Call
from topics.client.models import (
    Appended,
    AppendedMany,
    Diff,
    RouterSummary,
    Tombstone,
    TopicSummary,
)
from topics.client.options import Config, DiffOptions, PageOptions, WriteOptions, require
from topics.client.plain import Default

R = TypeVar("R")
A = TypeVar("A")
T = TypeVar("T")
I_co = TypeVar("I_co", covariant=True)

BATCH_RECORDS: Final = 1000
BATCH_BYTES: Final = 8 << 20
"""Of the 64 MiB that a server takes by default: a batch is one log frame, and one retry."""


class Walk(Protocol[A, I_co]):
    """Ask `call`, give its answer to `take`, hand on what that returns; None ends the walk."""

    def call(self) -> Call[A] | None: ...

    def take(self, answer: A) -> Sequence[I_co]: ...


class Reader(Generic[R]):
    """Reads a topic page by page from a cursor.

    Without `follow` it ends at the head as the first page saw it, so that a busy writer cannot keep
    it going.  From the first answer on it names the topic's epoch, so that a topic deleted and made
    again is a tombstone and not a silent jump (§3.3).
    """

    def __init__(
        self,
        topic: str,
        record_type: type[R],
        *,
        follow: bool = False,
        wait_ms: int | None = None,
        limit: int | None = None,
        page_records: int = PAGE_RECORDS,
        **page: Unpack[PageOptions],
    ) -> None:
        require(PageOptions, page, "read()")
        self.cursor = page.get("from_seq", 0)
        self.epoch = page.get("epoch")
        self._topic = topic
        self._record_type = record_type
        self._page = page
        self._follow = follow
        self._wait_ms = wait_ms if wait_ms is not None else WAIT_MS_MAX if follow else 0
        if limit == 0:
            # Nothing is handed out, but a topic that is not there is told all the same.
            self._wait_ms = 0
        self._left = limit
        self._page_records = page_records
        self._until_seq: int | None = None
        self._is_done = False

    def call(self) -> Call[Diff[R]] | None:
        if self._is_done:
            return None
        left = self._left
        options: DiffOptions = {
            **self._page,
            **self._where(),
            "epoch": self.epoch,
            "limit": self._page_records if left is None else min(self._page_records, max(left, 1)),
            "wait_ms": self._wait_ms,
        }
        return calls.diff(self._topic, self._record_type, options)

    def _where(self) -> PageOptions:
        """A time says where to begin; from then on the cursor does."""
        if self._until_seq is None and self._page.get("from_ts") is not None:
            return {}
        return {"from_seq": self.cursor, "from_ts": None}

    def take(self, answer: Diff[R]) -> Sequence[R | Tombstone]:
        if self._left == 0:
            self._is_done = True
            return []
        self.cursor = answer.next_from_seq
        self.epoch = answer.epoch or self.epoch
        if self._left is not None:
            self._left -= len(answer.records)
        if self._until_seq is None:
            self._until_seq = answer.head_seq
        at_end = answer.caught_up or self.cursor >= self._until_seq
        self._is_done = self._left == 0 or (at_end and not self._follow)
        return [answer.tombstone, *answer.records] if answer.tombstone else answer.records


class Page(Protocol[I_co]):
    """One page of a list; no `next_cursor` on the last."""

    @property
    def items(self) -> Sequence[I_co]: ...

    @property
    def next_cursor(self) -> str | None: ...


class Lister(Generic[T]):
    """Lists things page by page; `call_of` makes the call for the page at a cursor."""

    def __init__(self, call_of: Callable[[str | None], Call[Page[T]]]) -> None:
        self._call_of = call_of
        self._cursor: str | None = None
        self._is_done = False

    def call(self) -> Call[Page[T]] | None:
        return None if self._is_done else self._call_of(self._cursor)

    def take(self, answer: Page[T]) -> Sequence[T]:
        self._cursor = answer.next_cursor
        self._is_done = answer.next_cursor is None
        return answer.items


def topics(*, prefix: str, page_size: int) -> Lister[TopicSummary]:
    return Lister(lambda at: calls.topics(prefix=prefix, page_size=page_size, cursor=at))


def routers(
    *, prefix: str, source: str | None, dest: str | None, page_size: int
) -> Lister[RouterSummary]:
    return Lister(
        lambda at: calls.routers(
            prefix=prefix, source=source, dest=dest, page_size=page_size, cursor=at
        )
    )


class Batcher:
    """Gathers records into batches, a key to each, and sums up their answers.

    The n-th batch has the key `{key_prefix}{n}`, so the same records in the same batches under the
    same prefix are appended once, however often they are sent within the topic's window (§0.8).
    """

    def __init__(
        self,
        topic: str,
        *,
        batch_records: int = BATCH_RECORDS,
        batch_bytes: int = BATCH_BYTES,
        key_prefix: str | None = None,
        progress: Callable[[Appended], None] | None = None,
        default: Default | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        require(WriteOptions, options, "append_many()")
        require(Config, options.get("config") or {}, "config of an append")
        if batch_records < 1 or batch_bytes < 1:
            raise ValueError("a batch holds at least one record")
        self._topic = topic
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._prefix = f"{secrets.token_hex(8)}-" if key_prefix is None else key_prefix
        self._options = options
        self._progress = progress
        self._default = default
        self._records: list[bytes] = []
        self._size_bytes = 0
        self._batches = 0
        self.total = AppendedMany(topic=topic)

    def add(self, value: Any) -> Call[Appended] | None:
        """Take one value or `NewRecord`; a call where that ends a batch.

        A batch that is full goes at once, not with the value after it: a slow source may not have
        that one for an hour.
        """
        record = calls.encode_record(value, default=self._default)
        too_large = self._size_bytes + len(record) > self._batch_bytes
        call = self.flush() if too_large else None
        self._records.append(record)
        self._size_bytes += len(record) + 1
        # Never both: a batch of one was full, and gone, before this value came.
        return self.flush() if len(self._records) == self._batch_records else call

    def flush(self) -> Call[Appended] | None:
        """A call for what is gathered; None where nothing is."""
        if not self._records:
            return None
        records, self._records, self._size_bytes = self._records, [], 0
        key = f"{self._prefix}{self._batches}"
        self._batches += 1
        return calls.append_batch(self._topic, records, key, self._options)

    def took(self, answer: Appended) -> None:
        """Count one batch's answer."""
        total = self.total
        self.total = AppendedMany(
            topic=total.topic,
            records=total.records + answer.count,
            deduped=total.deduped + (answer.count if answer.deduped else 0),
            batches=total.batches + 1,
            first_seq=total.first_seq or answer.first_seq,
            last_seq=answer.last_seq,
        )
        if self._progress is not None:
            self._progress(answer)
