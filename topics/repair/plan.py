"""What a repair would do: each damage of a directory, what becomes of it, and which records go.

Owns the verdicts and changes nothing.  Invariant: a record is given up only if the bytes that it is
read from do not verify, or if the part of the log that holds it lies behind one that does not.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.limits import Limits
from topics.protocol.model.records import LIVE
from topics.protocol.state.run_list import seq_spans
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic
from topics.store import segment
from topics.store.files import Files
from topics.store.inspect import Report, inspect, run_damages
from topics.store.layout import BLOCK, TEMP, TORN, numbers, segment_name
from topics.store.packed_runs import PackedSealedRun
from topics.store.reader import ReadOnlyStore
from topics.store.runs import SealedRun
from topics.store.wal import LogPosition


class Lost(NamedTuple):
    """Records [first_seq, last_seq] of a topic, or of one of its partitions (`partition_name`), that are given up."""

    topic_id: int
    topic: str
    first_seq: int
    last_seq: int


@dataclass(slots=True)
class BadRun:
    """A run of a damaged segment.

    Attributes:
        rows: Rows that cannot be read, if any; None: all, and nothing else of the run can be read
            either.
    """

    topic_id: int
    first_seq: int
    count: int
    rows: Any = None

    @property
    def lost_rows(self) -> int:
        return self.count if self.rows is None else len(self.rows)


@dataclass(slots=True)
class Plan:
    """What would be done.

    Attributes:
        torn, unfinished: Files that a crash left and nothing reads.
        checkpoints: Those that do not verify beside one that does.
        orphans: Segments that do not verify, or lie behind the cut, and that nothing refers to.
        flags: Segments with flags that are neither live nor deleted.
        segments: Damaged segments that are referred to, and all their runs, of which at least one
            loses something by it.
        stale: Those of which every run can be read: what is damaged in them is of no use any more.
        incarnation: The greatest one that the newest checkpoint knows.
        cut: Where the log does not verify, with everything behind it; None: it does.
        lost: What is given up, ascending by topic and seq.
        remarks: What nothing is done about, a sentence each.
    """

    report: Report
    torn: list[str] = field(default_factory=list)
    unfinished: list[str] = field(default_factory=list)
    checkpoints: list[str] = field(default_factory=list)
    orphans: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    segments: dict[int, list[BadRun]] = field(default_factory=dict)
    stale: dict[int, list[BadRun]] = field(default_factory=dict)
    incarnation: int = 0
    cut: LogPosition | None = None
    lost: list[Lost] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)

    @property
    def mends(self) -> bool:
        """Whether something can be done that loses no record."""
        found = (self.torn, self.unfinished, self.checkpoints, self.orphans, self.flags, self.stale)
        return any(found) or self.report.torn_bytes > 0

    @property
    def loses(self) -> bool:
        """Whether something has to be given up."""
        return bool(self.segments) or self.cut is not None


def plan(files: Files) -> Plan:
    """*Blocking.* What a repair would do.

    Raises:
        Unusable: It is no data directory, or nothing of it can be used without a backup.
    """
    report = inspect(files)
    found = Plan(report)
    names = files.names()
    found.torn = [name for name in names if TORN.fullmatch(name)]
    found.unfinished = [name for name in names if TEMP.fullmatch(name)]
    found.checkpoints = [each.name for each in report.checkpoints if not each.verified]
    if report.checkpoints and len(found.checkpoints) == len(report.checkpoints):
        raise Unusable(files.path, "no checkpoint verifies: only a backup helps")
    found.flags = [each.name for each in report.segments if each.flag_repairs and each.verified]
    store = ReadOnlyStore(files)
    try:
        state = State(Limits(), store)
        store.restore(state)
        try:
            store.follow(state, to_the_end=True)
        except (Corrupt, FileNotFoundError):
            found.cut = store.position or LogPosition(1, 0, 0, 0)
        found.incarnation = store.incarnation
        _segments(files, store, state, found)
    finally:
        store.close()
    if not found.loses and any(".wal" in problem.path for problem in report.problems):
        found.remarks.append(
            "a part of the log that only the older checkpoint needs does not verify; "
            "the next two checkpoints of the server retire it"
        )
    return found


def _segments(files: Files, store: ReadOnlyStore, state: State, found: Plan) -> None:
    runs: dict[int, list[tuple[Topic, SealedRun]]] = {}
    for topic in state.by_id.values():
        for run in topic.runs:
            if isinstance(run, SealedRun):
                runs.setdefault(run.segment, []).append((topic, run))
    here = set(numbers(files.names(), "seg"))
    verified = {each.name for each in found.report.segments if each.verified}
    for number in sorted(here | set(runs)):
        name = segment_name(number)
        if number not in runs:
            is_behind = found.cut is not None and _batch(found.report, name) > found.cut.batch
            if is_behind or name not in verified:
                found.orphans.append(name)
        elif number not in here or name not in verified:
            bad = [_bad_run(files, store, topic, run) for topic, run in runs[number]]
            is_lossy = any(each.lost_rows for each in bad)
            (found.segments if is_lossy else found.stale)[number] = bad
            for each in bad:
                found.lost += _lost(state.by_id[each.topic_id], each)
    found.lost.sort(key=lambda lost: (lost.topic, lost.first_seq))


def _batch(report: Report, name: str) -> int:
    return next((each.batch for each in report.segments if each.name == name), 0)


def _bad_run(files: Files, store: ReadOnlyStore, topic: Topic, run: SealedRun) -> BadRun:
    """What of a run in a damaged file cannot be read."""
    path = f"{files.path}/{segment_name(run.segment)}"
    whole = BadRun(topic.topic_id, run.first_seq, run.count)
    try:
        file = files.open(segment_name(run.segment))
    except OSError:
        return whole
    try:
        header = segment.read_header(file, path, number=run.segment, instance=store.instance)
        row = segment.read_table(file, path, header)[run.index]
        segment.check_section(file, path, row)
        base = int(row["text_offset"])
        bad = [(each.offset - base) // BLOCK for each in run_damages(file, path, row)]
        offset, size = _places(run)
        first = offset // BLOCK
        last = (offset + np.maximum(size, 1) - 1) // BLOCK
        hit = np.zeros(run.count, np.bool_)
        for block in bad:
            hit |= (first <= block) & (block <= last)
        hit &= size > 0
        return BadRun(topic.topic_id, run.first_seq, run.count, np.flatnonzero(hit))
    except (Corrupt, OSError, IndexError):
        return whole
    finally:
        file.close()


def _places(run: SealedRun) -> tuple[NDArray[Any], NDArray[Any]]:
    """Where each row's bytes begin in the text of its run, and how many there are; those of a record batch are read
    together."""
    if not isinstance(run, PackedSealedRun):
        return run.columns.offset, run.columns.size
    batches = list(run.batches(0, run.count))
    sizes = np.array([each.stored_bytes for each in batches])
    rows = [each.records for each in batches]
    return np.repeat(np.cumsum(sizes) - sizes, rows), np.repeat(sizes, rows)


def _lost(topic: Topic, bad: BadRun) -> Iterator[Lost]:
    """The live records of a bad run, as far as it is known which were."""
    rows = np.arange(bad.count) if bad.rows is None else bad.rows
    seqs = (rows + bad.first_seq).astype(np.uint64)
    seqs = seqs[seqs > topic.gone_through()]
    run = topic.runs.at(bad.first_seq)
    if bad.rows is not None and run is not None:
        seqs = seqs[run.flags[(seqs - np.uint64(bad.first_seq)).astype(np.int64)] == LIVE]
    for first, last in seq_spans(seqs).tolist():
        yield Lost(topic.topic_id, topic.engine_name, first, last)
