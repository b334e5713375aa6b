"""The shared heads: what the engine stores is what a reader loads, whole and never older."""

import mmap
import os
import random

import pytest

from topics.protocol.driver.follower import NOTHING, Timing
from topics.protocol.model.errors import Unusable
from topics.server.readers.shared_heads import (
    HELD_MAX,
    SLOT_STRIDE,
    SharedHeads,
    SharedHeadsView,
    heads_bytes,
    shared_file,
)


def made(readers: int = 2) -> tuple[mmap.mmap, SharedHeads, SharedHeadsView]:
    memory = mmap.mmap(-1, heads_bytes(readers))
    return memory, SharedHeads(memory), SharedHeadsView(memory, 0)


def test_a_reader_loads_what_was_stored_last() -> None:
    """Batch, held heads and the clock arrive together; what is not new is not stored again."""
    _, page, view = made()
    assert view.load() == NOTHING
    assert page.store(7, {3: 10, 4: 0}, Timing(5, -6, 7))
    assert not page.store(7, {3: 10, 4: 0}, Timing(5, -6, 7))

    shown = view.load()

    assert (shown.number, shown.batch, shown.timing) == (1, 7, Timing(5, -6, 7))
    assert shown.held == {3: 10, 4: 0}
    page.store(8, {}, Timing())
    assert view.load().batch == 8


def test_more_topics_than_the_page_can_name_are_told_as_many() -> None:
    """A reader is not shown a part of what is held back: it waits."""
    _, page, view = made()
    page.store(1, dict.fromkeys(range(HELD_MAX), 0), Timing())
    assert len(view.load().held or ()) == HELD_MAX
    page.store(2, dict.fromkeys(range(HELD_MAX + 1), 0), Timing())
    assert view.load().held is None


def test_a_state_that_is_being_written_is_not_loaded() -> None:
    """Whatever part of the newest slot is there, a reader has the state before it, or all of it."""
    dice = random.Random(5)
    memory, page, view = made()
    page.store(1, {1: 1}, Timing())
    page.store(2, {2: 2}, Timing(1))
    before = bytes(memory)
    page.store(3, {3: 3, 4: 4}, Timing(2))
    after = bytes(memory)
    changed = [at for at in range(2 * SLOT_STRIDE) if before[at] != after[at]]
    for _ in range(200):
        torn = bytearray(before)
        for at in dice.sample(changed, dice.randrange(len(changed))):
            torn[at] = after[at]
        memory[:] = bytes(torn)
        fresh = SharedHeadsView(memory, 0)
        assert fresh.load().batch == (3 if bytes(torn) == after else 2)
    memory[:] = after
    assert view.load().batch == 3


def test_a_page_without_a_whole_slot_is_an_error() -> None:
    """It cannot be a page of an engine that lives."""
    memory, page, view = made()
    page.store(1, {}, Timing())
    page.store(2, {}, Timing())
    memory[8 : 2 * SLOT_STRIDE] = b"\xff" * (2 * SLOT_STRIDE - 8)
    with pytest.raises(OSError, match="does not verify"):
        view.load()


def test_each_reader_has_words_of_its_own() -> None:
    """How far it is, that it lives, and that it waits to be woken, which is asked for once."""
    memory, page, view = made()
    other = SharedHeadsView(memory, 1)
    view.tell(applied=3, beat=9, waits=True)
    other.tell(applied=4, beat=8, waits=False)
    assert page.words(0) == (3, 9, True)
    assert page.words(1) == (4, 8, False)
    assert page.waits(0)
    assert not page.waits(0)
    assert not page.waits(1)
    page.clear(0)
    assert page.words(0) == (0, 0, False)
    assert page.words(1) == (4, 8, False)


@pytest.mark.parametrize("has_memfd", [True, False])
def test_processes_share_memory_that_has_no_name(
    monkeypatch: pytest.MonkeyPatch, has_memfd: bool
) -> None:
    """A file that is gone does where the system has no other, or a sandbox forbids it."""
    if not has_memfd:
        monkeypatch.delattr(os, "memfd_create")
    descriptor = shared_file(8192)
    with mmap.mmap(descriptor, 8192) as one, mmap.mmap(descriptor, 8192) as other:
        one[5000] = 7
        assert other[5000] == 7
    assert os.fstat(descriptor).st_nlink == 0
    os.close(descriptor)


def test_memory_that_cannot_be_shared_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without readers the server starts."""

    def refuses(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    monkeypatch.setattr("topics.server.readers.shared_heads.mmap", refuses)
    with pytest.raises(Unusable, match=r"TOPICS_READERS: .*memfd_create.*TOPICS_READERS=0"):
        shared_file(8192)
