"""Hot memory: what unsealed records hold, and which topics hold how much of it (§11).

Two kinds count in `max_hot_bytes`.  Logged records wait for their segment, and sealing frees them.
Volatile records (`ephemeral`) are in no log and no segment; they are freed when they are deleted or
evicted, and their runs are compacted here, because no seal ever leaves their dead rows behind.

Beside them, and never in the way of a write, stands what was made of Kafka's batches for readers
(`open_runs`).

Owns the counters and which run takes a batch; it does not decide what is evicted (`commit.
memory_eviction`) or sealed (`maintenance.sealing`).  Invariant: `logged_bytes` and `volatile_bytes`
are the sums of `memory_bytes` over the hot runs of either kind.
"""

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice
from typing import Final

from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import Run
from topics.protocol.model.records import Batch, PackedBatch
from topics.protocol.state.hot_run import HOT_RUN_BYTES, HotRun, hot_bytes_of_text, is_volatile
from topics.protocol.state.open_runs import OpenRuns
from topics.protocol.state.packed_run import PackedRun, hot_bytes_of_packed
from topics.protocol.state.topic import Topic
from topics.protocol.state.unsealed_run import UnsealedRun

_VOLATILE_RUN_BYTES: Final = (64 << 10, 1 << 20)
"""Text of a volatile run, at least and at most.  A run is freed, or copied to compact it, as a whole:
small runs free memory early, large ones cost fewer objects."""
_COMPACT_BYTES: Final = 32 << 10
"""A run below this is compacted under pressure only: a compacted run costs hardly less."""


_COMPACTED_BYTES_MAX: Final = 512 << 10
"""Text of runs that are compacted in one go after a delete; the others follow in later slices."""
_HIT_BYTES_FEW: Final = 1 << 20
"""A delete that hit runs of more text has done enough for one turn: all are compacted later."""
_FREED_BYTES_MAX: Final = 4 << 20
"""What is given back to the allocator in one go: a millisecond or two."""
_BURIED_BYTES_MIN: Final = 256 << 10
"""A sealed run below this is freed at once, in microseconds."""
_LOOKS_MAX: Final = 200
"""Topics that are looked at for waste in one go."""
_COPY_FACTOR: Final = 16
"""How much dearer it is to copy what lives in a run than to inspect it, or to free it as a whole."""


class BySize:
    """Topics by a size, to a factor of two, so that the largest are found without a look at all."""

    def __init__(self) -> None:
        self._classes: list[dict[int, None]] = []

    def move(self, topic_id: int, before: int, after: int) -> None:
        """A topic's size changed; 0 is none."""
        if before:
            del self._classes[before.bit_length()][topic_id]
        if after:
            own = after.bit_length()
            while own >= len(self._classes):
                self._classes.append({})
            self._classes[own][topic_id] = None

    def first(self, limit: int) -> list[int]:
        """Up to so many topics, the largest first; within a factor of two in any order."""
        found = chain.from_iterable(reversed(self._classes))
        return list(islice(found, limit))


class HotMemory:
    """The hot runs of all topics, as one amount of memory.

    Attributes:
        unsealed: Topics that hold unsealed, logged records, about in the order of their oldest.
        largest: The same, by how much that is.
        full: Those of them with a run that takes no more.
        volatile: Topics that hold records in memory only.
        logged_bytes, volatile_bytes: What unsealed records hold, of either kind.
        wasteful: Volatile runs, by topic id and first seq, that waste what a delete hit in them.
        firm_bytes: What of `volatile_bytes` may not be evicted (`discard: "reject"`).
        open_runs: Packed runs that are open.
        buried: Runs of deleted topics, and large ones that are sealed, which are counted no more and freed a part at a time.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        least, most = _VOLATILE_RUN_BYTES
        self._volatile_run_bytes = min(max(limits.max_hot_bytes // 64, least), most)
        self.unsealed: dict[int, Topic] = {}
        self.largest = BySize()
        self.full: dict[int, Topic] = {}
        self.volatile: dict[int, Topic] = {}
        self.wasteful: dict[int, dict[int, None]] = {}
        self.logged_bytes = 0
        self.volatile_bytes = 0
        self.firm_bytes = 0
        self.open_runs: OpenRuns[PackedRun] = OpenRuns()
        self.buried: deque[UnsealedRun] = deque()
        self._buried_bytes = 0
        self._to_look: deque[int] = deque()
        """Topics that may waste something, where a write found no room."""
        self._is_wanted = False

    @property
    def is_short(self) -> bool:
        """Whether memory is nearly full, so that small waste counts."""
        return self.total_bytes * 8 > self._limits.max_hot_bytes * 7

    def owes(self) -> bool:
        """Whether `free_some` has something to do."""
        is_much_open = self.open_runs.owes(self.opened_bytes_max)
        return bool(self.wasteful or self.buried or self._to_look or is_much_open)

    @property
    def opened_bytes_max(self) -> int:
        """What may be open: a quarter of the bound, of what unsealed records leave, and always a little."""
        limit = self._limits.max_hot_bytes
        return max(min(limit // 4, limit - self.total_bytes), limit // 16)

    @property
    def total_bytes(self) -> int:
        """What unsealed records hold."""
        return self.logged_bytes + self.volatile_bytes

    def logged_weight(self) -> int:
        """What unsealed, logged records hold, with what a run costs however few it has."""
        return self.logged_bytes + len(self.unsealed) * HOT_RUN_BYTES

    def logged_share(self) -> int:
        """What unsealed, logged records may hold before they are sealed for want of memory: half of
        what volatile ones leave, which is at least half of all."""
        limit = self._limits.max_hot_bytes
        return (limit - min(self.volatile_bytes, limit // 2)) // 2

    def is_pressed(self) -> bool:
        """Whether unsealed, logged records hold more than their share."""
        return self.logged_weight() > self.logged_share()

    # ------------------------------------------------------------------ what comes

    def append(
        self, topic: Topic, first_seq: int, batch: Batch | PackedBatch, *, volatile: bool
    ) -> None:
        """Put a batch into the topic's last run, or into a new one."""
        if isinstance(batch, PackedBatch):
            assert not volatile  # it was made text
            packed = self._packed_run_for(topic, first_seq, batch)
            packed.append(batch)
            self._count_logged(topic, hot_bytes_of_packed(batch))
            self.unsealed[topic.topic_id] = topic
            return
        run = self._run_for(topic, first_seq, batch, volatile)
        before = run.memory_bytes
        run.append(batch)
        if volatile:
            self._count_volatile(topic, run.memory_bytes - before)
        else:
            self._count_logged(topic, run.memory_bytes - before)
            self.unsealed[topic.topic_id] = topic

    def _run_for(self, topic: Topic, first_seq: int, batch: Batch, volatile: bool) -> HotRun:
        """The run that takes the batch: the last one, or a new one where that is sealed, frozen,
        full, of the other kind, or ends before a hole."""
        last, limits = topic.runs.last(), self._limits
        if isinstance(last, HotRun) and (
            last.volatile == volatile
            and last.takes(batch, first_seq, limits.segment_max_records, limits.segment_max_bytes)
            and (not volatile or last.text_bytes + len(batch.text) <= self._volatile_run_bytes)
        ):
            return last
        self._note_full(topic, last)
        run = HotRun(first_seq, volatile=volatile)
        topic.runs.append(run)
        if volatile:
            topic.volatile_from = topic.volatile_from or first_seq
            self._take_in(topic, run)
        return run

    def _packed_run_for(self, topic: Topic, first_seq: int, batch: PackedBatch) -> PackedRun:
        """The same for a batch of Kafka's."""
        last, limits = topic.runs.last(), self._limits
        if isinstance(last, PackedRun) and last.takes(
            batch, first_seq, limits.segment_max_records, limits.segment_max_bytes
        ):
            return last
        self._note_full(topic, last)
        note = self.open_runs.note
        run = PackedRun(first_seq, tag_bytes_max=limits.max_tag_bytes, note=note)
        topic.runs.append(run)
        return run

    def _note_full(self, topic: Topic, last: Run | None) -> None:
        """The topic's last run takes no more."""
        if isinstance(last, UnsealedRun) and not last.volatile:
            self.full[topic.topic_id] = topic

    def _take_in(self, topic: Topic, run: HotRun) -> None:
        """A volatile run is one of the topic's from now on."""
        topic.volatile_runs += 1
        self.volatile[topic.topic_id] = topic
        self._count_volatile(topic, run.memory_bytes)

    def _count_logged(self, topic: Topic, more_bytes: int) -> None:
        self.logged_bytes += more_bytes
        before = topic.logged_bytes
        topic.logged_bytes += more_bytes
        if before.bit_length() != topic.logged_bytes.bit_length():
            self.largest.move(topic.topic_id, before, topic.logged_bytes)

    def _count_volatile(self, topic: Topic, more_bytes: int) -> None:
        topic.volatile_bytes += more_bytes
        self.volatile_bytes += more_bytes
        if topic.config.discard == "reject":
            self.firm_bytes += more_bytes

    def discard_changes(self, topic: Topic, *, to_reject: bool) -> None:
        """The topic's `discard` is about to become `reject`, or not to be it."""
        if to_reject is not (topic.config.discard == "reject"):
            self.firm_bytes += topic.volatile_bytes if to_reject else -topic.volatile_bytes

    # ------------------------------------------------------------------ what goes

    def release(self, topic: Topic, run: UnsealedRun) -> None:
        """A run is no longer one of the topic's."""
        if isinstance(run, PackedRun):
            run.note = None
            self.open_runs.forget(run)
        if not run.volatile:
            self._count_logged(topic, -run.memory_bytes)
            return
        self._count_volatile(topic, -run.memory_bytes)
        topic.volatile_runs -= 1
        if not topic.volatile_runs:
            self.volatile.pop(topic.topic_id, None)

    def resort(self, topic: Topic) -> None:
        """Runs of the topic were sealed or dropped.  If some are left, the topic moves behind the
        topics whose oldest record is older; if none is, it goes."""
        was_unsealed = self.unsealed.pop(topic.topic_id, None) is not None
        if was_unsealed and any(
            isinstance(run, UnsealedRun) and not run.volatile for run in topic.runs
        ):
            self.unsealed[topic.topic_id] = topic

    def forget(self, topic: Topic) -> None:
        """The topic was deleted, and its runs were released."""
        self.unsealed.pop(topic.topic_id, None)
        self.full.pop(topic.topic_id, None)
        self.wasteful.pop(topic.topic_id, None)
        self._bury(run for run in topic.runs if isinstance(run, UnsealedRun))

    def bury_large(self, runs: Iterable[Run]) -> None:
        """Runs that were released because they are sealed: one job has 64 MiB of them at most."""
        hot = (run for run in runs if isinstance(run, UnsealedRun))
        self._bury(run for run in hot if run.memory_bytes >= _BURIED_BYTES_MIN)

    def _bury(self, runs: Iterable[UnsealedRun]) -> None:
        """Keep runs that were released, and free them later: to free the memory of a large topic at
        once takes a millisecond a megabyte.  A replay frees those that are too many at once."""
        for run in runs:
            self.buried.append(run)
            self._buried_bytes += run.memory_bytes
        while self._buried_bytes > self._limits.max_hot_bytes:
            self._buried_bytes -= self.buried.popleft().memory_bytes

    def want_room(self) -> None:
        """A write found no room: free what topics waste, however little."""
        self._is_wanted = True
        if not self._to_look:
            self._to_look.extend(self.volatile)

    def free_some(self, topics: Mapping[int, Topic], now_ms: int) -> Iterator[Topic]:
        """Free a part of what `owes` says, and what is open and not asked for; yields each topic before its
        runs change."""
        self._bury([run.close() for run in self.open_runs.excess(self.opened_bytes_max, now_ms)])
        left = _FREED_BYTES_MAX
        while self.buried and left > 0:
            size_bytes = self.buried.popleft().memory_bytes
            self._buried_bytes -= size_bytes
            left -= max(size_bytes, 1)
        for _ in range(min(len(self._to_look), _LOOKS_MAX)):
            topic = topics.get(self._to_look.popleft())
            if topic is not None:
                self._note_waste(topic)
        if self.wasteful:
            topic = topics[next(iter(self.wasteful))]
            yield topic
            self.compact_some_deleted(topic)
        self._is_wanted = self._is_wanted and self.owes()

    def _note_waste(self, topic: Topic) -> None:
        wasteful = [
            run.first_seq
            for run in topic.runs
            if isinstance(run, HotRun) and run.volatile and 4 * run.wasted_bytes > run.memory_bytes
        ]
        if wasteful:
            self.wasteful.setdefault(topic.topic_id, {}).update(dict.fromkeys(wasteful))

    # ------------------------------------------------------------------ compacting

    # A volatile run is freed as soon as no read needs it.  No segment and no log knows of it, so
    # that is no event.  A run without a live row goes as a whole; one that wastes more than it keeps
    # is replaced by a copy of what it keeps, so that each byte is copied about once.

    def compact(self, topic: Topic, wanted_bytes: int) -> None:
        """Under pressure: free what a topic's volatile runs waste, also where that is little, until
        about so much is free."""
        enough = topic.volatile_bytes - wanted_bytes
        for run in [run for run in topic.runs if is_volatile(run)]:
            if topic.volatile_bytes <= enough:
                return
            self._compact(topic, [run], pressed=True)

    def compact_passed(self, topic: Topic) -> None:
        """A floor rose: free what it passed."""
        if topic.volatile_bytes < _COMPACT_BYTES and len(topic.runs) == 1:
            return
        passed = topic.runs[: bisect_right(topic.runs.starts, topic.gone_through())]
        # The run that a floor stands in goes as a whole soon, unless the topic has little else.
        self._compact(topic, [run for run in passed if is_volatile(run)], topic.volatile_bytes)

    def compact_deleted(self, topic: Topic, runs: Sequence[Run]) -> None:
        """Rows of these volatile runs were deleted: free what they waste, or, where that is too
        much for one turn, leave it to `compact_some_deleted`."""
        hit = {run.first_seq: run.text_bytes for run in runs}
        self.wasteful.setdefault(topic.topic_id, {}).update(dict.fromkeys(hit))
        if sum(hit.values()) <= _HIT_BYTES_FEW:
            self.compact_some_deleted(topic)

    def compact_some_deleted(self, topic: Topic) -> None:
        """Free what some of the topic's `wasteful` runs waste."""
        firsts, left = self.wasteful[topic.topic_id], _COMPACTED_BYTES_MAX
        while firsts and left > 0:
            first_seq = next(iter(firsts))
            del firsts[first_seq]
            run = topic.runs.at(first_seq)
            if run is not None and is_volatile(run):
                runs = len(topic.runs)
                self._compact(topic, [run], pressed=self._is_wanted or self.is_short)
                is_copied = len(topic.runs) >= runs and topic.runs.at(first_seq) is not run
                left -= run.text_bytes if is_copied else run.text_bytes // _COPY_FACTOR
        if not firsts:
            del self.wasteful[topic.topic_id]

    def _compact(
        self, topic: Topic, runs: Iterable[Run], beside: int = 0, *, pressed: bool = False
    ) -> None:
        """Free or replace those of the runs that waste more than half of what they hold; a quarter
        where memory is `pressed`.

        Args:
            beside: Bytes that count in place of what the run holds, where they are more.
        """
        for run in runs:
            assert isinstance(run, HotRun)
            run.pass_through(topic.gone_through())
            is_small = run.memory_bytes < _COMPACT_BYTES and not pressed
            if run.is_gone and not (is_small and run is topic.runs[-1]):
                left = []
            elif not is_small and run.wasted_bytes * (4 if pressed else 2) > max(
                run.memory_bytes, beside
            ):
                # The first run is part of what a topic costs, which `max_topics` bounds; each one
                # more counts with its arrays.
                left = run.compacted(0 if run is topic.runs[0] else HOT_RUN_BYTES)
            else:
                continue
            topic.runs.replace(run.first_seq, run.first_seq, left)
            for one in left:
                self._take_in(topic, one)
            self.release(topic, run)


def freeze(topic: Topic) -> None:
    """The topic's hot runs take no more batches: the next append begins a new run."""
    for run in reversed(topic.runs):
        if not isinstance(run, UnsealedRun):
            return
        run.frozen = True


def hot_bytes_of(batch: Batch | PackedBatch) -> int:
    """What a batch adds to what its run holds."""
    if isinstance(batch, PackedBatch):
        return hot_bytes_of_packed(batch)
    return hot_bytes_of_text(batch)
