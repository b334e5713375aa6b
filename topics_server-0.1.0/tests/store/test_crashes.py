"""Power cuts and kills at every call that the store makes to the disk."""

import errno
import random
from collections.abc import Callable

import pytest
from sim.files import Cut, Fault, SimFiles

from topics.protocol.model.errors import Corrupt, Unusable, WriteFailed
from topics.protocol.model.ports import Recovery
from topics.store.store import DiskStore

from .ledger import Ledger

SEEDS = range(6)
SIZES = (15, 100, 495, 512 - 88, 4080, 9000)


def started(files: SimFiles) -> tuple[Ledger, Recovery]:
    """A process that has recovered."""
    ledger = Ledger(None)
    store = DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger.store = store
    recovery = store.recover(ledger)
    return ledger.recovered(), recovery


def live(ledger: Ledger, rng: random.Random, *, steps: int) -> None:
    """Operations as of a server; records of equal size, since those hide the fewest errors."""
    size = rng.choice(SIZES)
    for _ in range(steps):
        topic_id = rng.choice(sorted(ledger.topics) or [0])
        if topic_id == 0 or rng.random() < 0.05:
            ledger.create(max([0, *ledger.topics]) + 1)
            continue
        topic = ledger.topics[topic_id]
        command = rng.random()
        if command < 0.45 or topic.head == 0:
            text = b"%d" % rng.randrange(10) * size
            ledger.append(topic_id, *[text] * rng.choice((1, 2, 4)))
        elif command < 0.6:
            first = rng.randint(1, topic.head)
            ledger.delete(topic_id, first, min(topic.head, first + rng.randrange(4)))
        elif command < 0.66 and topic.hot:
            ledger.seal(topic_id)
        elif command < 0.7 and topic.runs:
            ledger.drop_runs(topic_id)
        elif command < 0.76:
            ledger.checkpoint()
        elif command < 0.8:
            ledger.store.flip()
        elif command < 0.85:
            ledger.store.idle()
        else:
            ledger.store.sync()


def run_until_cut(files: SimFiles, rng: random.Random, *, steps: int) -> Ledger:
    """Start and live until the disk stops answering, or until the end."""
    ledger = Ledger(None)
    ledger.history = []
    try:
        ledger, _ = started(files)
        live(ledger, rng, steps=steps)
        if rng.random() < 0.3:
            ledger.stop()
    except Cut:
        pass
    return ledger


def calls_of(make: Callable[[], SimFiles], seed: int, *, steps: int) -> int:
    files = make()
    run_until_cut(files, random.Random(seed), steps=steps)
    return files.calls


def check_survivors(before: Ledger, found: Ledger) -> None:
    """The state found is that after some write, and none before the last synced one."""
    if not before.history:
        return
    allowed = before.history[before.store.synced_lsn :]
    assert found.content() in allowed


@pytest.mark.long
@pytest.mark.parametrize("harsh", [False, True])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_power_cut_takes_only_an_unsynced_end(seed: int, harsh: bool, stride: int) -> None:
    """Whichever call is the last, a batch is there as a whole or not at all, and no synced one is
    missing."""
    total = calls_of(SimFiles, seed, steps=60)
    for cut_at in range(seed, total + 1, stride):
        files = SimFiles()
        files.cut_at = cut_at
        before = run_until_cut(files, random.Random(seed), steps=60)

        after = files.cut(random.Random(cut_at), harsh=harsh)
        found, _ = started(after)

        check_survivors(before, found)


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_a_kill_takes_nothing(seed: int, stride: int) -> None:
    """Everything that was written is there for the next process, synced or not."""
    total = calls_of(SimFiles, seed, steps=60)
    for cut_at in range(seed, total + 1, stride):
        files = SimFiles()
        files.cut_at = cut_at
        before = run_until_cut(files, random.Random(seed), steps=60)

        found, recovery = started(files.kill())

        if before.history:
            assert recovery.same_boot
            assert found.content() in before.history[before.store.written_lsn :]


@pytest.mark.long
@pytest.mark.parametrize("seed", SEEDS)
def test_recovery_may_be_cut_anywhere_and_run_again(seed: int, stride: int) -> None:
    """A second failure, at any call of the recovery, leads to the same state."""
    rng = random.Random(seed)
    total = calls_of(SimFiles, seed, steps=60)
    for cut_at in sorted(rng.sample(range(total), 28 // stride)):
        files = SimFiles()
        files.cut_at = cut_at
        before = run_until_cut(files, random.Random(seed), steps=60)
        first = files.cut(random.Random(cut_at))
        expected = started(first.kill())[0].content()
        needed = _calls_to_start(first.kill())
        for second_cut in range(needed):
            again = first.kill()
            again.cut_at = second_cut
            with pytest.raises(Cut):
                started(again)

            third = again.cut(random.Random(second_cut), harsh=bool(second_cut % 2))

            assert started(third)[0].content() == expected
        check_survivors(before, started(first.kill())[0])


@pytest.mark.parametrize("seed", range(25))
def test_refusals_of_the_disk_and_cuts_in_one_story(seed: int) -> None:
    """A disk that fails, a process that continues as far as it may, and then a cut: nothing synced
    is missing, whatever the page cache showed in between. (F9, F31)"""
    rng = random.Random(seed)
    files = SimFiles(seed)
    stood = [{}]
    for _ in range(12):
        for _ in range(rng.randrange(4)):
            error = rng.choice((errno.EIO, errno.ENOSPC, 0))
            at = files.calls + rng.randint(1, 60)
            files.faults[at] = Fault(error, cleans=rng.random() < 0.7)
        ledger = Ledger(None)
        ledger.history = []
        for _ in range(3):
            try:
                if not ledger.history:
                    ledger, _ = started(files)
                live(ledger, rng, steps=12)
            except (WriteFailed, Corrupt, Unusable):
                break
            except OSError:
                # A seal or a checkpoint that found no space: the server goes on without it.
                continue
        if ledger.history:
            stood = ledger.history[ledger.store.synced_lsn :]
        files = files.kill() if rng.random() < 0.4 else files.cut(rng, harsh=rng.random() < 0.3)

        found, _ = started(files)

        assert found.content() in stood
        stood = [found.content()]
        files = files.kill()


@pytest.mark.parametrize("seed", range(20))
def test_the_checkpoint_before_leads_to_the_same_state(seed: int) -> None:
    """Without the newest checkpoint, the log since the one before leads to the same state, also of
    segments that were sealed and dropped in between. (F14)"""
    rng = random.Random(seed)
    files = SimFiles(seed)
    ledger, _ = started(files)
    live(ledger, rng, steps=60)
    while len([name for name in files.names() if name.endswith(".ckpt")]) < 2:
        live(ledger, rng, steps=5)
        ledger.checkpoint()
    live(ledger, rng, steps=rng.randrange(20))
    damaged = files.kill()
    newest = max(name for name in damaged.names() if name.endswith(".ckpt"))
    data = bytearray(damaged.tree()[newest])
    data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    damaged.put(newest, bytes(data))

    found, _ = started(damaged)

    assert found.content() == ledger.history[-1]
    live(found, rng, steps=20)
    found.checkpoint()
    assert started(damaged.kill())[0].content() == found.history[-1]


def _calls_to_start(files: SimFiles) -> int:
    started(files)
    return files.calls


@pytest.mark.parametrize("seed", range(20))
def test_a_story_of_many_cuts_is_one_story(seed: int) -> None:
    """Cut or killed repeatedly, each time at another call, the log continues where it ended."""
    rng = random.Random(seed)
    files = SimFiles(seed)
    for _ in range(15):
        files.cut_at = files.calls + rng.randint(1, 120)
        before = run_until_cut(files, rng, steps=40)
        killed = rng.random() < 0.3
        files = files.kill() if killed else files.cut(rng, harsh=rng.random() < 0.5)
        found, _ = started(files.kill())
        if killed and before.history:
            assert found.content() in before.history[before.store.written_lsn :]
        check_survivors(before, found)


def test_a_recovery_that_was_killed_does_not_hide_the_power_cut_before_it() -> None:
    """Its empty log file has the new boot id, and the loss has not been reported yet."""
    files = SimFiles()
    ledger, _ = started(files)
    ledger.create(1)
    ledger.append(1, b"synced")
    ledger.store.sync()
    found = files.cut(random.Random(1))

    _, first = started(found)
    again = found.kill()
    _, second = started(again)

    assert (first.same_boot, second.same_boot) == (False, False)


def test_nor_does_it_where_the_log_behind_the_checkpoint_holds_nothing() -> None:
    """Then the process that wrote the checkpoint says on which boot the log was written."""
    files = SimFiles()
    ledger, _ = started(files)
    ledger.create(1)
    ledger.append(1, b"synced")
    ledger.checkpoint()
    found = files.cut(random.Random(1))

    _, first = started(found)
    _, second = started(found.kill())
    _, third = started(found.kill().kill())

    assert [each.events for each in (first, second, third)] == [0, 0, 0]
    assert [each.same_boot for each in (first, second, third)] == [False, False, False]
