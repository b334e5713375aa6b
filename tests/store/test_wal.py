"""The log while it is written: when space is allocated, what a write does, what the marks say."""

import errno
import random
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, cast

import pytest
from sim.files import Cut, Fault, SimFile, SimFiles

from topics.protocol.model.errors import Corrupt, WriteFailed
from topics.protocol.model.ports import BegunSync
from topics.store import witness
from topics.store.files import File
from topics.store.inspect import inspect
from topics.store.layout import PAGE, RESERVE_NAME, SECTOR
from topics.store.space import FIRST_FILE_BYTES, UPKEEP_BYTES, UPKEEP_US
from topics.store.store import DiskStore

from .ledger import Ledger


def begun(files: SimFiles, *, file_bytes: int = 64 << 10, reserve_bytes: int = 64 << 10) -> Ledger:
    ledger = Ledger(None)
    ledger.store = DiskStore(files, wal_file_bytes=file_bytes, reserve_bytes=reserve_bytes)
    ledger.store.recover(ledger)
    ledger.create(1)
    return ledger


def found_in(files: SimFiles) -> Ledger:
    ledger = Ledger(None)
    ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store.recover(ledger)
    return ledger


def calls_of(files: SimFiles, action: Callable[[], object]) -> list[str]:
    before = len(files.log)
    action()
    return [what.split()[0] for what in files.log[before:]]


def test_a_batch_is_one_write() -> None:
    """However many events a turn has, there is one call to the disk."""
    files = SimFiles()
    ledger = begun(files)

    assert calls_of(files, lambda: ledger.append(1, *[b"x"] * 100)) == ["write"]


@pytest.mark.parametrize("size", [100, 5000])
def test_nothing_but_writes_happens_inside_a_write(size: int) -> None:
    """The next file is allocated and durable before it is needed, by the thread that syncs: a write
    that changes files costs three writes and no wait."""
    files = SimFiles()
    ledger = begun(files)
    longest = 0
    for _ in range(300):
        calls = calls_of(files, lambda: ledger.append(1, b"x" * size))
        assert set(calls) == {"write"}
        longest = max(longest, len(calls))
        ledger.store.sync()
    assert longest == 3
    assert ledger.store.stats.rotations_total > 1


def test_a_file_of_small_batches_is_filled_with_zeros_ahead() -> None:
    """A sync of a few bytes does not wait for the file's metadata as well."""
    files = SimFiles()
    ledger = begun(files)
    filled = []
    for _ in range(200):
        ledger.append(1, b"x" * 100)
        before = len(files.log)
        ledger.store.sync()
        current = f"{ledger.store._log.position.file_number:010d}.wal"
        filled += [w for w in files.log[before:] if w.startswith("write") and current not in w]
    assert filled


def test_files_and_reserve_grow_to_their_settings() -> None:
    """A new server starts with small files; a busy one soon has large ones."""
    files = SimFiles()
    large = 4 * FIRST_FILE_BYTES
    ledger = begun(files, file_bytes=large, reserve_bytes=large)
    assert len(files.tree()["0000000001.wal"]) == FIRST_FILE_BYTES
    for _ in range(12):
        ledger.append(1, b"x" * (700 << 10))
        ledger.store.sync()

    tree = files.tree()

    sizes = [len(data) for name, data in tree.items() if name.endswith(".wal")]
    assert max(sizes) == large
    assert len(tree[RESERVE_NAME]) > FIRST_FILE_BYTES


def test_an_idle_log_is_vouched_for_once() -> None:
    """One small mark after the last sync, and no other until the next write."""
    files = SimFiles()
    ledger = begun(files)
    store = ledger.store
    assert calls_of(files, store.idle) == []

    store.sync()
    assert calls_of(files, store.idle) == ["write"]
    assert [calls_of(files, call) for call in (store.idle, store.sync, store.idle)] == [[]] * 3
    assert (store.written_lsn, store.synced_lsn) == (1, 1)

    ledger.append(1, b"x")
    assert calls_of(files, store.idle) == []


class Busy(SimFiles):
    """While a sync of a log file is in progress, `meanwhile` is called."""

    meanwhile: Callable[[], object] | None = None

    def counted(self, what: str) -> Fault | None:
        if what.startswith("sync 0") and self.meanwhile is not None:
            meanwhile, self.meanwhile = self.meanwhile, None
            meanwhile()
        return super().counted(what)


def pages_written(files: SimFiles, action: Callable[[], object]) -> set[tuple[str, int]]:
    """The pages that an action changes, by file."""
    before = files.tree()
    action()
    return {
        (name, at // PAGE)
        for name, data in files.tree().items()
        for at in range(0, len(data), PAGE)
        if data[at : at + PAGE] != before.get(name, b"").ljust(len(data), b"\0")[at : at + PAGE]
    }


@pytest.mark.parametrize("size", [1, 300, 424, 425, 3000, 5000, 3 * PAGE - 88])
def test_no_page_that_a_sync_covers_is_written_again(size: int) -> None:
    """A disk may lose a page that it is writing, with acknowledged data in it: batches after the
    begin of a sync use other pages, whether the sync has ended or not. (F3)"""
    files = Busy()
    ledger = begun(files)
    covered: set[tuple[str, int]] = set()
    for turn in range(30):
        covered |= pages_written(files, lambda: ledger.append(1, b"x" * size))
        if turn % 3 == 0:
            covered |= pages_written(files, lambda: ledger.append(1, b"y" * size))
        later: set[tuple[str, int]] = set()
        files.meanwhile = lambda: later.update(pages_written(files, lambda: ledger.append(1, b"z")))  # noqa: B023

        ledger.store.sync()

        assert later
        assert not covered & later
        ledger.store.sync()
        covered |= later | pages_written(files, ledger.store.idle)
        written = pages_written(files, lambda: ledger.append(1, b"x"))
        assert not covered & written
        covered |= written
    assert found_in(files.kill()).content() == ledger.history[-1]


def test_batches_before_a_sync_share_its_pages() -> None:
    """Only a sync ends a page: batches that are not waited for one by one take sectors."""
    files = SimFiles()
    ledger = begun(files)
    ledger.store.sync()

    touched = [pages_written(files, lambda: ledger.append(1, b"x" * 100)) for _ in range(8)]

    assert len(set.union(*touched)) == 1


def test_the_log_is_as_large_as_the_space_it_takes() -> None:
    """The bytes between two batches count as well: a restart has to read past them."""
    files = SimFiles()
    ledger = begun(files)
    store = ledger.store
    store.sync()
    before = store.log_bytes
    for _ in range(5):
        ledger.append(1, b"x")
        store.sync()

    assert store.log_bytes - before == 5 * PAGE
    found = found_in(files.kill()).store
    assert store.log_bytes - PAGE - PAGE < found.log_bytes <= store.log_bytes


def test_a_start_writes_no_page_of_the_log_before_it() -> None:
    """The torn part is cut after the page of the last batch; other bytes on that page stay, and are
    skipped. (F13)"""
    files = SimFiles()
    ledger = begun(files)
    for text in (b"kept", b"torn" * 2000):
        ledger.append(1, text)
    after = files.kill()
    name = "0000000001.wal"
    data = bytearray(after.tree()[name])
    data[data.index(b"torntorn") + 5000] ^= 1
    after.put(name, bytes(data))
    [report] = [log for log in inspect(after).logs if log.name == name]

    found = found_in(after)

    end = -(-report.used_bytes // PAGE) * PAGE
    assert report.used_bytes < end
    assert after.tree()[name] == bytes(data[:end])
    assert found.content() == ledger.history[-2]
    found.recovered().append(1, b"later")
    assert found_in(after.kill()).content() == found.history[-1]
    assert inspect(after).ok


def test_a_mark_has_a_page_of_its_own() -> None:
    """Also if no sync has ended the page of the batch before it."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"x")
    position = ledger.store._log.position
    assert position.offset % PAGE

    touched = pages_written(files, ledger.store.rotate)

    marked = ("0000000001.wal", position.offset // PAGE + 1)
    assert touched == {marked, ("0000000002.wal", 0)}


@pytest.mark.parametrize("lost_bytes", [88, PAGE, 1 << 16])
def test_a_start_takes_no_prepared_file_away(lost_bytes: int) -> None:
    """The file after a mark of rotation keeps its name from the moment the mark may be on the disk,
    whatever the power cut left in it and wherever the next start is cut. (F2, F30)"""
    files = SimFiles()
    ledger = begun(files)
    while ledger.store.stats.rotations_total == 0:
        ledger.append(1, b"x" * 3000)
    expected = ledger.history[-2]
    ledger.append(1, b"torn" * 1000)
    left = files.kill()
    for name, data in left.tree().items():
        left.put(name, data)
    data = left.tree()["0000000002.wal"]
    left.put("0000000002.wal", bytes(lost_bytes) + data[lost_bytes:])
    whole = left.kill()
    assert found_in(whole).content() == expected

    for call in range(whole.calls):
        broken = left.kill()
        broken.cut_at = call
        with pytest.raises(Cut):
            found_in(broken)
        for seed in range(5):
            again = broken.cut(random.Random(seed), harsh=seed % 2 == 1)
            assert found_in(again).content() == expected


def test_a_rotation_that_was_prepared_waits_for_no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Writes wait while the log begins a file: what that needs is synced, and made, before. (§8.2)"""
    files = SimFiles()
    ledger = begun(files)
    calls: list[str] = []
    for name in ("sync", "sync_data", "allocate"):
        called = getattr(SimFile, name)

        def noted(self: SimFile, *given: Any, name: str = name, called: Any = called) -> Any:
            calls.append(name)
            return called(self, *given)

        monkeypatch.setattr(SimFile, name, noted)
    ledger.append(1, b"first")
    ledger.store.rotate()
    ledger.append(1, b"second")
    assert len(ledger.store._log._unsynced) == 2

    ledger.store.prepare_rotation()
    assert {"sync_data", "allocate"} <= set(calls)
    calls.clear()
    ledger.append(1, b"third")
    ledger.store.rotate()

    assert calls == []
    ledger.store.sync()
    assert found_in(files.kill()).content() == ledger.history[-1]


def test_a_log_that_failed_prepares_no_rotation() -> None:
    ledger = begun(SimFiles())
    ledger.store.fail(OSError("the disk failed"))

    with pytest.raises(WriteFailed, match="the disk failed"):
        ledger.store.prepare_rotation()


def test_rotating_an_untouched_file_keeps_it() -> None:
    """Two checkpoints in a row do not use two files."""
    files = SimFiles()
    ledger = begun(files)
    first = ledger.store.rotate()
    names = files.names()

    assert ledger.store.rotate() == first
    assert files.names() == names


def test_bytes_behind_a_clean_stop_are_corruption() -> None:
    """A clean stop ends the log: bytes after it cannot be a torn write."""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"x")
    ledger.stop()
    name = max(n for n in files.names() if n.endswith(".wal") and n != RESERVE_NAME)
    tree = files.tree()
    damaged = SimFiles()
    for each, data in tree.items():
        damaged.put(each, data)
    damaged.put(name, tree[name] + b"\0" * SECTOR + b"more")

    with pytest.raises(Corrupt, match="clean stop") as caught:
        begun(damaged)

    assert (caught.value.path, caught.value.offset) == (f"sim/{name}", len(tree[name]))


def test_a_power_cut_right_after_a_start_is_no_damage() -> None:
    """Whichever of the first writes of a process are left after the mark of a clean stop, header or
    batch or both or none, the next start continues before them. (F2)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"kept")
    ledger.stop()
    after = files.kill()
    second = found_in(after).recovered()
    for _ in range(2):
        second.append(1, b"lost" * 300)

    for seed in range(100):
        left = after.cut(random.Random(seed), harsh=seed % 2 == 1)
        assert found_in(left).content() in second.history


@pytest.mark.parametrize("call", range(20))
def test_a_power_cut_in_the_midst_of_a_start_is_no_damage(call: int) -> None:
    """Whatever exists of its first file by then, the next start finds what the stop left. (F2)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"kept")
    ledger.stop()
    after = files.kill()
    after.cut_at = after.calls + call
    with suppress(Cut):
        found_in(after)

    for seed in range(30):
        left = after.cut(random.Random(seed), harsh=True)
        assert found_in(left).content() == ledger.history[-1]


def test_latencies_are_counted_in_buckets() -> None:
    """Every sync falls into one bucket by its upper bound. (§8.3)"""
    files = SimFiles()
    ledger = begun(files)
    stats = ledger.store.stats
    before = stats.fsyncs_total
    for took_us in (50, 51, 999, 10**6, 10**6 + 1):
        ledger.store._log.count_sync(took_us)

    buckets = stats.fsync_us_buckets
    assert (buckets[50] > 0, buckets[100], buckets[1000], buckets[1_000_000]) == (True, 1, 1, 1)
    assert (stats.fsync_us_over, stats.fsyncs_total - before) == (1, 5)
    assert sum(buckets.values()) + stats.fsync_us_over == stats.fsyncs_total


def test_a_checkpoint_that_needs_a_fresh_file_is_refused_without_space() -> None:
    """An erasure waits for such a file; the log goes on in the one that it has. (§5)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"first")
    ledger.store.sync()
    for name in [RESERVE_NAME, *[n for n in files.names() if n.endswith("2.wal")]]:
        files.remove(name)
    space = ledger.store._log._space
    space._spare = space._reserve = None
    files.capacity_bytes = sum(len(data) for data in files.tree().values())
    before = ledger.store._log.position

    with pytest.raises(OSError, match="no space for a log file"):
        ledger.store.rotate(fresh=True)

    assert ledger.store._log.position == before
    assert not ledger.store.read_only
    ledger.append(1, b"second")


def test_a_log_that_failed_looks_for_no_space() -> None:
    """It takes no write any more, whatever the disk has."""
    files = SimFiles()
    ledger = begun(files)
    ledger.store.fail(OSError("the disk failed"))
    calls = files.calls

    ledger.store.find_room(1 << 20)

    assert files.calls == calls
    assert ledger.store.room(reserve=True) == 0


def test_a_failure_that_is_none_of_the_disk_is_named_as_what_it_is() -> None:
    """Want of memory while the next file is prepared: the log is read-only, and says why. (§0.6)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"x" * 40_000)

    def fail(current: object) -> None:
        raise MemoryError("no memory")

    ledger.store._log._space.maintain = fail

    with pytest.raises(WriteFailed, match="MemoryError: no memory"):
        ledger.store.sync()

    assert ledger.store.read_only


def test_a_sync_that_fails_within_a_write_is_told_once() -> None:
    """A write that leaves a file syncs what was left before; the failure of that sync is the write's, and
    is no cause of itself. (§0.6)"""
    files = SimFiles()
    ledger = begun(files)

    def fail() -> int:
        raise ledger.store._log.fail_and_mark(OSError(errno.ENOSPC, "no space"))

    ledger.store._log._leave = lambda size: fail()
    with pytest.raises(WriteFailed) as failed:
        ledger.append(1, b"x" * (1 << 20))

    assert isinstance(failed.value.__cause__, OSError | None)
    assert ledger.store.lacks_space


# ---------------------------------------------------------------------- syncs of another process


def synced_once(files: SimFiles, **sizes: int) -> Ledger:
    """A log that was looked after just now, so that the next sync may be another process's."""
    ledger = begun(files, **sizes)
    ledger.store.sync()
    return ledger


def begun_sync(ledger: Ledger) -> BegunSync:
    found = ledger.store.begin_sync()
    assert found is not None
    return found


def perform(begun: BegunSync) -> None:
    """As the other process does."""
    for file in begun.files:
        file.sync_data()
    if begun.note is not None:
        note, file = begun.note
        assert isinstance(file, SimFile)
        file.write(note, 0)


def test_another_process_syncs_what_was_written_before_it_was_asked() -> None:
    """What comes meanwhile waits for the next sync, on pages of its own, and the witness has the batch
    that is durable."""
    files = SimFiles()
    ledger = synced_once(files)
    covered = pages_written(files, lambda: ledger.append(1, b"first"))
    store = ledger.store

    begun = begun_sync(ledger)
    later = pages_written(files, lambda: ledger.append(1, b"second"))
    assert store.synced_lsn == 1
    perform(begun)
    assert store.end_sync(begun, 700) == store.synced_lsn == 2

    assert not covered & later
    assert store.stats.fsync_us_buckets[1000] == 1
    assert witness.read(files, store._witness._history) == begun.batch  # type: ignore[attr-defined]
    assert begun_sync(ledger).batch == begun.batch + 1  # type: ignore[attr-defined]


def test_two_files_that_are_not_durable_are_synced_in_their_order() -> None:
    """A power loss can only take the end of the log; the file that was ended is closed then."""
    files = SimFiles()
    ledger = synced_once(files)
    while ledger.store.stats.rotations_total == 0:
        ledger.append(1, b"x" * 10_000)
    ledger.store._log._space._maintained = ledger.store._log._current  # type: ignore[attr-defined]
    ledger.store._log._space._maintained_at = PAGE  # type: ignore[attr-defined]

    begun = begun_sync(ledger)
    assert [cast(Any, file).name for file in begun.files] == ["0000000001.wal", "0000000002.wal"]
    perform(begun)
    ledger.store.end_sync(begun, 200)

    assert found_in(files.kill()).content() == ledger.history[-1]
    ledger.append(1, b"x")
    assert len(begun_sync(ledger).files) == 1


def test_an_error_that_another_process_was_told_makes_the_log_read_only() -> None:
    """As one of this process does: nothing is tried again. (§0.6)"""
    ledger = synced_once(SimFiles())
    ledger.append(1, b"x")
    begun = begun_sync(ledger)

    with pytest.raises(WriteFailed, match="Input/output error"):
        ledger.store.end_sync(begun, 0, OSError(errno.EIO, "Input/output error"))

    assert ledger.store.read_only
    assert ledger.store.synced_lsn == 1
    with pytest.raises(WriteFailed):
        ledger.store.begin_sync()
    with pytest.raises(WriteFailed):
        ledger.store.sync()


@pytest.mark.parametrize("fails", [False, True])
def test_what_another_process_died_over_is_synced_here(fails: bool) -> None:
    """The kernel tells an error once to each open file: that the other process was told of it before it
    died hides nothing. (errseq_t)"""
    files = SimFiles()
    ledger = synced_once(files)
    ledger.append(1, b"x")
    begun = begun_sync(ledger)
    if fails:
        files.faults[files.calls + 1] = Fault()
        with pytest.raises(OSError, match="injected"):
            perform(begun)
        with pytest.raises(WriteFailed):
            ledger.store.finish_sync(begun)
        assert ledger.store.read_only
    else:
        assert ledger.store.finish_sync(begun) == 2
        assert found_in(files.cut(random.Random(1))).content() == ledger.history[-1]


def test_what_was_begun_is_not_finished_by_a_log_that_has_failed() -> None:
    """Its watchdog gave up: the log is read-only, and the lock is free again."""
    ledger = synced_once(SimFiles())
    ledger.append(1, b"x")
    begun = begun_sync(ledger)
    ledger.store.fail(OSError(errno.ETIMEDOUT, "a sync hangs"))

    for _ in range(2):
        with pytest.raises(WriteFailed, match="a sync hangs"):
            ledger.store.finish_sync(begun)
        assert ledger.store._log._syncing.acquire(blocking=False)  # type: ignore[attr-defined]


def test_no_sync_begins_while_another_one_runs() -> None:
    """Of two at a time the wrong one may be told of an error.  A thread waits for its turn; the loop,
    which may not wait, leaves it to a thread."""
    files = SimFiles()
    ledger = synced_once(files)
    store = ledger.store
    ledger.append(1, b"x")
    begun = begun_sync(ledger)
    ledger.append(1, b"y")
    assert store.begin_sync() is None

    thread = Thread(target=store.sync)
    thread.start()
    perform(begun)
    store.end_sync(begun, 1)
    thread.join()

    assert store.synced_lsn == store.written_lsn == 3
    assert store.begin_sync() is None  # nothing is left to sync


def test_no_sync_begins_on_the_loop_while_a_thread_writes() -> None:
    """A large write may wait for the disk, and the loop would wait for it."""
    ledger = synced_once(SimFiles())
    ledger.append(1, b"x")
    with ledger.store._log._writing:  # type: ignore[attr-defined]
        assert ledger.store.begin_sync() is None
    assert ledger.store.begin_sync() is not None


def test_a_file_that_cannot_be_opened_a_second_time_is_synced_by_a_thread() -> None:
    """There may be no descriptor left."""

    class NoMore(SimFiles):
        def open(self, name: str, *, write: bool = False) -> File:
            if write and name.endswith(".wal"):
                raise OSError(errno.EMFILE, "Too many open files", name)
            return super().open(name, write=write)

    files = NoMore()
    ledger = synced_once(files)
    ledger.append(1, b"x")

    assert ledger.store.begin_sync() is None
    assert ledger.store.sync() == 2
    ledger.store.close(None)


@pytest.mark.parametrize(
    "due", ["nothing", "space was asked for", "much was written", "time", "a new file"]
)
def test_what_is_due_after_a_sync_is_done_by_the_thread_that_syncs(due: str) -> None:
    """The next file is prepared ahead of its use; a sync after which nothing is to be done is the other
    process's."""
    files = SimFiles()
    ledger = synced_once(files, file_bytes=1 << 20)
    store = ledger.store
    ledger.append(1, b"x")
    match due:
        case "space was asked for":
            assert store.ask_room(1000)
        case "much was written":
            ledger.append(1, b"x" * UPKEEP_BYTES)
        case "time":
            files._clock_us += UPKEEP_US
        case "a new file":
            while not store.stats.rotations_total:
                ledger.append(1, b"x" * 10_000)

    assert (store.begin_sync() is None) == (due != "nothing")
