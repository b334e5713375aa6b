"""Topic commands: create, configure, show, list and delete topics (§1); and what a topic's readers
see of it."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from msgspec import UNSET
from msgspec.structs import replace

from topics.protocol.commit.admission import FRAME_BYTES, creation_bytes, require_log
from topics.protocol.commit.unit_of_work import UnitOfWork, no_such_topic
from topics.protocol.decide.ended_jobs import reconfigured
from topics.protocol.decide.pages import page_of
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import (
    AddPartitions,
    DeleteTopic,
    DescribeTopics,
    GetTopic,
    ListTopics,
    PutTopic,
)
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import TopicConfigured, TopicDeleted
from topics.protocol.model.fetched import TopicFacts, TopicsDescribed
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import (
    Gate,
    JobCounts,
    LostLately,
    Outcome,
    PartitionView,
    TopicDropped,
    TopicFigures,
    TopicPut,
    TopicShown,
    TopicsListed,
    TopicSummary,
    TopicView,
)
from topics.protocol.state.floors import floors_with
from topics.protocol.state.losses import Lost
from topics.protocol.state.topic import NOTHING_REMOVED, Topic

PRIORITY_FRESH: Final = 1000
PRIORITY_HALF_LIFE_MS: Final = 60_000
DELETED_BYTES: Final = 64
"""The event of one partition's deletion, at most."""


class TopicCommands:
    """Topics of one engine.

    Args:
        configured: Called for a topic that has another config.
        dropped: Called for a topic that was deleted, with the last head that it showed.
    """

    def __init__(
        self,
        unit: UnitOfWork,
        *,
        configured: Callable[[Topic], None],
        dropped: Callable[[Topic], None],
    ) -> None:
        self._unit = unit
        self._state = unit.state
        self._on_configured = configured
        self._dropped = dropped
        self.commands: dict[type, Callable[[Any, Moment], Outcome]] = {
            PutTopic: self._put,
            GetTopic: self._get,
            ListTopics: self._list,
            DescribeTopics: self._describe,
            DeleteTopic: self._delete,
            AddPartitions: self._add_partitions,
        }

    def _put(self, command: PutTopic, moment: Moment) -> TopicPut:
        """§1.1: create, or replace the config; an identical one changes nothing."""
        topic = self._state.topics.get(command.topic)
        config, previous = command.config, command.previous
        if topic is None:
            if previous:
                raise no_such_topic(command.topic)
            self._unit.admission.require_no_ring(command.topic, config, command.caller)
            self._unit.require_writable(moment, creation_bytes(config))
            self._unit.create(self._unit.admission.creation(command.topic, config, moment.now_ms))
            return _put(command.topic, config, created=True)
        if not command.type_given:
            config = replace(config, type=topic.config.type)
        if config.partitions is UNSET and topic.others:
            config = replace(config, partitions=topic.config.partitions)
        if config.type != topic.config.type:
            raise Rejection(
                ErrorCode.TOPIC_EXISTS_INCOMPATIBLE,
                f'topic "{topic.name}" is a {topic.config.type}; its type cannot change',
                {"topic": topic.name, "type": topic.config.type},
            )
        require_log(config)
        if config == topic.config or (previous is not UNSET and previous != topic.config):
            return _put(topic.name, topic.config, created=False)
        if config.dead_letter != topic.config.dead_letter:
            self._unit.admission.require_no_ring(topic.name, config, command.caller)
        self._require_more(topic, config)
        self._configure(topic, config, moment)
        return _put(topic.name, config, created=False)

    def _add_partitions(self, command: AddPartitions, moment: Moment) -> TopicPut:
        """More partitions, and nothing else of the config is another."""
        topic = self._unit.topic(command.topic, moment.now_ms)
        config = replace(topic.config, partitions=command.partitions)
        if config.partition_count == len(topic.partitions):
            raise _no_fewer(topic, config.partition_count)
        self._require_more(topic, config)
        if not command.is_dry:
            self._configure(topic, config, moment)
        return _put(topic.name, config, created=False)

    def _require_more(self, topic: Topic, config: TopicConfig) -> None:
        """Raises Rejection: the topic cannot have the partitions of a config."""
        more = config.partition_count - len(topic.partitions)
        if more < 0:
            raise _no_fewer(topic, config.partition_count)
        self._unit.admission.require_topics(more)
        self._unit.admission.require_whole(topic.name, config)

    def _configure(self, topic: Topic, config: TopicConfig, moment: Moment) -> None:
        """All partitions in one entry of the log.  The event of the first changes all; another has one of its own,
        before it, where the config takes records, or says how they are kept."""
        unit, now_ms, old = self._unit, moment.now_ms, topic.config
        others = [each for each in topic.others if self._is_affected(each, config)]
        more = len(others) + (topic.topic_id in self._state.done)
        unit.require_writable(moment, creation_bytes(config) + more * FRAME_BYTES)
        promised = topic.durability.waits_for_sync
        for each in topic.partitions:
            unit.expire(each, now_ms)
            if config.durability_class.is_logged:
                unit.leave_memory(each, now_ms)
        # The event of the first has those of Kafka's, which may be long.
        bare = replace(config, kafka_configs=UNSET)
        for each in others:
            unit.emit(self._configured(each, bare, now_ms))
        configured = self._configured(topic, config, now_ms)
        unit.emit(configured, log_bytes=creation_bytes(config))
        self._configure_done(topic, configured, now_ms)
        for each in topic.partitions:
            if promised:
                # Until the new class is durable a power loss may bring the old one back, under which
                # no seq is skipped: what is shown meanwhile must be as durable as it promises.
                unit.publication.hold_back(each)
            if config.ttl_ms != old.ttl_ms:
                unit.expire(each, now_ms)
        unit.add_partitions(topic, now_ms)
        self._on_configured(topic)

    def _configure_done(self, queue: Topic, configured: TopicConfigured, now_ms: int) -> None:
        """What became of a queue's jobs is kept as its new config says."""
        done = self._state.done.get(queue.topic_id)
        if done is None:
            return
        unit, promised = self._unit, done.durability.waits_for_sync
        unit.expire(done, now_ms)
        if configured.config.durability_class.is_logged:
            unit.leave_memory(done, now_ms)
        event = reconfigured(done, configured, now_ms)
        if event is not None:
            unit.emit(event)
            if promised:
                unit.publication.hold_back(done)
            unit.expire(done, now_ms)

    @staticmethod
    def _is_affected(topic: Topic, config: TopicConfig) -> bool:
        old, classes = topic.config, (topic.durability, config.durability_class)
        return (
            old.ttl_ms != config.ttl_ms
            or old.discard != config.discard
            or not all(each.is_logged for each in classes)
            or 0 < config.cap_records < topic.count
            or 0 < config.cap_bytes < topic.size_bytes
        )

    def _configured(self, topic: Topic, config: TopicConfig, now_ms: int) -> TopicConfigured:
        """Tightened caps evict at once; the newest record stays, and what a live lease holds."""
        evicted = None
        if config.discard == "old":
            self._unit.let_leases_end(topic)
            held = self._unit.admission.first_held(topic)
            evicted = topic.eviction(
                topic.count - config.cap_records if config.cap_records else 0,
                topic.size_bytes - config.cap_bytes if config.cap_bytes else 0,
                before_seq=topic.head_seq if held is None else min(held, topic.head_seq),
            )
        gone = evicted or NOTHING_REMOVED
        return TopicConfigured(
            now_ms,
            topic.topic_id,
            config,
            topic.head_seq,
            floors_with(topic.floors, cap_through=gone.through),
            topic.count - gone.records,
            topic.size_bytes - gone.size_bytes,
        )

    def _get(self, command: GetTopic, moment: Moment) -> TopicShown:
        """§1.2."""
        topic = self._unit.topic(command.topic, moment.now_ms)
        for each in topic.others:
            self._unit.expire(each, moment.now_ms)
        view = self._view(topic, moment.now_ms, command.caller)
        shown = TopicShown(view, _segments(topic), _lost(topic, moment.now_ms))
        if command.touch:
            note_read(topic, moment.now_ms)
        return shown

    def _list(self, command: ListTopics, moment: Moment) -> TopicsListed:
        """§1.3."""
        size = command.page_size
        page = page_of(self._state.names, command.caller, command.prefix, command.after, size + 1)
        shown, is_last = page[:size], len(page) <= size
        summaries = self._summaries(shown, moment.now_ms)
        if command.touch:
            for name in shown:
                note_read(self._state.topics[name], moment.now_ms)
        return TopicsListed(summaries, None if is_last else shown[-1])

    def _describe(self, command: DescribeTopics, moment: Moment) -> TopicsDescribed:
        """Topics by their names or epochs, or a page of all that the caller may see."""
        state, names, next_after = self._state, list(command.names), None
        if command.after is not None:
            size = command.page_size
            names = page_of(state.names, command.caller, "", command.after, size + 1)
            if len(names) > size:
                names.pop()
                next_after = names[-1]
        found = [state.topics[name] for name in names if name in state.topics]
        for epoch in command.epochs:
            topic = state.by_id.get(int(epoch.rpartition("-")[2], 16))
            if topic is None or topic.epoch != epoch or topic.partition:
                continue
            if command.caller.covers(topic.name):
                found.append(topic)
        facts = [
            TopicFacts(each.engine_name, each.epoch, each.config, each.shown()[1]) for each in found
        ]
        return TopicsDescribed(facts, state.history, next_after)

    def _summaries(self, names: Sequence[str], now_ms: int) -> list[TopicSummary]:
        # Of a thousand topics, most are in no cache of the CPU: what is made of a topic is kept.
        topics, found = self._state.topics, list[TopicSummary]()
        for name in names:
            topic = topics[name]
            config = topic.config
            if config.ttl_ms:
                for each in topic.partitions:
                    self._unit.expire(each, now_ms)
            figures = topic.figures
            if figures is None:
                figures = topic.figures = figures_of(topic)
            jobs = None
            if config.type == "queue":
                jobs = self._job_counts(topic, figures.count, now_ms)
            found.append(TopicSummary(figures, effective_priority(topic, now_ms), jobs))
        return found

    def _view(self, topic: Topic, now_ms: int, caller: Caller) -> TopicView:
        parts = [partition_view(each) for each in topic.partitions]
        count = sum(each.count for each in parts)
        config = topic.config
        if config.dead_letter is not None and not caller.covers(config.dead_letter):
            config = replace(config, dead_letter=None)
        return TopicView(
            name=topic.name,
            config=config,
            epoch=topic.epoch,
            head_seq=topic.published_seq,
            earliest_seq=parts[0].earliest_seq,
            count=count,
            size_bytes=sum(each.size_bytes for each in parts),
            disk_bytes=sum(each.runs.disk_bytes for each in topic.partitions),
            priority=effective_priority(topic, now_ms),
            last_write_ms=_last(each.last_write_ms for each in topic.partitions),
            last_read_ms=topic.last_read_ms,
            jobs=self._job_counts(topic, count, now_ms),
            partitions=parts if topic.others else (),
        )

    def _job_counts(self, topic: Topic, count: int, now_ms: int) -> JobCounts | None:
        """Where the `count` jobs of a queue are (§10.7); None of a log."""
        queue = self._state.queues.get(topic.topic_id)
        if queue is None:
            return None
        queue.settle(now_ms)
        return JobCounts(
            # A cluster's replica knows the leases of an ephemeral queue, and not its records.
            ready=max(count - queue.in_flight - queue.delayed, 0),
            in_flight=queue.in_flight,
            delayed=queue.delayed,
            blocked=0 if queue.backlog is None else queue.backlog.order.blocked,
            expired=queue.expired,
            damaged=queue.damaged,
            dead_lettered=queue.dead_lettered,
        )

    def _delete(self, command: DeleteTopic, moment: Moment) -> TopicDropped:
        """§1.4."""
        topic = self._state.topics.get(command.topic)
        if topic is None:
            # What this repeats may still be on its way to the disk.
            return TopicDropped(command.topic, False, (), gate=Gate.SYNCED)
        partitions = topic.partitions
        for each in partitions:
            self._unit.expire(each, moment.now_ms)
        count = sum(each.count for each in partitions)
        if command.if_empty and count:
            raise Rejection(
                ErrorCode.TOPIC_NOT_EMPTY,
                f'topic "{topic.name}" holds {count} records',
                {"topic": topic.name, "count": count},
            )
        size_bytes = FRAME_BYTES + (1 + len(partitions)) * DELETED_BYTES
        self._unit.require_writable(moment, size_bytes, reserve=True)
        routers = [
            router.name
            for router in self._state.routers.of(topic.topic_id)
            if command.caller.covers_all(*router.names)
        ]
        done = self._state.done.get(topic.topic_id)
        if done is not None:
            partitions = [*partitions, done]
        for each in reversed(partitions):
            deleted = TopicDeleted(moment.now_ms, each.topic_id)
            self._unit.emit(deleted, log_bytes=DELETED_BYTES if each.partition else FRAME_BYTES)
            self._unit.publication.drop(each)
            self._dropped(each)
        return TopicDropped(command.topic, True, routers, gate=Gate.SYNCED, is_logged=True)


def _put(name: str, config: TopicConfig, *, created: bool) -> TopicPut:
    """An identical `PUT` waits too: what it repeats may still be on its way to the disk."""
    return TopicPut(name, config, created, gate=Gate.SYNCED, is_logged=True)


def _no_fewer(topic: Topic, asked: int) -> Rejection:
    count = len(topic.partitions)
    return Rejection(
        ErrorCode.TOPIC_EXISTS_INCOMPATIBLE,
        f'topic "{topic.name}" has {count} partitions and cannot have {asked}: their number only grows',
        {"topic": topic.name, "partitions": count},
    )


def _last(times: Iterable[int | None]) -> int | None:
    return max((each for each in times if each is not None), default=None)


def _segments(topic: Topic) -> int:
    """Files that records of any of its partitions are in."""
    if not topic.others:
        return topic.runs.segments
    refs = (run.ref for each in topic.partitions for run in each.runs)
    return len({ref.segment for ref in refs if ref is not None})


def _lost(topic: Topic, now_ms: int) -> list[LostLately]:
    """In all partitions, by reason."""
    found: dict[str, LostLately] = {}
    for each in topic.partitions:
        for lost in () if each.losses is None else each.losses.of_the_last_day(now_ms):
            before = found.get(lost.reason)
            if before is not None:
                last_ms = max(lost.last_ts_ms, before.last_ts_ms)
                lost = Lost(lost.reason, lost.records + before.records, last_ms)
            found[lost.reason] = LostLately(*lost)
    return [found[reason] for reason in sorted(found)]


def partition_view(topic: Topic) -> PartitionView:
    """What a partition shows."""
    count, size_bytes = topic.shown()
    return PartitionView(
        topic.partition,
        topic.published_seq,
        topic.earliest_seq,
        count,
        size_bytes,
        topic.epoch,
    )


def figures_of(topic: Topic) -> TopicFigures:
    """What a list says of a topic beside its priority and its jobs."""
    count, size_bytes = topic.shown_of_all()
    disk_bytes = sum(each.runs.disk_bytes for each in topic.partitions)
    config = topic.config
    return TopicFigures(
        topic.name,
        config.type,
        config.durable,
        config.durability,
        topic.published_seq,
        topic.earliest_seq,
        count,
        size_bytes,
        disk_bytes,
    )


def note_read(topic: Topic, now_ms: int) -> None:
    """A reader asked for the topic.

    The one change that a read makes, and no event: it counts since the start only (§1.2), so that
    reading writes nothing to the log.
    """
    topic.last_read_ms = topic.first.last_read_ms = now_ms


def effective_priority(topic: Topic, now_ms: int) -> int:
    """The manual priority; else 1000 for a topic read just now, halved each minute (§0.10)."""
    if topic.config.priority is not None:
        return topic.config.priority
    if not topic.config.auto_priority or topic.last_read_ms is None:
        return 0
    minutes = (now_ms - topic.last_read_ms) / PRIORITY_HALF_LIFE_MS
    return int(PRIORITY_FRESH * 0.5 ** min(minutes, 64))
