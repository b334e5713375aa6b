"""All segment files of a directory: built, opened, flipped, dropped."""

import errno
import random
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from msgspec.structs import replace
from sim.files import Cut, Fault, SimFiles

from topics.protocol.model.codec import Frames
from topics.protocol.model.errors import Corrupt, ReadFailed, WriteFailed
from topics.protocol.model.events import RunsSealed
from topics.store.handle import Access, Handle
from topics.store.layout import PAGE, segment_name
from topics.store.store import DiskStore

from .disks import FILE, begun, fail_next, many_files, outcome, recovered
from .ledger import HotRun, Ledger, entry_of, row_text
from .stores import TEXTS, World


def test_a_segment_has_no_name_before_the_log_that_it_holds_is_durable() -> None:
    """So no power cut, at whatever call, leaves a segment beyond the end of the log."""
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


def test_a_failed_flip_ends_writing() -> None:
    """A failed sync of flags is a failed sync: after the first one of any file the store is
    read-only."""
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


def test_an_orphan_that_a_start_could_not_unlink_goes_later() -> None:
    """A segment that no event names is removed later if the disk refuses its removal once. (§5)"""
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
    """Flags that are not in the file yet are kept in memory, also when the handle is closed."""
    files = SimFiles()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE, open_segments_max=1)
    store.recover(Ledger(store))
    refs = [store.seal([entry_of(HotRun(1, [b"a", b"b", b"c"]))])[0] for _ in range(2)]
    one, other = (store.open_run(ref, 1) for ref in refs)
    if reopen:
        assert one.dead == 0
    one.delete(np.array([1]))
    assert other.dead == 0

    assert one.flags.tolist() == [0, 0xD5, 0]
    store.write(Frames())
    store.sync()
    assert store.flip() == 1
    assert one.flags.tolist() == [0, 0xD5, 0]
    assert one._heap is None


def test_a_segment_says_what_it_holds_needed_or_not(world: World) -> None:
    """Its own table lists all its runs, also those that nothing refers to any more. (§5)"""
    first, second = HotRun(1, TEXTS), HotRun(7, TEXTS[:3])
    refs = world.store.seal([entry_of(first, topic_id=4), entry_of(second, topic_id=2)])

    contents = world.store.contents(refs[0].segment)

    assert contents.runs.tolist() == [[4, 1], [2, 7]]
    assert contents.rows == 13
    assert contents.text_bytes == sum(ref.text_bytes for ref in refs)


def test_what_was_dropped_is_gone_when_it_was_cleared(world: World) -> None:
    """A dropped file is unlinked once the drop is durable; it waits for no later write or sync.
    (§5)"""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    [(ref, _)] = ledger.topics[1].runs
    world.store.sync()
    name = segment_name(ref.segment)
    ledger.drop_runs(1)

    world.store.clear()
    assert name in world.store._files.names()

    world.store._log.sync()
    world.store.clear()
    assert name not in world.store._files.names()


def test_a_segment_that_nothing_names_is_unlinked(world: World) -> None:
    """A segment whose seal event is missing is an orphan; one that is named stays."""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    ledger.create(1)
    [orphan] = world.store.seal([entry_of(HotRun(1, TEXTS))])
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    expected = ledger.content()
    world.store.close(None)

    world.store = store = world.again()
    found = Ledger(store)
    store.recover(found)

    assert found.content() == expected
    with pytest.raises(Exception, match="missing"):
        _ = store.open_run(orphan, 1).columns


def test_a_segment_that_could_not_be_dropped_is_closed_for_others_again() -> None:
    """After a failed unlink the segment counts towards the limit of open segments again. (F27)"""
    files = SimFiles()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE, open_segments_max=1)
    store.recover(Ledger(store))
    refs = [store.seal([entry_of(HotRun(1, [b"a"]))])[0] for _ in range(2)]
    one, other = (store.open_run(ref, 1) for ref in refs)
    one.warm()
    fail_next(files, error=errno.EIO)
    with pytest.raises(OSError):
        store._segments.drop(one.segment)

    assert one.is_warm
    other.warm()

    assert not one.is_warm
    assert row_text(one, 0) == b"a"


def test_a_drop_that_fails_of_a_segment_that_nobody_reads_is_told() -> None:
    """Nothing is kept of the segment, so nothing has to be put back. (§5)"""
    files = SimFiles()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    store.recover(Ledger(store))
    [ref] = store.seal([entry_of(HotRun(1, [b"a"]))])
    fail_next(files, error=errno.EIO)
    with pytest.raises(OSError):
        store._segments.drop(ref.segment)

    assert row_text(store.open_run(ref, 1), 0) == b"a"


def test_a_damaged_orphan_does_not_prevent_a_start() -> None:
    """No run refers to it: it is removed, as any orphan is. (§5)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.store.seal([entry_of(HotRun(1, [b"a"]))])
    [name] = [n for n in files.names() if n.endswith(".seg")]
    after = files.kill()
    data = bytearray(after.tree()[name])
    data[3] ^= 1
    after.put(name, bytes(data))

    found = recovered(after)

    assert found.content() == {1: {1: b"first"}}
    assert name not in after.names()


def test_a_segment_whose_run_is_not_what_the_log_says_is_refused() -> None:
    """A start compares the table of each segment with the references. (F18)"""
    files = SimFiles()
    ledger = begun(files)
    [ref] = ledger.store.seal([entry_of(HotRun(1, [b"first"]))])
    ledger.write(RunsSealed(1, 1, 1, 1, [replace(ref, text_bytes=ref.text_bytes + 1)]))
    ledger.store.sync()

    found = outcome(files.kill())

    assert "run 0 does not cover what the log says" in str(found)


def two_segments(files: SimFiles) -> Ledger:
    """Each with a deleted record whose flag is to be written."""
    ledger = begun(files)
    ledger.seal(1)
    ledger.create(2)
    ledger.append(2, *TEXTS)
    ledger.seal(2)
    for topic_id in (1, 2):
        ledger.delete(topic_id, 1, 1)
    ledger.store.sync()
    return ledger


def test_flags_of_a_segment_that_cannot_be_read_now_are_written_later() -> None:
    """Flags of others are written at once, and the log goes on: nothing was written where it failed.
    (§5)"""
    files = SimFiles()
    ledger = two_segments(files)
    files.unreadable.add(next(name for name in files.names() if name.endswith(".seg")))

    with pytest.raises(ReadFailed, match="cannot be read"):
        ledger.store.flip()

    assert not ledger.store.read_only
    files.unreadable.clear()
    assert ledger.store.flip() == 1
    assert ledger.store.flip() == 0


@pytest.mark.parametrize("write", [False, True])
def test_flags_wait_for_descriptors(monkeypatch: pytest.MonkeyPatch, write: bool) -> None:
    """Where there are none for a moment, no write has failed. (F27)"""
    files = SimFiles()
    ledger = two_segments(files)
    opened = SimFiles.open

    def crowded(self: SimFiles, name: str, **given: bool) -> Any:
        if name.endswith(".seg") and given.get("write", False) is write:
            raise OSError(errno.EMFILE, "too many open files", name)
        return opened(self, name, **given)

    with monkeypatch.context() as patch:
        patch.setattr(SimFiles, "open", crowded)
        with pytest.raises(ReadFailed, match="too many"):
            ledger.store.flip()

    assert not ledger.store.read_only
    assert ledger.store.flip() == 2


@pytest.mark.parametrize("is_unread", [True, False])
def test_flags_that_cannot_be_read_are_told_as_that(is_unread: bool) -> None:
    """Their page cannot be read now, or is proven to be damaged: there is no place to write to, and the
    log goes on. (§5)"""
    files = SimFiles()
    ledger = two_segments(files)
    lost = Corrupt("0000000001.seg", 4096, "cannot be read: input/output error")
    if is_unread:
        lost.__cause__ = OSError(errno.EIO, "input/output error")

    def unreadable(self: Handle, index: int) -> Any:
        raise lost

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Handle, "flags", unreadable)
        with pytest.raises(ReadFailed) as failed:
            ledger.store.flip()
    assert failed.value.errno == (errno.EIO if is_unread else errno.EBADMSG)
    assert not ledger.store.read_only
    assert ledger.store.flip() == 2


@pytest.mark.parametrize("end", ["kill", "cut", "stop"])
@pytest.mark.parametrize("why", ["unreadable", "damaged"])
def test_deletes_whose_flags_have_no_place_are_in_the_checkpoint(why: str, end: str) -> None:
    """A segment that cannot be read, or does not verify, keeps no checkpoint from being taken and no log
    file from going, and what was deleted of it stays deleted. (§5)"""
    files = SimFiles()
    ledger = two_segments(files)
    name = [name for name in files.names() if name.endswith(".seg")][-1]
    log = {name for name in files.names() if name.endswith("1.wal")}
    header = bytes(files.inodes[name].cache[:PAGE])
    if why == "damaged":
        files.inodes[name].cache[3] ^= 1
    else:
        files.unreadable.add(name)

    for _ in range(3):
        with pytest.raises(ReadFailed):
            ledger.store.flip()
        ledger.checkpoint()
    ledger.delete(2, 2, 2)
    ledger.store.sync()
    ledger.checkpoint()

    assert not ledger.store.read_only
    assert not log & set(files.names())
    if end == "stop":
        ledger.stop()
    else:
        ledger.store.close(None)
    if end == "cut":
        files = files.cut(random.Random(1))
    files.inodes[name].cache[:PAGE] = header
    files.unreadable.clear()
    again = recovered(files)
    shown = again.content()
    assert (list(shown[1]), list(shown[2])) == ([], list(range(3, len(TEXTS) + 1)))
    assert again.store.flip() == 2
    again.checkpoint()
    newest = again.store._checkpoints.load()
    assert newest is not None
    assert not newest[0].unflagged
    again.store.close(None)
    assert recovered(files).content() == shown


def test_a_segment_that_is_closed_and_cannot_be_unlinked_stays_closed() -> None:
    """It was damaged, so that it could not be opened for its readers; the drop is tried again. (§5)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.seal(1)
    [name] = [n for n in files.names() if n.endswith(".seg")]
    files.inodes[name].cache[3] ^= 1
    [(_, run)] = ledger.topics[1].runs
    ledger.drop_runs(1)
    fail_next(files, 2, error=errno.EIO)  # the sync of the log, then the unlink

    ledger.store.sync()

    assert name in files.names()
    assert run._segment.access is Access.CLOSED
    ledger.append(1, b"more")
    ledger.store.sync()
    assert name not in files.names()


@pytest.mark.parametrize("kind", [OSError, MemoryError])
def test_a_drop_that_failed_is_done_with_the_next_sync(kind: type[Exception]) -> None:
    """Whatever it was that failed: the segment is not forgotten, or its space would be in use until the
    next start. (§5)"""
    files = SimFiles()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)
    ledger = Ledger(store)
    store.recover(ledger)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.seal(1)
    [(ref, _)] = ledger.topics[1].runs
    ledger.drop_runs(1)
    store._log.sync()
    fail_next(files, kind=kind)
    with pytest.raises(kind):
        store.clear()
    assert segment_name(ref.segment) in files.names()

    store.sync()

    assert segment_name(ref.segment) not in files.names()
