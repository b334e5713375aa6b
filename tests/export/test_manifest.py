"""The manifest: lines, their checksums, and what they add up to."""

import json
import zlib

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.export import manifest
from topics.export.manifest import (
    Commit,
    Damaged,
    Entry,
    File,
    Handoff,
    Lost,
    Settings,
    Swap,
    decode,
    encode,
    first_of,
    fold,
)


def file(path: str, first: int, last: int, rows: int) -> File:
    return File(path, rows, first, last, 100, "0" * 64)


def commit(
    first: int, last: int, rows: int = 0, *, epoch: str = "e", n: int = 0, **more: object
) -> Commit:
    files = (file(f"t/{n}", first, last, rows),) if rows else ()
    lost = more.pop("lost", ())
    deleted = last - first + 1 - rows - sum(g.missed for g in lost)  # type: ignore[attr-defined]
    return Commit("t", epoch, first, last, rows, deleted, n=n, files=files, lost=lost, **more)  # type: ignore[arg-type]


SETTINGS = Settings("parquet", "date", n=1)
STORY: list[Entry] = [
    SETTINGS,
    commit(1, 10, 8, n=2),
    commit(11, 20, 5, n=3, lost=(Lost(11, 12, "cap"),)),
    Swap("compact", "t", "e", ("t/2", "t/3"), (file("t/4", 1, 20, 13),), 0, n=4),
    Handoff("t", "e", 15, n=5),
    Swap("reconcile", "t", "e", ("t/4",), (file("t/6", 1, 20, 11),), 2, n=6),
    commit(1, 3, 3, epoch="f", n=7),
]


def test_a_line_is_json_with_its_checksum() -> None:
    """Other programs can read it, and check it, too."""
    line = encode(STORY[1])
    told = json.loads(line)

    assert line.endswith(b"}\n")
    assert told["kind"] == "commit"
    body = line[: line.rindex(b',"crc32":')] + b"}"
    assert told["crc32"] == f"{zlib.crc32(body):08x}"


def test_what_is_written_is_read() -> None:
    """Every kind of entry."""
    data = b"".join(map(encode, STORY))
    assert decode(data, "m") == (STORY, len(data))


@given(st.integers(0, 2000), st.integers(1, 255))
def test_a_flipped_bit_is_never_believed(at: int, flip: int) -> None:
    """Whatever byte is wrong: an error, or, in what looks like a torn end, a line less."""
    data = bytearray(b"".join(map(encode, STORY)))
    at %= len(data)
    data[at] ^= flip
    whole = len(b"".join(map(encode, STORY[:-1])))
    if _read(bytes(data)) is not None:
        assert _read(bytes(data)) == (STORY[:-1], whole)


def _read(data: bytes) -> tuple[list[Entry], int] | None:
    try:
        return decode(data, "m")
    except Damaged:
        return None


def test_a_torn_end_is_no_damage() -> None:
    """A last line without an end, or with zeros where the disk did not get to."""
    data = b"".join(map(encode, STORY))
    start = len(b"".join(map(encode, STORY[:-1])))
    for size in range(start, len(data)):
        assert decode(data[:size], "m") == (STORY[:-1], start)
    zeros = data[: start + 5] + bytes(len(data) - start - 6) + b"\n"
    assert decode(zeros, "m") == (STORY[:-1], start)


def test_a_line_that_is_missing_is_noticed() -> None:
    """Entries are numbered."""
    data = b"".join(encode(entry) for entry in STORY if entry.n != 3)
    with pytest.raises(Damaged, match="line 3 is entry 4: a line is missing"):
        decode(data, "m")


def test_a_later_version_is_named() -> None:
    """An entry of a kind that this program does not know is not damage that a person repairs."""
    body = b'{"kind":"later","n":1}'
    line = body[:-1] + b',"crc32":"%08x"}\n' % zlib.crc32(body)
    with pytest.raises(Damaged, match="line 1 is of another version"):
        decode(line, "m")
    with pytest.raises(Damaged, match="version 2 is not 1"):
        fold([msgspec.structs.replace(SETTINGS, version=2)], "m")


def test_a_later_program_knows_the_first_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """A manifest that says no version is of the first, whatever the program writes by then; what it begins says so."""
    written = encode(first_of(SETTINGS))
    monkeypatch.setattr(manifest, "VERSION", 2)

    with pytest.raises(Damaged, match="version 1 is not 2"):
        fold(decode(written, "m")[0], "m")
    assert b'"version":2' in encode(first_of(SETTINGS))


def test_what_the_story_adds_up_to() -> None:
    """Spans lie one behind the other, swaps replace files, and a new instance begins anew."""
    catalogue = fold(STORY, "m")
    old, new = catalogue.lineages["t"]

    assert (old.first, old.last, old.rows, old.deleted, old.missed) == (1, 20, 13, 5, 2)
    assert (old.erased, old.handed, list(old.files)) == (2, 14, ["t/6"])
    assert (new.epoch, new.first, new.last, list(new.files)) == ("f", 1, 3, ["t/7"])
    assert catalogue.current("t") is new
    assert catalogue.current("u") is None
    assert set(catalogue.live()) == {"t/6", "t/7"}


@pytest.mark.parametrize(
    ("entry", "what"),
    [
        (commit(12, 13, n=3), "seq 12 of t does not follow 10"),
        (commit(10, 13, n=3), "seq 10 of t does not follow 10"),
        (Swap("compact", "t", "e", ("t/9",), (), 0, n=3), "that it does not have"),
        (Swap("compact", "u", "e", (), (), 0, n=3), "that it does not have"),
        (Handoff("t", "f", 3, n=3), "instance f of t is not the newest"),
        (msgspec.structs.replace(SETTINGS, n=3), "at the beginning only"),
        (Handoff("t", "e", 3, n=4), "entry 4 does not follow 2"),
    ],
)
def test_entries_that_do_not_fit_together(entry: Entry, what: str) -> None:
    """Are damage, with the line."""
    with pytest.raises(Damaged, match=what):
        fold([*STORY[:2], entry], "m")
    with pytest.raises(Damaged, match="settings of the export are missing"):
        fold(STORY[1:], "m")


def test_every_seq_of_a_commit_is_accounted_for() -> None:
    """Rows, deleted and lost seqs are the span."""
    with pytest.raises(AssertionError):
        Commit("t", "e", 1, 10, rows=0, deleted=9)
    with pytest.raises(AssertionError):
        Commit("t", "e", 1, 10, rows=5, deleted=5, files=(file("t/1", 1, 4, 4),))
