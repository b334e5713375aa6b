"""What a turn of a leader changes for readers, while it is not known to be accepted.

Owns the set of topics that the events of one turn touch.  A read of a topic that is touched waits for
the turn; a read of another one does not.  What is appended is not shown before it is accepted, whoever
asks; so a stream, which would otherwise never be still under load, waits only for what *hides*: events
after which readers see less of a topic than before, or something else.

Invariant: an event that is not known here to be harmless touches every topic.
"""

from typing import Final

from topics.protocol.cluster.rule.unit import LOCAL_EVENTS
from topics.protocol.model.events import (
    CursorsMoved,
    Event,
    GroupChanged,
    GroupDeleted,
    JobsLeased,
    JobsNoted,
    JobsReleased,
    OffsetsCommitted,
    RecordsAppended,
    ScheduleConfigured,
    ScheduleDeleted,
    SeqsReserved,
    TimePassed,
    TopicCreated,
    TopicDeleted,
    source_of,
)
from topics.protocol.state.state import State

_GROUPS: Final = (GroupChanged, GroupDeleted, OffsetsCommitted)
_SCHEDULES: Final = (ScheduleConfigured, ScheduleDeleted)
_UNSEEN: Final = (
    *(*LOCAL_EVENTS, *_GROUPS, *_SCHEDULES),
    *(CursorsMoved, SeqsReserved, TimePassed),
)
"""Of these, no read of a topic tells."""
_ADDS: Final = (JobsLeased, JobsNoted, JobsReleased)
"""After these a stream shows what it showed before."""


class Footprint:
    """Of one turn.

    Attributes:
        touched: Names of topics that reads may see otherwise after it.
        hidden: Those of them of which streams may.
        is_wide: Any topic may be touched, and hidden.
        may_expire: Its time may have let records expire.
    """

    __slots__ = ("hidden", "is_wide", "may_expire", "touched")

    def __init__(self) -> None:
        self.touched: set[str] = set()
        self.hidden: set[str] = set()
        self.is_wide = False
        self.may_expire = False

    def note(self, event: Event, state: State) -> None:
        """An event that is about to be applied."""
        if isinstance(event, _UNSEEN):
            return
        if isinstance(event, TopicCreated):
            self.touched.add(event.name)
            self.hidden.add(event.name)
            return
        topic = state.by_id.get(getattr(event, "topic_id", 0))
        if topic is None or isinstance(event, TopicDeleted):
            # Its streams are told at once, also those that no longer list it.
            self.is_wide = True
            return
        self.touched.add(topic.name)
        if isinstance(event, _ADDS):
            return
        if isinstance(event, RecordsAppended):
            left_id = source_of(event.cause)
            if left_id is not None:
                left = state.by_id[left_id].name
                self.touched.add(left)
                self.hidden.add(left)
            if event.floors == topic.floors:
                return
        self.hidden.add(topic.name)
