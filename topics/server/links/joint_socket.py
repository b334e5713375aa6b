"""What a WebSocket is subscribed to, in two processes.

Owns which topic is subscribed where: in the half here, over an engine of this process, or in the half that
another process has.  Who decides that is the heir's affair.

Invariants: a topic is subscribed in one half; a subscription is made whole in one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping

from topics.protocol.driver.client_states import ClientState
from topics.protocol.driver.reply import Ticket
from topics.protocol.driver.streams import DamagedFrame, Pulled, RecordFrame, StreamEnd
from topics.protocol.model.commands import Begin, View
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.links.remote_streams import RemoteSocket
from topics.server.service.frames import Found
from topics.server.service.service import LocalSocket, Opened, Positions

Decided = Callable[[bool | Rejection], None]


class JointSocket(ABC):
    """Implements `service.WatchSocket`.

    Args:
        most: Topics, partitions counted as such, that a socket may watch; either half counts those of its own.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._local: LocalSocket | None = None
        self._remote: RemoteSocket | None = None
        self._there: set[str] = set()
        """Topics that are subscribed in the other process."""
        self._is_local_next = False
        self._is_closed = False
        self._wake: Callable[[], None] = _nothing

    # ------------------------------------------------------------------ what an heir decides

    @abstractmethod
    def _is_here(
        self, topics: Mapping[str, Begin], view: View, position: str | None, decided: Decided
    ) -> bool | None:
        """Whether a subscription is made here; None where that comes later, through `decided`.

        Raises:
            Rejection: Neither process can make it.
        """

    @abstractmethod
    def _open_local(self) -> LocalSocket | None:
        """The half here, or None where the other process is to have all."""

    @abstractmethod
    def _open_remote(self, deliver: "Callable[[RemoteSocket | Rejection], None]") -> Ticket:
        """Open the half in the other process.  Raises Rejection."""

    def _on_local_end(self, local: LocalSocket) -> None:
        """The half here has ended, and is closed then."""

    @property
    @abstractmethod
    def ended_by(self) -> StreamEnd | None:
        """How the stream ended, where it has."""

    # ------------------------------------------------------------------ orders

    def subscribe(
        self,
        topics: Mapping[str, Begin],
        view: View,
        now_ms: int,
        deliver: Opened[Positions],
        position: str | None = None,
    ) -> Positions | Ticket:
        if len({*self._here, *self._there, *topics}) > self._most:
            why = f"a socket watches at most {self._most} topics"
            raise Rejection(ErrorCode.INVALID_REQUEST, why)

        def decided(is_here: bool | Rejection) -> None:
            if self._is_closed:
                return
            try:
                if isinstance(is_here, Rejection):
                    raise is_here
                found = self._subscribe(topics, view, now_ms, deliver, is_here=is_here)
            except Rejection as refusal:
                deliver(refusal)
            else:
                if not isinstance(found, Ticket):
                    deliver(found)

        is_here = self._is_here(topics, view, position, decided)
        if is_here is None:
            return Ticket(_nothing)
        return self._subscribe(topics, view, now_ms, deliver, is_here=is_here)

    @property
    def _here(self) -> set[str]:
        return set() if self._local is None else set(self._local.names)

    def _subscribe(
        self,
        topics: Mapping[str, Begin],
        view: View,
        now_ms: int,
        deliver: Opened[Positions],
        *,
        is_here: bool,
    ) -> Positions | Ticket:
        local = self._half() if is_here else None
        if local is not None:
            at = local.add(topics, view, now_ms)
            self._leave(topics)
            return at

        def told(found: Positions | Rejection) -> None:
            if not isinstance(found, Rejection):
                self._there.update(topics)
                if self._local is not None:
                    for name in topics:
                        self._local.remove(name)
            deliver(found)

        def opened(found: RemoteSocket | Rejection) -> None:
            if isinstance(found, Rejection):
                deliver(found)
            elif self._is_closed:
                found.close()
            else:
                self._remote = found
                found.wake_by(self._wake)
                found.subscribe(topics, view, now_ms, told)

        if self._remote is None:
            return self._open_remote(opened)
        return self._remote.subscribe(topics, view, now_ms, told)

    def _leave(self, names: Mapping[str, Begin]) -> None:
        """What is subscribed here is subscribed there no more."""
        for name in self._there & names.keys():
            self._there.discard(name)
            if self._remote is not None:
                self._remote.unsubscribe(name, _ignore)

    def unsubscribe(self, name: str, deliver: Callable[[bool], None]) -> bool | Ticket:
        if name in self._there and self._remote is not None:
            self._there.discard(name)
            return self._remote.unsubscribe(name, deliver)
        return self._local is not None and self._local.remove(name)

    def _half(self) -> LocalSocket | None:
        if self._local is None:
            self._local = self._open_local()
            if self._local is not None:
                self._local.wake_by(self._wake)
        return self._local

    # ------------------------------------------------------------------ frames

    def wake_by(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        for half in (self._local, self._remote):
            if half is not None:
                half.wake_by(wake)

    def next_frame(self, now_ms: int) -> Pulled | Found | None:
        self._is_local_next = not self._is_local_next
        if self._is_local_next:
            return self._next_local(now_ms) or self._next_remote(now_ms)
        return self._next_remote(now_ms) or self._next_local(now_ms)

    def _next_remote(self, now_ms: int) -> Found | None:
        return None if self._remote is None else self._remote.next_frame(now_ms)

    def _next_local(self, now_ms: int) -> Pulled | None:
        local = self._local
        if local is None:
            return None
        if local.ended_by is None:
            return local.next_frame(now_ms)
        self._local = None
        self._on_local_end(local)
        local.close()
        return None

    def unreadable(self, frame: RecordFrame | DamagedFrame) -> None:
        """The records of a frame of this half cannot be read."""
        if self._local is not None:
            self._local.unreadable(frame)

    # ------------------------------------------------------------------ the end

    def state(self) -> ClientState:
        here = ClientState() if self._local is None else self._local.state()
        asked = 0 if self._remote is None else self._remote.number
        return ClientState(here.seqs, dict.fromkeys(self._there), asked=asked)

    def close(self) -> None:
        self._is_closed = True
        self._wake = _nothing
        local, self._local = self._local, None
        if local is not None:
            local.close()
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()


def _nothing() -> None:
    return


def _ignore(_: bool) -> None:
    return
