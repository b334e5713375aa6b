"""Checkpoints: small images of the engine's state, two generations of them.

Owns the checkpoint files and the choice among them; knows of the image only how to encode it.
Invariant: a checkpoint file is complete or absent, and the previous checkpoint and the log that it
needs stay until the next checkpoint is durable.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import msgspec

from topics.protocol.model.errors import CannotRead, Corrupt
from topics.protocol.model.events import Checkpoint, Image
from topics.protocol.model.records import Buffer
from topics.store.files import File, Files, discard, publish_with, read_whole, write_all
from topics.store.layout import (
    CHECKPOINT_HEADER,
    CHECKPOINT_MAGIC,
    FORMAT_VERSION,
    VERSIONS,
    Digest,
    checkpoint_name,
    digest,
    header_holds,
    numbers,
    seal_header,
)
from topics.store.wal import LogPosition

GENERATIONS: Final = 2

WRITE_BYTES: Final = 128 << 10
"""An image is joined and written in parts of about this size.  `bytes.join` holds the interpreter
lock, so a larger part would delay the event loop."""

_decode = msgspec.msgpack.Decoder(Checkpoint).decode


@dataclass(frozen=True, slots=True)
class Stored:
    """The header of a checkpoint file.

    Attributes:
        position: Where the log continues that the image does not contain.
        clean: A clean stop wrote it.
        next_segment: No event has referred to a segment with this number or a greater one.
    """

    number: int
    position: LogPosition
    incarnation: int
    next_segment: int
    clean: bool


def write(file: File, image: Image, stored: Stored, instance: bytes) -> None:
    """*Blocking.* Write the image, then the header in front of it.  Raises OSError."""
    size, body_digest = CHECKPOINT_HEADER.size, Digest()
    for part in _parts(image):
        write_all(file, part, size)
        body_digest.update(part)
        size += len(part)
    body_bytes = size - CHECKPOINT_HEADER.size
    write_all(file, _header(stored, instance, body_bytes, body_digest.value), 0)


def _parts(image: Image) -> Iterator[bytes]:
    """The pieces of an image, small ones joined up to `WRITE_BYTES`."""
    pieces: list[Buffer] = []
    size = 0
    for piece in image.pieces():
        pieces.append(piece)
        size += len(piece)
        if size >= WRITE_BYTES:
            yield b"".join(pieces)
            pieces.clear()
            size = 0
    yield b"".join(pieces)


def _header(stored: Stored, instance: bytes, body_bytes: int, body_digest: int) -> bytes:
    position = stored.position
    return seal_header(
        CHECKPOINT_HEADER,
        CHECKPOINT_MAGIC,
        FORMAT_VERSION,
        int(stored.clean),
        stored.incarnation,
        instance,
        stored.number,
        position.file_number,
        position.offset,
        position.batch,
        position.digest,
        stored.next_segment,
        body_bytes,
        body_digest,
    )


def decode(data: memoryview, number: int, instance: bytes) -> tuple[Checkpoint, Stored]:
    """The image and its header.  Raises ValueError: what does not verify."""
    if not header_holds(CHECKPOINT_HEADER, data):
        raise ValueError("the header does not verify")
    magic, version, clean, incarnation, owner, own, *rest = CHECKPOINT_HEADER.unpack(
        data[: CHECKPOINT_HEADER.size]
    )
    file_number, offset, batch, last_digest, next_segment, size, body_digest, _ = rest
    if magic != CHECKPOINT_MAGIC or version not in VERSIONS:
        raise ValueError("the header is not that of a checkpoint")
    if (owner, own) != (instance, number):
        raise ValueError(f"the file is number {own} of data directory {owner.hex()}")
    body = data[CHECKPOINT_HEADER.size :]
    if len(body) != size or digest(body) != body_digest:
        raise ValueError("the image does not verify")
    position = LogPosition(file_number, offset, batch, last_digest)
    stored = Stored(number, position, incarnation, next_segment, bool(clean))
    return _decode(body), stored


class Checkpoints:
    """The checkpoint files of one data directory."""

    def __init__(self, files: Files, instance: bytes) -> None:
        self._files = files
        self._instance = instance
        self.passed_over: Corrupt | None = None
        """The damage for which `load` fell back to the previous checkpoint."""
        self._kept: list[Stored] = []
        self._next_number = 1

    def load(self) -> tuple[Checkpoint, Stored] | None:
        """The newest checkpoint that verifies; None where the directory has none.

        Raises:
            Corrupt: There are checkpoint files and none verifies.
        """
        refused: Corrupt | None = None
        loaded: tuple[Checkpoint, Stored] | None = None
        found = numbers(self._files.names(), "ckpt")
        for number in reversed(found):
            try:
                image, stored = self.read(number)
            except Corrupt as error:
                refused = refused or error
                continue
            self._kept.insert(0, stored)
            loaded = loaded or (image, stored)
        self._next_number = max([0, *found]) + 1
        self.passed_over = refused if loaded is not None else None
        if loaded is None and refused is not None:
            raise refused
        return loaded

    def read(self, number: int) -> tuple[Checkpoint, Stored]:
        """One file's image.  Raises Corrupt."""
        name = checkpoint_name(number)
        path = f"{self._files.path}/{name}"
        try:
            return decode(read_whole(self._files, name), number, self._instance)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CannotRead(path, 0, error) from error
        except ValueError as error:
            raise Corrupt(path, 0, str(error)) from error

    @property
    def oldest_log(self) -> int:
        """Number of the first log file that a kept checkpoint needs; 1: the log from its beginning."""
        if len(self._kept) < GENERATIONS:
            return 1
        return min(stored.position.file_number for stored in self._kept[-GENERATIONS:])

    def save(
        self,
        image: Image,
        position: LogPosition,
        *,
        incarnation: int,
        next_segment: int,
        clean: bool,
    ) -> None:
        """*Blocking.* Make a checkpoint durable.  Raises OSError: nothing changed."""
        number = self._next_number
        stored = Stored(number, position, incarnation, next_segment, clean)
        publish_with(
            self._files,
            checkpoint_name(number),
            lambda file: write(file, image, stored, self._instance),
        )
        self._next_number = number + 1
        self._kept.append(stored)

    def retire(self) -> None:
        """Unlink all but the last two generations, including files that do not verify."""
        kept = {stored.number for stored in self._kept[-GENERATIONS:]}
        self._kept = self._kept[-GENERATIONS:]
        for number in numbers(self._files.names(), "ckpt"):
            if number not in kept and number < max(kept, default=0):
                discard(self._files, checkpoint_name(number))
