"""Key compaction: of the records with one key the newest stays, in topics that ask for it (docs/kafka.md).

A pass goes through a topic from its newest record to its oldest, a part of a run at a time.  It remembers digests
of the keys that it meets, and deletes each record whose key it knows already, by the events of any delete: no floor
moves, nothing counts as lost, and readers, checkpoints, backups and erasures need not know of it.  Of what a pass
before has cleaned, no key occurs twice, so its keys are looked up and not remembered.  Where there are more keys
than are remembered at a time, the topic is gone through again from where that was.

What was cleaned is known to this process only: after a start, each compacted topic is gone through once.  A topic
to which nobody writes is not looked at.

Invariants:
- A record is deleted only where a newer one of its key is live, shown and durable; never the one at the head.
- A tombstone is deleted `delete.retention.ms` after its append or later, and only once a whole pass has seen that no
  older record of its key is left.  Where a run cannot be read, that is not known, and tombstones stay.
- Records in memory only and records of the log do not supersede each other: a restart loses the first.
"""

from bisect import bisect_right
from collections.abc import Generator
from functools import partial
from typing import Any, Final, Protocol
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

from topics.protocol.batches.header import BatchError
from topics.protocol.engine import Engine
from topics.protocol.maintenance.record_keys import (
    NO_DIGESTS,
    Look,
    Rows,
    last_before,
    look,
)
from topics.protocol.maintenance.steps import (
    Blocking,
    Decision,
    Task,
    UntilSynced,
    Wait,
    yield_to_commands,
)
from topics.protocol.model.commands import DeleteSeqs
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Corrupt, Rejection
from topics.protocol.model.kafka_configs import LONG_MAX
from topics.protocol.model.moment import earlier
from topics.protocol.model.outcomes import Deleted
from topics.protocol.model.ports import Run
from topics.protocol.state.expiry import DueTimes
from topics.protocol.state.hot_run import is_volatile
from topics.protocol.state.topic import Topic

KEYS_MAX: Final = 1 << 19
"""Keys that a pass remembers at a time: 16 MiB while they are sorted."""
TOMBSTONES_MAX: Final = 1 << 16
"""Tombstones of a topic that are remembered until their time; a later pass finds more."""
PARTS_MAX: Final = 64
"""Looks of one round, before other maintenance has its turn."""
TOPICS_MAX: Final = 256
"""Topics of which one slice asks whether they are due: a millisecond."""
RETRY_MS: Final = 10_000
"""After a pass that broke off, as on a full disk."""


class Rules(msgspec.Struct, frozen=True):
    """When a topic is compacted, by Kafka's names for it.

    Attributes:
        dirty_ratio: The part of it, by bytes or by records, that has to be new.
        min_lag_ms: Records younger than this are neither deleted nor make others be.
        max_lag_ms: A new record of this age makes a pass due whatever the ratio; None: none does.
        retention_ms: How long a tombstone stays, from its append.
    """

    dirty_ratio: float
    min_lag_ms: int
    max_lag_ms: int | None
    retention_ms: int

    @classmethod
    def of(cls, config: TopicConfig) -> "Rules":
        max_lag_ms = config.max_compaction_lag_ms
        return cls(
            config.min_dirty_ratio,
            config.min_compaction_lag_ms,
            max_lag_ms if max_lag_ms < LONG_MAX else None,
            config.delete_retention_ms,
        )


class KeyCompactionHost(Protocol):
    """Where passes run."""

    @property
    def decides(self) -> bool:
        """Whether deletes are decided here; in a cluster the leader does, and others follow."""

    @property
    def now_ms(self) -> int: ...

    def warn(self, what: str) -> None: ...


class _Progress(msgspec.Struct):
    """How far a topic is compacted.

    Attributes:
        is_logged: Of its records, those of the log were; else those in memory only.
        clean_through: No key occurs twice up to here.
        clean_bytes: Of the records up to there, when they became so.
        dirty_ms: When the first record behind it was appended, at the latest; None: there was none.
        tombstones: Seq and `$ts` of those that wait for their time, shape (k, 2), ascending.
        has_others: There are more than these.
    """

    is_logged: bool
    clean_through: int = 0
    clean_bytes: int = 0
    dirty_ms: int | None = None
    tombstones: Rows = np.empty((0, 2), np.int64)
    has_others: bool = False


class _Pass:
    """A topic that is gone through.

    Attributes:
        at: What is looked at next: this seq, and those below it.
    """

    def __init__(self, topic: Topic, clean_through: int) -> None:
        self.topic = topic
        self.at = self.end = topic.published_seq
        self.next_ms: int | None = None
        """When the first record behind `end` was appended."""
        self._clean_through = clean_through
        self._known = NO_DIGESTS
        self._collects = True
        self._again_at: int | None = None
        """Where keys ceased to be remembered because there were too many."""
        self.found: list[tuple[Rows, Rows]] = []
        """Seqs and times of tombstones, the newest first."""
        self.is_damaged = False

    def run(self) -> tuple[Run, int] | None:
        """The run to look at next, and the row before which; None where the pass is at its end."""
        topic = self.topic
        gone, is_logged = topic.gone_through(), topic.durability.is_logged
        at = bisect_right(topic.runs.starts, self.at) - 1
        while at >= 0:
            run = topic.runs[at]
            hi = min(run.count, self.at - run.first_seq + 1)
            if run.first_seq + hi - 1 <= gone:
                break
            if is_volatile(run) != is_logged:
                return run, hi
            at -= 1
        if self._again_at is None:
            return None
        self.at, self._again_at = self._again_at, None
        self._known, self._collects = NO_DIGESTS, True
        return self.run()

    def looking(self, run: Run, hi: int) -> partial[Look]:
        """The look at a run, for a thread."""
        gone = max(self.topic.gone_through() + 1 - run.first_seq, 0)
        return partial(look, run.still(), hi, gone, self._known, collects=self._collects)

    def note(self, run: Run, found: Look) -> None:
        """The look at a run is over."""
        self._known = found.known
        if len(found.tombstones):
            self.found.append((found.tombstones + run.first_seq, found.times))
        self.at = run.first_seq + found.lo - 1
        if not self._collects:
            return
        if self.at <= self._clean_through:
            self._collects = False
        elif len(self._known) >= KEYS_MAX:
            self._collects, self._again_at = False, self.at

    def skip(self, run: Run) -> None:
        """A run cannot be read."""
        self.is_damaged = True
        self.at = run.first_seq - 1

    def tombstones(self) -> Rows:
        """The tombstones that were found: seq and `$ts` each, ascending."""
        pairs = [np.stack(pair, axis=1) for pair in self.found]
        found = np.concatenate(pairs) if pairs else np.empty((0, 2), np.int64)
        return found[found[:, 0].argsort()]


class KeyCompaction:
    """The compacted topics of one engine, one pass at a time.

    Attributes:
        passes: How many came to their end, since the start of the process.
        records_deleted: By them.
    """

    def __init__(self, engine: Engine, host: KeyCompactionHost) -> None:
        self._state = engine.state
        self._host = host
        self.passes = self.records_deleted = 0
        self._due = DueTimes()
        self._progress: WeakKeyDictionary[Topic, _Progress] = WeakKeyDictionary()
        self._pass: _Pass | None = None

    def has_more(self, now_ms: int) -> bool:
        """Whether a pass is under way or due."""
        return self._host.decides and (self._pass is not None or self._due.is_due(now_ms))

    def go_on(self) -> Task:
        """A bounded part of what is due.

        Raises:
            WriteFailed: The log failed.
        """
        if not self._host.decides:
            self._give_up()
            return
        yield from self._look_for_due()
        for _ in range(PARTS_MAX):
            topic = self._take_due() if self._pass is None else self._pass.topic
            if topic is None:
                return
            try:
                yield from self._begin(topic) if self._pass is None else self._part(self._pass)
            except Exception as error:
                self._pass = None
                self._due.set(topic.topic_id, self._host.now_ms + RETRY_MS)
                if isinstance(error, Rejection):
                    return  # who refused it has said why, as to a client
                raise

    def _give_up(self) -> None:
        """Another node decides from now on."""
        if self._pass is not None:
            topic, self._pass = self._pass.topic, None
            self._state.uncompacted[topic.topic_id] = topic

    # ------------------------------------------------------------------ what is due

    def _look_for_due(self) -> Task:
        """Ask of the topics that got records when they are due."""
        changed = self._state.uncompacted
        while changed:
            for _ in range(min(len(changed), TOPICS_MAX)):
                _, topic = changed.popitem()
                self._set_due(topic)
            if changed:
                yield Blocking(yield_to_commands)

    def _set_due(self, topic: Topic) -> None:
        due_ms = self._due_ms(topic) if topic.config.is_compacted else None
        if due_ms is None:
            self._due.forget(topic.topic_id)
        else:
            self._due.set(topic.topic_id, due_ms)

    def _due_ms(self, topic: Topic) -> int | None:
        """When there is something to do, if nobody writes; None: not before somebody does."""
        rules, progress = Rules.of(topic.config), self._progress_of(topic)
        due_ms: int | None = None
        if topic.published_seq > progress.clean_through and topic.count:
            if progress.dirty_ms is None:
                progress.dirty_ms = topic.last_ts_ms
            if _dirty_ratio(topic, progress) >= rules.dirty_ratio:
                due_ms = progress.dirty_ms + rules.min_lag_ms
            elif rules.max_lag_ms is not None:
                due_ms = progress.dirty_ms + max(rules.min_lag_ms, rules.max_lag_ms)
        if len(progress.tombstones) and progress.tombstones[0, 0] < topic.head_seq:
            gone_ms = int(progress.tombstones[0, 1]) + rules.retention_ms
            due_ms = earlier(due_ms, gone_ms)
        return due_ms

    def _progress_of(self, topic: Topic) -> _Progress:
        found, is_logged = self._progress.get(topic), topic.durability.is_logged
        if found is None or found.is_logged != is_logged:
            found = self._progress[topic] = _Progress(is_logged)
        return found

    def _take_due(self) -> Topic | None:
        while (topic_id := self._due.take(self._host.now_ms)) is not None:
            topic = self._state.by_id.get(topic_id)
            if topic is not None and topic.config.is_compacted:
                return topic
        return None

    # ------------------------------------------------------------------ a pass

    def _begin(self, topic: Topic) -> Task:
        """Delete the tombstones whose time has come, and begin a pass where one is due."""
        progress, rules = self._progress_of(topic), Rules.of(topic.config)
        yield from self._delete_tombstones(topic, progress, rules)
        if not self._is_there(topic):
            return
        if topic.published_seq <= progress.clean_through:
            self._set_due(topic)
            return
        one = _Pass(topic, progress.clean_through)
        # What supersedes others is durable before they go.
        yield UntilSynced()
        if rules.min_lag_ms:
            runs = [run.still() for run in topic.runs]
            before_ms = self._host.now_ms - rules.min_lag_ms + 1
            one.end, one.next_ms = yield from self._read(
                partial(last_before, runs, one.end, before_ms), (progress.clean_through, None)
            )
            one.at = one.end
        if one.end > progress.clean_through:
            self._pass = one
            return
        # All that is new is too young.
        now_ms = self._host.now_ms
        progress.dirty_ms = one.next_ms or now_ms
        self._due.set(topic.topic_id, max(progress.dirty_ms + rules.min_lag_ms, now_ms + 1))

    def _read(self, call: Any, otherwise: Any) -> Generator[Wait, Any, Any]:
        """What a call that reads runs returns; `otherwise` where they cannot be read."""
        try:
            found = yield Blocking(call)
        except (Corrupt, OSError, BatchError) as error:
            self._host.warn(f"a compacted topic has records that cannot be read: {error}")
            return otherwise
        return found

    def _part(self, one: _Pass) -> Task:
        """Look at a part of a run, and delete what newer records supersede."""
        if not self._is_there(one.topic):
            self._pass = None
            return
        place = one.run()
        if place is None:
            self._pass = None
            self._end(one)
            return
        run, hi = place
        found: Look | None = yield from self._read(one.looking(run, hi), None)
        if found is None:  # pragma: no cover - behind `yield from` an error is not traced
            one.skip(run)
            return
        if len(found.superseded):
            yield from self._delete(one.topic, found.superseded + run.first_seq)
        one.note(run, found)

    def _is_there(self, topic: Topic) -> bool:
        return self._state.by_id.get(topic.topic_id) is topic and topic.config.is_compacted

    def _delete(self, topic: Topic, seqs: Rows) -> Task:
        if self._is_there(topic):
            packed = seqs.astype("<u8").tobytes()
            found: Deleted = yield Decision(DeleteSeqs(topic.engine_name, topic.epoch, packed))
            self.records_deleted += found.removed

    def _end(self, one: _Pass) -> None:
        """The topic was gone through: what is there up to the pass's end has keys of its own."""
        topic, progress = one.topic, self._progress_of(one.topic)
        self.passes += 1
        progress.clean_through = one.end
        # What came since is taken to be records like the others: to weigh them would read columns.
        clean = max(topic.count - (topic.head_seq - one.end), 0)
        progress.clean_bytes = topic.size_bytes * clean // max(topic.count, 1)
        progress.dirty_ms = one.next_ms
        is_mixed = 0 < topic.volatile_runs < len(topic.runs)
        if one.is_damaged or is_mixed:
            progress.tombstones = progress.tombstones[:0]
        else:
            known = np.concatenate((progress.tombstones, one.tombstones()))
            known = known[np.unique(known[:, 0], return_index=True)[1]]
            progress.has_others |= len(known) > TOMBSTONES_MAX
            progress.tombstones = known[:TOMBSTONES_MAX]
        self._set_due(topic)

    def _delete_tombstones(self, topic: Topic, progress: _Progress, rules: Rules) -> Task:
        known = progress.tombstones
        if not len(known):
            return
        is_due = known[:, 1] + rules.retention_ms <= self._host.now_ms
        is_due &= known[:, 0] < topic.head_seq
        yield from self._delete(topic, known[is_due, 0])
        progress.tombstones = known[~is_due]
        if progress.has_others and not len(progress.tombstones):
            progress.has_others, progress.clean_through = False, 0


def _dirty_ratio(topic: Topic, progress: _Progress) -> float:
    """The part of a topic that came since it was cleaned, by bytes or by records, whichever is more."""
    dirty_bytes = max(topic.size_bytes - progress.clean_bytes, 0)
    records = min(topic.head_seq - progress.clean_through, topic.count)
    return max(dirty_bytes / max(topic.size_bytes, 1), records / topic.count)
