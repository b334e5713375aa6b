"""What a node is told, and what it asks of its host: the inputs and effects of `leading.Node`.

Values only.  The host performs effects in the order in which it gets them, and reports by inputs, one
at a time; where it says so, an effect has no report.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Final, TypeAlias, get_args

import msgspec

from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.unit import Unit

# ---------------------------------------------------------------------- inputs


class Found(msgspec.Struct, frozen=True):
    """The reader read this record.  Offsets rise; after `ReadOn` they are those of the new reader.
    `epoch` is the log's own, in which the record was written."""

    offset: int
    raw: bytes
    epoch: int


class Passed(msgspec.Struct, frozen=True):
    """The reader is beyond this offset, at which there is no record."""

    offset: int


class ReadFailed(msgspec.Struct, frozen=True):
    """The reader cannot go on: the log lost what it has read (`is_lost`), or trimmed what comes
    next."""

    is_lost: bool


class Shown(msgspec.Struct, frozen=True):
    """What `Prove` asked for: all the records from its first offset to its last one, or to the end
    of a log that ends before."""

    proof: int
    records: Sequence[tuple[int, bytes]]


class NotShown(msgspec.Struct, frozen=True):
    """What `Prove` asked for was trimmed, or the log has lost it (`is_lost`)."""

    proof: int
    is_lost: bool


class Lead(msgspec.Struct, frozen=True):
    """This node is to lead.  `nonce` (16 random bytes) was never given before."""

    nonce: bytes


class Cease(msgspec.Struct, frozen=True):
    """This node is not to lead any more."""


class EndIs(msgspec.Struct, frozen=True):
    """The answer to `AskEnd`: the next record's offset."""

    offset: int


class Sent(msgspec.Struct, frozen=True):
    """A record of ours is durable in the log, at this offset."""

    ticket: bytes
    part: int
    offset: int


class SendFailed(msgspec.Struct, frozen=True):
    """A record of ours is not in the log (`is_known`), or may be: then the reader will tell, if it
    comes."""

    ticket: bytes
    is_known: bool


class GiveUp(msgspec.Struct, frozen=True):
    """What this node waits for takes too long for its clients."""


class Decided(msgspec.Struct, frozen=True):
    """The engine decided a turn, and applied it.  `tokens` are the answers that wait for it, `body`
    the frames of its events, of which there may be none."""

    tokens: tuple[object, ...]
    frames: int
    body: bytes


class ReadAsked(msgspec.Struct, frozen=True):
    """A read: its answer may show what is decided by now once that is accepted."""

    token: object


class Offered(msgspec.Struct, frozen=True):
    """A snapshot of another node is here, whole, with what its store had as place and mark."""

    place: Place
    mark: Mark


class CannotApply(msgspec.Struct, frozen=True):
    """The events of a unit cannot be read by this version (`unit.Unreadable`).  None was applied."""

    why: str


Input: TypeAlias = (
    Found
    | Passed
    | ReadFailed
    | Shown
    | NotShown
    | Lead
    | Cease
    | EndIs
    | Sent
    | SendFailed
    | GiveUp
    | Decided
    | ReadAsked
    | Offered
    | CannotApply
)

INPUTS: Final[tuple[type, ...]] = get_args(Input)


# ---------------------------------------------------------------------- effects


class ReadOn(msgspec.Struct, frozen=True):
    """Read from this offset on, and no more where another reader was: `Found`, `Passed`,
    `ReadFailed`."""

    from_offset: int


class Prove(msgspec.Struct, frozen=True):
    """Read these offsets anew, both inclusive, apart from the reader: `Shown`, `NotShown`.  The log
    has to say that its first one is still of `epoch`, where that is not -1."""

    proof: int
    first_offset: int
    last_offset: int
    epoch: int


class AskEnd(msgspec.Struct, frozen=True):
    """Ask for the log's end: `EndIs`."""


class Send(msgspec.Struct, frozen=True):
    """Append the record, behind all that was sent before: `Sent`, `SendFailed`."""

    ticket: bytes
    part: int
    raw: bytes


class Apply(msgspec.Struct, frozen=True):
    """A unit is accepted: write its events to this node's own log, `place` and `mark` with them, in
    one batch: with the next start these are the node's.  Where it `is_own`, the engine holds them already; else apply them.  No report, but
    `CannotApply`."""

    unit: Unit
    place: Place
    mark: Mark
    is_own: bool


class ClientReply(StrEnum):
    """What a client may be told."""

    ACCEPTED = "accepted"
    NOT_APPLIED = "not applied"
    """And never will be: 503 `not_leader`."""
    UNKNOWN = "unknown"


class AnswerClients(msgspec.Struct, frozen=True):
    """Answer these.  No report."""

    tokens: tuple[object, ...]
    reply: ClientReply


class Leads(msgspec.Struct, frozen=True):
    """The node leads: have the engine decide.  Its lease numbers begin at `term << 40`."""

    term: int


class NotElected(msgspec.Struct, frozen=True):
    """The attempt is over; another `Lead` begins another."""

    why: str


class StepDown(msgspec.Struct, frozen=True):
    """Have the engine decide nothing more.  What is in flight may still settle."""

    why: str


class OpenAnew(msgspec.Struct, frozen=True):
    """Drop the engine, which may hold what was never accepted, and open it from the store before
    anything else is done."""


class TakeSnapshot(msgspec.Struct, frozen=True):
    """This store is no prefix of the log, or too old for it.  Show nothing of it, leave it as it is,
    and get another node's: `Offered`."""


class Install(msgspec.Struct, frozen=True):
    """Set the store aside, and open the snapshot that was offered, with its place and mark."""

    place: Place
    mark: Mark


class HistoryLost(msgspec.Struct, frozen=True):
    """Tell the operator: the log lost records.  What this node has accepted at `place` is not what
    the log says; its store is left for salvage."""

    place: Place


class Halt(msgspec.Struct, frozen=True):
    """This version cannot go on with this log; the process has to end, with this message."""

    why: str


Effect: TypeAlias = (
    ReadOn
    | Prove
    | AskEnd
    | Send
    | Apply
    | AnswerClients
    | Leads
    | NotElected
    | StepDown
    | OpenAnew
    | TakeSnapshot
    | Install
    | HistoryLost
    | Halt
)
