"""Inspection of a data directory, with every checksum compared.

Owns the report; changes no byte and takes no lock.  Invariant: damage ends neither the inspection
nor that of its file, as far as intact parts behind it can be found.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.events import (
    Checkpoint,
    Event,
    RunRef,
    RunsDropped,
    RunsSealed,
    TopicDeleted,
)
from topics.protocol.model.records import DELETED, LIVE
from topics.store import identity, segment, witness
from topics.store.checkpoint import Checkpoints
from topics.store.files import File, Files, read_at_most
from topics.store.layout import (
    BLOCK,
    EVENTS,
    FAILED_NAME,
    FORMAT_VERSION,
    IDENTITY_NAME,
    KINDS,
    LOCK_NAME,
    LOG_HEADER,
    LOG_MAGIC,
    NAME,
    RESERVE_NAME,
    checkpoint_name,
    digest,
    log_name,
    numbers,
    segment_name,
    version_of,
)
from topics.store.replay import LogWalk, events_of, require_noted
from topics.store.wal import LogPosition


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that does not verify, and where."""

    path: str
    offset: int
    what: str


@dataclass(slots=True)
class LogReport:
    """A log file; `version` is the format of its header, 0 where that does not verify or is not
    written yet; `marks` counts the batches without events by kind."""

    name: str
    size_bytes: int
    version: int = 0
    used_bytes: int = 0
    batches: int = 0
    events: int = 0
    last_batch: int = 0
    marks: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class SegmentReport:
    """A segment file; `flag_repairs` counts flag bytes that are neither live nor deleted; `batch`
    is how far the log was durable when it was made, 0 where that is not known."""

    name: str
    size_bytes: int
    runs: int = 0
    rows: int = 0
    dead: int = 0
    flag_repairs: int = 0
    text_bytes: int = 0
    batch: int = 0
    named: bool = True
    verified: bool = False


@dataclass(slots=True)
class CheckpointReport:
    name: str
    size_bytes: int
    topics: int = 0
    runs: int = 0
    clean: bool = False
    log_file: str = ""
    verified: bool = False


@dataclass(slots=True)
class Report:
    """The findings of one inspection.

    Attributes:
        format_version: The newest format that a file of the directory may have.
        others: Files that are not the store's, or that it only set aside.
    """

    path: str
    instance_id: str = ""
    format_version: int = FORMAT_VERSION
    clean: bool = False
    torn_bytes: int = 0
    logs: list[LogReport] = field(default_factory=list)
    segments: list[SegmentReport] = field(default_factory=list)
    checkpoints: list[CheckpointReport] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not self.problems


class Named:
    """Implements `ports.RecoverySink`: which runs the recovered state refers to."""

    def __init__(self) -> None:
        self.runs: dict[int, list[RunRef]] = {}

    def restore(self, checkpoint: Checkpoint) -> None:
        self.runs = {topic.topic_id: list(topic.runs) for topic in checkpoint.topics}

    def refs(self) -> list[RunRef]:
        return [ref for refs in self.runs.values() for ref in refs]

    def apply(self, event: Event) -> None:
        match event:
            case TopicDeleted():
                self.runs.pop(event.topic_id, None)
            case RunsDropped():
                self._keep(event.topic_id, lambda ref: ref.first_seq not in event.first_seqs)
            case RunsSealed():
                first, last = event.first_seq, event.last_seq
                self._keep(event.topic_id, lambda ref: not first <= ref.first_seq <= last)
                self.runs.setdefault(event.topic_id, []).extend(event.runs)

    def _keep(self, topic_id: int, wanted: Any) -> None:
        self.runs[topic_id] = [ref for ref in self.runs.get(topic_id, []) if wanted(ref)]


class Inspection:
    """One pass over a directory."""

    def __init__(
        self, files: Files, known: identity.Identity, progress: Callable[[int], None]
    ) -> None:
        self._files = files
        self._progress = progress
        self._instance = known.instance
        self._noted = witness.read(files, known.history)
        self._named = Named()
        self._end = LogPosition(1, 0, 0, 0)
        self._ends = False
        """Whether the log could be walked to its end, which then is `_end`."""
        self.report = Report(files.path, known.instance.hex(), known.version)

    def run(self) -> Report:
        names = self._files.names()
        start = self._checkpoints(names)
        self._logs(names, start)
        self._segments(names)
        known = {FAILED_NAME, IDENTITY_NAME, LOCK_NAME, RESERVE_NAME}
        self.report.others = [n for n in names if n not in known and not NAME.fullmatch(n)]
        return self.report

    def _problem(self, error: Corrupt) -> None:
        problem = Problem(error.path, error.offset, error.what)
        if problem not in self.report.problems:
            self.report.problems.append(problem)

    def _size(self, name: str) -> int:
        file = self._files.open(name)
        try:
            return file.size()
        finally:
            file.close()

    def _checkpoints(self, names: list[str]) -> LogPosition | None:
        """Check all checkpoints; returns the log position of the newest that verifies."""
        start = None
        checkpoints = Checkpoints(self._files, self._instance)
        for number in numbers(names, "ckpt"):
            name = checkpoint_name(number)
            found = CheckpointReport(name, self._size(name))
            self.report.checkpoints.append(found)
            self._progress(found.size_bytes)
            try:
                image, stored = checkpoints.read(number)
            except Corrupt as error:
                self._problem(error)
                continue
            self._named.restore(image)
            start = stored.position
            found.topics, found.clean, found.verified = len(image.topics), stored.clean, True
            found.runs = sum(len(topic.runs) for topic in image.topics)
            found.log_file = log_name(start.file_number)
        return start

    def _logs(self, names: list[str], start: LogPosition | None) -> None:
        found = numbers(names, "wal")
        reports = {n: LogReport(log_name(n), self._size(log_name(n))) for n in found}
        self.report.logs = list(reports.values())
        for report in self.report.logs:
            self._version(report)
        begin, before = self._oldest(found, start), len(self.report.problems)
        self._walk(begin, start, reports)
        if begin == start or start is None or self._end.batch >= start.batch:
            self._witness()
            return
        # The damage is in the part of the log that only the older checkpoint needs.  The part that
        # the newest checkpoint needs lies behind it and is walked by itself.
        broken = self._end
        self._walk(start, start, reports)
        self._witness()
        if len(self.report.problems) == before:
            path = f"{self._files.path}/{log_name(broken.file_number)}"
            what = f"batch {broken.batch + 1} had been durable and does not verify"
            self._problem(Corrupt(path, broken.offset, what))

    def _witness(self) -> None:
        if self._ends:
            try:
                path = f"{self._files.path}/{log_name(self._end.file_number)}"
                require_noted(path, self._end, self._noted)
            except Corrupt as error:
                self._problem(error)
                self.report.clean, self.report.torn_bytes = False, 0

    def _version(self, report: LogReport) -> None:
        file = self._files.open(report.name)
        try:
            report.version = version_of(read_at_most(file, LOG_HEADER.size, 0), LOG_MAGIC)
        except OSError:
            return  # the walk says where
        finally:
            file.close()

    def _walk(
        self, begin: LogPosition | None, start: LogPosition | None, reports: dict[int, LogReport]
    ) -> None:
        """Check the log from a position, and apply the events behind `start`."""
        walk = LogWalk(self._files, self._instance, begin)
        self._end = begin if begin is not None else LogPosition(1, 0, 0, 0)
        self._ends = False
        try:
            walk.open(lambda file: None)
            for position, batch in walk.batches():
                end = batch.end(position.offset)
                self._end = LogPosition(position.file_number, end, batch.number, batch.digest)
                report = reports[position.file_number]
                report.batches += 1
                report.events += batch.events
                report.last_batch = batch.number
                report.used_bytes = end
                self._progress(end - position.offset)
                if batch.kind != EVENTS:
                    kind = KINDS[batch.kind]
                    report.marks[kind] = report.marks.get(kind, 0) + 1
                events = events_of(self._files, position, batch)
                if start is None or batch.number > start.batch:
                    for event in events:
                        self._named.apply(event)
            tail = walk.tail()
        except Corrupt as error:
            self._problem(error)
            self.report.clean, self.report.torn_bytes = False, 0
            return
        finally:
            walk.close()
        self._ends = True
        self.report.clean, self.report.torn_bytes = tail.clean, tail.torn_bytes

    def _oldest(self, found: list[int], start: LogPosition | None) -> LogPosition | None:
        """The beginning of the oldest log file, so that the part that only an older checkpoint
        needs is checked as well; `start` where that position is unknown."""
        is_known = start is not None or bool(self.report.checkpoints)
        if not found or not is_known or (start is not None and found[0] > start.file_number):
            return start
        walk = LogWalk(self._files, self._instance, LogPosition(found[0], 0, 0, 0))
        try:
            walk.open(lambda file: None)
            header = walk.header(found[0])
        except Corrupt as error:
            self._problem(error)
            return start
        finally:
            walk.close()
        if header is None:
            path = f"{self._files.path}/{log_name(found[0])}"
            self._problem(Corrupt(path, 0, "the header of the log does not verify"))
            return start
        return LogPosition(found[0], 0, header.last_batch, header.last_digest)

    def _segments(self, names: list[str]) -> None:
        named = {ref.segment for refs in self._named.runs.values() for ref in refs}
        found = numbers(names, "seg")
        for number in sorted(named - set(found)):
            path = f"{self._files.path}/{segment_name(number)}"
            self._problem(Corrupt(path, 0, "the file is missing"))
        for number in found:
            name = segment_name(number)
            report = SegmentReport(name, self._size(name), named=number in named)
            self.report.segments.append(report)
            before = len(self.report.problems)
            try:
                self._segment(number, report)
            except Corrupt as error:
                self._problem(error)
            report.verified = len(self.report.problems) == before
            self._progress(report.size_bytes)

    def _segment(self, number: int, report: SegmentReport) -> None:
        path = f"{self._files.path}/{report.name}"
        file = self._files.open(report.name)
        try:
            header = segment.read_header(file, path, number=number, instance=self._instance)
            table = segment.read_table(file, path, header)
            report.runs, report.text_bytes = header.runs, header.payload_bytes
            report.batch = header.batch
            if self._ends:
                segment.require_log(header, path, self._end.batch)
            raw = segment.read_exact(file, path, header.flags_offset, header.flags_bytes)
            flags = np.frombuffer(raw, np.uint8)
            report.rows = len(flags)
            report.dead = int(np.count_nonzero(flags == DELETED))
            report.flag_repairs = len(flags) - report.dead - int(np.count_nonzero(flags == LIVE))
            for row in table:
                self._run(file, path, row)
            for damage in segment.more_damages(file, path, header):
                self._problem(damage)
        finally:
            file.close()

    def _run(self, file: Any, path: str, row: Any) -> None:
        for damage in run_damages(file, path, row):
            self._problem(damage)


def run_damages(file: File, path: str, row: Any) -> Iterator[Corrupt]:
    """What of a run does not verify: its section, or blocks of its text."""
    try:
        segment.check_section(file, path, row)
        shape = segment.shape_of(row)
        at, dtype, items = shape.parts()["blocks"]
        start = int(row["section_offset"]) + at
        raw = segment.read_exact(file, path, start, items * dtype.itemsize)
        base = int(row["text_offset"])
        for block, expected in enumerate(np.frombuffer(raw, dtype).tolist()):
            size = min(BLOCK, shape.text_bytes - block * BLOCK)
            at = base + block * BLOCK
            if digest(segment.read_exact(file, path, at, size)) != expected:
                yield Corrupt(path, at, "a block of text does not verify")
    except Corrupt as damage:
        yield damage


def inspect(files: Files, progress: Callable[[int], None] = lambda checked_bytes: None) -> Report:
    """*Blocking.* Check a data directory that no process writes.

    Args:
        progress: Called with the number of bytes checked since the last call.

    Raises:
        Unusable: It is not a data directory of a format that this version reads.
    """
    try:
        files.prepare(create=False)
    except OSError as error:
        raise Unusable(files.path, error.strerror or str(error)) from error
    known = identity.read(files)
    if known is None:
        raise Unusable(files.path, "not a data directory of topics")
    return Inspection(files, known, progress).run()
