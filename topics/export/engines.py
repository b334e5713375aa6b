"""Which program reads a chunk and writes its files.

An engine makes chunks; what is a commit, and in which order they come, is not its concern.  The engine
of this package is `topics.export.writing.chunk_of`, pyarrow in this process.  Another one is given by the
caller, as `topics export` gives Spark's, and keeps the arguments and the promises of that function.
"""

from collections.abc import Callable
from typing import Final, TypeAlias

from topics.arrow.source import TopicSource
from topics.export.compact import compact_topic
from topics.export.manifest import Commit, Damaged, Lineage, Settings
from topics.export.reconcile import reconcile
from topics.export.target import Chunk, Target
from topics.export.verify import verify
from topics.export.writing import Form, Piece, ReadProgress, chunk_of

Engine: TypeAlias = Callable[..., Chunk]

TIDY_FILES: Final = 20
"""Small files of a topic after which a run that follows it merges them."""


class FileExport:
    """A directory of files and the engine that fills it.  Implements `run.Exporting`."""

    def __init__(
        self, target: Target, *, engine: Engine = chunk_of, target_bytes: int, tidies: bool = False
    ) -> None:
        self.target = target
        self._engine = engine
        self._target_bytes = target_bytes
        self._tidies = tidies

    @property
    def settings(self) -> Settings:
        return self.target.settings

    def lineage(self, topic: str) -> Lineage | None:
        return self.target.lineage(topic)

    def chunk(self, source: TopicSource, piece: Piece, progress: ReadProgress) -> Chunk:
        name = piece.seqs.topic
        number = self.target.catalogue.topic_partition(name)
        if number is None and len(source.partitions(name)) > 1:
            number = 0
        form = Form(self.target.codec, self.settings.by, self._target_bytes, number)
        return self._engine(self.target.lake, form, source, piece, progress)

    def commit(self, chunk: Chunk) -> Commit:
        return self.target.commit(chunk)

    def discard(self, chunk: Chunk) -> None:
        self.target.discard(chunk)

    def check(self, commit: Commit) -> None:
        lake, codec = self.target.lake, self.target.codec
        for file in commit.files:
            if lake.size(file.path) != file.bytes:
                raise Damaged(file.path, f"it has not the {file.bytes} bytes that were written")
            if (count := codec.count(lake, file.path)) not in (None, file.rows):
                raise Damaged(file.path, f"it says {count} rows, not {file.rows}")

    def tidy(self, topic: str) -> None:
        if self._tidies:
            compact_topic(self.target, topic, self._target_bytes, fewest=TIDY_FILES)

    def reconcile(self, source: TopicSource, topic: str) -> int:
        return reconcile(self.target, source, topic).erased

    def verify(self, topic: str) -> None:
        for problem in verify(self.target.lake, self.target.catalogue, topic=topic).problems:
            raise problem

    def hand_off(self, topic: str, epoch: str, before_seq: int) -> None:
        self.target.hand_off(topic, epoch, before_seq)
