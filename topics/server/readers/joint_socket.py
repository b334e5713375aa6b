"""What a WebSocket in a reader is subscribed to: some here, the rest in the engine's process.

Owns which topic is subscribed where.  Subscriptions to topics that are this reader's are its own; any other
is made in the engine's process, which has the other half of the WebSocket and with it the count of
connections and the end.

Invariant: a topic is subscribed in one half.
"""

from collections.abc import Callable, Mapping
from typing import Protocol

from topics.protocol.driver.group_commit import Ticket
from topics.protocol.driver.streams import DamagedFrame, Pulled, RecordFrame, StreamEnd
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.links.remote_streams import RemoteSocket
from topics.server.service.frames import Found
from topics.server.service.service import LocalSocket, Opened, Positions


class Follows(Protocol):
    """The shell of a reader, as far as a socket asks it."""

    @property
    def can_follow(self) -> bool: ...

    def look(self) -> bool: ...

    def when_current(self, call: Callable[[], None]) -> None: ...


class JointSocket:
    """Implements `service.WatchSocket`.

    Args:
        remote: The half in the engine's process.
        open_local: Opens the half that is this process's.  Raises Rejection.
        is_theirs: Whether this reader may serve a watch of a topic.
        most: Topics that a socket may watch.
    """

    def __init__(
        self,
        remote: RemoteSocket,
        shell: Follows,
        open_local: Callable[[], LocalSocket],
        is_theirs: Callable[[str], bool],
        most: int,
    ) -> None:
        self._remote = remote
        self._shell = shell
        self._open_local = open_local
        self._is_theirs = is_theirs
        self._most = most
        self._local: LocalSocket | None = None
        self._may_be_local = True
        self._there: set[str] = set()
        """Topics that are subscribed in the engine's process."""
        self._is_local_next = False
        self._is_closed = False
        self._wake: Callable[[], None] = _nothing

    # ------------------------------------------------------------------ orders

    def subscribe(
        self, topics: Mapping[str, Begin], view: View, now_ms: int, deliver: Opened[Positions]
    ) -> Positions | Ticket:
        if not self._shell.can_follow or self._shell.look():
            return self._subscribe(topics, view, now_ms, deliver)

        def go_on() -> None:
            if self._is_closed:
                return
            try:
                found = self._subscribe(topics, view, now_ms, deliver)
            except Rejection as refusal:
                deliver(refusal)
            else:
                if not isinstance(found, Ticket):
                    deliver(found)

        self._shell.when_current(go_on)
        return Ticket(_nothing)

    def _subscribe(
        self, topics: Mapping[str, Begin], view: View, now_ms: int, deliver: Opened[Positions]
    ) -> Positions | Ticket:
        names = topics.keys()
        here = set() if self._local is None else set(self._local.names)
        if len(here | self._there | names) > self._most:
            why = f"a socket watches at most {self._most} topics"
            raise Rejection(ErrorCode.INVALID_REQUEST, why)
        may_be_here = not view.strong and self._shell.can_follow and self._there.isdisjoint(names)
        if may_be_here and all(map(self._is_theirs, names)):
            local = self._local_half()
            if local is not None:
                return local.add(topics, view, now_ms)

        def told(found: Positions | Rejection) -> None:
            if not isinstance(found, Rejection):
                self._there.update(names)
                if self._local is not None:
                    for name in names:
                        self._local.remove(name)
            deliver(found)

        return self._remote.subscribe(topics, view, now_ms, told)

    def unsubscribe(self, name: str, deliver: Callable[[bool], None]) -> bool | Ticket:
        if self._local is not None and name in self._local.names:
            return self._local.remove(name)
        self._there.discard(name)
        return self._remote.unsubscribe(name, deliver)

    def _local_half(self) -> LocalSocket | None:
        if self._local is None and self._may_be_local:
            try:
                self._local = self._open_local()
            except Rejection:
                self._may_be_local = False
            else:
                self._local.wake_by(self._wake)
        return self._local

    # ------------------------------------------------------------------ frames

    @property
    def ended_by(self) -> StreamEnd | None:
        """The engine's half says so."""
        return self._remote.ended_by

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._remote.wake_by(wake)
        if self._local is not None:
            self._local.wake_by(wake)

    def next_frame(self, now_ms: int) -> Pulled | Found | None:
        self._is_local_next = not self._is_local_next
        if self._is_local_next:
            return self._next_local(now_ms) or self._remote.next_frame(now_ms)
        return self._remote.next_frame(now_ms) or self._next_local(now_ms)

    def _next_local(self, now_ms: int) -> Pulled | None:
        local = self._local
        if local is None:
            return None
        if local.ended_by is None:
            return local.next_frame(now_ms)
        if local.ended_by is StreamEnd.MOVED:
            # The engine's process goes on with what is watched here, from where it stands.  That knows
            # whether the topic is there any more, and what its last head was.
            for name, standing in local.standings():
                self._there.add(name)
                self._remote.adopt(standing)
        self._local, self._may_be_local = None, False
        local.close()
        return None

    def unreadable(self, frame: RecordFrame | DamagedFrame) -> None:
        """The records of a frame of this half cannot be read: its topic is subscribed no more."""
        if self._local is not None and frame.topic in self._local.names:
            self._local.unreadable(frame)
        else:
            self.unsubscribe(frame.topic, _ignore)

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        self._is_closed = True
        self._wake = _nothing
        local, self._local = self._local, None
        if local is not None:
            local.close()
        self._remote.close()


def _nothing() -> None:
    return


def _ignore(_: bool) -> None:
    return
