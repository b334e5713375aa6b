"""The record batches that a fetch shows, read: on the event loop where they are little, else on a thread, in steps."""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeAlias

from topics.protocol.batches.header import BatchError
from topics.protocol.batches.shown import bytes_of, cost_of, singly
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.fetched import FetchedPart, Piece
from topics.protocol.model.records import Buffer
from topics.server.service.giving_way import GivingWay
from topics.server.service.texts import TURN_BYTES, log_damage

TURN_RECORDS: Final = 128
"""Records of one answer that the event loop takes one by one."""


class Unreadable(NamedTuple):
    """A part of a fetch cannot be read."""

    reason: str


Bytes: TypeAlias = list[Buffer] | Unreadable


def read_now(parts: Sequence[FetchedPart]) -> list[Bytes] | None:
    """The bytes of each part; None where a thread has to read them."""
    records, size = cost_of(parts)
    if records > TURN_RECORDS or size > TURN_BYTES:
        return None
    found: list[Bytes] = []
    for part in parts:
        each = _read(part, None)
        if each is None:
            return None
        found.append(each)
    return found


def read(parts: Sequence[FetchedPart]) -> list[Bytes]:
    """*Blocking.* The bytes of each part."""
    pause, found = GivingWay(), list[Bytes]()
    for part in parts:
        each = _read(part, pause)
        assert each is not None
        found.append(each)
    return found


def _read(part: FetchedPart, pause: GivingWay | None) -> Bytes | None:
    """The bytes of a part; None where there is no thread to wait for a disk, and one has to.

    What cannot be read ends it: a client gets what stands before, and the error once it asks for that alone.
    """
    out: list[Buffer] = []
    for piece in part.pieces:
        try:
            made = bytes_of(piece, blocking=pause is not None)
        except (Corrupt, BatchError, OSError) as damage:
            if pause is None:
                return None
            out += _readable(piece, pause)
            return out or _unreadable(damage)
        if made is None:
            return None
        out += made
        if pause is not None:
            pause()
    if part.damage is not None and not out:
        return _unreadable(part.damage)
    return out


def _readable(piece: Piece, pause: GivingWay) -> list[Buffer]:
    """*Blocking.* What of a piece stands before its damage."""
    out: list[Buffer] = []
    for each in singly(piece):
        try:
            made = bytes_of(each, blocking=True) or ()
        except (Corrupt, BatchError, OSError):
            break
        out += (buffer for buffer in made if len(buffer))
        pause()
    return out


def _unreadable(damage: Exception) -> Unreadable:
    log_damage(damage)
    if isinstance(damage, Corrupt):
        return Unreadable(damage.reason)
    return Unreadable("corrupt" if isinstance(damage, BatchError) else "read_error")
