"""A backup as the directory that it would be restored to."""

import pytest
from sim.files import SimFiles

from topics.backup.layout import read_manifest
from topics.backup.restore import identity_of
from topics.backup.view import Held, Piece, PiecedFile, view
from topics.store.files import read_whole
from topics.store.inspect import inspect

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
