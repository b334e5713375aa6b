"""What a maintenance task waits for.

A task is a generator that runs on the engine's thread between two yields, in one piece.  Each value
that it yields is a wait, which its driver performs without holding up commands; the result, or the
error, is sent back in.  A task therefore never blocks the event loop and knows no thread.
"""

from collections.abc import Callable, Generator
from typing import Any, TypeAlias

import msgspec

from topics.protocol.model.commands import Command


class Blocking(msgspec.Struct, frozen=True):
    """A call that waits for a disk, for a worker thread; the task gets its result, or what it
    raised."""

    call: Callable[[], Any]


class Rotation(msgspec.Struct, frozen=True):
    """`Store.rotate`, in the order of the log's writes; the task gets the boundary.

    It follows `UntilWritten` at once, so that every event that is applied by then stands before the
    boundary.
    """

    fresh: bool = False
    stay: bool = False


class UntilWritten(msgspec.Struct, frozen=True):
    """Go on in a moment in which every applied event is written; raises WriteFailed where the log
    failed."""


class UntilSynced(msgspec.Struct, frozen=True):
    """Go on when every write that was made by now is durable; raises WriteFailed where the log
    failed."""


class Decision(msgspec.Struct, frozen=True):
    """A change that is decided as a client's is; the task gets the outcome, once it may be said, or raises
    the refusal."""

    command: Command


Wait: TypeAlias = Blocking | Rotation | UntilWritten | UntilSynced | Decision
Task: TypeAlias = Generator[Wait, Any, None]


def yield_to_commands() -> None:
    """The call of a `Blocking` that only lets commands run between two slices of a task."""
