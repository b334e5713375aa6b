"""Headers verify as a whole or not at all; file names and numbers."""

import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from topics.store.layout import (
    BATCH_HEADER,
    BATCH_MAGIC,
    CHECKPOINT_HEADER,
    CHECKPOINT_MAGIC,
    FORMAT_VERSION,
    LOG_HEADER,
    LOG_MAGIC,
    NAME,
    SEGMENT_HEADER,
    SEGMENT_MAGIC,
    TEMP,
    TORN,
    VERSIONS,
    Digest,
    aligned,
    checkpoint_name,
    digest,
    digest_all,
    header_holds,
    log_name,
    numbers,
    seal_header,
    segment_name,
    version_of,
)

LAYOUTS = {
    "log": (LOG_HEADER, LOG_MAGIC),
    "batch": (BATCH_HEADER, BATCH_MAGIC),
    "checkpoint": (CHECKPOINT_HEADER, CHECKPOINT_MAGIC),
    "segment": (SEGMENT_HEADER, SEGMENT_MAGIC),
}


def header(layout: struct.Struct, magic: bytes) -> bytes:
    """A header whose fields are all different from zero, and its digest."""
    zero = layout.unpack(bytes(layout.size))
    rest = [b"\x07" * len(v) if isinstance(v, bytes) else n for n, v in enumerate(zero[2:-1], 3)]
    return seal_header(layout, magic, FORMAT_VERSION, *rest)


@pytest.mark.parametrize("kind", LAYOUTS)
def test_no_bit_of_a_header_may_be_another(kind: str) -> None:
    """The digest covers every bit of a header, its own bits included."""
    layout, magic = LAYOUTS[kind]
    made = header(layout, magic)
    assert header_holds(layout, made)

    for bit in range(8 * len(made)):
        other = bytearray(made)
        other[bit // 8] ^= 1 << bit % 8
        assert not header_holds(layout, other), bit


@pytest.mark.parametrize("kind", LAYOUTS)
def test_a_header_that_was_cut_short_is_none(kind: str) -> None:
    """Bytes behind a header are not part of it; a header that is cut short does not verify."""
    layout, magic = LAYOUTS[kind]
    made = header(layout, magic)

    assert header_holds(layout, made + b"text")
    assert not any(header_holds(layout, made[:size]) for size in range(len(made)))


def test_zeros_are_no_header() -> None:
    """A file that is allocated and not begun has no header."""
    assert not any(header_holds(layout, bytes(layout.size)) for layout, _ in LAYOUTS.values())


def test_a_magic_is_no_text() -> None:
    """Every magic begins with a byte that is not UTF-8, so no record looks like a header."""
    magics = [magic for _, magic in LAYOUTS.values()]
    assert len(set(magics)) == len(magics)
    for magic in magics:
        with pytest.raises(UnicodeDecodeError):
            magic.decode()


def test_versions_that_are_not_read_are_none() -> None:
    """A newer version, another magic, and too few bytes give version 0."""
    for version in VERSIONS:
        assert version_of(LOG_MAGIC + version.to_bytes(2, "little"), LOG_MAGIC) == version
    newer = max(VERSIONS) + 1
    assert version_of(LOG_MAGIC + newer.to_bytes(2, "little"), LOG_MAGIC) == 0
    assert version_of(BATCH_MAGIC + b"\x01\x00", LOG_MAGIC) == 0
    assert version_of(LOG_MAGIC, LOG_MAGIC) == 0


@settings(deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8))
def test_a_digest_is_of_bytes_however_they_come(parts: list[bytes]) -> None:
    """The digest does not depend on how the bytes are split."""
    whole = digest(b"".join(parts))
    state = Digest()
    for part in parts:
        state.update(part)

    assert state.value == digest_all(parts) == whole


@settings(deadline=None)
@given(st.integers(0, 1 << 62), st.sampled_from([1, 8, 512, 4096]))
def test_what_is_aligned_is_the_next_multiple(size: int, unit: int) -> None:
    """The result is a multiple, not below `size`, and less than a unit above it."""
    found = aligned(size, unit)

    assert found % unit == 0
    assert size <= found < size + unit


def test_numbers_are_of_files_of_ours_alone() -> None:
    """Numbers are sorted; temporary, torn and foreign files are left out."""
    names = [log_name(2), log_name(10), log_name(1), segment_name(3), checkpoint_name(4)]
    strangers = ["reserve.wal", "1.wal", f"{log_name(5)}.tmp", f"{log_name(6)}.1.torn", "x.seg"]

    assert numbers([*names, *strangers], "wal") == [1, 2, 10]
    assert numbers([*names, *strangers], "seg") == [3]
    assert numbers([*names, *strangers], "ckpt") == [4]


def test_each_name_is_of_one_kind() -> None:
    """A name is a store file, a temporary file or a torn end, and never two of them."""
    for name, kind in (
        (log_name(1), NAME),
        (segment_name(1), NAME),
        (checkpoint_name(1), NAME),
        (f"{segment_name(1)}.tmp", TEMP),
        ("reserve.wal.tmp", TEMP),
        ("topics.id.tmp", TEMP),
        (f"{log_name(1)}.3.torn", TORN),
    ):
        assert [one for one in (NAME, TEMP, TORN) if one.fullmatch(name)] == [kind], name
