"""What the shell must do with a command's outcome, and what answers are made of.

An outcome says when it may be told (`Gate`) and what to tell: pieces of bytes, and records still
to be fetched (`Records`), because only the shell may wait for a disk.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from topics.protocol.model.ports import Extent
from topics.protocol.model.records import Buffer


class Gate(Enum):
    """What must have happened before an outcome is told."""

    NOW = "now"
    WRITTEN = "written"
    """The write that carries its events."""
    SYNCED = "synced"
    """A sync that covers that write."""


GATES: Final = (Gate.NOW, Gate.WRITTEN, Gate.SYNCED)
"""From the weakest to the strongest."""


@dataclass(frozen=True, slots=True)
class Records:
    """Live records to splice in, comma-separated, with the projection the reader asked for.

    `inserts` stand before `"data"`, one a record, each with its leading comma; none where empty.
    """

    extents: Sequence[Extent]
    tags: bool = False
    meta: bool = True
    data: bool = True
    inserts: Sequence[bytes] = ()

    @property
    def is_verbatim(self) -> bool:
        return not self.tags and self.meta and self.data and not self.inserts


@dataclass(frozen=True, slots=True)
class Grant:
    """Jobs given to one claimer, ascending by seq, each with its lease and delivery (§10)."""

    topic_id: int
    node: str
    seqs: Sequence[int]
    leases: Sequence[int]
    deliveries: Sequence[int]
    until_ms: int


Piece: TypeAlias = bytes | Records


@dataclass(slots=True)
class Outcome:
    """The answer to one command: a JSON object whose last brace is still to come, because the
    `performance` block (§0.9) is only known when it is told.

    Attributes:
        scanned: `records_scanned`, where the command read.
        logs: Whether its events are part of this turn's write.
        is_fsync: Whether the topic's class promises the sync, so that its time is reported; other
            classes wait for one only where a reservation asks for it (§0.9, §0.10).
        erases: Id of the topic whose deleted bytes must be gone before it is told.
        grant: The jobs that it hands out; given back where their text cannot be read.
    """

    pieces: list[Piece]
    status: int = 200
    gate: Gate = Gate.NOW
    scanned: int | None = None
    logs: bool = False
    is_fsync: bool = False
    erases: int | None = None
    grant: Grant | None = None


@dataclass(frozen=True, slots=True)
class Parked:
    """A long poll with nothing to say yet: it waits for its topic, up to `wait_ms`; where that is
    None, until the engine's own time for it comes (`Engine.alarm_ms`)."""

    wait_ms: int | None


@dataclass(slots=True)
class Wake:
    """An answer, or a refusal, for the token of a parked command."""

    token: object
    result: "Outcome | Exception"


@dataclass(slots=True)
class Fetch:
    """Text that copies need and a disk has to be waited for: the shell reads `extents` without
    holding anybody up, and hands what it got, one buffer a span, or the error, to `done`."""

    extents: Sequence[Extent]
    done: Callable[[list[list[Buffer]] | Exception], None]

    def read(self) -> list[list[Buffer]] | Exception:
        """*Blocking.* What to hand over."""
        try:
            return [run.read_blocking(spans) for run, spans in self.extents]
        except Exception as error:
            return error
