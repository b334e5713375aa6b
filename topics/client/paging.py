"""Reads that take several requests: the records of a topic, and lists.

Owns the cursor from page to page.  Sends nothing: a session sends each call and gives back its
answer.
"""

from collections.abc import Callable, Sequence
from typing import Any, Generic, Protocol, TypeVar, Unpack

from topics.client import endpoints
from topics.client.call import Call
from topics.client.endpoints import PAGE_RECORDS, WAIT_MS_MAX
from topics.client.errors import PartitionRequired, TopicsError
from topics.client.models import (
    ConnectedClient,
    Diff,
    GroupOffset,
    GroupSummary,
    JobInfo,
    RouterSummary,
    ScheduleSummary,
    Tombstone,
    TopicState,
    TopicSummary,
)
from topics.client.names import is_group, is_router, is_schedule, is_topic
from topics.client.options import DiffOptions, PageOptions, require

R = TypeVar("R")
A = TypeVar("A")
T = TypeVar("T")
I_co = TypeVar("I_co", covariant=True)


class Pages(Protocol[A, I_co]):
    """Pages of something: send `call()`, give the answer to `take`, which returns its items.

    None instead of a call says that there are no more pages.  A refusal of a call goes to `refused`.
    """

    def call(self) -> Call[A] | None: ...

    def take(self, answer: A) -> Sequence[I_co]: ...

    def refused(self, error: TopicsError) -> None:
        """Raises the error, unless `call` says now what to ask instead."""


class RecordPages(Generic[R]):
    """The records of a topic, page by page from a cursor.

    Without `follow` it ends at the head as the first page saw it, so that a busy writer cannot keep
    it going.  From the first answer on it names the topic's epoch, so that a topic deleted and made
    again is a tombstone and not a silent jump (§3.3).

    Where the topic turns out to have several partitions and none was asked for, all of them are read, one
    after the other; but not from a cursor, which is one partition's, and not to follow, which would wait
    at the first.
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
            # Nothing is handed out; the one request only finds out whether the topic exists.
            self._wait_ms = 0
        self._left = limit
        self._page_records = page_records
        self._until_seq: int | None = None
        self._is_done = False
        self._asks_partitions = False
        self._taken = page.get("partition")
        self._partitions: list[int] = []
        """Numbers of partitions that are still to be read behind the present one."""

    @property
    def partition(self) -> int | None:
        """Of the records that were taken last; None: the topic has one."""
        return self._taken

    @property
    def has_more_partitions(self) -> bool:
        """Whether those of others follow."""
        return bool(self._partitions)

    def refused(self, error: TopicsError) -> None:
        """The page was not given; raises the error, unless there is a call that may do instead."""
        is_whole = not (self.cursor or self.epoch or self._follow or self._wait_ms)
        if not isinstance(error, PartitionRequired) or not is_whole:
            raise error
        self._asks_partitions = True

    def call(self) -> Call[Any] | None:
        if self._is_done:
            return None
        if self._asks_partitions:
            return endpoints.topic(self._topic, touch=False)
        left = self._left
        options: DiffOptions = {
            **self._page,
            **self._where(),
            "epoch": self.epoch,
            "limit": self._page_records if left is None else min(self._page_records, max(left, 1)),
            "wait_ms": self._wait_ms,
        }
        return endpoints.diff(self._topic, self._record_type, options)

    def _where(self) -> PageOptions:
        """The place of the next page: at first `from_ts`, if it was given, and then the cursor."""
        if self._until_seq is None and self._page.get("from_ts") is not None:
            return {}
        return {"from_seq": self.cursor, "from_ts": None}

    def take(self, answer: Diff[R] | TopicState) -> Sequence[R | Tombstone]:
        if isinstance(answer, TopicState):
            self._asks_partitions = False
            self._partitions = [each.partition for each in answer.partitions] or [0]
            self._begin_partition()
            return []
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
        self._taken = self._page.get("partition")
        if self._is_done and self._left != 0 and self._partitions:
            self._begin_partition()
        return [answer.tombstone, *answer.records] if answer.tombstone else answer.records

    def _begin_partition(self) -> None:
        self._page = {**self._page, "partition": self._partitions.pop(0)}
        self.cursor, self.epoch, self._until_seq, self._is_done = 0, None, None, False


class Page(Protocol[I_co]):
    """One page of a list; no `next_cursor` on the last."""

    @property
    def items(self) -> Sequence[I_co]: ...

    @property
    def next_cursor(self) -> str | None: ...


class ListPages(Generic[T]):
    """A list, page by page.

    Args:
        call_of: Makes the call for the page at a cursor.
        is_named: Whether an item has names that the contract allows (`names`); another is left out.
    """

    def __init__(
        self, call_of: Callable[[str | None], Call[Page[T]]], is_named: Callable[[T], bool]
    ) -> None:
        self._call_of = call_of
        self._is_named = is_named
        self._cursor: str | None = None
        self._is_done = False

    def call(self) -> Call[Page[T]] | None:
        return None if self._is_done else self._call_of(self._cursor)

    def refused(self, error: TopicsError) -> None:
        raise error

    def take(self, answer: Page[T]) -> Sequence[T]:
        self._cursor = answer.next_cursor
        self._is_done = answer.next_cursor is None
        return list(filter(self._is_named, answer.items))


def topics(*, prefix: str, page_size: int) -> ListPages[TopicSummary]:
    return ListPages(
        lambda at: endpoints.topics(prefix=prefix, page_size=page_size, cursor=at),
        lambda item: is_topic(item.topic),
    )


def latest(topic: str, record_type: type[R], *, prefix: str, include_meta: bool) -> ListPages[R]:
    return ListPages(
        lambda at: endpoints.latest(
            topic, record_type, prefix=prefix, include_meta=include_meta, cursor=at
        ),
        lambda _: True,
    )


def routers(
    *, prefix: str, source: str | None, dest: str | None, page_size: int
) -> ListPages[RouterSummary]:
    return ListPages(
        lambda at: endpoints.routers(
            prefix=prefix, source=source, dest=dest, page_size=page_size, cursor=at
        ),
        lambda item: is_router(item.router) and is_topic(item.source) and is_topic(item.dest),
    )


def schedules(*, prefix: str, topic: str | None, page_size: int) -> ListPages[ScheduleSummary]:
    return ListPages(
        lambda at: endpoints.schedules(prefix=prefix, topic=topic, page_size=page_size, cursor=at),
        lambda item: is_schedule(item.schedule) and is_topic(item.topic),
    )


def jobs(queue: str, *, state: str | None, group: str | None, page_size: int) -> ListPages[JobInfo]:
    return ListPages(
        lambda at: endpoints.jobs(queue, state=state, group=group, limit=page_size, after=at),
        lambda _: True,
    )


def clients(*, topic: str | None, page_size: int) -> ListPages[ConnectedClient]:
    return ListPages(
        lambda at: endpoints.clients(topic=topic, limit=page_size, after=at),
        lambda item: all(is_topic(each.topic) for each in item.topics),
    )


def groups(*, prefix: str, page_size: int) -> ListPages[GroupSummary]:
    return ListPages(
        lambda at: endpoints.groups(prefix=prefix, page_size=page_size, cursor=at),
        lambda item: is_group(item.group),
    )


def group_offsets(group: str, *, page_size: int) -> ListPages[GroupOffset]:
    return ListPages(
        lambda at: endpoints.group(group, page_size=page_size, cursor=at),
        lambda item: is_topic(item.topic),
    )
