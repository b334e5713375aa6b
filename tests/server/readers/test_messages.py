"""What the two processes say to each other, but for what goes over their link."""

from dataclasses import replace
from pathlib import Path

import pytest

from topics.protocol.driver.streams import LentSession
from topics.protocol.model.holder import NOBODY
from topics.server.access.keys import Entry
from topics.server.readers import messages
from topics.server.readers.messages import (
    End,
    Keys,
    Lent,
    Returned,
    Stats,
    decode_from_reader,
    decode_to_reader,
    encode,
    pack_settings,
    settings_of,
)
from topics.settings import Settings

ENTRY = Entry(b"\xff" * 32, frozenset({"read", "write"}), ("a:",))
IMAGE = LentSession("w", 15_000, NOBODY, ())


@pytest.mark.parametrize("message", [Keys([ENTRY]), Lent(7, IMAGE, ENTRY, 9), End("w", 1, "MOVED")])
def test_what_a_reader_is_told_comes_as_it_went(message: messages.ToReader) -> None:
    """Keys without their secrets, sessions with all that they watch."""
    assert decode_to_reader(encode(message)) == message


@pytest.mark.parametrize("message", [Returned(IMAGE, 3), Stats(1, 2, 3, 4.5, 6, b"\x90")])
def test_what_a_reader_tells_comes_as_it_went(message: messages.FromReader) -> None:
    """Nothing of it is code: a process that is not ours could be given no object to make."""
    assert decode_from_reader(encode(message)) == message


def test_settings_come_without_keys() -> None:
    """Each with its type; of keys a reader is told those in force, without their secrets."""
    mine = replace(
        Settings(),
        data_dir=Path("/somewhere/else"),
        readers=2,
        allowed_hosts=("a", "b"),
        api_keys="x" * 24,
    )
    found = settings_of(pack_settings(mine))
    assert found == replace(mine, api_keys=None)
