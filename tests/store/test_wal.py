"""The log while it is written: when space is allocated, what a write does, what the marks say."""

import errno
import random
from collections.abc import Callable
from contextlib import suppress

import pytest
from sim.files import Cut, Fault, SimFiles

from topics.protocol.model.errors import Corrupt, WriteFailed
from topics.store.inspect import inspect
from topics.store.layout import PAGE, RESERVE_NAME, SECTOR
from topics.store.space import FIRST_FILE_BYTES
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
