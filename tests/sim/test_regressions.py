"""Histories that once failed, each as short as possible."""

import pytest

from .reading import Ask
from .script import append, delete, maintain, plain, put
from .stories import story
from .world import World

SEEDS = (
    "export:106995073",
    "export:981683253",
    "life:1060",
    "life:2076",
    "life:469139049",
    "scan:142328807",
    "tight:684804199",
    "wide:242615003",
    "wide:242615582",
    "work:630558934",
    "work:193",
    "work:489559361",
    "work:475",
    "work:469139080",
    "work:700017",
    "work:700403",
    "work:701026",
    "work:701274",
    "work:701485",
    "work:702172",
)
"""Worlds that failed."""


@pytest.mark.parametrize("spelling", SEEDS)
def test_a_world_that_failed(spelling: str) -> None:
    """It holds by now. (§0.10)"""
    story(spelling, crashes=12)


def test_a_clock_that_is_set_back_again_after_a_start() -> None:
    """The clock was set back while no process ran, is corrected after the start, and is set back
    again before a client comes: the engine has seen the corrected time, and `$ts` does not fall below
    it. (§0.3)"""
    for seed in range(20):
        world = plain(seed)
        world.start()
        started_ms = world.clock_ms
        world.clock_ms -= 5000
        world.pass_time(0)
        put(world, "disk")
        append(world, 2)

        world.traffic.read("a", Ask())

        assert [r.ts_ms for r in world.model.topics["a"].records.values()] == [started_ms] * 2


@pytest.fixture
def world() -> World:
    world = plain()
    world.start()
    return world


def test_a_class_switched_in_the_turn_of_an_append(world: World) -> None:
    """What an append waits for is fixed when it is decided: a record that is acknowledged after the
    write is visible. (§0.10)"""
    put(world, "disk")
    world.traffic.append_some("a", 2, None)
    world.traffic.put_class("a", "fsync")
    world.end_turn()

    world.traffic.get("a")

    assert world.process.is_behind
    assert world.process.engine.state.topics["a"].published_seq == 2


@pytest.mark.parametrize("before_seq", [0, 4, 7])
@pytest.mark.parametrize("how", ["kill", "cut"])
def test_records_expire_once(world: World, before_seq: int, how: str) -> None:
    """Records that expired before a delete, a drop or a seal are not removed again by a replay.
    (§1.2)"""
    put(world, "fsync", ttl_ms=50)
    append(world, 3)
    world.pass_time(40)
    append(world, 6)
    world.pass_time(20)
    delete(world, before_seq)
    maintain(world)
    append(world, 1)
    world.settle()

    world.crash(how)


def test_an_ephemeral_write_evicts_what_the_log_holds(world: World) -> None:
    """A record that a cap evicted from memory and log alike does not come back. (§0.10)"""
    put(world, "disk")
    append(world, 3)
    put(world, "ephemeral", cap_records=2)
    append(world, 2)
    world.settle()

    world.crash("kill")

    assert not world.model.topics["a"].records


def test_deletes_of_a_topic_whose_head_the_log_does_not_know(world: World) -> None:
    """A floor that an `ephemeral` write raised above the logged head can be replayed. (§0.10)"""
    put(world, "disk")
    append(world, 4)
    put(world, "ephemeral", cap_records=3)
    append(world, 9)
    put(world, "ephemeral", cap_records=0)
    delete(world, 12)
    world.settle()

    world.crash("kill")


def test_a_key_goes_with_its_ephemeral_record(world: World) -> None:
    """A retry after a restart that took the record writes it again. (§0.8)"""
    put(world, "ephemeral")
    append(world, 1, "k1")
    maintain(world, checkpoint=True)
    world.crash("kill")

    append(world, 1, "k1")

    assert len(world.model.topics["a"].records) == 1


def test_an_ephemeral_past_is_told(world: World) -> None:
    """Seqs that were in memory only before the class was switched are below the floor after a
    restart, also where later events carry the floors of the process that died. (§3.3)"""
    put(world, "ephemeral")
    append(world, 9)
    put(world, "disk")
    append(world, 1)
    world.settle()

    world.crash("kill")

    assert world.model.topics["a"].evict_floor == 10


def test_no_seq_is_reused_when_a_switch_is_lost() -> None:
    """From `fsync` to `disk`: until the new class is durable, no write is acknowledged that a power
    loss takes along with it. (§0.10)"""
    for seed in range(20):
        world = plain(seed)
        world.start()
        put(world, "fsync")
        append(world, 2)
        world.settle()
        world.traffic.put_class("a", "disk")
        world.end_turn()
        append(world, 1)
        world.crash("cut")
        append(world, 1)


def test_a_dropped_run_takes_no_live_neighbour_along(world: World) -> None:
    """A run that a failed seal froze is dropped under its first seq; the replay's run of that seq
    extends into live records. (§5)"""
    put(world, "fsync")
    append(world, 3)
    world.settle()
    for topic in world.process.engine.state.topics.values():
        for run in topic.runs:
            run.frozen = True  # type: ignore[attr-defined]
    append(world, 3)
    delete(world, 4)
    maintain(world)
    world.settle()

    world.crash("kill")

    assert list(world.model.topics["a"].records) == [4, 5, 6]


@pytest.mark.parametrize("how", ["stop", "kill"])
def test_a_leased_job_of_an_ephemeral_past(world: World, how: str) -> None:
    """A job that was in memory only is not in flight after a restart, though its queue has another
    class by then. (§0.10, §10.7)"""
    work = {"type": "queue", "leases_durable": True}
    world.traffic.put_class("a", "ephemeral", **work)
    append(world, 2)
    world.settle()
    world.traffic.claim("a", "n1", 1, None)
    world.traffic.put_class("a", "disk", **work)
    append(world, 1)
    world.settle()
    world.traffic.claim("a", "n1", 2, None)
    world.end_turn()
    world.settle()

    if how == "stop":
        world.stop()
    else:
        world.crash(how)

    found = world.model.topics["a"]
    assert list(found.records) == list(found.jobs.known) == [3]
    world.traffic.get("a")
    world.traffic.claim("a", "n2", 9, None)


@pytest.mark.parametrize("calls", range(11, 16))
def test_a_start_that_is_killed_after_a_power_loss_hides_nothing(calls: int) -> None:
    """The checkpoint has all of the log that is left, and the killed start had begun a file: the next
    one gives out no seq that a client knows. (§0.10)"""
    for seed in range(10):
        world = plain(seed)
        world.start()
        put(world, "disk")
        append(world, 3)
        world.settle()
        for _ in range(2):  # the second finds nothing to seal, so that nothing follows it
            maintain(world, checkpoint=True)
            world.settle()
        append(world, 1)

        def disturb(world: World = world) -> None:
            world.files.cut_at = world.files.calls + calls

        world.crash("cut", disturb=disturb)
