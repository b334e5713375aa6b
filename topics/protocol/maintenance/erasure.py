"""Erasure: which segments still hold text of records that were deleted with `erase` (§5).

A delete hides a record at once; an erasure is done when no file has its bytes any more.  This module
says which segments are to be rewritten for that.  The log that holds the text goes with two
checkpoints, since the store keeps the log of the generation before the newest.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from topics.protocol.engine import Engine
from topics.protocol.maintenance.compaction import Compaction, RunInspection
from topics.protocol.model.ports import Contents


class Holdings(NamedTuple):
    """What a segment holds of some topics.

    Attributes:
        inspections: The runs that are referred to: they may hold dead text.
        has_dropped: There are runs that nothing refers to any more, of these topics or of topics that were deleted:
            all of their text is dead.
    """

    inspections: list[RunInspection]
    has_dropped: bool


class Erasure:
    """Finds the segments that hold dead text of given topics."""

    def __init__(self, engine: Engine, compaction: Compaction) -> None:
        self._state = engine.state
        self._compaction = compaction

    def segments_to_check(self, topic_ids: Iterable[int]) -> list[int]:
        """Segments with runs of these topics, and segments with runs that nothing refers to any
        more, which may be of these topics, or of those that had their names before."""
        segments = self._state.segments
        own = {
            run.ref.segment
            for topic_id in topic_ids
            if (topic := self._state.by_id.get(topic_id)) is not None
            for run in topic.runs
            if run.ref is not None
        }
        return [s for s in segments if s in own or not segments.is_fully_referenced(s)]

    def holdings(self, segment: int, contents: Contents, topic_ids: Sequence[int]) -> Holdings:
        """What the segment holds of these topics."""
        inspections = [
            RunInspection.of(topic, run)
            for topic, run in self._compaction.runs_in(segment, contents)
            if topic.topic_id in topic_ids
        ]
        known = {(each.topic.topic_id, each.run.first_seq) for each in inspections}
        by_id = self._state.by_id
        held = {
            (t, first) for t, first in contents.runs.tolist() if t in topic_ids or t not in by_id
        }
        return Holdings(inspections, bool(held - known))
