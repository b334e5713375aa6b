"""Files that are missing or damaged, made again from the topic where it still has their records."""

from dataclasses import dataclass, field

from topics.arrow.columns import schema
from topics.arrow.source import TopicSource, Wanted, now_ms
from topics.export.manifest import Damaged, File, Lineage, Swap
from topics.export.planning import partition_of
from topics.export.target import Staged, Target
from topics.export.verify import of_partition, problem_of
from topics.export.writing import StagedFiles, about_lineage


@dataclass(slots=True)
class Repaired:
    """What became of the files that were missing or damaged.

    Attributes:
        files: Paths of those that were made again.
        rows: Records in them.
        erased: Records that were deleted in the topic since, which they therefore lack.
        left: Those that could not be, and why.
    """

    files: list[str] = field(default_factory=list)
    rows: int = 0
    erased: int = 0
    left: list[Damaged] = field(default_factory=list)


def repair(target: Target, source: TopicSource) -> Repaired:
    """Make again what is missing or damaged.

    Raises:
        NoSuchTopic, NotReadable, Corrupt, OSError, TopicsError: Of the source.
    """
    done = Repaired()
    for topic, lineages in list(target.catalogue.lineages.items()):
        for lineage in lineages:
            for file in list(lineage.files.values()):
                problem = problem_of(target.lake, target.codec, file)
                if problem is None:
                    continue
                why = _why_not(source, lineage, file)
                if why:
                    done.left.append(Damaged(file.path, f"{problem.what}; {why}"))
                    continue
                added = _fetched(target, source, lineage, file)
                rows = sum(each.rows for each in added)
                if rows > file.rows:
                    for staged in added:
                        target.lake.unlink(staged.path)
                    what = f"the topic has {rows} records for it, and it had {file.rows}"
                    done.left.append(Damaged(file.path, what))
                    continue
                erased = file.rows - rows
                target.swap(Swap("repair", topic, lineage.epoch, (file.path,), (), erased), added)
                done.files.append(file.path)
                done.rows += rows
                done.erased += erased
    return done


def _why_not(source: TopicSource, lineage: Lineage, file: File) -> str:
    """Why the topic cannot give a file's records again; empty where it can."""
    if source.bounds(lineage.topic).epoch != lineage.epoch:
        return "the topic was deleted and created again"
    if file.first <= lineage.handed:
        return f"its records through seq {lineage.handed} were handed off and deleted in the topic"
    gaps = source.gaps(lineage.topic, file.first, file.last, asof_ms=now_ms())
    return f"{gaps[0]}" if gaps else ""


def _fetched(target: Target, source: TopicSource, lineage: Lineage, file: File) -> list[Staged]:
    settings = target.settings
    wanted = Wanted(schema(target.codec.columns), tag_prefix=settings.tag_prefix, asof_ms=now_ms())
    files = StagedFiles(
        target.lake,
        target.codec,
        settings.by,
        target_bytes=1 << 62,
        about=about_lineage(lineage, [file]),
        topic_partition=target.catalogue.topic_partition(lineage.topic),
    )
    try:
        for part in of_partition(source, lineage.topic, file, settings.by, wanted):
            files.write(partition_of(file.path), target.codec.rendered(part).rows)
        return files.finish()
    except BaseException:
        files.abort()
        raise
