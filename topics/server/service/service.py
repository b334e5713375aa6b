"""The one door: commands and streams, wherever they are decided.

`submit` has a command decided and `session`, `socket` and `jobs` open streams; a face knows no other way
in.  `LocalService` has an engine in this process.  What has one elsewhere decides some here, and sends the
rest over a link.

A stream that another process is asked for comes later: then the call returns a `Ticket`, and `deliver` gets
the stream, or the refusal.
"""

from collections.abc import Callable, Mapping
from typing import Protocol, TypeAlias, TypeVar

from topics.protocol.driver.client_states import ClientState
from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.driver.streams import (
    Gather,
    RecordFrame,
    SessionStream,
    SocketStream,
    StreamEnd,
    Streams,
)
from topics.protocol.model.commands import Begin, Claim, Command, View
from topics.protocol.model.errors import Rejection
from topics.protocol.model.outcomes import WatchPosition
from topics.server.service.frames import Pulling
from topics.server.service.jobs import LeasedJobs, PushedJobs
from topics.server.service.shell import Shell
from topics.server.service.slots import Slot

S = TypeVar("S")

Opened: TypeAlias = Callable[[S | Rejection], None]
Positions: TypeAlias = Mapping[str, WatchPosition]


class WatchSession(Pulling, Protocol):
    """The open stream of a watch session: `driver.streams.SessionStream`, or one of another process."""

    heartbeat_ms: int

    @property
    def id(self) -> bytes:
        """Where it stands behind the frame that was taken last, as a frame's id."""

    @property
    def is_shared(self) -> bool: ...

    @property
    def is_drained(self) -> bool: ...

    @property
    def ended_by(self) -> StreamEnd | None: ...

    def wake_by(self, wake: Callable[[], None]) -> None: ...

    def push_by(self, push: Callable[[RecordFrame], bool] | None) -> None: ...

    def gather_by(self, gather: Gather, now_ms: Callable[[], int]) -> bool: ...

    def newest_frame(self, made: str) -> RecordFrame | None: ...

    def state(self) -> ClientState:
        """Where its client stands."""

    def close(self, now_ms: int) -> None: ...


class WatchSocket(Pulling, Protocol):
    """What a WebSocket is subscribed to, here or elsewhere."""

    @property
    def ended_by(self) -> StreamEnd | None: ...

    def wake_by(self, wake: Callable[[], None]) -> None: ...

    def subscribe(
        self,
        topics: Mapping[str, Begin],
        view: View,
        now_ms: int,
        deliver: Opened[Positions],
        position: str | None = None,
    ) -> Positions | Ticket:
        """Add topics, all or none; where it stands in each.

        Args:
            position: How far the log is to be shown at least, on a node of a cluster.

        Raises:
            Rejection: No such topic; too many.
        """

    def unsubscribe(self, name: str, deliver: Callable[[bool], None]) -> bool | Ticket:
        """Whether it was subscribed."""

    def state(self) -> ClientState:
        """Where its client stands."""

    def close(self) -> None: ...


class Service(Protocol):
    """Commands and streams.

    Attributes:
        has_engine: This process has the engine, and tells what there is to tell of it.
    """

    has_engine: bool

    @property
    def shell(self) -> Shell:
        """Of this process."""

    def submit(self, command: Command, deliver: Deliver, slot: Slot) -> Reply | Ticket:
        """Have a command decided; its reply, or a ticket where `deliver` gets the reply later.

        Raises:
            Rejection: Refused.
        """

    def session(
        self, wid: str, rewind: str | None, slot: Slot, deliver: Opened[WatchSession]
    ) -> WatchSession | Ticket:
        """Open the stream of a watch session.  Raises Rejection: as `Streams.session`."""

    def require_session(self, wid: str, slot: Slot, deliver: Opened[None]) -> Ticket | None:
        """Raises Rejection: as `session`, which this does not open."""

    def socket(self, slot: Slot, deliver: Opened[WatchSocket]) -> WatchSocket | Ticket:
        """Open a WebSocket's subscriptions.  Raises Rejection: 429."""

    def jobs(self, asked: Claim, slot: Slot, deliver: Opened[PushedJobs]) -> PushedJobs | Ticket:
        """Open a push stream.  Raises Rejection: as `Streams.jobs`."""

    def require_queue(self, name: str, slot: Slot, deliver: Opened[None]) -> Ticket | None:
        """Raises Rejection: as `jobs`, which this does not open."""

    def report(self, kind: str, arguments: bytes, slot: Slot, deliver: Opened[bytes]) -> Ticket:
        """Have the process with the engine tell of itself."""


class LocalSocket(SocketStream):
    """Implements `WatchSocket` over an engine of this process."""

    def subscribe(
        self,
        topics: Mapping[str, Begin],
        view: View,
        now_ms: int,
        deliver: object,
        position: str | None = None,
    ) -> Positions:
        return self.add(topics, view, now_ms)

    def unsubscribe(self, name: str, deliver: object) -> bool:
        return self.remove(name)


class LocalService:
    """Implements `Service` over an engine of this process: nothing comes later."""

    has_engine = True

    def __init__(self, shell: Shell) -> None:
        self.shell = shell

    def submit(self, command: Command, deliver: Deliver, slot: Slot) -> Reply | Ticket:
        return self.shell.submit(command, deliver)

    # Streams are those of the engine that is there now: a node of a cluster may open another, and they
    # end with this one.

    def session(
        self, wid: str, rewind: str | None, slot: Slot, deliver: object = None
    ) -> SessionStream:
        shell = self.shell
        return Streams(shell.engine).session(wid, rewind, _nothing, shell.now_ms, slot.caller)

    def require_session(self, wid: str, slot: Slot, deliver: object = None) -> None:
        shell = self.shell
        Streams(shell.engine).require_session(wid, shell.now_ms, slot.caller)

    def socket(self, slot: Slot, deliver: object = None) -> LocalSocket:
        return LocalSocket(self.shell.engine, _nothing, slot.caller, slot.holder)

    def jobs(self, asked: Claim, slot: Slot, deliver: object = None) -> LeasedJobs:
        shell = self.shell
        streams = Streams(shell.engine)
        stream = streams.jobs(asked, _nothing, shell.now_ms, slot.caller, slot.holder)
        return LeasedJobs(shell, stream)

    def require_queue(self, name: str, slot: Slot, deliver: object = None) -> None:
        Streams(self.shell.engine).require_queue(name, self.shell.now_ms)

    def report(self, kind: str, arguments: bytes, slot: Slot, deliver: object) -> Ticket:
        raise AssertionError("this process tells of itself")


def _nothing() -> None:
    return
