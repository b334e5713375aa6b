"""An export from its arguments to its result.

Owns the order of things: each topic from where its export ends to the head, chunk after chunk, each
committed before the next.  With several jobs, chunks are read side by side and committed in order.
Whatever stops it, the next run goes on behind the last commit.
"""

from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, Protocol

from topics.arrow.columns import schema
from topics.arrow.loss import DataLoss, Gap, titled
from topics.arrow.scan import Place, Range, require_whole, resolve
from topics.arrow.source import TopicSource, Wanted, now_ms
from topics.export.loading import Unusable
from topics.export.manifest import Commit, Lineage, Settings
from topics.export.planning import Sizer, cut
from topics.export.target import Chunk, codec_of
from topics.export.writing import Piece, ReadProgress, Recreated

OnLoss = Literal["fail", "warn", "record"]
TARGET_BYTES: Final = 256 << 20


class Progress(Protocol):
    """Told what happens, from several threads."""

    def begin(self, topic: str, first: int, last: int) -> None:
        """These seqs of a topic are next."""

    def read(self, topic: str, seq: int, size_bytes: int) -> None:
        """The topic was read through this seq; so many bytes since the last time."""

    def committed(self, commit: Commit) -> None: ...

    def lost(self, gap: Gap) -> None:
        """Loss that the export goes past."""

    def note(self, text: str) -> None: ...


class Exporting(Protocol):
    """Where an export goes: a directory of files (`target.Target` by way of `engines`), or tables."""

    @property
    def settings(self) -> Settings: ...

    def lineage(self, topic: str) -> Lineage | None: ...

    def chunk(self, source: TopicSource, piece: Piece, progress: ReadProgress) -> Chunk:
        """*Blocking.* Read a piece; from several threads."""

    def commit(self, chunk: Chunk) -> Commit: ...

    def discard(self, chunk: Chunk) -> None: ...

    def check(self, commit: Commit) -> None:
        """Raises Damaged: What was just committed is not there as it should be."""

    def tidy(self, topic: str) -> None:
        """Merge what is small, where that is due."""

    def reconcile(self, source: TopicSource, topic: str) -> int:
        """Remove what was deleted in the topic since; returns how many records."""

    def verify(self, topic: str) -> None:
        """Raises Damaged: Not all that was exported is there as it should be."""

    def hand_off(self, topic: str, epoch: str, before_seq: int) -> None:
        """Write down, durably, that the topic's records below a seq are about to be deleted."""


@dataclass(frozen=True, slots=True)
class ExportJob:
    """What is to be exported.

    Attributes:
        topics: Each as a whole, also the partitions that come to it.
        start: As `scan.resolve`; counts for a topic of which nothing was exported yet.
        until: As its `end`.
        jobs: Chunks that are read at once.
        target_bytes: About the size of a file.
    """

    topics: tuple[str, ...]
    start: Place = "earliest"
    until: Place = "latest"
    loss: OnLoss = "fail"
    jobs: int = 1
    target_bytes: int = TARGET_BYTES


@dataclass(slots=True)
class Result:
    """What a run did.

    Attributes:
        is_stopped: It was asked to stop before its end.
        recreated: Topics whose earlier instance the export goes past.
    """

    commits: int = 0
    rows: int = 0
    deleted: int = 0
    files: int = 0
    bytes: int = 0
    corrupt: int = 0
    rounded: int = 0
    filtered: int = 0
    lost: list[Gap] = field(default_factory=list)
    recreated: list[str] = field(default_factory=list)
    is_stopped: bool = False

    @property
    def missed(self) -> int:
        return sum(gap.missed for gap in self.lost)

    def add(self, commit: Commit) -> None:
        self.commits += 1
        self.rows += commit.rows
        self.deleted += commit.deleted
        self.files += len(commit.files)
        self.bytes += sum(file.bytes for file in commit.files)
        self.corrupt += commit.corrupt
        self.rounded += commit.rounded
        self.filtered += commit.filtered
        self.lost += [Gap(commit.topic, g.first, g.last, g.reason) for g in commit.lost]


class ExportRun:
    """One run of an export; `once` may be called again to follow the topics.

    Args:
        stop: Asked between two chunks whether to end.
    """

    def __init__(
        self,
        source: TopicSource,
        target: Exporting,
        job: ExportJob,
        progress: Progress,
        *,
        stop: Callable[[], bool] = lambda: False,
    ) -> None:
        self.result = Result()
        self._source = source
        self._target = target
        self._job = job
        self._progress = progress
        self._stop = stop
        self._sizers = defaultdict[str, Sizer](lambda: Sizer(job.target_bytes))

    def once(self) -> Result:
        """Export all that there is of each topic by now.

        Raises:
            DataLoss: Something is lost, and that is a failure; what was committed before stays.
            Unusable: The export is of another place than the source.
            NoSuchTopic, NotReadable, Damaged, Corrupt, OSError, TopicsError.
        """
        names = (n for topic in self._job.topics for n in self._source.partitions(topic))
        for name in names:
            each = plan(self._source, self._target.lineage(name), self._job, name)
            if each.last_seq < each.first_seq:
                continue
            if self._is_another(name, each) and name not in self.result.recreated:
                self.result.recreated.append(name)
                self._progress.note(
                    f"{titled(name)} was deleted and created again; its export goes on with the new one"
                )
            if self._job.loss == "fail":
                require_whole(self._source, each, self._wanted())
            self._progress.begin(name, each.first_seq, each.last_seq)
            try:
                self._export(each)
            except Recreated:
                # The next look sees the new instance, and so does the handling of loss.
                self._progress.note(f"{titled(name)} was deleted while it was read")
                plan(self._source, self._target.lineage(name), self._job, name)
            if self._stop():
                self.result.is_stopped = True
                break
        return self.result

    def _is_another(self, name: str, each: Range) -> bool:
        lineage = self._target.lineage(name)
        return lineage is not None and lineage.epoch != each.epoch

    def _wanted(self) -> Wanted:
        settings = self._target.settings
        columns = schema(codec_of(settings).columns)
        return Wanted(columns, tag_prefix=settings.tag_prefix, asof_ms=now_ms())

    def _export(self, each: Range) -> None:
        if self._job.jobs == 1:
            for only in self._parts(each):
                self._commit(self._chunk(only))
            return
        flying: deque[Future[Chunk]] = deque()
        parts = self._parts(each)
        with ThreadPoolExecutor(self._job.jobs, "topics-export") as threads:
            try:
                while True:
                    while len(flying) < self._job.jobs and (part := next(parts, None)) is not None:
                        flying.append(threads.submit(self._chunk, part))
                    if not flying:
                        return
                    self._commit(flying.popleft().result())
            finally:
                for future in flying:
                    if not future.cancel() and future.exception() is None:
                        self._target.discard(future.result())

    def _parts(self, each: Range) -> Iterator[Range]:
        """The range in pieces of a commit each, until it ends or the run is to stop."""
        borders = self._source.borders(each.topic, each.first_seq, each.last_seq)
        first = each.first_seq
        while first <= each.last_seq and not self._stop():
            last = cut(first, each.last_seq, self._sizers[each.topic].seqs, borders)
            yield Range(each.topic, each.epoch, first, last)
            first = last + 1

    def _chunk(self, part: Range) -> Chunk:
        return self._target.chunk(
            self._source,
            Piece(part, self._wanted(), self._job.loss == "fail"),
            lambda seq, size: self._progress.read(part.topic, seq, size),
        )

    def _commit(self, chunk: Chunk) -> None:
        commit = self._target.commit(chunk)
        self._target.check(commit)
        self._sizers[chunk.topic].learn(
            commit.last - commit.first + 1, sum(file.bytes for file in commit.files)
        )
        self.result.add(commit)
        for gap in commit.lost:
            self._progress.lost(Gap(commit.topic, gap.first, gap.last, gap.reason))
        self._progress.committed(commit)
        self._target.tidy(chunk.topic)


class IsAnother(DataLoss):
    """The topic was deleted and created again since it was exported."""

    def __init__(self, topic: str, last: int) -> None:
        self.gaps = ()
        Exception.__init__(
            self,
            f"{titled(topic)} was deleted and created again: what it had behind seq {last} before "
            "is lost; export it to another directory, or go on with the new one by --loss warn",
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return Exception, self.args


def exported_then(lineage: Lineage | None, each: Range) -> Lineage:
    """What of a topic is exported once `each` is, too."""
    if lineage is None or lineage.epoch != each.epoch:
        return Lineage(each.topic, each.epoch, each.first_seq, each.last_seq)
    return replace(lineage, last=max(lineage.last, each.last_seq))


def plan(source: TopicSource, lineage: Lineage | None, job: ExportJob, name: str) -> Range:
    """The seqs of a topic that are next; empty where there are none.

    Raises:
        IsAnother: The topic is another instance, and loss is a failure.
        Unusable: More was exported than the topic has.
        NoSuchTopic, NotReadable, ValueError: As `scan.resolve`.
    """
    if lineage is None:
        return resolve(source, name, job.start, job.until)
    fresh = resolve(source, name, lineage.last + 1, job.until)
    if fresh.epoch != lineage.epoch:
        if job.loss == "fail":
            raise IsAnother(name, lineage.last)
        return resolve(source, name, "earliest", job.until)
    head = source.bounds(name).head_seq
    if head < lineage.last:
        raise Unusable(
            f"{titled(name)} ends with seq {head}, but {lineage.last} is exported: is this another "
            "data directory, or one that was restored?"
        )
    return fresh
