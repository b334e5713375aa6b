"""Whether a batch may come in, and what it becomes: caps, quotas, keys, eviction, seqs, bytes.

Reads the state, and refuses or returns the event with every outcome in it (§2).  It changes nothing.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.batches.records import NAMED_MAX
from topics.protocol.commit.copies import Copies
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import Append
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import Cause, Floors, RecordsAppended, TopicCreated
from topics.protocol.model.limits import Limits, throttled
from topics.protocol.model.marks import forms_of
from topics.protocol.model.records import HAS_KEY, Batch, PackedBatch
from topics.protocol.model.render import render_batch
from topics.protocol.state.floors import floors_with
from topics.protocol.state.hot_memory import hot_bytes_of
from topics.protocol.state.hot_run import HOT_ROW_BYTES, STRING_BYTES
from topics.protocol.state.state import State
from topics.protocol.state.topic import NOTHING_REMOVED, RESERVE_FIRST, Removal, Topic

FRAME_BYTES: Final = 4096
"""Room that a frame's head and its batch's header may take, beside columns and text."""
_ID_BYTES: Final = 9
"""A topic's id in a frame, at most."""
_ROW_BYTES: Final = 32
"""Room that one record's columns may take in a frame, tag and node aside."""


class Admission:
    """What stands between an append and the log: caps, quotas, limits.

    Decides and changes nothing.  Time has passed for the topic before (`UnitOfWork.expire`,
    `let_leases_end`).
    """

    def __init__(self, limits: Limits, state: State) -> None:
        self.limits = limits
        self.state = state
        strings_bytes = 2 * STRING_BYTES + 4 * (limits.max_tag_bytes + limits.max_node_bytes)
        self._row_bytes_max = HOT_ROW_BYTES + strings_bytes

    def creation(self, name: str, config: TopicConfig, now_ms: int) -> TopicCreated:
        """The event of a new topic.

        Raises:
            Rejection: There are too many topics; or what it is, or is named for, it cannot be with its partitions.
        """
        require_log(config)
        self.require_topics(config.partition_count)
        self.require_whole(name, config)
        return TopicCreated(now_ms, self.state.next_topic_id, name, config, RESERVE_FIRST)

    def require_topics(self, more: int) -> None:
        """Raises Rejection: 429 where there may not be so many more topics, partitions counted as such."""
        limit = self.limits.max_topics
        count = len(self.state.topics) - len(self.state.done)
        if limit and more and count + more > limit:
            raise throttled("max_topics", limit)

    def require_no_ring(self, name: str, config: TopicConfig, caller: Caller) -> None:
        """Raises Rejection: 400 where dead letters of a queue would come back to it; `detail.cycle` has the names
        that the caller may see."""
        if config.type != "queue" or config.dead_letter is None:
            return
        ring = [name, *self.letters_of(config.dead_letter)]
        if name in ring[1:]:
            ring = ring[: ring.index(name, 1) + 1]
            raise Rejection(
                ErrorCode.INVALID_REQUEST,
                f"dead letters would go round in a ring of {len(ring) - 1} queues - at `$.dead_letter`",
                {"cycle": [each for each in ring if caller.covers(each)]},
            )

    def letters_of(self, name: str) -> Iterator[str]:
        """A name, and where dead letters go from there, one topic after the other; each once."""
        seen = set[str]()
        while name and name not in seen:
            yield name
            seen.add(name)
            topic = self.state.topics.get(name)
            is_queue = topic is not None and topic.config.type == "queue"
            name = topic.config.dead_letter or "" if topic is not None and is_queue else ""

    def is_in_ring(self, topic: Topic) -> bool:
        """Whether dead letters of a queue come back to it.  No `PUT` closes such a ring; one that an older version
        let in is there still."""
        letters = topic.config.dead_letter
        return letters is not None and any(each == topic.name for each in self.letters_of(letters))

    def require_whole(self, name: str, config: TopicConfig) -> None:
        """Raises Rejection: 409 where a queue, an end of a router or a dead-letter topic would have several
        partitions."""
        state = self.state
        is_queue = config.type == "queue"
        letters = state.topics.get(config.dead_letter or "") if is_queue else None
        if letters is not None and letters.others:
            raise partitioned(letters.name, "takes no dead letters")
        topic = state.topics.get(name)
        if config.partition_count == 1 or (topic is not None and topic.others):
            return
        if is_queue:
            raise partitioned(name, "is no queue")
        if topic is not None and state.routers.of(topic.topic_id):
            raise partitioned(name, "is no end of a router")
        if any(state.by_id[each].config.dead_letter == name for each in state.queues):
            raise partitioned(name, "takes no dead letters")

    def appended(
        self,
        topic: Topic,
        command: Append,
        now_ms: int,
        beside: Sequence[RecordsAppended] = (),
        cause: Cause | None = None,
        leaving: Sequence[int] = (),
    ) -> tuple[RecordsAppended, int]:
        """The event of a batch, and the room it may need in the log.

        Args:
            beside: Events of the same append in other partitions, which are not true yet.
            cause: What else becomes true with it.
            leaving: Live records, ascending, that an event right behind it removes: they take no room.
        """
        n, config = len(command.datas), topic.config
        if config.discard == "reject" and config.cap_records:
            count = topic.count - len(leaving) + n
            self._require_space(topic, "cap_records", count, config.cap_records)
        key = self.admitted_key(topic, command) if command.key else b""
        first_seq, ts_ms = topic.head_seq + 1, max(now_ms, topic.last_ts_ms)
        batch = None
        if command.draft is not None:
            batch = command.draft.batch(first_seq, ts_ms, command.nodes, command.tags)
            if batch is not None and command.marks is not None:
                batch = msgspec.structs.replace(batch, form=forms_of(command.marks))
        if batch is None:
            batch = render_batch(
                command.datas,
                first_seq=first_seq,
                ts_ms=ts_ms,
                nodes=command.nodes,
                tags=command.tags,
                metas=command.metas,
                marks=command.marks,
            )
        pressed = not command.disable_backpressure
        return self._event(
            topic,
            batch,
            now_ms,
            key=key,
            pressed=pressed,
            cause=cause,
            beside=beside,
            leaving=leaving,
        )

    def batched(
        self, topic: Topic, batch: Batch | PackedBatch, now_ms: int
    ) -> tuple[RecordsAppended, int]:
        """The event of a batch that is the topic's next records already."""
        cap = topic.config.cap_records
        if topic.config.discard == "reject" and cap:
            self._require_space(topic, "cap_records", topic.count + len(batch), cap)
        return self._event(topic, batch, now_ms)

    def copied(
        self,
        topic: Topic,
        copies: Copies,
        now_ms: int,
        *,
        cause: Cause | None,
        freed_bytes: int = 0,
    ) -> tuple[RecordsAppended, int]:
        """The event of copies (§6.1, §10.6): the destination's config governs as for any append.

        Args:
            freed_bytes: Text that leaves another topic with the same event.
        """
        n, config = len(copies), topic.config
        if config.discard == "reject" and config.cap_records:
            self._require_space(topic, "cap_records", topic.count + n, config.cap_records)
        batch = copies.render(topic.head_seq + 1, max(now_ms, topic.last_ts_ms))
        return self._event(topic, batch, now_ms, cause=cause, freed_bytes=freed_bytes)

    def _event(
        self,
        topic: Topic,
        batch: Batch | PackedBatch,
        now_ms: int,
        *,
        key: bytes = b"",
        pressed: bool = True,
        cause: Cause | None = None,
        freed_bytes: int = 0,
        beside: Sequence[RecordsAppended] = (),
        leaving: Sequence[int] = (),
    ) -> tuple[RecordsAppended, int]:
        n, config, size_bytes = len(batch), topic.config, batch.weight
        if config.is_compacted and isinstance(batch, Batch):
            require_keys(topic, unkeyed_of(batch.tags, batch.form, len(batch)))
        left_bytes = topic.text_of(leaving) if leaving else 0
        count, total_bytes = topic.count + n, topic.size_bytes + size_bytes
        if config.discard == "reject" and config.cap_bytes:
            self._require_space(topic, "cap_bytes", total_bytes - left_bytes, config.cap_bytes)
        volatile = not topic.durability.is_logged
        if pressed or volatile:
            self._require_hot_room(topic, batch, sum(hot_bytes_of(each.batch) for each in beside))
        floors, gone = topic.floors, NOTHING_REMOVED
        if config.discard == "old" and (config.cap_records or config.cap_bytes):
            kept, kept_bytes = count - len(leaving), total_bytes - left_bytes
            floors, gone = self._evicted(topic, batch, kept, kept_bytes, leaving)
            passed = leaving[: bisect_right(leaving, gone.through)]
            if passed:  # the floor takes them along
                count -= len(passed)
                total_bytes -= topic.text_of(passed)
        if self.limits.max_total_bytes:
            beside_bytes = sum(each.batch.weight for each in beside)
            freed_bytes += left_bytes + gone.size_bytes
            self._require_quota(size_bytes + beside_bytes - freed_bytes)
        event = RecordsAppended(
            now_ms=now_ms,
            topic_id=topic.topic_id,
            first_seq=topic.head_seq + 1,
            batch=batch,
            floors=floors,
            count=count - gone.records,
            size_bytes=total_bytes - gone.size_bytes,
            reserved_through=topic.reserve_for(topic.head_seq + n),
            key=key,
            cause=cause,
        )
        log_bytes = len(batch.text) + n * _ROW_BYTES + FRAME_BYTES
        if batch.tags is not None or batch.nodes is not None:
            log_bytes += _strings_bytes(batch.tags) + _strings_bytes(batch.nodes)
        return event, log_bytes

    def admitted_key(self, topic: Topic, command: Append) -> bytes:
        """The digest that is remembered.  Raises Rejection: 429 where there are too many."""
        if not topic.config.idempotency_window_ms:
            return b""
        limit = self.limits.max_idempotency_keys
        if limit and self.state.keys.count >= limit:
            raise throttled("max_idempotency_keys", limit)
        return command.key

    @staticmethod
    def _require_space(topic: Topic, cap: str, wanted: int, limit: int) -> None:
        if wanted > limit:
            raise Rejection(
                ErrorCode.TOPIC_FULL,
                f'topic "{topic.name}" is full: {cap} is {limit}',
                {"topic": topic.name, "limit": cap, "max": limit},
            )

    def _require_quota(self, more_bytes: int) -> None:
        limit = self.limits.max_total_bytes
        if more_bytes > 0 and self.state.total_bytes + more_bytes > limit:
            raise throttled("max_total_bytes", limit)

    def _evicted(
        self,
        topic: Topic,
        batch: Batch | PackedBatch,
        count: int,
        size_bytes: int,
        leaving: Sequence[int],
    ) -> tuple[Floors, Removal]:
        """What a batch pushes out (`discard: "old"`): the oldest live records, and its own first
        ones where it is larger than the cap; never its last.

        Args:
            count: Of the records that there would be with it, but for those that leave.
            size_bytes: Of their text.
        """
        config = topic.config
        records = count - config.cap_records if config.cap_records else 0
        too_many_bytes = size_bytes - config.cap_bytes if config.cap_bytes else 0
        if records <= 0 and too_many_bytes <= 0:
            return topic.floors, NOTHING_REMOVED
        # A leased job is never evicted: its worker may be half done with it.
        held = self.first_held(topic)
        before_seq = held or topic.head_seq + 1
        old = topic.eviction(records, too_many_bytes, before_seq=before_seq, leaving=leaving)
        gone = old or NOTHING_REMOVED
        if held is not None:
            self._require_leased_room(topic, count - gone.records, size_bytes - gone.size_bytes)
            return floors_with(topic.floors, cap_through=gone.through), gone
        if gone.records < records or gone.size_bytes < too_many_bytes:
            own = _own_eviction(batch, records - gone.records, too_many_bytes - gone.size_bytes)
            if own:
                sizes = int(batch.weights(own).sum(dtype=np.int64))
                gone = Removal(topic.head_seq + own, gone.records + own, gone.size_bytes + sizes)
        return floors_with(topic.floors, cap_through=gone.through), gone

    def first_held(self, topic: Topic) -> int | None:
        """The first job of a queue under a live lease: eviction stops there."""
        queue = self.state.queues.get(topic.topic_id)
        return None if queue is None else queue.first_held()

    def _require_leased_room(self, topic: Topic, count: int, size_bytes: int) -> None:
        """Jobs that a live lease keeps from eviction may exceed a cap, up to twice it."""
        config = topic.config
        for cap, limit, wanted in (
            ("cap_records", config.cap_records, count),
            ("cap_bytes", config.cap_bytes, size_bytes),
        ):
            if limit and wanted > 2 * limit:
                raise Rejection(
                    ErrorCode.TOPIC_FULL,
                    f'topic "{topic.name}" is full: leased jobs keep it over twice its {cap}',
                    {"topic": topic.name, "limit": cap, "max": limit, "reason": "leased"},
                )

    def _require_hot_room(
        self, topic: Topic, batch: Batch | PackedBatch, beside_bytes: int
    ) -> None:
        """Memory for unsealed records is bounded: what seals too slowly, or cannot be sealed and
        may not be evicted, pushes back.  What may be evicted is evicted once the write is in
        (`commit.memory_eviction`)."""
        memory, limit = self.state.memory, self.limits.max_hot_bytes
        noted_bytes = self.state.queues.noted.size_bytes
        held = memory.logged_bytes + memory.volatile_bytes + beside_bytes + noted_bytes
        if held + len(batch.text) + len(batch) * self._row_bytes_max <= limit:
            return
        need = hot_bytes_of(batch)
        over = held + need - limit
        if over <= 0:
            return
        volatile = not topic.durability.is_logged
        if volatile and topic.config.discard == "old":
            # What other topics hold may be protected from eviction; the topic's own records are not.
            others = memory.total_bytes - topic.volatile_bytes + beside_bytes + noted_bytes
            refused = memory.total_bytes + noted_bytes > limit < others + need
        else:
            others = memory.total_bytes if volatile else memory.logged_bytes
            refused = over > memory.volatile_bytes - memory.firm_bytes - limit // 2
        if refused and others:
            raise throttled("max_hot_bytes", limit)


def partitioned(name: str, what: str) -> Rejection:
    """409: of what has to be in one order, there is one log."""
    return Rejection(
        ErrorCode.PARTITIONED,
        f'topic "{name}" {what}: with more than one partition it has no order of its own',
        {"topic": name},
    )


def creation_bytes(config: TopicConfig) -> int:
    """Room that the events of a new topic, or config, and its partitions may take in the log."""
    count = config.partition_count
    return FRAME_BYTES + (FRAME_BYTES + count * _ID_BYTES if count > 1 else 0)


def unkeyed_of(
    tags: Sequence[str | None] | None, form: NDArray[np.uint8] | None, count: int
) -> list[int]:
    """Which of some records, by their columns, have neither a tag nor another key."""
    tags = tags or [None] * count
    return [
        nth
        for nth, tag in enumerate(tags)
        if tag is None and (form is None or not form[nth] & HAS_KEY)
    ]


def require_keys(topic: Topic, unkeyed: Sequence[int]) -> None:
    """Raises Rejection: 422 where records that have no key are for a compacted topic (§2)."""
    if unkeyed and topic.config.is_compacted:
        raise Rejection(
            ErrorCode.KEY_REQUIRED,
            f'topic "{topic.name}" is compacted: each record needs a tag or a key',
            {"topic": topic.name, "records": [*unkeyed[:NAMED_MAX]]},
        )


def require_log(config: TopicConfig) -> None:
    """Raises Rejection: 400 for a compacted queue, of which a newer job would take another's place."""
    if config.type == "queue" and config.is_compacted:
        raise Rejection(
            ErrorCode.INVALID_REQUEST, "a queue is not compacted: `compact` is for logs"
        )


def _strings_bytes(texts: str | Sequence[str | None] | None) -> int:
    """An upper bound of what strings take in a frame."""
    if texts is None or isinstance(texts, str):
        return 4 * len(texts or "")
    return sum(4 * len(t or "") + 5 for t in texts)


def _own_eviction(batch: Batch | PackedBatch, records: int, size_bytes: int) -> int:
    """How many of a batch's own first records go so that the rest fits; the last one stays."""
    take = max(records, 0)
    if size_bytes > 0:
        sizes = np.cumsum(batch.weights(len(batch)), dtype=np.int64)
        take = max(take, int(sizes.searchsorted(size_bytes, "left")) + 1)
    return min(take, len(batch) - 1)
