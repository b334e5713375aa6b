"""The proof that no deleted record came back: live flags counted against the log's own numbers.

Every event that changes what lives carries the count that it left behind, and a delete flag is a
byte in a segment.  The two are written apart, so that a flag that a copy lost shows as one record
more than the log says (decision on incremental backups, FORMAT.md).  Opens each segment once, reads
its table and flags, and maps nothing.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.errors import Corrupt
from topics.protocol.model.events import PlaceReached
from topics.protocol.model.limits import Limits
from topics.protocol.model.records import DELETED, LIVE
from topics.protocol.state.state import State
from topics.protocol.state.topic import Topic
from topics.store import identity, segment
from topics.store.files import Files
from topics.store.layout import segment_name
from topics.store.reader import ReadOnlyStore
from topics.store.runs import NEAREST, SealedRun


@dataclass(frozen=True, slots=True)
class Living:
    """What lives in a directory: topics and records; of a node's store, its place in the log that
    nodes share."""

    topics: int
    records: int
    place: PlaceReached | None = None


def prove(files: Files) -> Living:
    """*Blocking.* Recover a directory without changing it, and count what lives in it.

    Raises:
        Corrupt: It does not verify, or a topic has another number of live records than its log says.
        Unusable: It is no data directory.
    """
    store = ReadOnlyStore(files)
    state = State(Limits(), store)
    try:
        store.restore(state)
        store.follow(state, to_the_end=True)
        live = _counted(files, state)
    finally:
        store.close()
    for topic in state.by_id.values():
        found = live.get(topic.topic_id, 0)
        # What lived in memory only is in the count and in no file.
        is_whole = topic.durability.is_logged and topic.topic_id not in state.lossy
        if is_whole and found != topic.count:
            what = f'topic "{topic.name}" has {found} live records, and {topic.count} by its log'
            raise Corrupt(files.path, 0, what)
    return Living(state.topic_count, sum(live.values()), state.place)


def _counted(files: Files, state: State) -> dict[int, int]:
    """Live records by topic id."""
    live: dict[int, int] = {}
    sealed: dict[int, list[tuple[Topic, SealedRun, int]]] = {}
    for topic in state.by_id.values():
        for run, lo in topic.runs.reaching(topic.gone_through() + 1):
            if isinstance(run, SealedRun):
                sealed.setdefault(run.segment, []).append((topic, run, lo))
            else:
                rows = int(np.count_nonzero(run.flags[lo:] == LIVE))
                live[topic.topic_id] = live.get(topic.topic_id, 0) + rows
    known = identity.read(files)
    assert known is not None
    for number, runs in sorted(sealed.items()):
        table, first, flags = _flags(files, number, known.instance)
        for topic, run, lo in runs:
            row = table[run.index]
            at = int(row["flags_offset"]) - first
            mine = NEAREST[flags[at : at + run.count]]
            mine[run.deleted_rows()] = DELETED
            rows = int(np.count_nonzero(mine[lo:] == LIVE))
            live[topic.topic_id] = live.get(topic.topic_id, 0) + rows
    return live


def _flags(files: Files, number: int, instance: bytes) -> tuple[NDArray[Any], int, NDArray[Any]]:
    """(run table, offset of the first flag, flags) of a segment.  Raises Corrupt."""
    path = f"{files.path}/{segment_name(number)}"
    file = files.open(segment_name(number))
    try:
        header = segment.read_header(file, path, number=number, instance=instance)
        table = segment.read_table(file, path, header)
        raw = segment.read_exact(file, path, header.flags_offset, header.flags_bytes)
    finally:
        file.close()
    return table, header.flags_offset, np.frombuffer(raw, np.uint8)
