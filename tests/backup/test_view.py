"""A backup as the directory that it would be restored to."""

import tracemalloc
import zlib

import msgspec
import pytest
from sim.files import SimFiles

from topics.backup.layout import FilePart, SegmentPart, read_manifest
from topics.backup.restore import identity_of
from topics.backup.view import Held, Piece, PiecedFile, flags_of, view
from topics.protocol.model.errors import Corrupt
from topics.store.files import read_whole
from topics.store.inspect import inspect
from topics.store.layout import digest

from .places import lived, placed, restored


def test_pieces_are_joined_and_the_rest_is_zero() -> None:
    """Every range of a file reads as the whole of it does."""
    pieces = [Piece(2, 3, Held("a", b"xxabc"), 2), Piece(7, 2, Held("b", b"de"), 0)]
    file = PiecedFile("f", 10, pieces)
    whole = b"\0\0abc\0\0de\0"

    for lo in range(11):
        for size in range(11):
            buffer = memoryview(bytearray(b"?" * size))
            read = file.read_into(buffer, lo)
            assert bytes(buffer[:read]) == whole[lo : lo + size]


def test_a_view_is_what_a_restore_makes() -> None:
    """Byte by byte, but for the mark that a restore leaves for the first start."""
    place = placed(lived())
    target = restored(place)
    file = place.open("0000000001.backup")
    manifest = read_manifest(file, "", 1)
    shown = view(place, manifest, file, identity_of(manifest, bytes(8)))

    for name in shown.names():
        if name != "topics.id":
            assert bytes(read_whole(shown, name)) == target.tree()[name], name
    assert inspect(shown).problems == []


def test_a_view_is_read_only() -> None:
    """Whatever would write is refused."""
    place = placed(lived())
    file = place.open("0000000001.backup")
    manifest = read_manifest(file, "", 1)
    shown = view(place, manifest, file, identity_of(manifest, bytes(8)))

    for change in (
        lambda: shown.create("x"),
        lambda: shown.unlink(shown.names()[0]),
        lambda: shown.rename("a", "b"),
        lambda: shown.open("topics.id").write(b"x", 0),
        lambda: shown.lock(),
    ):
        with pytest.raises(OSError, match="read-only"):
            change()
    assert isinstance(place, SimFiles)


FLAGS_BYTES = 8 << 20


def bomb(**changed: int) -> tuple[Held, SegmentPart]:
    """A backup file whose flags unpack to a thousand times their size, with all digests right."""
    packer = zlib.compressobj(9)
    packed = b"".join(packer.compress(bytes(1 << 20)) for _ in range(FLAGS_BYTES >> 20))
    packed += packer.flush()
    part = SegmentPart(
        number=1,
        header_digest=0,
        size_bytes=8192,
        flags_offset=4096,
        flags_bytes=FLAGS_BYTES,
        flags_digest=digest(bytes(FLAGS_BYTES)),
        flags=FilePart(0, len(packed), digest(packed)),
    )
    return Held("backup", packed), msgspec.structs.replace(part, **changed)


@pytest.mark.parametrize(
    ("changed", "copy_bytes"),
    [
        ({}, 8192),
        ({}, 1 << 40),
        ({"flags_bytes": 64}, 8192),
        ({"flags_bytes": 1 << 40, "flags_offset": 1 << 46}, 1 << 50),
    ],
)
def test_flags_unpack_to_no_more_than_the_copy_has_records(
    changed: dict[str, int], copy_bytes: int
) -> None:
    """A backup may come from anywhere: one of a few kilobytes does not fill the memory."""
    backup, part = bomb(**changed)
    tracemalloc.start()
    try:
        with pytest.raises(Corrupt, match="the delete flags of segment 1 do not verify"):
            flags_of(backup, "place", part, copy_bytes)
        assert tracemalloc.get_traced_memory()[1] < FLAGS_BYTES / 8 or "flags_offset" in changed
    finally:
        tracemalloc.stop()


def test_flags_that_are_not_packed_are_damage() -> None:
    """A digest that is right says nothing of what it is the digest of."""
    data = b"no deflate at all"
    _, part = bomb(flags_bytes=8)
    part = msgspec.structs.replace(part, flags=FilePart(0, len(data), digest(data)))

    with pytest.raises(Corrupt, match="do not verify"):
        flags_of(Held("backup", data), "place", part, 8192)


def test_a_part_that_is_longer_than_its_file_is_damage() -> None:
    """No memory is taken for what a manifest claims and no file has."""
    backup, part = bomb(flags_bytes=8)
    part = msgspec.structs.replace(part, flags=FilePart(0, 1 << 60, 0))

    with pytest.raises(Corrupt, match="the file ends here"):
        flags_of(backup, "place", part, 8192)
