"""Responses on a failing and on a full disk, while the process lives on."""

import errno

import pytest

from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.errors import Rejection
from topics.store.store import DiskStore

from .files import Fault
from .invariants import Violation
from .mutants import flags_have_no_place
from .reading import Ask
from .script import append, delete, maintain, plain, put
from .stories import style_of, told_story
from .traffic import diff_of
from .world import World


def started(durability: str) -> World:
    world = plain()
    world.start()
    put(world, durability)
    append(world, 3)
    world.settle()
    return world


def fail_next(world: World, error: int) -> None:
    world.files.faults[world.files.calls + 1] = Fault(error)


def shown(world: World) -> tuple[int, bytes]:
    page = world.page(diff_of("a", Ask()))
    return page.fields["head_seq"], page.text


def refusal_of_an_append(world: World) -> Rejection:
    with pytest.raises(Rejection) as refused:
        world.traffic.submit_unchecked("a")
    return refused.value


@pytest.mark.parametrize("how", ["kill", "cut"])
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
@pytest.mark.parametrize("durability", ["fsync", "disk", "memory"])
def test_a_failed_write_shows_nothing_of_its_batch(durability: str, error: int, how: str) -> None:
    """Reads return what was visible before, later writes are refused as not applied, and the next
    start finds the batch as a whole or not at all. (§0.6)"""
    world = started(durability)
    before = shown(world)
    fail_next(world, error)

    append(world, 4)

    assert world.process.failed
    assert shown(world) == before
    refused = refusal_of_an_append(world)
    assert STATUSES[refused.code] == 503
    space = {"limit": "disk"} if error == errno.ENOSPC else {}
    assert refused.detail == {"reason": "read_only", **space}
    world.crash(how)
    append(world, 1)


@pytest.mark.parametrize("how", ["kill", "cut"])
@pytest.mark.parametrize("cleans", [True, False])
@pytest.mark.parametrize("durability", ["fsync", "disk"])
def test_a_failed_sync_is_never_tried_again(durability: str, cleans: bool, how: str) -> None:
    """After it no file of the log is synced again, whatever is requested; an `fsync` batch stays
    invisible and unacknowledged; and no seq that a client saw is given again. (§0.10)"""
    world = started(durability)
    before = shown(world)
    append(world, 4)
    world.files.faults[world.files.calls + 1] = Fault(errno.EIO, cleans=cleans)

    world.process.sync()

    assert world.process.failed
    if durability == "fsync":
        assert shown(world) == before
    calls = world.files.calls
    world.process.sync()
    world.process.idle()
    maintain(world, checkpoint=True)
    assert STATUSES[refusal_of_an_append(world).code] == 503
    assert not [call for call in world.files.log[calls:] if ".wal" in call]
    world.crash(how)
    append(world, 1)


@pytest.mark.parametrize("call", range(12))
@pytest.mark.parametrize("error", [errno.EIO, errno.ENOSPC])
def test_maintenance_that_fails_takes_nothing(call: int, error: int) -> None:
    """A seal or checkpoint that fails is retried, or makes the log read-only; visible records stay,
    and a restart shows them too. (§5)"""
    world = started("fsync")
    append(world, 9)
    delete(world, 4)
    world.settle()
    before = shown(world)
    world.files.faults[world.files.calls + 1 + call] = Fault(error)

    maintain(world, checkpoint=True)
    maintain(world, checkpoint=True)

    assert shown(world) == before
    world.crash("kill")
    assert shown(world) == before


def test_a_full_disk_refuses_appends_and_takes_deletes() -> None:
    """Appends are 429 with `limit: "disk"`, reads and deletes continue, and so do appends when
    there is space again. (§11)"""
    world = plain()
    world.start()
    put(world, "fsync")
    used = sum(len(data) for data in world.files.tree().values())
    world.files.capacity_bytes = used + 400_000
    world.is_full = True
    while not world.traffic.refused_for_room:
        world.traffic.append_sized("a", 4080)
        world.end_turn()
        world.settle()
    full = world.model.topics["a"]
    held = len(full.records)

    for before_seq in range(2, 12):
        delete(world, before_seq)
        world.settle()
    assert world.traffic.refused_for_room == 1
    assert len(full.records) == held - 10
    world.traffic.read("a", Ask())
    world.files.capacity_bytes += 10_000_000
    append(world, 1)
    world.settle()

    assert world.traffic.refused_for_room == 1
    assert full.head_seq == held + 1
    world.crash("cut")


def test_a_worker_that_leaves_a_full_disk_may_hold_its_jobs_after_a_crash(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Its jobs may be claimed at once; the log had no room to say so, and after a crash they are
    leased until the lease ends. (§10.8)"""
    world = plain()
    world.start()
    world.traffic.put_class("a", "fsync", type="queue", leases_durable=True)
    append(world, 2)
    world.settle()
    worker = world.pushing.come("a", "n1", 20, None)
    world.end_turn()
    world.pushing.take_all()
    world.settle()
    leased = {seq: job.shown() for seq, job in world.model.topics["a"].jobs.known.items()}
    assert {shown[0] for shown in leased.values()} == {"leased"}

    world.is_full = True
    with monkeypatch.context() as patch:
        patch.setattr(DiskStore, "room", lambda self, *, reserve: 0)
        world.pushing.leave(worker)
        world.end_turn()

    assert not world.model.topics["a"].jobs.in_flight
    world.crash("kill")
    assert {seq: job.shown() for seq, job in world.model.topics["a"].jobs.known.items()} == leased


def test_a_violation_names_its_invariant() -> None:
    """A model that differs from the server reports the invariant that is violated."""
    world = started("fsync")
    world.model.topics["a"].records.popitem()

    with pytest.raises(Violation, match="I13"):
        world.traffic.get("a")


@pytest.mark.parametrize("seed", range(8))
def test_segments_that_take_no_flags_keep_nothing_else(
    monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    """Deletes are in the checkpoint until their flags have a place: through stops, kills and power losses
    nothing of them comes back, and log files go. (§5, §0.10)"""
    flags_have_no_place(monkeypatch)

    told_story(seed, crashes=6, style=style_of("life", seed))
