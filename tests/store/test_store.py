"""One suite over every store: on a real directory, on a simulated disk, and in memory."""

import errno

import pytest
from sim.files import Fault, SimFiles

from topics.protocol.model.errors import Corrupt, WriteFailed
from topics.protocol.model.events import Checkpoint
from topics.store.layout import FAILED_NAME, RESERVE_NAME
from topics.store.store import DiskStore

from .disks import FILE, begun, flipped, log_names, outcome, recovered, small_directory
from .followers import Followers
from .ledger import Ledger
from .stores import TEXTS, World


def test_a_fresh_store_knows_that_it_is(world: World) -> None:
    """A new directory reports that nothing can be lost."""
    store = world.store

    assert (store.written_lsn, store.synced_lsn, store.read_only) == (0, 0, False)
    assert store.progress == 1.0
    assert len(bytes.fromhex(store.instance_id)) == 8
    assert store.room(reserve=False) > 0


def test_lsns_count_writes(world: World) -> None:
    """An lsn is 1 for the first write and one more each time; a sync reaches the last."""
    ledger = Ledger(world.store)

    assert [ledger.create(1), ledger.append(1, b"{}"), ledger.append(1, b"{}")] == [1, 2, 3]
    assert world.store.sync() == 3
    assert world.store.synced_lsn == 3


def test_everything_written_is_replayed(world: World) -> None:
    """Recovery is applying the same events again."""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    for topic_id in (1, 2):
        ledger.create(topic_id)
        ledger.append(topic_id, *TEXTS)
    ledger.seal(1)
    ledger.append(1, b"x" * 100_000)
    ledger.delete(1, 2, 3)
    ledger.delete(2, 10, 10)
    expected = ledger.content()
    world.store.close(None)

    world.store = store = world.again()
    found = Ledger(store)
    recovery = store.recover(found)

    assert (recovery.clean, recovery.same_boot, recovery.fresh) == (False, True, False)
    assert recovery.events == 8
    assert found.content() == expected


def test_a_clean_stop_is_found_clean(world: World) -> None:
    """The checkpoint is all that a start after a clean stop needs; then the history continues."""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    ledger.create(1)
    ledger.append(1, *TEXTS)
    ledger.delete(1, 4, 4)
    expected = ledger.content()
    ledger.stop()

    for _ in range(3):
        world.store = store = world.again()
        found = Ledger(store)
        recovery = store.recover(found)
        assert (recovery.clean, recovery.events) == (True, 0)
        assert found.content() == expected
        found.recovered().append(1, b"{}")
        expected = found.content()
        found.stop()
    world.store = world.again()
    world.store.recover(Ledger(world.store))


def test_the_log_goes_on_over_many_files_and_checkpoints(world: World) -> None:
    """Old log files are removed once two checkpoints do not need them, and a restart finds all
    events."""
    if world.again is None:
        return
    ledger = Ledger(world.store)
    ledger.create(1)
    for turn in range(40):
        ledger.append(1, *[b"%d" % turn * 400] * 20)
        if turn % 5 == 4:
            ledger.delete(1, turn, turn + 3)
        if turn % 10 == 9:
            before = world.store.log_bytes
            ledger.checkpoint()
            assert world.store.log_bytes < before
    expected = ledger.content()
    world.store.close(None)

    world.store = store = world.again()
    found = Ledger(store)
    store.recover(found)

    assert found.content() == expected
    assert store.stats.rotations_total < 40


# ---------------------------------------------------------------------- starts that meet trouble


class Refusing(Ledger):
    """A state that takes no checkpoint."""

    def __init__(self, why: Exception) -> None:
        super().__init__(None)
        self.why = why

    def restore(self, checkpoint: Checkpoint) -> None:
        raise self.why


@pytest.mark.parametrize(
    ("why", "says"),
    [
        (KeyError("t"), "sim/0000000002.ckpt.*KeyError"),
        (Corrupt("sim/5.seg", 7, "does not verify"), "sim/5.seg"),
    ],
    ids=["a contradiction", "damage"],
)
def test_a_checkpoint_that_the_state_refuses_is_named(why: Exception, says: str) -> None:
    """It verifies, and no correct process can have written it; damage that the state met keeps its own
    place. (§0.10)"""
    files, _ = small_directory()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)

    with pytest.raises(Corrupt, match=says):
        store.recover(Refusing(why))

    assert store.read_only is False


def test_a_failure_mark_that_cannot_be_emptied_stays_a_mark() -> None:
    """Its space is not had again; what it says is heard. (§0.10)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    whole = files.kill()
    whole.put(FAILED_NAME, b"reserve" * 1000)
    tried = whole.kill()
    recovered(tried)
    after = whole.kill()
    after.faults[tried.log.index(f"truncate {FAILED_NAME}") + 1] = Fault(errno.EIO)

    found = recovered(after)

    assert len(after.tree()[FAILED_NAME]) == 7000
    assert found.content() == ledger.history[-1]
    found.recovered().append(1, b"third")
    found.store.sync()
    assert FAILED_NAME not in after.names()


def test_bytes_in_a_file_beyond_the_next_are_set_aside() -> None:
    """The log cannot have reached it: it is moved out of the way, and not read. (F12)"""
    files = SimFiles()
    ledger = begun(files)
    after = files.kill()
    last = int(max(log_names(after))[:-4])
    stray = f"{last + 2:010d}.wal"
    after.put(f"{last + 1:010d}.wal", bytes(FILE))
    after.put(stray, bytes(5000) + b"stray" + bytes(5000))

    found = recovered(after)

    assert found.content() == ledger.history[-1]
    assert [name for name in after.names() if name.startswith(stray)] == [f"{stray}.1.torn"]


def test_a_torn_end_that_the_disk_cannot_set_aside_prevents_the_start() -> None:
    """A full disk does not; one that fails does, before the bytes are overwritten. (F12)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    name = log_names(files)[0]
    torn = flipped(files.kill(), name, files.tree()[name].index(b"second"), 1)
    tried = torn.kill()
    recovered(tried)
    at = next(
        n for n, call in enumerate(tried.log, 1) if call.startswith("create") and "torn" in call
    )
    for error, starts in ((errno.ENOSPC, True), (errno.EIO, False)):
        after = torn.kill()
        after.faults[at] = Fault(error)
        found = outcome(after)
        assert (found == {1: {1: b"first"}}) is starts, found


def test_a_store_that_is_not_recovered_cannot_fail() -> None:
    """A caller that gives up before the start is over leaves nothing behind."""
    files = SimFiles()
    store = DiskStore(files, wal_file_bytes=FILE, reserve_bytes=FILE)

    store.fail(OSError("given up"))

    store.recover(Ledger(store))
    assert not store.read_only


# ---------------------------------------------------------------------- a disk that is full


def on_a_full_disk() -> tuple[SimFiles, Ledger]:
    """A start that finds no space for a file of its own: neither reserve nor spare is left."""
    files = SimFiles()
    begun(files)
    after = files.kill()
    for name in [RESERVE_NAME, *log_names(after)[1:]]:
        after.remove(name)
    after.capacity_bytes = sum(len(data) for data in after.tree().values())
    return after, recovered(after).recovered()


@pytest.mark.parametrize("sealed", [False, True])
def test_a_full_disk_from_the_start_on_lets_a_server_stop(sealed: bool) -> None:
    """It wrote nothing, so that there is nothing to close; the next start finds all. (§0.10)"""
    files, ledger = on_a_full_disk()
    assert ledger.store.room(reserve=True) == 0

    if sealed:
        ledger.store.close(ledger.image())
    else:
        ledger.store.close_unsealed()

    files.capacity_bytes = 1 << 30
    assert recovered(files).content() == {1: {1: b"first"}}


def test_an_unfinished_file_that_checkpoints_let_go_is_not_missed() -> None:
    """It was to be cut to its end with the first sync; two checkpoints were faster. (§8.2)"""
    files, ledger = on_a_full_disk()
    store = ledger.store
    files.capacity_bytes = 1 << 30
    store.find_room()
    ledger.append(1, b"second")
    for _ in range(2):
        boundary = store.rotate()
        store.checkpoint(ledger.image(), boundary)
    assert "0000000001.wal" not in files.names()

    store.sync()

    assert not store.read_only


def test_a_stop_without_sealing_that_fails_says_so() -> None:
    """The mark of a clean stop may not be there: the next start reads the log to its end. (§0.10)"""
    files = SimFiles()
    ledger = begun(files)
    tried = SimFiles()
    begun(tried).store.close_unsealed()
    truncate = next(n for n, call in enumerate(tried.log, 1) if call.startswith("truncate"))
    files.faults[truncate] = Fault(errno.EIO)

    with pytest.raises(WriteFailed):
        ledger.store.close_unsealed()

    assert recovered(files.kill()).content() == ledger.history[-1]


def test_who_shares_the_files_is_waited_for_when_they_are_cleared() -> None:
    """Once the files are unlinked, and not before: an erased record is then in none that is open. (§5)"""
    files = SimFiles()
    seen: list[tuple[bool, list[str]]] = []
    ledger = begun(files, Followers(cleared=lambda wholly: seen.append((wholly, files.names()))))
    ledger.seal(1)
    ledger.drop_runs(1)
    ledger.store.sync()

    ledger.store.clear(wholly=True)

    [(wholly, names)] = seen
    assert wholly
    assert not [name for name in names if name.endswith(".seg")]
    ledger.store.clear()
    assert [wholly for wholly, _ in seen] == [True, False]


def test_a_segment_stays_until_who_shares_the_files_knows_that_it_goes() -> None:
    """Who still reads from it opens it then; and a sync, for which answers wait, waits for nobody."""
    files = SimFiles()
    seen: list[list[str]] = []
    ledger = begun(files, Followers(dropping=lambda: seen.append(files.names())))
    ledger.seal(1)
    ledger.drop_runs(1)

    ledger.store.sync()
    assert seen == []
    ledger.store.clear()

    [names] = seen
    assert [name for name in names if name.endswith(".seg")]
    assert not [name for name in files.names() if name.endswith(".seg")]


def test_a_log_file_stays_until_who_follows_the_log_has_read_it() -> None:
    """A checkpoint makes it needless here. It goes with a later one, or with an erasure, and no
    checkpoint waits."""
    files = SimFiles()
    reads: list[bool] = []
    ledger = begun(files, Followers(has_read=lambda: all(reads)))

    def log_after_checkpoint() -> list[str]:
        ledger.append(1, b"more")
        ledger.checkpoint()
        return [name for name in files.names() if name.endswith(".wal")][:2]

    assert log_after_checkpoint()[0] == "0000000001.wal"  # the newest but one needs it
    assert log_after_checkpoint()[0] == "0000000001.wal"  # it may be read still
    reads.append(False)
    assert log_after_checkpoint()[0] == "0000000001.wal"
    reads.clear()
    assert log_after_checkpoint()[0] == "0000000003.wal"

    ledger.append(1, b"last")
    ledger.store.clear()
    assert next(name for name in files.names() if name.endswith(".wal")) == "0000000004.wal"


def test_a_log_file_that_a_checkpoint_could_not_unlink_goes_with_the_next_clearing() -> None:
    """An erasure waits for that: its text is in no file then. (§5)"""
    files = SimFiles()
    ledger = begun(files)
    ledger.append(1, b"second")
    before = dict(files.inodes)
    for _ in range(2):
        ledger.append(1, b"more")
        ledger.checkpoint()
    assert "0000000001.wal" not in files.names()
    files.inodes["0000000001.wal"] = before["0000000001.wal"]  # as if the disk had refused

    ledger.store.clear()

    assert "0000000001.wal" not in files.names()
    assert not ledger.store.read_only


def test_a_clean_stop_that_fails_says_so() -> None:
    """The image or the mark may not be there: the next start reads the log. (§0.10)"""
    files = SimFiles()
    tried = begun(SimFiles())
    tried.stop()
    ledger = begun(files)
    saved = next(n for n, call in enumerate(tried.store._files.log, 1) if ".ckpt" in call)  # type: ignore[attr-defined]
    files.faults[saved] = Fault(errno.EIO)

    with pytest.raises(WriteFailed):
        ledger.stop()

    assert recovered(files.kill()).content() == ledger.history[-1]
