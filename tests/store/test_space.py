"""How the log gets space, and what happens without any."""

import errno

import pytest
from sim.files import SimFiles

from topics.protocol.model.errors import WriteFailed
from topics.store.layout import PAGE, RESERVE_NAME, log_name
from topics.store.space import FILE_MARGIN, FIRST_FILE_BYTES, LogFile, Space
from topics.store.store import DiskStore

from .disks import FILE, begun, fail_next, recovered
from .ledger import Ledger


def test_a_large_write_finds_room_on_a_small_disk() -> None:
    """Where space is counted, the next file is as large as the refused write needs, if the disk has
    that much more. (F6)"""
    files = SimFiles()
    files.capacity_bytes = 15 * FILE
    ledger = begun(files)
    text = b"x" * (2 * FILE)
    assert ledger.store.room(reserve=False) < len(text)

    ledger.store.find_room(len(text) + 4096)

    assert ledger.store.room(reserve=False) > len(text)
    ledger.append(1, text)
    ledger.store.sync()
    assert recovered(files.kill()).content() == ledger.history[-1]


def test_a_full_disk_is_known_before_a_write() -> None:
    """Appends stop at `room`, deletes continue into the reserve, and no write ever fails. (F6)"""
    files = SimFiles()
    files.capacity_bytes = 6 * FILE
    ledger = begun(files)
    store = ledger.store
    text = b"x" * 3000

    appended = 0
    while store.room(reserve=False) > len(text) + 500:
        ledger.append(1, text)
        store.sync()
        appended += 1
    assert appended > 10
    assert RESERVE_NAME in files.names()
    assert files.free_bytes() >= store.log_bytes  # what the log holds finds space as segments

    files.capacity_bytes = sum(len(data) for data in files.tree().values())
    for n in range(1000):
        assert store.room(reserve=True) > 500
        ledger.delete(1, n % appended + 1, n % appended + 1)
        store.sync()
        if RESERVE_NAME not in files.names():
            break
    assert RESERVE_NAME not in files.names()
    assert store.room(reserve=False) < len(text)
    assert recovered(files.kill()).content() == ledger.history[-1]

    files.capacity_bytes = 1 << 30
    store.find_room()
    assert store.room(reserve=False) > len(text)
    ledger.append(1, text)
    store.sync()
    assert RESERVE_NAME in files.names()
    assert recovered(files.kill()).content() == ledger.history[-1]


def test_a_checkpoint_on_a_full_disk_frees_space() -> None:
    """Without space for another log file a checkpoint begins in the middle of the present one."""
    files = SimFiles()
    ledger = begun(files)
    for _ in range(40):
        ledger.append(1, b"x" * 3000)
    ledger.checkpoint()
    ledger.append(1, b"y")
    files.capacity_bytes = sum(len(data) for data in files.tree().values()) + 20_000
    before = sum(name.endswith(".wal") for name in files.names())
    ledger.checkpoint()
    ledger.checkpoint()

    assert sum(name.endswith(".wal") for name in files.names()) < before
    assert recovered(files.kill()).content() == ledger.history[-1]
    ledger.append(1, b"z")
    assert recovered(files.kill()).content() == ledger.history[-1]


def test_space_that_somebody_else_took_is_made_up_from_the_reserve() -> None:
    """Space that was promised while there was plenty is provided even if another program took
    it."""
    files = SimFiles()
    ledger = begun(files)
    store = ledger.store
    assert store.room(reserve=False) > 40_000
    while store._log.position.offset < FILE - 4 * PAGE:  # type: ignore[attr-defined]
        ledger.append(1, b"x" * 2500)
    files.capacity_bytes = 0

    ledger.append(1, b"x" * 15_000)
    store.sync()

    assert RESERVE_NAME not in files.names()
    assert recovered(files.kill()).content() == ledger.history[-1]


def test_what_is_promised_is_allocated() -> None:
    """However large the batch, it is in the log although another program took all space between the
    promise and the write; a batch beyond the promise is asked for, and the next sync allocates it.
    (F6)"""
    files = SimFiles()
    ledger = begun(files)
    store = ledger.store
    most = store.room(reserve=False)
    assert most < 4 * FILE < files.free_bytes()

    files.capacity_bytes = 0
    ledger.append(1, b"x" * (most - 100))
    store.sync()
    assert recovered(files.kill()).content() == ledger.history[-1]

    files.capacity_bytes = 1 << 30
    store.find_room()
    assert store.ask_room(20 * FILE)
    assert store.room(reserve=False) < 20 * FILE
    store.sync()
    assert store.room(reserve=False) >= 20 * FILE

    files.capacity_bytes = 0
    ledger.append(1, b"y" * (20 * FILE - 100))
    store.sync()
    assert recovered(files.kill()).content() == ledger.history[-1]


def test_two_batches_are_promised_what_both_find() -> None:
    """Room that is promised beside a batch which is not written yet, less that batch, is there for
    the second, wherever the first goes."""
    for first in (1_000, 20_000, 40_000):
        files = SimFiles()
        ledger = begun(files)
        store = ledger.store
        while store._log.position.offset < FILE - 6 * PAGE:  # type: ignore[attr-defined]
            ledger.append(1, b"x" * 2500)
        store.sync()
        second = store.room(reserve=False) - first - 200
        files.capacity_bytes = 0

        ledger.append(1, b"x" * first)
        ledger.append(1, b"x" * second)

        store.sync()
        assert recovered(files.kill()).content() == ledger.history[-1]


def test_a_larger_spare_takes_the_place_of_the_smaller_one() -> None:
    """What was promised on the prepared file holds while a larger one is made, and where there is no
    space for that; then nothing as large is asked for before space is looked for again."""
    files = SimFiles()
    ledger = begun(files)
    store = ledger.store
    assert store.ask_room(4 * FILE)
    store.sync()
    assert store.room(reserve=False) >= 4 * FILE

    assert store.ask_room(40 * FILE)
    files.capacity_bytes = sum(len(data) for data in files.tree().values())
    store.sync()

    assert not store.ask_room(40 * FILE)
    ledger.append(1, b"x" * (4 * FILE - 200))
    store.sync()
    assert recovered(files.kill()).content() == ledger.history[-1]
    files.capacity_bytes = 1 << 31
    store.find_room()
    assert store.ask_room(40 * FILE)


def test_a_rotation_keeps_the_promise() -> None:
    """A checkpoint begins a new file only if the rest of the old one was not promised in vain: a
    disk that lacks the space goes on in the old file."""
    files = SimFiles()
    ledger = begun(files)
    store = ledger.store
    assert store.ask_room(8 * FILE)
    store.sync()
    ledger.append(1, b"x" * (3 * FILE))
    store.sync()
    promised = store.room(reserve=False)
    assert promised > 4 * FILE
    files.capacity_bytes = sum(len(data) for data in files.tree().values()) + FILE

    store.rotate()
    ledger.append(1, b"y" * (promised - 200))

    store.sync()
    assert recovered(files.kill()).content() == ledger.history[-1]


def test_a_start_on_a_full_disk_serves() -> None:
    """Reads need no space, deletes use the reserve, and a kill loses nothing."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second", b"third")
    ledger.seal(1)
    ledger.store.sync()
    after = files.kill()
    after.capacity_bytes = sum(len(data) for data in after.tree().values()) - FILE - 5000

    found = recovered(after)
    assert found.content() == ledger.history[-1]
    assert found.store.room(reserve=False) == 0
    assert found.store.room(reserve=True) > 1000
    found.recovered().delete(1, 1, 1)
    found.store.sync()

    assert recovered(after.kill()).content() == found.history[-1]


def test_a_torn_end_on_a_full_disk_is_cut_all_the_same() -> None:
    """The bytes of a torn end are kept if there is space, and never prevent a start."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"x" * 3000)
    damaged = files.kill()
    [name] = [n for n in damaged.names() if n.endswith(".wal") and n != RESERVE_NAME]
    data = bytearray(damaged.tree()[name])
    data[data.index(b"xxx") + 1000] ^= 1
    damaged.put(name, bytes(data))
    damaged.capacity_bytes = 0

    found = recovered(damaged)

    assert found.content() == ledger.history[-2]
    assert not any(n.endswith((".torn", ".tmp")) for n in damaged.names())
    assert damaged.tree()[name] == bytes(data)
    found.recovered().delete(1, 1, 1)
    found.store.sync()
    # The reserve has become the file after it by now: without one it would look like a loss.
    assert damaged.tree()[name] == bytes(data[: 2 * PAGE])
    assert recovered(damaged.kill()).content() == {1: {}}


def test_a_batch_larger_than_a_file_gets_one_that_fits() -> None:
    """The size of log files does not limit the size of a write."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"x" * (5 * FILE))
    ledger.append(1, b"y" * (2 * FILE))
    ledger.append(1, b"z")
    ledger.store.sync()

    assert recovered(files.kill()).content() == ledger.history[-1]


def whole_space(files: SimFiles, *, file_bytes: int, reserve_bytes: int) -> Space:
    space = Space(files, next_number=1, file_bytes=file_bytes, reserve_bytes=reserve_bytes)
    assert space.begin()
    return space


def test_a_write_that_no_file_can_take_fails_as_a_whole() -> None:
    """Neither a new file nor the reserve has the space: the log is read-only, and the next start finds
    all that was written before. (§0.6)"""
    files = SimFiles()
    ledger = begun(files)
    before = dict(ledger.history[-1])
    files.capacity_bytes = sum(len(data) for data in files.tree().values())

    with pytest.raises(WriteFailed, match="no space"):
        ledger.append(1, b"x" * (2 * FILE))

    assert ledger.store.read_only
    assert recovered(files.kill()).content() == before


def test_the_reserve_takes_the_place_of_a_spare_that_is_too_small() -> None:
    """A write that needs more than the prepared file has goes into the reserve, which gets the name of
    that file. (F6)"""
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=4 * FILE)
    ledger.store.recover(ledger)
    ledger.create(1)
    ledger.append(1, b"x" * (FILE // 2))  # so that the next file is prepared
    ledger.store.sync()
    assert len(files.tree()["0000000002.wal"]) == FILE
    files.capacity_bytes = sum(len(data) for data in files.tree().values())

    ledger.append(1, b"x" * (2 * FILE))
    ledger.store.sync()

    assert RESERVE_NAME not in files.names()
    assert recovered(files.kill()).content() == ledger.history[-1]


def test_a_file_is_prepared_small_where_a_large_one_finds_no_space() -> None:
    """What the disk says is free may be another program's a moment later. (F6)"""
    files = SimFiles()
    space = whole_space(files, file_bytes=4 << 20, reserve_bytes=FILE)
    with space.lock:
        space.begun(space.take(0))
    fail_next(files, 2, error=errno.ENOSPC)  # create, allocate

    space.find(0)

    assert len(files.tree()[log_name(2)]) == FIRST_FILE_BYTES
    assert space.room(None, reserve=True) == FIRST_FILE_BYTES - FILE_MARGIN


def test_a_prepared_file_whose_name_may_not_last_is_not_promised() -> None:
    """It had taken the name of the one before, so that neither is there any more. (F6)"""
    files = SimFiles()
    space = whole_space(files, file_bytes=4 << 20, reserve_bytes=FILE)
    fail_next(files, 5, error=errno.EIO)  # create, allocate, sync, rename, sync of the directory

    space.find(2 << 20)

    assert log_name(1) not in files.names()
    assert space.room(None, reserve=False) < FILE
    space.find(2 << 20)
    assert space.room(None, reserve=False) > 1 << 20


@pytest.mark.parametrize("ahead", [1, 2], ids=["allocate", "sync"])
def test_a_reserve_that_cannot_grow_stays_as_large_as_it_was(ahead: int) -> None:
    """It is tried again with the next sync. (F6)"""
    files = SimFiles()
    space = whole_space(files, file_bytes=4 << 20, reserve_bytes=4 << 20)
    current = LogFile(files.open(log_name(1)), 2 << 20)
    fail_next(files, ahead, error=errno.ENOSPC)

    space.maintain(current)

    assert space._reserve is not None
    assert space._reserve.size == FIRST_FILE_BYTES
    space.maintain(current)
    assert space._reserve.size == 2 << 20


def test_room_for_what_the_log_was_promised_is_kept_when_a_file_ends_early() -> None:
    """A checkpoint begins a new file: the rest of the old one was promised, so that the new one, or the
    reserve, has at least as much. (F6)"""
    files = SimFiles()
    space = whole_space(files, file_bytes=8 << 20, reserve_bytes=FILE)
    with space.lock:
        taken = space.take(4 << 20)
        space.begun(taken)
    taken.offset = PAGE
    space._next_size = FILE

    assert space.ready(taken, at_any_cost=False)

    with space.lock:
        assert space.take(0).size >= taken.room()


def test_a_spare_that_nothing_needs_goes_with_a_clean_stop() -> None:
    """The next start prepares its own. (FORMAT.md)"""
    files = SimFiles()
    space = whole_space(files, file_bytes=FILE, reserve_bytes=FILE)
    assert log_name(1) in files.names()

    space.drop_spare()

    assert log_name(1) not in files.names()
    space.drop_spare()
    assert RESERVE_NAME in files.names()


def test_a_larger_file_takes_the_place_of_one_that_is_too_small_for_the_promise() -> None:
    """Where neither the spare nor the reserve has what the rest of the log's file was promised for. (F6)"""
    files = SimFiles()
    space = whole_space(files, file_bytes=FILE, reserve_bytes=FILE)
    current = LogFile(files.create("current"), 16 * FILE, offset=PAGE)

    assert space.ready(current, at_any_cost=True)

    with space.lock:
        assert space.take(0).size >= current.room()


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_log_says_whether_it_failed_for_want_of_space(number: int, call: str) -> None:
    """Of space that was allocated: a file system that copies on write may have none for it, and a quota
    none for its owner.  A disk that broke is something else. (F6, F8)"""
    files = SimFiles()
    ledger = begun(files)
    store = ledger.store
    ledger.append(1, b"second")
    assert not store.lacks_space
    fail_next(files, error=number)

    with pytest.raises(WriteFailed):
        ledger.append(1, b"third") if call == "write" else store.sync()

    assert store.read_only
    assert store.lacks_space is (number != errno.EIO)
    store.fail(OSError(errno.ENOSPC, "later"))
    assert store.lacks_space is (number != errno.EIO)


@pytest.mark.parametrize("ahead", [None, 1, 2, 3, 4, 5, 6])
def test_space_is_tried_before_the_log_is_opened_anew(ahead: int | None) -> None:
    """A file is allocated, written and synced, and leaves nothing; a failure of any of these says that
    there is none yet, and not more."""
    files = SimFiles()
    store = begun(files).store
    before = files.names()
    calls = files.calls
    assert store.has_space()
    made = files.calls - calls
    assert files.names() == before

    if ahead is not None and ahead <= made:
        fail_next(files, ahead, error=errno.ENOSPC)
        store.has_space()
        assert set(files.names()) - set(before) <= {RESERVE_NAME + ".tmp"}


def test_no_space_is_found_where_there_is_none() -> None:
    files = SimFiles()
    store = begun(files).store
    files.capacity_bytes = sum(len(data) for data in files.tree().values()) + FILE
    before = files.names()

    assert not store.has_space()
    assert files.names() == before
    files.capacity_bytes += 3 * FILE
    assert store.has_space()


@pytest.mark.parametrize("number", [errno.EPERM, errno.EROFS])
def test_what_forbids_a_file_is_not_told_as_a_full_disk(number: int) -> None:
    """A sandbox, or a file system that became read-only, does not pass by itself: the log fails with the
    reason, instead of answering 429 for ever."""
    files = SimFiles()
    ledger = begun(files)
    for _ in range(20):
        ledger.append(1, b"x" * 3000)
    fail_next(files, ahead=2, error=number)  # behind the sync of what was written

    with pytest.raises(WriteFailed, match="read-only"):
        ledger.store.sync()

    assert ledger.store.read_only
    assert not ledger.store.lacks_space


@pytest.mark.parametrize("number", [errno.EPERM, errno.EROFS, errno.ENOSPC])
def test_a_file_that_may_not_be_prepared_is_an_error_and_one_without_space_is_none(
    number: int,
) -> None:
    """At every call that makes it."""
    raised = 0
    for ahead in range(1, 6):
        files = SimFiles()
        files.prepare(create=True)
        space = Space(files, next_number=1, file_bytes=FILE, reserve_bytes=FILE)
        fail_next(files, ahead, error=number)
        try:
            space.begin()
        except OSError:
            raised += 1
        space.close()

    assert bool(raised) is (number != errno.ENOSPC)
