"""One topic of one stream, or one partition: where the stream stands in it, and what moves it; and the stream (§7).

`state.watches` owns both, chooses their frames and calls `wake`.
"""

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import Final, Protocol

import msgspec

from topics.protocol.model.access import ANYONE, GONE, Caller
from topics.protocol.model.commands import View
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.state.frames import Frame, RecordFrame

WATCHED_BYTES: Final = 600
"""What a watched topic takes in memory, about, beside its names and filters."""
TEXT_BYTES: Final = 60
"""What a string takes beside its characters, about."""


class WatchPlace(StrEnum):
    """Where a stream stands in one topic."""

    CONNECTING = "connecting"
    """The stream has not reached the head yet: its first `caught-up` is still to come."""
    BEHIND = "behind"
    """It was live, and a frame ended before the head."""
    LIVE = "live"
    GONE = "gone"
    """The instance was deleted, or cannot be read: no more frames of it on this stream."""


class WatchStep(StrEnum):
    """What moves a stream from place to place in a topic."""

    OPENED = "opened"
    CUT_SHORT = "cut short"
    """A frame ended before the head."""
    DRAINED = "drained"
    DELETED = "deleted"
    UNREADABLE = "unreadable"
    """The next records are damaged on the disk."""


WATCH_TRANSITIONS: Final[dict[tuple[WatchPlace, WatchStep], WatchPlace]] = {
    (WatchPlace.CONNECTING, WatchStep.OPENED): WatchPlace.CONNECTING,
    (WatchPlace.CONNECTING, WatchStep.CUT_SHORT): WatchPlace.CONNECTING,
    (WatchPlace.CONNECTING, WatchStep.DRAINED): WatchPlace.LIVE,
    (WatchPlace.CONNECTING, WatchStep.DELETED): WatchPlace.GONE,
    (WatchPlace.BEHIND, WatchStep.OPENED): WatchPlace.CONNECTING,
    (WatchPlace.BEHIND, WatchStep.CUT_SHORT): WatchPlace.BEHIND,
    (WatchPlace.BEHIND, WatchStep.DRAINED): WatchPlace.LIVE,
    (WatchPlace.BEHIND, WatchStep.DELETED): WatchPlace.GONE,
    (WatchPlace.LIVE, WatchStep.OPENED): WatchPlace.CONNECTING,
    (WatchPlace.LIVE, WatchStep.CUT_SHORT): WatchPlace.BEHIND,
    (WatchPlace.LIVE, WatchStep.DRAINED): WatchPlace.LIVE,
    (WatchPlace.LIVE, WatchStep.DELETED): WatchPlace.GONE,
    (WatchPlace.GONE, WatchStep.OPENED): WatchPlace.CONNECTING,
    (WatchPlace.CONNECTING, WatchStep.UNREADABLE): WatchPlace.GONE,
    (WatchPlace.BEHIND, WatchStep.UNREADABLE): WatchPlace.GONE,
    (WatchPlace.LIVE, WatchStep.UNREADABLE): WatchPlace.GONE,
}
"""The lifecycle of a watched topic; a pair that is missing cannot happen."""


class Copies(Protocol):
    """Copies that routers owe a topic: those of all that was acknowledged by some moment."""

    @property
    def is_passed(self) -> bool:
        """Whether they are there, or their router is blocked; once true, it stays so."""


class Watched(msgspec.Struct, eq=False):
    """One topic of a session or socket, or one of its partitions: the instance and the position in it.

    Attributes:
        name: The engine's name of the partition.
    """

    name: str
    topic_id: int
    cursor: int
    view: View
    place: WatchPlace = WatchPlace.CONNECTING
    last_head_seq: int = 0
    is_first_look: bool = True
    is_heir: bool = False
    """`recreated` was sent: the position is in `topic_id` and in no earlier instance."""
    is_stale: bool = False
    """The client's position is in an earlier instance: `recreated` did not reach it."""
    stream: "Stream | None" = None
    is_queued: bool = False
    copies: Copies | None = None
    """What `caught-up` waits for."""
    partition: int | None = None
    """Which it is, where the topic has several."""
    takes_more: bool = True
    """Of a topic's first partition: those that it gets later are watched, too."""

    @property
    def memory_bytes(self) -> int:
        """About what it holds, the filters with it although topics of a session may share them."""
        return memory_bytes_of((self,))

    def step(self, step: WatchStep) -> None:
        self.place = WATCH_TRANSITIONS[self.place, step]


def memory_bytes_of(many: Iterable[Watched]) -> int:
    """About what they hold together; a filter that they share is looked at once, and counts for each."""
    found, view, of_filters = 0, None, 0
    for watched in many:
        if watched.view is not view:
            view = watched.view
            of_filters = sum(TEXT_BYTES + len(node) for node in view.nodes)
            if view.match is not None:
                of_filters += 2 * (TEXT_BYTES + len(view.match.lower))
        found += WATCHED_BYTES + TEXT_BYTES + len(watched.name) + of_filters
    return found


class StreamEnd(Enum):
    """Why the server ends a stream, as a sentence for its client."""

    TAKEN_OVER = "another stream of this session took over"
    KEY_REMOVED = GONE
    MOVED = "another process serves a topic of this stream now; connect again"


@dataclass(slots=True, eq=False)
class Stream:
    """What an open connection watches, and which of it may have frames.

    Attributes:
        wake: Called when there may be a frame to pull.
        watched: By the engine's names of partitions; a session's is the session's own.
        push: Takes a frame at once where the client reads; else False, and nothing has changed.  None:
            the stream has something else to send first, or several topics, and pulls its frames.
        passing: Topics of this pass that were not pulled yet, one frame each.
        waiting: Topics of the next pass.
        pending: Frames that come before any other.
        ended_by: Why the server ended it, where it did.
        holder: In whose share it counts.
        owner: Whose connection it is.
        lacks: Its topics may have partitions that it does not watch yet: it gets them when it is pulled.
    """

    wake: Callable[[], None]
    watched: dict[str, Watched] = field(default_factory=dict)
    passing: deque[Watched] = field(default_factory=deque)
    waiting: list[Watched] = field(default_factory=list)
    pending: deque[Frame] = field(default_factory=deque)
    ended_by: StreamEnd | None = None
    holder: Holder = NOBODY
    owner: Caller = ANYONE
    push: Callable[[RecordFrame], bool] | None = None
    lacks: bool = False

    @property
    def is_drained(self) -> bool:
        """Whether there is no frame to pull before `wake` is called."""
        return not (self.waiting or self.passing or self.pending or self.lacks)

    def queue(self, watched: Watched) -> None:
        if not watched.is_queued and watched.place is not WatchPlace.GONE:
            watched.is_queued = True
            self.waiting.append(watched)

    def end(self, why: StreamEnd) -> None:
        self.ended_by = why
        self.push = None
        self.wake()
