"""Records that were deleted in a topic after they were exported, removed from its export.

A delete leaves no trace in the topic (§5), so this is how an export learns of it: what the export
has and the topic has not is removed, but for what the topic lost, and for what was handed off to the
export, which is the topic's no longer.

Below its `evict_floor` a topic does not say which records were deleted before the others were
evicted: reconcile before a cap or an expiry gets to records whose deletes are to reach the export.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from topics.arrow.columns import schema
from topics.arrow.loss import Gap, titled
from topics.arrow.source import TopicSource, Wanted
from topics.export.compact import codec_for
from topics.export.loading import Unusable
from topics.export.manifest import File, Lineage, Swap
from topics.export.planning import partition_of
from topics.export.target import Staged, Target
from topics.export.verify import Seqs, add_lost
from topics.export.writing import StagedFiles, about_lineage


@dataclass(slots=True)
class Reconciled:
    """How many records were removed from a topic's export, and files written anew for that.

    Attributes:
        is_another: The topic is another instance now, or gone: its export is as it was.
    """

    topic: str
    erased: int = 0
    files: int = 0
    is_another: bool = False


def reconcile(
    target: Target,
    source: TopicSource,
    topic: str,
    *,
    progress: Callable[[File], None] = lambda _file: None,
) -> Reconciled:
    """Remove from a topic's export what was deleted in the topic.

    Raises:
        Unusable: The topic ends before the export does.
        NoSuchTopic, NotReadable, Damaged, Corrupt, OSError, TopicsError.
    """
    done = Reconciled(topic)
    lineage = reconcilable(target.lineage(topic), source, done)
    if lineage is None:
        return done
    for file in list(lineage.files.values()):
        if file.last > lineage.handed:
            done.erased += _reconcile_file(target, source, lineage, file)
            done.files += file.path not in lineage.files
        progress(file)
    return done


def reconcilable(lineage: Lineage | None, source: TopicSource, done: Reconciled) -> Lineage | None:
    """The lineage, if the topic is its instance; else None, and `done` says where it is another's.

    Raises:
        Unusable: The topic ends before the export does.
    """
    if lineage is not None and not is_same_topic(source, lineage):
        done.is_another = True
        return None
    return lineage


def is_same_topic(source: TopicSource, lineage: Lineage) -> bool:
    """Whether the topic is the instance that was exported.

    Raises:
        Unusable: It ends before the export does.
    """
    bounds = source.bounds(lineage.topic)
    if bounds.epoch == lineage.epoch and bounds.head_seq < lineage.last:
        raise Unusable(
            f"{titled(lineage.topic)} ends with seq {bounds.head_seq}, but {lineage.last} is "
            "exported: is this another data directory, or one that was restored?"
        )
    return bounds.epoch == lineage.epoch


def _reconcile_file(target: Target, source: TopicSource, lineage: Lineage, file: File) -> int:
    """Returns how many rows were removed."""
    known = known_of(source, lineage, file.first, file.last)
    codec = codec_for(target, file)
    rows = (batch.column("seq").to_numpy() for batch in codec.batches(target.lake, file.path))
    dead = sum(int((~known(seqs)).sum()) for seqs in rows)
    if dead:
        added = _without(target, lineage, file, known)
        target.swap(Swap("reconcile", lineage.topic, lineage.epoch, (file.path,), (), dead), added)
    return dead


def known_of(
    source: TopicSource, lineage: Lineage, first: int, last: int
) -> Callable[[NDArray[np.int64]], NDArray[np.bool_]]:
    """Which seqs of [first, last] are to stay."""
    live = np.zeros(last - first + 1, np.bool_)
    gaps = Seqs()
    floor = source.evict_floor(lineage.topic)
    # No expiry: what has expired is lost, and not deleted.
    for found in source.read(lineage.topic, first, last, Wanted(schema(["seq"]))):
        if isinstance(found, Gap):
            add_lost(source, found, gaps, floor)
        else:
            live[found.column("seq").to_numpy() - first] = True

    def known(seqs: NDArray[np.int64]) -> NDArray[np.bool_]:
        kept: NDArray[np.bool_] = live[seqs - first]
        return kept | (seqs <= lineage.handed) | gaps.holds(seqs)

    return known


def _without(
    target: Target,
    lineage: Lineage,
    file: File,
    known: Callable[[NDArray[np.int64]], NDArray[np.bool_]],
) -> list[Staged]:
    files = StagedFiles(
        target.lake,
        target.codec,
        target.settings.by,
        target_bytes=1 << 62,
        about=about_lineage(lineage, [file]),
        topic_partition=target.catalogue.topic_partition(lineage.topic),
    )
    try:
        for batch in codec_for(target, file).batches(target.lake, file.path):
            keep = known(batch.column("seq").to_numpy())
            files.write(partition_of(file.path), batch.filter(pa.array(keep)))
        return files.finish()
    except BaseException:
        files.abort()
        raise
