"""The header of a backup file and its manifest."""

import pytest
from sim.files import SimFiles

from topics.backup.layout import (
    HEADER,
    MAGIC,
    PARTS_OFFSET,
    FilePart,
    LogPart,
    Manifest,
    SegmentPart,
    backup_name,
    copy_name,
    encoded,
    read_manifest,
)
from topics.protocol.model.errors import Corrupt
from topics.store.layout import digest, seal_header

MANIFEST = Manifest(
    number=3,
    taken_s=1,
    source="/data",
    instance="00" * 8,
    history="01" * 8,
    incarnation=2,
    clean=False,
    batch=7,
    checkpoint=(1, FilePart(4096, 8, 9)),
    logs=[LogPart(1, 65536, FilePart(4104, 1, 2))],
    segments=[SegmentPart(4, 5, 6, 7, 8, 9, FilePart(1, 2, 3))],
)


def file_of(header: bytes, body: bytes) -> SimFiles:
    files = SimFiles()
    files.put("b", header.ljust(PARTS_OFFSET, b"\0") + body)
    return files


def test_a_manifest_is_read_as_it_was_written() -> None:
    """Every field of it."""
    files = file_of(*encoded(MANIFEST, PARTS_OFFSET))

    assert read_manifest(files.open("b"), "b", 3) == MANIFEST


def test_every_flipped_bit_is_found() -> None:
    """Of the header and of the manifest."""
    header, body = encoded(MANIFEST, PARTS_OFFSET)
    for at in [*range(HEADER.size), *range(PARTS_OFFSET, PARTS_OFFSET + len(body))]:
        data = bytearray(header.ljust(PARTS_OFFSET, b"\0") + body)
        data[at] ^= 1
        files = SimFiles()
        files.put("b", bytes(data))
        with pytest.raises(Corrupt):
            read_manifest(files.open("b"), "b", 3)


def test_another_version_and_another_number_are_refused() -> None:
    """A newer program's backup is not guessed at."""
    header, body = encoded(MANIFEST, PARTS_OFFSET)
    newer = seal_header(HEADER, MAGIC, 2, 0, 0, bytes(8), 3, PARTS_OFFSET, len(body), digest(body))

    with pytest.raises(Corrupt, match="version 2 of backups"):
        read_manifest(file_of(newer, body).open("b"), "b", 3)
    with pytest.raises(Corrupt, match="not this backup"):
        read_manifest(file_of(header, body).open("b"), "b", 4)


def test_names_sort_as_numbers_do() -> None:
    """A listing is in the order of time."""
    assert backup_name(3) == "0000000003.backup"
    assert copy_name(12, 255) == "0000000012-00000000000000ff.segment"
