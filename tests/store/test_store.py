"""One suite over every store: on a real directory, on a simulated disk, and in memory."""

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
