"""Bytes that changed behind the store's back: told, never served, never skipped in silence."""

import random
from contextlib import suppress

import pytest
from sim.files import Cut, SimFiles

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.events import Floors, RunsDropped
from topics.store.inspect import inspect
from topics.store.layout import CHECKPOINT_HEADER, PAGE, RESERVE_NAME, SECTOR
from topics.store.reader import open_readonly
from topics.store.store import DiskStore

from .ledger import Content, Ledger

TEXTS = [b'{"$seq":%d,"data":"%s"}' % (seq, b"v" * (seq * 37)) for seq in range(1, 9)]
CORRUPT: Content = {-1: {}}


def small_directory(*, clean: bool = False, idle: bool = True) -> tuple[SimFiles, list[Content]]:
    """A directory with every kind of file in it, and what stood in it after each synced write."""
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    store.recover(ledger)
    ledger.create(1)
    ledger.create(2)
    ledger.append(1, *TEXTS)
    ledger.append(2, *TEXTS[:3])
    ledger.checkpoint()
    ledger.append(1, *TEXTS[:2])
    ledger.delete(1, 2, 3)
    ledger.append(2, *TEXTS[4:])
    store.sync()
    store.flip()
    ledger.checkpoint()
    ledger.delete(2, 1, 1)
    ledger.append(1, b"last but one")
    store.sync()
    ledger.append(1, b"last")
    store.sync()
    if clean:
        ledger.stop()
    else:
        if idle:
            store.idle()
        store.close(None)
    return files, ledger.history


def outcome(files: SimFiles) -> Content | str:
    """What a start finds: all content, or the refusal; a run that can't be read is marked."""
    tree = files.tree()
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    try:
        store.recover(ledger)
    except (Corrupt, Unusable) as error:
        assert files.tree() == tree, "a refusal changed the directory"
        return str(error)
    try:
        return ledger.content()
    except Corrupt as error:
        return str(error)
    finally:
        store.close(None)


def copy_of(files: SimFiles) -> SimFiles:
    copied = SimFiles()
    for name, data in files.tree().items():
        copied.put(name, data)
    return copied


def flipped(files: SimFiles, name: str, at: int, bit: int) -> SimFiles:
    copied = copy_of(files)
    data = bytearray(copied.tree()[name])
    data[at] ^= 1 << bit
    copied.put(name, bytes(data))
    return copied


def interesting(data: bytes) -> list[int]:
    """Offsets of all bytes, but of long zeros only a few."""
    used = [at for at in range(len(data)) if data[max(0, at - 8) : at + 9].strip(b"\0")]
    zeros = [at for at in range(0, len(data), 997) if data[at] == 0]
    return sorted({*used, *zeros})


@pytest.mark.long
@pytest.mark.parametrize("clean", [False, True])
def test_a_flipped_bit_is_never_served(clean: bool, stride: int) -> None:
    """Any one bit of any file: all is as it was, or the damage is named with its place."""
    files, history = small_directory(clean=clean)
    rng = random.Random(5)
    expected = history[-1]
    refused = 0
    for name, data in files.tree().items():
        for at in interesting(data)[::stride]:
            found = outcome(flipped(files, name, at, rng.randrange(8)))
            refused += isinstance(found, str)
            assert found == expected or (isinstance(found, str) and "sim/" in found), (name, at)
    assert refused > 1000 // stride


def test_a_flipped_bit_in_an_unvouched_batch_is_a_torn_end() -> None:
    """Only where nothing written later says that the last batch was durable is it taken as torn:
    then the state before it is found, and the bytes are kept aside."""
    files, history = small_directory(idle=False)
    name = max(name for name in files.tree() if name.endswith(".wal") and name != RESERVE_NAME)
    found = set()
    for at in interesting(files.tree()[name]):
        damaged = flipped(files, name, at, 3)
        result = outcome(damaged)
        if isinstance(result, str):
            found.add("refused")
        elif result == history[-2]:
            found.add("torn")
            [torn] = [n for n in damaged.names() if n.endswith(".torn")]
            assert damaged.tree()[torn]
        else:
            assert result == history[-1]
            found.add("same")
    assert found == {"refused", "torn", "same"}


@pytest.mark.long
def test_a_file_cut_short_is_named(stride: int) -> None:
    """Cut any file anywhere: it is refused, or nothing is missing."""
    files, history = small_directory()
    for name, data in files.tree().items():
        for size in sorted({*range(0, len(data), 61 * stride), *range(0, len(data), SECTOR)}):
            damaged = copy_of(files)
            damaged.put(name, data[:size])
            found = outcome(damaged)
            if isinstance(found, str):
                assert "sim/" in found
            else:
                assert found == history[-1]


def many_files() -> tuple[SimFiles, Ledger]:
    """A process that has filled some log files, and was not stopped."""
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store.recover(ledger)
    ledger.create(1)
    while ledger.store.stats.rotations_total < 3:
        ledger.append(1, b"x" * 3000)
        ledger.store.sync()
    return files, ledger


def log_names(files: SimFiles) -> list[str]:
    return [name for name in files.names() if name.endswith(".wal") and name != RESERVE_NAME]


@pytest.mark.parametrize("restarts", [0, 1, 2])
@pytest.mark.parametrize("gone", [1, 2, 3])
def test_a_log_without_its_last_files_is_missed(gone: int, restarts: int) -> None:
    """However many are taken away, the one before them shows that there were more: it ends in the
    mark of a rotation, or was cut when the next one was begun. A file that was only prepared is
    missed by nobody. (F18)"""
    files, ledger = many_files()
    for _ in range(restarts):
        ledger.store.close(None)
        ledger = Ledger(None)
        ledger.store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
        ledger.store.recover(ledger)
        ledger.recovered().append(1, b"another")
        ledger.store.sync()
    prepared = [log.name for log in inspect(files).logs if not log.version]
    used = [name for name in log_names(files) if name not in prepared]
    damaged = copy_of(files)
    for name in [*used[-gone:], *prepared]:
        damaged.remove(name)

    found = outcome(damaged)

    assert isinstance(found, str)
    assert "the file is missing" in found or "the log has lost its end" in found
    assert inspect(damaged).problems
    assert outcome(copy_of(files)) == ledger.history[-1]


def test_a_log_file_that_was_cut_is_missed() -> None:
    """Synced records in the log's last file, for which nothing behind them vouches, are not lost
    with the rest of the file in silence. (F18)"""
    files, _ = many_files()
    last = [log for log in inspect(files).logs if log.version][-1]
    data = files.tree()[last.name]
    for size in (len(data) - 1, last.used_bytes, last.used_bytes // 2, PAGE, 100, 88, 87, 0):
        damaged = copy_of(files)
        damaged.put(last.name, data[:size])

        found = outcome(damaged)

        assert isinstance(found, str)
        assert f"sim/{last.name}: corrupt at byte {size}" in found
        assert inspect(damaged).problems


def test_a_log_that_ends_before_a_segment_is_missed() -> None:
    """A segment says how far the log was durable when it got its name. A log that does not go so
    far has lost its end, though nothing in it does say so; a seal whose event never came is no
    damage. (F18)"""
    files, ledger = many_files()
    earlier = copy_of(files)
    ledger.append(1, b"later")
    ledger.seal(1)
    [name] = [name for name in files.names() if name.endswith(".seg")]
    assert outcome(copy_of(files)) == ledger.history[-1]

    earlier.put(name, files.tree()[name])

    assert f"sim/{name}" in str(outcome(earlier))
    assert "the log has lost its end" in str(outcome(earlier))
    assert inspect(earlier).problems


def test_a_segment_has_no_name_before_the_log_that_it_holds_is_durable() -> None:
    """So that no power cut leaves a segment beyond the end of the log, wherever it comes."""
    files, ledger = many_files()
    ledger.append(1, b"not synced")
    before = len(files.log)
    ledger.seal(1)
    calls = files.log[before:]

    current = ledger.store._log.position.file_number  # type: ignore[attr-defined]
    synced = calls.index(f"sync {current:010d}.wal")
    assert synced < next(n for n, call in enumerate(calls) if call.startswith("rename"))
    for cut_at in range(before, len(files.log) + 1):
        files, ledger = many_files()
        ledger.append(1, b"not synced")
        files.cut_at = cut_at
        with suppress(Cut):
            ledger.seal(1)
        for seed in range(20):
            assert outcome(files.cut(random.Random(seed), harsh=True)) in ledger.history


def test_every_file_that_is_missing_is_named() -> None:
    """A file that durable state names and that is not there is corruption; spares are not."""
    files, history = small_directory()
    for name in files.tree():
        damaged = copy_of(files)
        damaged.remove(name)
        found = outcome(damaged)
        if isinstance(found, str):
            assert name in found or name.endswith(".ckpt")
        else:
            assert found == history[-1]
            assert not name.endswith(".seg")


def test_files_of_another_directory_are_named() -> None:
    """Every file says whose it is and which one: a stranger is refused, not read."""
    files, _ = small_directory()
    other = SimFiles(seed=77)
    ledger = Ledger(None)
    ledger.store = DiskStore(other, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store.recover(ledger)
    ledger.create(1)
    for _ in range(2):
        ledger.append(1, *TEXTS)
        ledger.checkpoint()
    ledger.append(1, *TEXTS)
    ledger.store.sync()
    strangers = other.tree()

    checked = []
    for name in files.tree():
        if name in strangers and name.endswith((".wal", ".seg")) and name != RESERVE_NAME:
            damaged = copy_of(files)
            damaged.put(name, strangers[name])
            found = outcome(damaged)
            if found == outcome(copy_of(files)):
                continue
            assert isinstance(found, str)
            assert name in found
            checked.append(name[-3:])
    assert set(checked) == {"wal", "seg"}


def test_a_damaged_checkpoint_falls_back_to_the_one_before() -> None:
    """Two generations are kept, and the log that the older one needs. (F14)"""
    files, history = small_directory()
    older, newer = sorted(name for name in files.names() if name.endswith(".ckpt"))

    one_gone = flipped(files, newer, CHECKPOINT_HEADER.size + 3, 1)
    assert outcome(one_gone) == history[-1]

    both_gone = flipped(flipped(files, newer, 3, 1), older, 3, 1)
    assert newer in str(outcome(both_gone))


@pytest.mark.parametrize(
    ("clean", "says"),
    [
        (True, "the log from there to a clean stop, so nothing is lost"),
        (False, "the log from there as far as it verifies"),
    ],
)
def test_a_checkpoint_that_was_passed_over_is_told(clean: bool, says: str) -> None:
    """That nothing is lost is said only where the mark of a clean stop shows it."""
    files, history = small_directory(clean=clean)
    newest = max(name for name in files.names() if name.endswith(".ckpt"))
    damaged = flipped(files, newest, 3, 1)
    store = DiskStore(damaged, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger = Ledger(None)
    ledger.store = store

    recovery = store.recover(ledger)

    assert ledger.content() == history[-1]
    [note] = recovery.notes
    assert newest in note
    assert note.endswith(f"the checkpoint before it was used, and {says}: check the disk")
    store.close(None)


def test_a_flag_that_is_neither_is_read_as_the_nearer_one() -> None:
    """One flipped bit neither brings a deleted record back nor takes a live one away."""
    files, history = small_directory()
    for name in [name for name in files.names() if name.endswith(".seg")]:
        data = files.tree()[name]
        start = data.index(b"\xd5") if b"\xd5" in data else None
        if start is None or data[start - 1 : start + 1] not in (b"\0\xd5",):
            continue
        for at in (start - 1, start):
            for bit in range(8):
                damaged = flipped(files, name, at, bit)
                assert outcome(damaged) == history[-1]
                [report] = [s for s in inspect(damaged).segments if s.name == name]
                assert report.flag_repairs == 1
        return
    raise AssertionError("no segment with a deleted flag")


def test_a_damaged_block_spares_the_others() -> None:
    """Damage in one block of text is an error of the reads that touch it, and of no other."""
    files = SimFiles()
    ledger = Ledger(None)
    store = ledger.store = DiskStore(files)
    store.recover(ledger)
    ledger.create(1)
    ledger.append(1, *[b"%d" % row * 10_000 for row in range(8)])
    ledger.seal(1)
    store.sync()
    [name] = [name for name in files.names() if name.endswith(".seg")]
    damaged = files.tree()[name]
    at = damaged.index(b"4" * 10_000) + 5_000
    files.inodes[name].cache[at] ^= 1

    [(_, run)] = ledger.topics[1].runs
    whole = [row for row in range(8) if row not in (3, 4)]

    assert [bytes(run.read([(row, row + 1)])[0][:1]) for row in whole[:2]] == [b"0", b"1"]
    with pytest.raises(Corrupt, match="block") as caught:
        run.read([(4, 5)])
    assert caught.value.path == f"sim/{name}"
    assert at - 16384 <= caught.value.offset <= at


def test_inspection_names_what_a_start_refuses() -> None:
    """Whatever a start refuses or a read can't serve, an inspection finds, and changes nothing."""
    files, history = small_directory()
    rng = random.Random(9)
    assert inspect(files).ok
    for name, data in files.tree().items():
        for at in rng.sample(interesting(data), min(60, len(data))) if data else []:
            damaged = flipped(files, name, at, rng.randrange(8))
            before = damaged.tree()
            try:
                report = inspect(damaged)
            except Unusable:
                assert isinstance(outcome(damaged), str)
                continue
            assert damaged.tree() == before
            found = outcome(damaged)
            if isinstance(found, str):
                assert report.problems, (name, at)
            if report.ok:
                assert found == history[-1]


@pytest.mark.parametrize("clean", [False, True])
def test_inspection_checks_what_only_the_older_checkpoint_needs(clean: bool) -> None:
    """A damage that a start meets once the newest checkpoint fails is found while it is sound."""
    files, _ = small_directory(clean=clean)
    newest = max(name for name in files.names() if name.endswith(".ckpt"))
    logs = [name for name in files.names() if name.endswith(".wal") and name != RESERVE_NAME]
    refused = set()
    for name in logs:
        data = files.tree()[name]
        for at in [*range(80), *interesting(data)[80::7]]:
            damaged = flipped(files, name, at, at % 8)
            if isinstance(outcome(flipped(damaged, newest, 3, 1)), str):
                refused.add(name)
                assert inspect(damaged).problems, (name, at)
    assert min(logs) in refused


def test_an_inspection_counts_what_is_there() -> None:
    """The report shows files, batches, runs, rows and flags as they are."""
    files, _ = small_directory()

    report = inspect(files)

    assert [log.name for log in report.logs] == sorted(log.name for log in report.logs)
    assert sum(log.events for log in report.logs) >= 5
    assert report.logs[-1].marks == {"idle": 1}
    assert sum(segment.rows for segment in report.segments) == 8 + 3 + 2 + 4
    assert sum(segment.dead for segment in report.segments) == 2
    assert all(segment.named and segment.verified for segment in report.segments)
    assert [c.clean for c in report.checkpoints] == [False, False]
    assert report.checkpoints[-1].topics == 2
    assert (report.torn_bytes, report.clean, report.others) == (0, False, [])


def written_for_a_topic_that_never_was() -> SimFiles:
    """A log whose batches verify, one of which does not follow from those before it."""
    files = SimFiles()
    ledger = Ledger(None)
    ledger.store = store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    store.recover(ledger)
    ledger.create(1)
    store.write(Frames.of([RunsDropped(1000, 7, [1], Floors())]))
    store.sync()
    store.idle()
    store.close(None)
    return files


def test_a_batch_that_cannot_be_applied_is_named() -> None:
    """Its digest holds, so somebody wrote it so: it is damage with file and offset, not a bug that
    ends a start without a word. (F12)"""
    refused = outcome(written_for_a_topic_that_never_was())

    assert isinstance(refused, str)
    assert "0000000001.wal: corrupt at byte" in refused
    assert "cannot be applied: KeyError: 7" in refused


def test_a_reader_names_it_too() -> None:
    """So does an inspection, which recovers the topics as a reader does."""
    files = written_for_a_topic_that_never_was()

    with pytest.raises(Corrupt, match="cannot be applied: KeyError: 7"):
        open_readonly(files, lambda store: Ledger(store))
