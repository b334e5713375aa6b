"""Every byte of a small store, changed: a start refuses it by file and offset, or nothing is
missing, or exactly the records in the damaged block answer `corrupt`.  (F12-F18)

Never a wrong byte, and never a loss that nothing reports.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import permutations
from typing import Final

import pytest
from sim.files import SimFiles
from store.disks import FILE, TEXTS, copy_of, flipped, interesting, small_directory
from store.ledger import Content, Ledger, live_rows, row_text

from topics.protocol.model.errors import Corrupt, Unusable
from topics.store.layout import LOCK_NAME, RESERVE_NAME, SEGMENT_HEADER
from topics.store.store import DiskStore

from .points import sample

pytestmark = pytest.mark.long

UNREADABLE: Final = b"\xff unreadable"
"""What stands in the place of a record that answers `corrupt`; no record is like it."""

ENDS: Final = {
    "stopped": {"clean": True},
    "killed when idle": {"idle": True},
    "killed": {"idle": False},
}


@dataclass(frozen=True)
class Start:
    """What a start found.

    Attributes:
        content: The records, by topic and seq, or None if the start was refused.
        torn_bytes: What it set aside, with a warning.
        refusal: The sentence of a refusal, with file and offset.
    """

    content: Content | None = None
    torn_bytes: int = 0
    refusal: str = ""
    path: str = ""


def started(files: SimFiles) -> Start:
    """A start, and every record read by itself.  A refusal changes nothing."""
    tree = files.tree()
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    try:
        recovery = store.recover(ledger)
    except (Corrupt, Unusable) as error:
        assert files.tree() == tree, "a refusal changed the directory"
        return Start(refusal=str(error), path=error.path)
    try:
        content = {key: dict(read_singly(ledger, key)) for key in sorted(ledger.topics)}
        return Start(content, recovery.torn_bytes)
    finally:
        store.close(None)


def read_singly(ledger: Ledger, topic_id: int) -> Iterator[tuple[int, bytes]]:
    topic = ledger.topics[topic_id]
    yield from topic.hot.items()
    for ref, run in topic.runs:
        try:
            rows = live_rows(run)
        except Corrupt:
            yield from ((seq, UNREADABLE) for seq in range(ref.first_seq, ref.last_seq + 1))
            continue
        for row in rows:
            try:
                yield ref.first_seq + row, row_text(run, row)
            except Corrupt:
                yield ref.first_seq + row, UNREADABLE


@cache
def directory(end: str) -> tuple[SimFiles, list[Content]]:
    """A directory with every kind of file in it, and what it held after each synced write."""
    return small_directory(**ENDS[end])


def was_deleted(end: str, topic: int, seq: int, text: bytes) -> bool:
    """Whether this is a record that there was, and that had been deleted."""
    _, history = directory(end)
    return any(content.get(topic, {}).get(seq) == text for content in history)


def assert_sound(
    end: str, name: str, found: Start, what: object, *, without_flags: bool = False
) -> str:
    """Assert that a start after damage to one file is one of the allowed ones; returns which.

    `without_flags`: the flags of deleted records were wiped, so that these may be back.
    """
    _, history = directory(end)
    if found.content is None:
        # A flag of the identity, or the log that a damaged checkpoint would have led to, may be
        # what the start names; it is always a file of this directory.
        assert "sim/" in found.refusal or found.path == "sim", (what, found.refusal)
        return "refused"
    if found.torn_bytes and end == "killed":
        # The last batch of a process that was killed has no witness yet.  It is taken for what the
        # kill left half written: as a whole, set aside, and with a warning.
        assert found.content in history[-2:], what
        return "torn"
    expected = history[-1]
    assert found.content.keys() == expected.keys(), what
    has_damage = False
    for topic, records in expected.items():
        seen = found.content[topic]
        for seq, text in seen.items():
            # Where the columns of a run cannot be read it is not known which of its records had
            # been deleted: the answer is the range.
            is_back = without_flags and was_deleted(end, topic, seq, text)
            assert seq in records or text == UNREADABLE or is_back, (what, topic, seq)
        for seq, text in records.items():
            assert seen.get(seq) in (text, UNREADABLE), (what, topic, seq)
            has_damage |= seen[seq] == UNREADABLE
    assert not has_damage or name.endswith(".seg"), (what, name)
    return "corrupt" if has_damage else "whole"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.timeout(1800)
def test_every_bit(end: str, is_full: bool) -> None:
    """Each bit of each byte that was written, and of a sample of the zeros behind them."""
    files, _ = directory(end)
    points = [
        (name, at, bit)
        for name, data in files.tree().items()
        for at in interesting(data)
        for bit in range(8)
    ]
    seen = set()

    for name, at, bit in sample(points, is_full=is_full):
        found = started(flipped(files, name, at, bit))
        seen.add(assert_sound(end, name, found, (name, at, bit)))

    assert {"refused", "corrupt", "whole"} <= seen


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.timeout(1800)
def test_every_length(end: str, is_full: bool) -> None:
    """Each file, cut to each shorter length of its last 64 KiB."""
    files, _ = directory(end)
    points = [
        (name, size)
        for name, data in files.tree().items()
        for size in range(max(0, len(data) - (64 << 10)), len(data))
    ]
    seen = set()

    for name, size in sample(points, is_full=is_full):
        damaged = copy_of(files)
        damaged.put(name, files.tree()[name][:size])
        seen.add(assert_sound(end, name, started(damaged), (name, size)))

    assert "refused" in seen


@pytest.mark.parametrize("end", ENDS)
def test_every_sector_of_zeros(end: str) -> None:
    """Each sector that was written, zeroed as a failing disk does, alone and with all behind it.

    One thing is not promised: the flags of deleted records are outside the checksums, since they
    change in place, and where a whole sector of them is wiped, deleted records are back.
    """
    files, _ = directory(end)
    for name, data in files.tree().items():
        for first in range(0, len(data), 512):
            for limit in (first + 512, len(data)) if first else (512,):
                zeros = bytes(limit - first)
                if data[first:limit].strip(b"\0"):
                    damaged = copy_of(files)
                    damaged.put(name, data[:first] + zeros + data[limit:])
                    found = started(damaged)
                    what = (name, first, limit)
                    wiped = name.endswith(".seg") and has_flags(data, first, limit)
                    assert_sound(end, name, found, what, without_flags=wiped)


def has_flags(segment: bytes, first: int, limit: int) -> bool:
    """Whether the flags of a segment lie in bytes [first, limit)."""
    flags_at, flags_bytes = SEGMENT_HEADER.unpack(segment[: SEGMENT_HEADER.size])[7:9]
    return first < flags_at + flags_bytes and flags_at < limit


@pytest.mark.parametrize("end", ENDS)
def test_every_pair_of_files_swapped(end: str) -> None:
    """Two files of one directory under each other's name: each says which file it is."""
    files, _ = directory(end)
    tree = files.tree()
    for one, other in permutations(tree, 2):
        if one < other and tree[one] != tree[other]:
            damaged = copy_of(files)
            damaged.put(one, tree[other])
            damaged.put(other, tree[one])
            found = started(damaged)
            assert_sound(end, one, found, (one, other))


@pytest.mark.parametrize("end", ENDS)
def test_every_file_twice_missing_or_of_another_directory(end: str) -> None:
    """Each file removed; put down again under every other number; and replaced by that of a
    directory which another process made in the same way."""
    files, _ = directory(end)
    strangers = small_directory_of_another(end).tree()
    for name, data in files.tree().items():
        if name in (LOCK_NAME, RESERVE_NAME):
            continue
        gone = copy_of(files)
        gone.remove(name)
        assert_sound(end, name, started(gone), ("gone", name))
        _, _, suffix = name.partition(".")
        for number in range(1, 7):
            other = f"{number:010d}.{suffix}"
            if other != name and suffix in ("wal", "seg", "ckpt"):
                twice = copy_of(files)
                twice.put(other, data)
                assert_sound(end, name, started(twice), ("twice", name, other))
        if strangers.get(name, data) != data:
            swapped = copy_of(files)
            swapped.put(name, strangers[name])
            found = started(swapped)
            assert_sound(end, name, found, ("stranger", name))


def small_directory_of_another(end: str) -> SimFiles:
    """The same story in a directory with another identity."""
    files = SimFiles(seed=77)
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    store.recover(ledger)
    for topic_id in (1, 2):
        ledger.create(topic_id)
        ledger.append(topic_id, *(text.replace(b"v", b"w") for text in TEXTS))
        ledger.checkpoint()
    ledger.append(1, b"another")
    store.sync()
    if end == "stopped":
        ledger.stop()
    else:
        store.close(None)
    return files
