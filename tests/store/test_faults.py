"""Disks that refuse: failed writes and syncs, short writes, no space, unreadable files."""

import errno
import random
from collections.abc import Callable

import numpy as np
import pytest
from sim.files import Cut, Fault, SimFiles

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt, Unusable, WriteFailed
from topics.store.layout import FAILED_NAME, PAGE, RESERVE_NAME
from topics.store.store import DiskStore

from .ledger import HotRun, Ledger, entry_of

FILE = 64 << 10


def begun(files: SimFiles) -> Ledger:
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    store.recover(ledger)
    ledger.create(1)
    ledger.append(1, b"first")
    store.sync()
    return ledger


def recovered(files: SimFiles) -> Ledger:
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    store.recover(ledger)
    return ledger


def fail_next(files: SimFiles, ahead: int = 1, **fault: object) -> None:
    files.faults[files.calls + ahead] = Fault(**fault)  # type: ignore[arg-type]


def test_after_a_failed_write_nothing_is_retried() -> None:
    """The outcome is unknown, the store is read-only for good, and reads go on. (F8)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    ledger.store.sync()
    fail_next(files, error=errno.EIO)

    for _ in range(2):
        with pytest.raises(WriteFailed, match="read-only"):
            ledger.append(1, b"second" * 200)
    assert ledger.store.read_only
    calls = files.calls
    for refused in (ledger.store.sync, ledger.store.flip, ledger.store.rotate):
        with pytest.raises(WriteFailed):
            refused()
    ledger.store.idle()

    assert files.calls == calls
    assert (ledger.store.room(reserve=True), ledger.store.synced_lsn) == (0, 3)
    [(_, run)] = ledger.topics[1].runs
    assert bytes(run.read([(0, 1)])[0]) == b"first"


@pytest.mark.parametrize("cleans", [True, False])
@pytest.mark.parametrize("then", ["kill", "cut"])
def test_a_sync_that_failed_is_never_issued_again(cleans: bool, then: str) -> None:
    """The pages look clean and are not on the disk: nobody may be told that they are. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    synced = ledger.history[-1]
    ledger.append(1, b"second")
    before = len(files.log)
    fail_next(files, error=errno.EIO, cleans=cleans)
    with pytest.raises(WriteFailed):
        ledger.store.sync()
    with pytest.raises(WriteFailed):
        ledger.store.sync()
    assert sum(what.startswith("sync 00") for what in files.log[before:]) == 1
    ledger.store.close(None)

    after = files.kill() if then == "kill" else files.cut(random.Random(1))
    found = recovered(after)

    assert found.content() in (synced, ledger.history[-1])
    if cleans and then == "kill":
        # The device never got the batch, whatever the page cache showed to the dead process.
        assert found.content() == synced


def second_boot_is_believed(files: SimFiles) -> bool:
    """Whether a start takes the machine's memory of the log for whole."""
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    return store.recover(Ledger(None)).same_boot


def failed_twice() -> SimFiles:
    """A sync failed, what it was to save is gone, and a file that says so could not be made."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    fail_next(files, error=errno.EIO)
    fail_next(files, ahead=2, error=errno.ENOSPC)
    with pytest.raises(WriteFailed):
        ledger.store.sync()
    assert files.log[-3:-1] == ["create log.failed", "rename reserve.wal log.failed"]
    return files


def test_a_failure_is_told_though_no_file_can_be_made() -> None:
    """The reserve, which nothing is written into any more, gets the name of the mark; the start
    after the next one has a reserve and no mark. (F9)"""
    files = failed_twice()

    after = files.kill()
    after.drop_caches()
    found = Ledger(None)
    store = found.store = DiskStore(after, wal_file_bytes=FILE, reserve_bytes=FILE)
    assert not store.recover(found).same_boot
    assert FAILED_NAME in after.names()
    found.recovered().append(1, b"third")
    store.sync()

    assert FAILED_NAME not in after.names()
    assert RESERVE_NAME in after.names()
    assert second_boot_is_believed(after.kill())


@pytest.mark.parametrize("again", [False, True])
def test_a_failure_that_nobody_saw_is_found_in_memory(again: bool) -> None:
    """The process was killed in the very call that failed, as where a disk hangs: what memory shows
    of the log is not on the disk, and a start leaves a mark of that before it goes on. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second" * 9000)
    ledger.append(1, b"third")
    fail_next(files, error=errno.EIO)
    files.cut_at = files.calls + 1
    with pytest.raises(Cut):
        ledger.store.sync()

    after = files.kill()
    if again:
        after.cut_at = after.calls + 3
        with pytest.raises(Cut):
            recovered(after)
        after = after.kill()
    assert not second_boot_is_believed(after)


def test_a_mark_takes_no_space_that_a_start_needs() -> None:
    """On a full disk the reserve is made anew of what the mark held. (F6, F9)"""
    after = failed_twice().kill()
    after.capacity_bytes = sum(len(data) for data in after.tree().values())

    found = recovered(after)

    assert RESERVE_NAME in after.names()
    assert found.store.room(reserve=True) > 1000


def test_a_failure_that_nothing_can_keep_says_what_to_do() -> None:
    """Where the disk takes no mark at all, who reads the server's log makes it. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    for ahead in (1, 2, 3):
        fail_next(files, ahead=ahead, error=errno.EROFS)

    with pytest.raises(WriteFailed, match=r"make an empty file log\.failed in the data directory"):
        ledger.store.sync()

    after = files.kill()
    after.drop_caches()
    after.put(FAILED_NAME, b"")
    assert not second_boot_is_believed(after)


@pytest.mark.parametrize("faults", [1, 2, 3])
def test_a_start_whose_sync_failed_is_told_to_the_next(faults: int) -> None:
    """It ended before it had read anything, and what a killed process had written may be gone with
    it. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    after = files.kill()
    for ahead in range(1, faults + 1):
        fail_next(after, ahead=ahead, error=errno.EIO)

    with pytest.raises(Corrupt, match="the disk fails") as refused:
        recovered(after)
    after = after.kill()
    if faults < 3:
        after.drop_caches()

    assert not second_boot_is_believed(after)
    assert ("make an empty file" in str(refused.value)) == (faults == 3)


def test_a_directory_whose_first_sync_failed_is_begun_anew() -> None:
    """What is left of it, the mark of the failure too, is only unfinished. (F2)"""
    files = SimFiles()
    for call in range(1, 100):
        files = SimFiles()
        files.faults[call] = Fault(errno.EIO)
        try:
            recovered(files)
        except (Unusable, WriteFailed):
            assert recovered(files.kill()).store.instance_id
        if files.calls < call:
            return
    raise AssertionError("it never began")


def test_a_short_write_is_finished() -> None:
    """A write that took a part of a batch goes on with the rest. (F7)"""
    files = SimFiles()
    ledger = begun(files)
    fail_next(files, error=0)
    ledger.append(1, b"x" * 5000)
    ledger.store.sync()

    assert recovered(files.kill()).content() == ledger.history[-1]


def test_a_large_write_finds_room_on_a_small_disk() -> None:
    """Where space is counted, the next file is as large as the write that was refused needs, if the
    disk has so much more. (F6)"""
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
    """Appends stop at `room`, deletes go on into the reserve, and no write ever fails. (F6)"""
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
    """Without space for another log file a checkpoint begins in the middle of this one."""
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
    """Room that was promised while there was plenty is kept even if the plenty is gone."""
    files = SimFiles()
    ledger = begun(files)
    store = ledger.store
    assert store.room(reserve=False) > 50_000
    while store._log.position.offset < FILE - 4 * PAGE:  # type: ignore[attr-defined]
        ledger.append(1, b"x" * 2500)
    files.capacity_bytes = 0

    ledger.append(1, b"x" * 15_000)
    store.sync()

    assert RESERVE_NAME not in files.names()
    assert recovered(files.kill()).content() == ledger.history[-1]


def test_a_start_on_a_full_disk_serves() -> None:
    """Reads need no space, deletes use the reserve, a stop leaves what it found."""
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
    """The bytes of a torn end are kept where there is space, and never in the way of a start."""
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
    """The size of log files bounds nothing that a client may send."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"x" * (5 * FILE))
    ledger.append(1, b"y" * (2 * FILE))
    ledger.append(1, b"z")
    ledger.store.sync()

    assert recovered(files.kill()).content() == ledger.history[-1]


@pytest.mark.parametrize("ahead", range(1, 10))
@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EIO])
def test_a_seal_that_fails_leaves_nothing(ahead: int, error: int) -> None:
    """A segment is there wholly or not at all, and the next seal succeeds. (F6)"""
    files = SimFiles()
    ledger = begun(files)
    names = set(files.names())
    fail_next(files, ahead, error=error)

    with pytest.raises(OSError):
        ledger.store.seal([entry_of(HotRun(1, [b"a", b"b"]))])

    assert set(files.names()) == names
    [ref] = ledger.store.seal([entry_of(HotRun(1, [b"a", b"b"]))])
    assert ledger.store.open_run(ref, 1).columns.size.tolist() == [1, 1]
    assert not ledger.store.read_only


@pytest.mark.parametrize("ahead", range(1, 6))
def test_a_checkpoint_that_fails_may_be_tried_again(ahead: int) -> None:
    """A checkpoint that found no space changes nothing; the log still has it all."""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    boundary = ledger.store.rotate()
    ledger.store.sync()
    fail_next(files, ahead, error=errno.ENOSPC)

    with pytest.raises(OSError):
        ledger.store.checkpoint(ledger.image(), boundary)
    assert recovered(files.kill()).content() == ledger.history[-1]
    ledger.store.checkpoint(ledger.image(), boundary)

    assert recovered(files.kill()).content() == ledger.history[-1]


def test_a_failed_flip_ends_writing() -> None:
    """A failed sync of flags is a failed sync: the first one of any file is the last."""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    ledger.delete(1, 1, 1)
    ledger.store.sync()
    fail_next(files, 2, error=errno.EIO)

    with pytest.raises(WriteFailed):
        ledger.store.flip()

    assert ledger.store.read_only
    assert recovered(files.kill()).content() == {1: {}}


@pytest.mark.parametrize("suffix", ["wal", "ckpt"])
def test_an_unreadable_file_is_named_at_the_start(suffix: str) -> None:
    """A disk that does not give a file back is told with its name; nothing is changed. (F10)"""
    files = SimFiles()
    ledger = begun(files)
    if suffix == "ckpt":
        ledger.checkpoint()
    after = files.kill()
    [name, *_] = [n for n in after.names() if n.endswith(suffix) and n != RESERVE_NAME]
    after.unreadable.add(name)
    tree = after.tree()

    with pytest.raises(Corrupt, match=name):
        recovered(after)

    assert after.tree() == tree


def test_a_disk_that_fails_to_sync_at_the_start_is_refused() -> None:
    """Before the log is read it is synced; where that fails, nothing read could be trusted."""
    files = SimFiles()
    begun(files)
    after = files.kill()
    after.faults[1] = Fault(errno.EIO)

    with pytest.raises(Corrupt, match="disk fails"):
        recovered(after)


def test_an_orphan_that_a_start_could_not_unlink_goes_later() -> None:
    """A disk that refuses it once keeps no segment that nothing names. (§5)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.store.seal([entry_of(HotRun(1, [b"a"]))])
    [name] = [n for n in files.names() if n.endswith(".seg")]
    whole = files.kill()
    recovered(whole)
    after = files.kill()
    after.faults[whole.log.index(f"unlink {name}") + 1] = Fault(errno.EIO)

    found = recovered(after)

    assert name in after.names()
    found.recovered().append(1, b"more")
    found.store.sync()
    assert name not in after.names()


def test_an_unreadable_payload_fails_only_its_read() -> None:
    """An error of the disk while serving is an OSError of that read. (F11)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    [(_, run)] = ledger.topics[1].runs
    _ = run.columns
    [name] = [n for n in files.names() if n.endswith(".seg")]
    files.unreadable.add(name)

    with pytest.raises(OSError):
        run.read_blocking([(0, 1)])
    files.unreadable.clear()

    assert bytes(run.read_blocking([(0, 1)])[0]) == b"first"


def test_a_read_that_would_wait_says_so() -> None:
    """None means: ask again on a thread that may wait."""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    [(_, run)] = ledger.topics[1].runs
    files.cold = True

    assert run.read([(0, 1)]) is None
    assert bytes(run.read_blocking([(0, 1)])[0]) == b"first"


def test_few_descriptors_serve_many_segments() -> None:
    """Segments are closed and opened again by name, within a budget. (F27)"""
    opened: list[str] = []

    class Counting(SimFiles):
        def open(self, name: str, *, write: bool = False):  # type: ignore[no-untyped-def]
            opened.append(name)
            return super().open(name, write=write)

    files = Counting()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE, open_segments_max=2)
    store.recover(Ledger(store))
    runs = []
    for row in range(5):
        [ref] = store.seal([entry_of(HotRun(1, [b"%d" % row]))])
        runs.append(store.open_run(ref, 1))
    for _ in range(2):
        for row, run in enumerate(runs):
            assert bytes(run.read([(0, 1)])[0]) == b"%d" % row
    assert len(store._segments._open) == 2
    assert sum(name.endswith(".seg") for name in opened) == 10


@pytest.mark.parametrize("reopen", [False, True])
def test_killed_rows_survive_the_closing_of_their_segment(reopen: bool) -> None:
    """Flags that are not in the file yet are kept in memory, whatever happens to the handle."""
    files = SimFiles()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE, open_segments_max=1)
    store.recover(Ledger(store))
    refs = [store.seal([entry_of(HotRun(1, [b"a", b"b", b"c"]))])[0] for _ in range(2)]
    one, other = (store.open_run(ref, 1) for ref in refs)
    if reopen:
        assert one.dead == 0
    one.kill(np.array([1]))
    assert other.dead == 0

    assert one.flags.tolist() == [0, 0xD5, 0]
    store.write(Frames())
    store.sync()
    assert store.flip() == 1
    assert one.flags.tolist() == [0, 0xD5, 0]
    assert one._heap is None


def unusable(change: Callable[[SimFiles], None]) -> str:
    files = SimFiles()
    ledger = begun(files)
    ledger.store.close(None)
    after = files.kill()
    change(after)
    tree = after.tree()
    with pytest.raises((Unusable, Corrupt)) as caught:
        recovered(after)
    assert after.tree() == tree
    return str(caught.value)


def test_a_log_that_was_taken_away_is_missed() -> None:
    """Where an identity is, there was a log: a directory without one is not a fresh one. (F18)"""

    def change(files: SimFiles) -> None:
        for name in files.names():
            if name.endswith(".wal"):
                files.remove(name)

    assert "0000000001.wal" in unusable(change)


def test_an_identity_that_was_taken_away_is_missed() -> None:
    """Files of ours without the identity are not begun anew. (F18)"""
    assert "topics.id is missing" in unusable(lambda files: files.remove("topics.id"))


def test_a_failed_sync_is_remembered_by_the_next_start() -> None:
    """The kernel marks the pages clean, the process ends, the boot id is the same: and still what
    was acknowledged may be gone, until the next start has said so durably. (F9)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"lost")
    fail_next(files, cleans=True)
    with pytest.raises(WriteFailed):
        ledger.store.sync()

    files = files.kill()
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    first = store.recover(ledger)
    ledger.recovered()
    assert not first.same_boot
    store.write(Frames())
    store.sync()
    found = files.kill()
    again = DiskStore(found, wal_file_bytes=FILE, reserve_bytes=FILE).recover(Ledger(None))

    assert again.same_boot
