"""Every byte of a small store of packed runs, changed: a start refuses it by file and offset, or nothing is missing, or
exactly the records of the batches in the damaged block answer `corrupt`, to both kinds of client.  (F12-F18)

Never a wrong byte, neither in a page nor in a fetch, and never a loss that nothing reports.
"""

from functools import cache
from itertools import permutations
from typing import Any, Final, NamedTuple

import pytest
from sim.files import SimFiles
from store.disks import copy_of, flipped, interesting

from topics.protocol.model.errors import Corrupt, Unusable
from topics.store import identity, segment
from topics.store.layout import BLOCK, LOCK_NAME, RESERVE_NAME

from .packed import NAMES, UNREADABLE, Content, Records, content_of, small_directory, started
from .points import sample
from .test_every_byte import ENDS, has_flags

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

SHARE: Final = 3
"""One in so many points of the sweep of text is tried: a start reads all records for both kinds of client."""
FEW: Final = 4 * SHARE
"""The same of the damages that are no bits."""


class Found(NamedTuple):
    """What a start found.

    Attributes:
        content: None if it was refused.
        refusal: Its sentence, with file and offset.
    """

    content: Content | None = None
    torn_bytes: int = 0
    refusal: str = ""
    path: str = ""


def found_in(files: SimFiles) -> Found:
    """A start, and every record read.  A refusal changes nothing."""
    tree = files.tree()
    try:
        engine = started(files)
    except (Corrupt, Unusable) as error:
        assert files.tree() == tree, "a refusal changed the directory"
        return Found(refusal=str(error), path=error.path)
    try:
        return Found(content_of(engine), engine.recovery.torn_bytes)
    finally:
        engine.store.close(None)


@cache
def directory(end: str) -> tuple[SimFiles, list[Content]]:
    """A directory with every kind of packed run in it, and what it held after each of its last writes."""
    return small_directory(**ENDS[end])


@cache
def places(end: str, name: str) -> tuple[tuple[str, int, int, int, int], ...]:
    """Of a segment, each batch that has bytes: topic, first and last seq, and where its bytes lie in the file."""
    files, _ = directory(end)
    known = identity.read(files)
    assert known is not None
    file = files.open(name)
    header = segment.read_header(file, name, number=int(name[:10]), instance=known.instance)
    found = []
    for row in segment.read_table(file, name, header):
        shape: Any = segment.shape_of(row)
        if not shape.batches:
            continue
        parts = shape.parts()

        def part(of: str, row: Any = row, parts: Any = parts) -> list[int]:
            at, dtype, items = parts[of]
            raw = files.tree()[name][int(row["section_offset"]) + at :]
            return [int(each) for each in memoryview(raw[: items * dtype.itemsize]).cast("I")]

        firsts, offsets = part("batch_row"), part("batch_offset")
        base, first_seq = int(row["text_offset"]), int(row["first_seq"])
        for at, begin in enumerate(firsts):
            end_row = firsts[at + 1] if at + 1 < len(firsts) else shape.count
            if offsets[at] < offsets[at + 1]:
                first, last = first_seq + begin, first_seq + end_row - 1
                lo = offsets[at] // BLOCK * BLOCK
                hi = min(-(-offsets[at + 1] // BLOCK) * BLOCK, shape.text_bytes)
                found.append((NAMES[int(row["topic_id"]) - 1], first, last, base + lo, base + hi))
    return tuple(found)


def assert_sound(
    end: str, name: str, found: Found, what: object, *, without_flags: bool = False
) -> str:
    """Assert that a start after damage to one file is one of the allowed ones; returns which.

    Args:
        without_flags: The flags of deleted records were wiped, so that these may be back.
    """
    _, history = directory(end)
    if found.content is None:
        assert "sim/" in found.refusal or found.path == "sim", (what, found.refusal)
        return "refused"
    if found.torn_bytes and end == "killed":
        assert found.content in history, what
        return "torn"
    expected, seen = history[-1], found.content
    assert seen.producers == expected.producers, what
    assert seen.reserved == expected.reserved, what
    for face in ("http", "kafka"):
        before, now = getattr(expected, face), getattr(seen, face)
        assert before.keys() == now.keys(), (what, face)
        for topic, records in before.items():
            for seq, text in records.items():
                assert now[topic].get(seq) in (text, UNREADABLE), (what, face, topic, seq)
            more = {s for s, t in now[topic].items() if s not in records and t != UNREADABLE}
            assert without_flags or not more, (what, face, topic, more)
    lost = unreadable(seen.http, expected)
    assert lost == unreadable(seen.kafka, expected), what
    assert without_flags or seen.counts == expected.counts, what
    assert not lost or name.endswith(".seg"), (what, name)
    return "corrupt" if lost else "whole"


def unreadable(seen: Records, expected: Content) -> set[tuple[str, int]]:
    """The records that answer `corrupt`, of those that there are."""
    return {
        (topic, seq)
        for topic, records in seen.items()
        for seq, text in records.items()
        if text == UNREADABLE and seq in expected.http[topic]
    }


@pytest.mark.timeout(1800)
def test_every_bit(is_full: bool) -> None:
    """Each bit of each byte that was written, and of a sample of the zeros behind them.  In a block of text it takes the
    batches that lie in it, and nothing else."""
    points = [
        (end, name, at, bit)
        for end in ENDS
        for name, data in directory(end)[0].tree().items()
        for at in interesting(data)
        for bit in range(8)
    ]
    seen = set()

    for end, name, at, bit in sample(points, is_full=is_full, share=SHARE):
        found = found_in(flipped(directory(end)[0], name, at, bit))
        seen.add(assert_sound(end, name, found, (end, name, at, bit)))
        hit = (
            [each for each in places(end, name) if each[3] <= at < each[4]]
            if ".seg" in name
            else []
        )
        if hit:
            _, history = directory(end)
            lost = {(each[0], seq) for each in hit for seq in range(each[1], each[2] + 1)}
            there = {each for each in lost if each[1] in history[-1].http[each[0]]}
            assert found.content is not None
            assert unreadable(found.content.http, history[-1]) == there, (end, name, at, bit)

    assert {"corrupt", "whole"} <= seen
    assert "refused" in seen or not is_full


def test_every_length(is_full: bool) -> None:
    """Each file, cut to each shorter length."""
    points = [
        (end, name, size)
        for end in ENDS
        for name, data in directory(end)[0].tree().items()
        for size in range(len(data))
    ]
    seen = set()

    for end, name, size in sample(points, is_full=is_full, share=FEW):
        damaged = copy_of(directory(end)[0])
        damaged.put(name, directory(end)[0].tree()[name][:size])
        seen.add(assert_sound(end, name, found_in(damaged), (end, name, size)))

    assert "refused" in seen or not is_full


def test_every_sector_of_zeros(is_full: bool) -> None:
    """Each sector that was written, zeroed as a failing disk does, alone and with all behind it; wiped flags are not
    promised to be noticed."""
    points = [
        (end, name, first, limit)
        for end in ENDS
        for name, data in directory(end)[0].tree().items()
        for first in range(0, len(data), 512)
        for limit in ((first + 512, len(data)) if first else (512,))
        if data[first:limit].strip(b"\0")
    ]

    for end, name, first, limit in sample(points, is_full=is_full, share=FEW):
        data = directory(end)[0].tree()[name]
        damaged = copy_of(directory(end)[0])
        damaged.put(name, data[:first] + bytes(limit - first) + data[limit:])
        wiped = name.endswith(".seg") and has_flags(data, first, limit)
        found = found_in(damaged)
        assert_sound(end, name, found, (end, name, first, limit), without_flags=wiped)


def test_every_file_swapped_missing_or_of_another_directory(is_full: bool) -> None:
    """Two files under each other's name; one that is gone; one that another process made in the same way."""
    for end in ENDS:
        tree = directory(end)[0].tree()
        strangers, _ = small_directory(**ENDS[end], seed=77)
        damages: list[tuple[object, str, dict[str, bytes]]] = [
            (("swapped", one, other), one, {one: tree[other], other: tree[one]})
            for one, other in permutations(tree, 2)
            if one < other and tree[one] != tree[other]
        ]
        own = [name for name in tree if name not in (LOCK_NAME, RESERVE_NAME)]
        damages += [
            (("stranger", name), name, {name: strangers.tree()[name]})
            for name in own
            if strangers.tree().get(name, tree[name]) != tree[name]
        ]
        for what, name, files in sample(damages, is_full=is_full, share=FEW * len(ENDS)):
            damaged = copy_of(directory(end)[0])
            for each, data in files.items():
                damaged.put(each, data)
            assert_sound(end, name, found_in(damaged), (end, what))
        for name in own:
            gone = copy_of(directory(end)[0])
            gone.remove(name)
            assert_sound(end, name, found_in(gone), (end, "gone", name))
