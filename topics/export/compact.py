"""Small files merged into large ones, the rows the same."""

from dataclasses import dataclass

from topics.export.codec import Codec
from topics.export.lake import Lake
from topics.export.manifest import Damaged, File, Lineage, Swap
from topics.export.planning import mergeable, partition_of
from topics.export.target import Staged, Target
from topics.export.writing import StagedFiles, about_lineage


@dataclass(slots=True)
class Compacted:
    """How many files became how many, and their bytes."""

    before: int = 0
    after: int = 0
    bytes_before: int = 0
    bytes_after: int = 0


def compact(target: Target, target_bytes: int) -> Compacted:
    """Merge what is small, in every topic and partition.

    Raises:
        Damaged: A file is not what the manifest says; it stays as it is.
        OSError.
    """
    done = Compacted()
    for topic in list(target.catalogue.lineages):
        compact_topic(target, topic, target_bytes, done=done)
    return done


def compact_topic(
    target: Target,
    topic: str,
    target_bytes: int,
    *,
    fewest: int = 2,
    done: Compacted | None = None,
) -> None:
    """Merge what is small in a topic, where at least so many files become one."""
    for lineage in target.catalogue.lineages.get(topic, []):
        partitions: dict[str, list[File]] = {}
        for file in lineage.files.values():
            partitions.setdefault(partition_of(file.path), []).append(file)
        for partition, files in sorted(partitions.items()):
            for group in mergeable(files, target_bytes, fewest=fewest):
                added = _merge(target, lineage, partition, group)
                removed = tuple(file.path for file in group)
                swap = Swap("compact", topic, lineage.epoch, removed, (), erased=0)
                target.swap(swap, added)
                if done is not None:
                    done.before += len(group)
                    done.after += len(added)
                    done.bytes_before += sum(file.bytes for file in group)
                    done.bytes_after += sum(file.bytes for file in added)


def _merge(target: Target, lineage: Lineage, partition: str, group: list[File]) -> list[Staged]:
    # One file however large: the group is as large as the target at most.
    files = StagedFiles(
        target.lake,
        target.codec,
        target.settings.by,
        target_bytes=1 << 62,
        about=about_lineage(lineage, group),
        topic_partition=target.catalogue.topic_partition(lineage.topic),
    )
    try:
        for file in group:
            rows = 0
            for batch in codec_for(target, file).batches(target.lake, file.path):
                rows += len(batch)
                files.write(partition, batch)
            if rows != file.rows:
                raise Damaged(file.path, f"it has {rows} rows, not {file.rows}")
        return files.finish()
    except BaseException:
        files.abort()
        raise


def codec_for(target: Target, file: File) -> Codec:
    """The codec that a file was written with: files of JSON lines say their compression in their
    names, and may have others than the next ones."""
    return reading_codec(target.codec, file.path)


def reading_codec(codec: Codec, path: str) -> Codec:
    from topics.export.jsonl import JsonlCodec

    for suffix, compression in ((".jsonl", "none"), (".jsonl.gz", "gzip"), (".jsonl.zst", "zstd")):
        if path.endswith(suffix):
            return JsonlCodec(compression)
    return codec


def rows_of(codec: Codec, lake: Lake, file: File) -> int:
    """The rows of a file, counted."""
    return sum(len(batch) for batch in reading_codec(codec, file.path).batches(lake, file.path))
