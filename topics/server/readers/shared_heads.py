"""The shared heads: how far the log is written, and what of it the engine shows.

The engine stores a `Shown` before it answers anybody; a reader loads the newest one when a request
arrives.  So a reader that has applied that far shows every write that was acknowledged before the
request was sent, to any client on any connection.

Two slots are written in turn, each with its number at both ends and a checksum, so that a reader
finds one that is whole while the other is being written, whatever the order in which the memory of
another CPU shows its bytes.  Behind the slots each reader has a few words of its own.

Invariant: the numbers that a reader loads never fall.
"""

import os
import struct
import tempfile
import zlib
from collections.abc import Mapping
from mmap import mmap
from typing import Final

from topics.protocol.driver.follower import NOTHING, Shown, Timing
from topics.protocol.model.errors import Unusable

CURE: Final = "have the sandbox allow it, or set TOPICS_READERS=0"

HELD_MAX: Final = 4096
"""Topics of which less is shown than written: those of class `fsync` that wait for a sync.  Where
there are more, a reader waits for the sync."""

_HEAD: Final = struct.Struct("<QQqqqII")
"""number, batch, clock offset, clock lead, led since, topics held, checksum of what follows."""
_HELD: Final = struct.Struct("<QQ")
_WORD: Final = struct.Struct("<Q")
_WORDS: Final = struct.Struct("<QQQ")

SLOT_BYTES: Final = _HEAD.size + HELD_MAX * _HELD.size + 2 * _WORD.size
SLOT_STRIDE: Final = (SLOT_BYTES + 63) & -64
READER_BYTES: Final = 64
"""A cache line each: readers do not write to the lines of others."""
_MANY: Final = 2**32 - 1

TRIES: Final = 1000


def heads_bytes(readers: int) -> int:
    """Size of the file for so many readers."""
    return 2 * SLOT_STRIDE + readers * READER_BYTES


def shared_file(size: int) -> int:
    """A descriptor of so many zeros, which has no name; processes that inherit it share them.

    Raises:
        Unusable: The system gives none, or does not let it be mapped.
    """
    try:
        try:
            descriptor = os.memfd_create("topics-heads", os.MFD_CLOEXEC)
        except (OSError, AttributeError):
            # An old kernel, or a sandbox: a file that is gone does as well.
            with tempfile.TemporaryFile() as file:
                descriptor = os.dup(file.fileno())
        os.truncate(descriptor, size)
        mmap(descriptor, size).close()
    except OSError as error:
        what = f"readers need shared memory (memfd_create, or a file in {tempfile.gettempdir()}, and mmap)"
        raise Unusable("TOPICS_READERS", f"{what}: {error.strerror}; {CURE}") from error
    return descriptor


class SharedHeads:
    """The engine's side."""

    def __init__(self, memory: mmap) -> None:
        self._memory = memory
        self._last = NOTHING

    @property
    def last(self) -> Shown:
        """What was stored last."""
        return self._last

    def store(self, batch: int, held: Mapping[int, int], timing: Timing) -> bool:
        """Show this from now on; whether it is anything new."""
        last = self._last
        named = held if len(held) <= HELD_MAX else None
        if (batch, named, timing) == (last.batch, last.held, last.timing):
            return False
        number = last.number + 1
        many = b""
        if named:
            many = b"".join([_HELD.pack(*each) for each in named.items()])
        count = _MANY if named is None else len(named)
        head = (number, batch, timing.offset_ms, timing.lead_ms, timing.led_since_ms, count)
        checksum = zlib.crc32(many, zlib.crc32(_HEAD.pack(*head, 0)))
        piece = b"".join([_HEAD.pack(*head, checksum), many, _WORD.pack(number)])
        at = (number & 1) * SLOT_STRIDE
        self._memory[at : at + len(piece)] = piece
        self._last = Shown(number, batch, None if named is None else dict(named), timing)
        return True

    def words(self, reader: int) -> tuple[int, int, bool]:
        """(batch that it has applied, its beat, whether it waits to be woken)."""
        applied, beat, waits = _WORDS.unpack_from(self._memory, _reader_at(reader))
        return applied, beat, bool(waits)

    def waits(self, reader: int) -> bool:
        """Whether a reader waits to be woken; asked for once a wait."""
        at = _reader_at(reader) + 16
        if not self._memory[at]:
            return False
        self._memory[at] = 0
        return True

    def clear(self, reader: int) -> None:
        """A reader is replaced."""
        at = _reader_at(reader)
        self._memory[at : at + READER_BYTES] = bytes(READER_BYTES)


class SharedHeadsView:
    """A reader's side."""

    def __init__(self, memory: mmap, reader: int) -> None:
        self._memory = memory
        self._at = _reader_at(reader)
        self._last = NOTHING

    def load(self) -> Shown:
        """What is shown now.

        Raises:
            OSError: No slot is whole: the file is another one.
        """
        memory = self._memory
        for _ in range(TRIES):
            numbers = [_WORD.unpack_from(memory, slot * SLOT_STRIDE)[0] for slot in (0, 1)]
            newest = max(numbers)
            if newest <= self._last.number:
                return self._last
            found = self._slot(numbers.index(newest))
            if found is not None and found.number >= newest:
                self._last = found
                return found
            older = self._slot(numbers.index(min(numbers)))
            # The newest is being written, so nobody was answered yet by what it shows.
            if older is not None and older.number >= self._last.number and older.number:
                self._last = older
                return older
        raise OSError("the shared heads does not verify")

    def _slot(self, slot: int) -> Shown | None:
        at = slot * SLOT_STRIDE
        number, batch, offset, lead, since, count, checksum = _HEAD.unpack_from(self._memory, at)
        size = 0 if count == _MANY else count * _HELD.size
        if size > HELD_MAX * _HELD.size:
            return None
        many = self._memory[at + _HEAD.size : at + _HEAD.size + size]
        if _WORD.unpack_from(self._memory, at + _HEAD.size + size)[0] != number:
            return None
        head = _HEAD.pack(number, batch, offset, lead, since, count, 0)
        if zlib.crc32(many, zlib.crc32(head)) != checksum:
            return None
        held = None if count == _MANY else dict(_HELD.iter_unpack(many))
        return Shown(number, batch, held, Timing(offset, lead, since))

    def tell(self, *, applied: int, beat: int, waits: bool) -> None:
        """Note how far this reader has come, that it lives, and whether it wants to be woken."""
        _WORDS.pack_into(self._memory, self._at, applied, beat, waits)


def _reader_at(reader: int) -> int:
    return 2 * SLOT_STRIDE + reader * READER_BYTES
