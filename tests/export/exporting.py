"""Exports for tests: a source in memory, an export of it, and what a reader finds there."""

from typing import Any

from topics.arrow.remote import RemoteSource
from topics.arrow.source import TopicSource
from topics.export.compact import reading_codec
from topics.export.engines import FileExport
from topics.export.lake import Lake
from topics.export.loading import load
from topics.export.manifest import Catalogue, Commit, Settings
from topics.export.planning import Sizer
from topics.export.run import ExportJob, ExportRun, Result
from topics.export.target import Target, codec_of, open_target

PARQUET = Settings("parquet", "none")
JSONL = Settings("jsonl", "none")


class Quiet:
    """Progress that is kept."""

    def __init__(self) -> None:
        self.said: list[str] = []
        self.commits: list[Commit] = []

    def begin(self, topic: str, first: int, last: int) -> None:
        self.said.append(f"{topic} {first}-{last}")

    def read(self, topic: str, seq: int, size_bytes: int) -> None: ...

    def committed(self, commit: Commit) -> None:
        self.commits.append(commit)

    def lost(self, gap: Any) -> None:
        self.said.append(str(gap))

    def note(self, text: str) -> None:
        self.said.append(text)


def export(
    source: TopicSource,
    lake: Lake,
    *topics: str,
    settings: Settings = PARQUET,
    commit_seqs: int = 1 << 18,
    stop: Any = lambda: False,
    tidies: bool = False,
    compression: str | None = None,
    **job: Any,
) -> Result:
    """One run, with commits of so many seqs."""
    target = open_target(lake, settings, compression=compression, now_ms=lambda: 1)
    with target:
        return run(
            source, target, *topics, commit_seqs=commit_seqs, stop=stop, tidies=tidies, **job
        )


def run(
    source: TopicSource,
    target: Target,
    *topics: str,
    commit_seqs: int = 1 << 18,
    stop: Any = lambda: False,
    tidies: bool = False,
    **job: Any,
) -> Result:
    wanted = ExportJob(topics or ("t",), **job)
    exported = FileExport(target, target_bytes=wanted.target_bytes, tidies=tidies)
    made = ExportRun(source, exported, wanted, Quiet(), stop=stop)
    for name in wanted.topics:
        made._sizers[name] = Sizer(wanted.target_bytes, commit_seqs)
    return made.once()


def rows(lake: Lake, topic: str = "t") -> list[dict[str, Any]]:
    """The rows of the newest instance of a topic, in order of their seqs."""
    catalogue = load(lake)
    codec = codec_of(catalogue.settings)
    found = []
    lineage = catalogue.current(topic)
    for path in lineage.files if lineage else ():
        for batch in reading_codec(codec, path).batches(lake, path):
            found += batch.to_pylist()
    return sorted(found, key=lambda row: row["seq"])


def seqs(lake: Lake, topic: str = "t") -> list[int]:
    return [row["seq"] for row in rows(lake, topic)]


def visible(lake: Lake, topic: str = "t") -> list[int]:
    """Seqs that a reader of the directory finds, manifest or not."""
    names = [path for path in lake.files() if path.startswith(f"{topic}/")]
    codec = codec_of(load(lake).settings)
    return sorted(
        row["seq"]
        for p in names
        for b in reading_codec(codec, p).batches(lake, p)
        for row in b.to_pylist()
    )


def live(source: TopicSource, topic: str = "t") -> list[int]:
    """Seqs that the topic has now."""
    from topics.arrow.columns import schema
    from topics.arrow.loss import Gap
    from topics.arrow.source import Wanted

    head = source.bounds(topic).head_seq
    found = source.read(topic, 1, head, Wanted(schema(["seq"])))
    return [seq for b in found if not isinstance(b, Gap) for seq in b.column("seq").to_pylist()]


def catalogue_of(lake: Lake) -> Catalogue:
    return load(lake)


def remote(memory: Any) -> RemoteSource:
    return RemoteSource(memory.client, ahead=1)
