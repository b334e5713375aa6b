"""What a service needs of what runs its engine: a runtime, or one without an event loop."""

from collections.abc import Awaitable, Callable, Generator
from enum import Enum
from typing import Any, Final, Protocol, TypeVar

import msgspec

from topics.protocol.driver.reply import Deliver, Reply, Ticket
from topics.protocol.engine import Engine
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.moment import Moment
from topics.protocol.model.ports import Store


class Phase(Enum):
    """Where the server is in its life."""

    STARTING = "starting"
    READY = "ready"
    RECOVERING = "recovering"
    """The log had failed for want of space, and there is some: this store ends, and another one is opened
    over the directory; as a phase of that one, the log is being replayed."""
    FAILED = "failed"
    DRAINING = "draining"
    STOPPED = "stopped"


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
READY: Final = Phase.READY


PHASES: Final[dict[Phase, frozenset[Phase]]] = {
    Phase.STARTING: frozenset({Phase.READY, Phase.FAILED, Phase.DRAINING}),
    Phase.READY: frozenset({Phase.DRAINING, Phase.RECOVERING}),
    Phase.RECOVERING: frozenset({Phase.READY, Phase.FAILED, Phase.DRAINING, Phase.STOPPED}),
    Phase.FAILED: frozenset({Phase.DRAINING}),
    Phase.DRAINING: frozenset({Phase.STOPPED}),
    Phase.STOPPED: frozenset(),
}

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class ThreadCall(Protocol[T_co]):
    """A call on a thread: the part of `asyncio.Future` that is used."""

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None: ...

    def cancel(self) -> bool: ...

    def result(self) -> T_co: ...

    def __await__(self) -> Generator[Any, None, T_co]: ...


class Process(msgspec.Struct, frozen=True):
    """What metrics tell of the process, and its engine does not know."""

    ready: bool
    recovery_progress: float
    uptime_ms: int
    queue_depth: int
    queue_depth_peak: int
    submit_full_total: int
    read_only: bool
    lag_ms: float = 0.0
    pressure: float = 0.0
    compaction_passes: int = 0
    compaction_deleted: int = 0


class Shell(Protocol):
    """One engine and what runs it."""

    limits: Limits
    engine: Engine
    phase: Phase

    @property
    def store(self) -> Store: ...

    @property
    def now_ms(self) -> int:
        """Wall clock, milliseconds since the epoch."""

    @property
    def uptime_ms(self) -> int: ...

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket: ...

    def nudge(self) -> None:
        """The engine was changed outside a command: log that, and look for work that follows."""

    def written(self) -> Awaitable[bool]:
        """Wait until every change so far is in the log; False where the log failed first."""

    def synced(self) -> Awaitable[bool]:
        """Wait until everything written so far is durable; False where the log failed first."""

    @property
    def moment(self) -> Moment:
        """The time and the room with which a command is decided now."""

    def process(self) -> Process: ...

    def later(self, delay_s: float, call: Callable[[], object]) -> object:
        """Make a call after a while; other requests have their turn before."""

    def read_in_thread(self, call: Callable[[], T]) -> ThreadCall[T]:
        """Wait for a disk on a thread, where no client is held up."""

    def decode_in_thread(self, call: Callable[[], T]) -> ThreadCall[T]:
        """Parse a large body on a thread, one body at a time."""

    def page_in_thread(self, call: Callable[[], T]) -> ThreadCall[T]:
        """Make a large answer on a thread, two at a time: others do not wait for those."""

    def zip_in_thread(self, call: Callable[[], T]) -> ThreadCall[T]:
        """Compress a large answer on a thread, one at a time."""


def not_serving(shell: Shell) -> Rejection:
    """503 for a request that comes before the log is replayed, or after the end has begun (§8.2)."""
    if shell.phase is Phase.RECOVERING:
        detail = {"reason": "recovering", "replay_progress": shell.store.progress}
        return Rejection(
            ErrorCode.NOT_READY, "there is space again: the log is opened anew", detail
        )
    if shell.phase in (Phase.STARTING, Phase.FAILED):
        progress = {"replay_progress": shell.store.progress}
        return Rejection(ErrorCode.NOT_READY, "the log is being replayed", progress)
    return Rejection(ErrorCode.SHUTTING_DOWN, "the server is stopping")
