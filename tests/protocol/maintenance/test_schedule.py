"""The schedule: what maintenance does first, what one round is bounded by, what is tried again (§5, §8.2)."""

import contextlib
import errno
from collections import deque
from collections.abc import Iterator
from typing import Any

import pytest

from protocol.disk import LOG_BYTES, Disk
from protocol.driver.test_group_commit import START_MS, InlineHost
from topics.protocol.driver import maintenance
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.maintenance import schedule, sealing
from topics.protocol.maintenance.compaction import Remains
from topics.protocol.maintenance.schedule import LOG_FILES, SEALED_EVENT_BYTES
from topics.protocol.maintenance.steps import Blocking, UntilWritten
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.limits import Limits
from topics.protocol.state import checkpoint
from topics.protocol.state.hot_memory import freeze
from topics.store.store import DiskStore


def test_the_log_may_grow_to_what_sealing_needs() -> None:
    """Some files of it; more where there are so many topics in memory that sealing them writes more
    than that; another figure where the operator gave one. (§8.2)"""
    host = Disk()
    found = host.driver.maintenance.schedule
    assert found.log_bound() == LOG_FILES * LOG_BYTES

    for n in range(3):
        host.write(f"t{n}", 1)
    found.log_bytes_max = 2000
    assert found.log_bound() == 2000
    found.log_bytes_max = 1000
    assert found.log_bound() == 2 * SEALED_EVENT_BYTES * 3


def test_an_erasure_takes_two_checkpoints_in_fresh_files() -> None:
    """The second lets the log go that the first keeps beside it; files go last, and the delete is
    answered no sooner. (§5)"""
    host = Disk()
    host.write("t", 20)
    raw = b'{"before_seq": 11, "erase": true}'
    answers: list[object] = []
    host.driver.submit(parse_delete("t", raw), answers.append)
    host.settle()
    assert answers == []
    done = host.round()

    assert len(answers) == 1
    told = [name for name in done if name.startswith(("rotate", "checkpoint", "clear"))]
    assert [name.split()[0] for name in told[:4]] == ["rotate", "checkpoint"] * 2
    assert [name for name in told if "'fresh': True" in name] == told[0:4:2]
    assert told[-1] == "clear {'wholly': True}"


def test_space_that_is_given_back_waits_for_no_reader() -> None:
    """Only an erasure does: a file without a name may be read to its end. (§5)"""
    host = Disk()
    host.write("t", 100)
    host.round()
    host.delete("t")
    assert "clear" in host.round()


def test_a_checkpoint_that_is_due_comes_before_sealing() -> None:
    """However many runs are full: else the log would grow as long as they fill. (§8.2)"""
    host = Disk()
    for n in range(4):
        host.write(f"t{n}", 120)
    assert host.store.log_bytes > LOG_BYTES
    assert host.driver.engine.state.memory.full

    done = host.round()

    first = next(name.split()[0] for name in done if name.split()[0] in ("rotate", "seal"))
    assert first == "rotate"
    assert done.count("checkpoint") == 1
    assert host.store.log_bytes < LOG_BYTES


def test_a_round_seals_a_bounded_number_of_files() -> None:
    """What is left comes with the next one, which looks again whether something comes first."""
    host = Disk(segment_max_bytes=4096)
    host.driver.maintenance.schedule._limits = Limits(wal_file_bytes=1 << 30)
    for n in range(schedule.SEALS_MAX + 4):
        host.write(f"t{n}", 20)
    for topic in host.driver.engine.state.memory.unsealed.values():
        freeze(topic)
        host.driver.engine.state.memory.full[topic.topic_id] = topic

    assert host.round().count("seal") == schedule.SEALS_MAX
    assert host.driver.maintenance.schedule.has_more
    rounds = 0
    while host.driver.maintenance.schedule.has_more:
        assert host.round().count("seal") <= 2 * schedule.SEALS_MAX
        rounds += 1
    assert rounds <= 3
    assert not host.driver.engine.state.memory.unsealed


def test_space_comes_back_although_nothing_can_be_sealed() -> None:
    """A full disk refuses segments; what was deleted goes all the same. (§5)"""
    host = Disk()
    host.write("old", 100)
    host.round(checkpoint=True)
    segments = [name for name in host.store._files.names() if name.endswith(".seg")]
    assert segments
    host.delete("old")
    host.write("new", 120)
    host.fails["seal"] = OSError(errno.ENOSPC, "no space left")

    with pytest.raises(OSError, match="no space"):
        host.round()

    assert not [name for name in segments if name in host.store._files.names()]


def full(host: Disk) -> None:
    """A write was refused, and the log cannot be made into segments."""
    host.write("t", 20)
    assert 0 < host.store.log_bytes < LOG_BYTES
    host.fails["seal"] = OSError(errno.ENOSPC, "no space left")
    host.driver.maintenance.disk_is_full(0)
    with pytest.raises(OSError, match="no space"):
        host.round()


def test_room_on_a_full_disk_is_made_later_if_it_could_not_be() -> None:
    """Without another refusal: whoever writes may be gone, or wait for the log to tell of space.
    (§11)"""
    host = Disk()
    full(host)

    host.fails.clear()
    host.now_ms += schedule.RETRY_MS

    assert host.round().count("checkpoint") == 2
    assert host.round().count("checkpoint") == 0


def test_a_full_disk_is_tried_less_and_less_often_until_a_write_is_refused() -> None:
    """Each try writes what it can.  (§11)"""
    host = Disk()
    full(host)
    tries = []
    for second in range(200):
        host.now_ms += 1000
        with contextlib.suppress(OSError):
            host.round()
        if any(name.startswith("rotate") for name in host.calls):
            tries.append(second)

    assert tries == [0, 2, 6, 14, 30, 62, 122, 182]
    host.driver.maintenance.disk_is_full(0)
    with pytest.raises(OSError, match="no space"):
        host.round()
    assert any(name.startswith("rotate") for name in host.calls)


def test_a_checkpoint_that_cannot_be_saved_is_saved_later_and_made_once() -> None:
    """Nothing is rotated and sealed again for it, and it is tried less and less often. (§8.2)"""
    host = Disk()
    host.write("t", 120)
    host.fails["checkpoint"] = OSError(errno.EIO, "not now")
    with pytest.raises(OSError, match="not now"):
        host.round()
    rotations = host.store.stats.rotations_total
    waits = []
    for _ in range(4):
        wait = 0
        while True:
            host.now_ms += 500
            wait += 500
            try:
                done = host.round()
            except OSError:
                break
            assert "checkpoint" not in done
        waits.append(wait)

    assert waits == sorted(waits)
    assert waits[-1] >= 8 * waits[0]
    assert host.store.stats.rotations_total == rotations
    host.fails.clear()
    host.now_ms += schedule.RETRY_MS_MAX
    assert host.round().count("checkpoint") == 1
    assert host.store.log_bytes < LOG_BYTES


def test_a_checkpoint_that_cannot_be_sealed_begins_no_file_after_another() -> None:
    """It is tried again in the log file that it began. (§8.2)"""
    host = Disk()
    host.write("t", 120)
    host.fails["seal"] = OSError(errno.ENOSPC, "no space left")
    for _ in range(3):
        host.now_ms += schedule.RETRY_MS_MAX
        with pytest.raises(OSError, match="no space"):
            host.round()
    rotations = [name for name in host.calls if name.startswith("rotate")]

    assert rotations == ["rotate {'fresh': False, 'stay': True}"]


def test_what_expires_while_a_checkpoint_is_made_is_not_counted_behind_it() -> None:
    """The image has the topic as it was at the boundary, and nothing of it is sealed any more: the log
    behind it says that its records are gone. (§8.2, §1.2)"""
    host = Disk()
    host.put("t", b'{"ttl_ms": 1000}')
    host.write("t", 5)
    rotate = host.store.rotate

    def slow(**given: bool) -> int:
        boundary = rotate(**given)
        host.now_ms += 2000
        host.driver.engine.let_pass(host.now_ms)
        return boundary

    host.store.rotate = slow  # type: ignore[method-assign]
    ended: list[Exception | None] = []
    schedule = host.driver.maintenance.schedule
    host.driver.maintenance.run(schedule._checkpoint(), ended.append)
    assert ended == [None]
    topic = host.kill().driver.engine.state.topics["t"]

    assert (topic.count, topic.size_bytes) == topic.recount() == (0, 0)


def test_what_is_written_while_a_checkpoint_is_made_is_in_the_log_behind_it() -> None:
    """A restart shows each record once, wherever the turns fell. (§8.2)"""
    host = Disk()
    host.write("t", 60)
    seal = host.store.seal

    def busy(entries: Any) -> Any:
        host.write("t", 10)
        host.write("u", 10)
        return seal(entries)

    host.store.seal = busy  # type: ignore[method-assign]
    host.round(checkpoint=True)
    files = host.store._files
    host.store.close(None)
    disk = DiskStore(files, wal_file_bytes=LOG_BYTES, reserve_bytes=LOG_BYTES)
    again = InlineHost(Limits(), disk, START_MS)
    again.driver.recover()

    counts = {name: topic.count for name, topic in again.driver.engine.state.topics.items()}
    assert counts["t"] == 60 + counts["u"]
    assert counts["u"] >= 10


def sparse(rate: int) -> Disk:
    """A server with four segments of which a tenth lives each, and rewrites at this rate."""
    host = Disk(rewrite_bytes_per_s=rate, segment_max_bytes=48_000)
    for n in range(4):
        host.write(f"t{n}", 50)
        host.round(checkpoint=True)
        raw = b'{"before_seq": 46}'
        host.driver.submit(parse_delete(f"t{n}", raw), lambda reply: None)
        host.settle()
    return host


def test_rewrites_wait_for_their_budget() -> None:
    """A rate of one segment in two seconds: the others follow when their time has come, and the
    round that is due then is begun for it. (§5)"""
    host = sparse(rate=4500)
    schedule = host.driver.maintenance.schedule
    rewritten = [host.round().count("seal")]
    assert schedule.rewrite_at_ms is not None
    assert host.now_ms < schedule.rewrite_at_ms
    assert host.round().count("seal") == 0

    host.driver.maintenance.start()
    for _ in range(20):
        host.calls.clear()
        host.advance(1000)
        rewritten.append(host.calls.count("seal"))

    whole = sparse(rate=0)
    assert whole.round().count("seal") >= 1
    assert whole.driver.maintenance.schedule.rewrite_at_ms is None
    assert max(rewritten) == 1
    assert not [s for s in schedule.compaction.candidates() if schedule.compaction.is_sparse(s)]


def test_a_full_disk_and_an_erasure_wait_for_no_budget() -> None:
    """The space is needed now, and a client waits for the erasure. (§5)"""
    host = sparse(rate=1)
    schedule = host.driver.maintenance.schedule
    host.round()
    assert host.round().count("seal") == 0

    raw = b'{"before_seq": 46, "erase": true}'
    answers: list[object] = []
    host.driver.submit(parse_delete("t3", raw), answers.append)
    host.settle()
    host.round()
    assert len(answers) == 1
    schedule.disk_is_full = True
    left = [s for s in schedule.compaction.candidates() if schedule.compaction.is_sparse(s)]
    host.round()
    assert not left or host.calls.count("seal") > 0


# ---------------------------------------------------------------------- damage, and what goes meanwhile


def damage_once(host: Disk, what: str = "seal") -> list[int]:
    """The next call meets a damaged segment; returns a list of the calls that were made."""
    call, calls = getattr(host.store, what), list[int]()

    def meets(*given: Any, **named: Any) -> Any:
        calls.append(len(calls))
        if len(calls) == 1:
            raise Corrupt("0000000001.seg", 512, "does not verify")
        return call(*given, **named)

    setattr(host.store, what, meets)
    return calls


def small_neighbours() -> Disk:
    """A small sealed run, and records behind it that would be merged with it."""
    host = Disk()
    host.write("t", 3)
    host.round(checkpoint=True)
    host.write("t", 3)
    assert [run.ref is None for run in host.driver.engine.state.topics["t"].runs] == [False, True]
    return host


def warnings(host: Disk) -> list[str]:
    return [what for _, what in host.lines if "cannot be read" in what]


def test_a_last_seal_that_meets_damage_seals_the_rest() -> None:
    """The damaged run stays as it is, and the stop is a clean one. (§0.5, §8.2)"""
    host = small_neighbours()
    calls = damage_once(host)
    ended: list[Exception | None] = []
    host.driver.drain()

    host.driver.stop(ended.append)

    assert ended == [None]
    assert len(calls) == 2
    assert len(warnings(host)) == 1


def test_a_seal_that_meets_damage_is_planned_again_without_it() -> None:
    """In the same round; the records read as before. (§0.5)"""
    host = small_neighbours()
    state = host.driver.engine.state
    for topic in state.memory.unsealed.values():
        freeze(topic)
        state.memory.full[topic.topic_id] = topic
    calls = damage_once(host)

    host.round()

    assert len(calls) == 2
    assert len(warnings(host)) == 1
    assert not state.memory.unsealed
    assert state.topics["t"].count == 6


@pytest.mark.parametrize("error", [MemoryError(), OSError(errno.EMFILE, "too many open files")])
def test_a_segment_that_cannot_be_looked_at_now_is_none_that_is_damaged(error: Exception) -> None:
    """The round breaks off, and the next one looks again. (§0.5)"""
    host = sparse(rate=0)
    contents = host.store.contents

    def fail(segment: int) -> Any:
        raise error

    host.store.contents = fail  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        host.round()
    host.store.contents = contents  # type: ignore[method-assign]

    assert not warnings(host)
    assert host.round().count("seal") >= 1


def test_leases_that_a_stop_has_no_time_for_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """They were in no log, and only the last image would hold them. (§10.3)"""
    monkeypatch.setattr(schedule, "LAST_MS", 0)
    host = Disk()
    put = parse_put("q", b'{"type": "queue"}')
    host.driver.submit(put, lambda reply: None)
    host.write("q", 3)
    host.driver.submit(parse_claim("q", b'{"node": "w"}', Limits()), lambda reply: None)
    host.settle()
    ended: list[Exception | None] = []
    host.driver.drain()

    host.driver.stop(ended.append)

    assert ended == [None]
    assert "there is no time to seal all: leases end with this process" in [
        what for _, what in host.lines
    ]


def test_maintenance_without_room_in_the_log_is_tried_again() -> None:
    """It looks for space once, and says so where there is none. (§11)"""
    host = Disk()
    host.write("t", 20)
    store, asked = host.store, list[int]()
    room, find = store.room, store.find_room
    store.room = lambda *, reserve: 0  # type: ignore[method-assign]
    store.find_room = asked.append  # type: ignore[method-assign]

    with pytest.raises(OSError, match="no space in the log for maintenance"):
        host.round(checkpoint=True)

    assert schedule.ROUND_BYTES in asked
    store.room, store.find_room = room, find  # type: ignore[method-assign]
    assert "seal" in host.round(checkpoint=True)


def test_room_that_maintenance_finds_is_used() -> None:
    """Another program freed some. (§11)"""
    host = Disk()
    host.write("t", 20)
    store, room = host.store, host.store.room
    store.room = lambda *, reserve: 0  # type: ignore[method-assign]

    def find(size_bytes: int) -> None:
        if size_bytes >= schedule.ROUND_BYTES:  # and not the look that begins a round
            store.room = room  # type: ignore[method-assign]

    store.find_room = find  # type: ignore[method-assign]

    assert "seal" in host.round(checkpoint=True)


def test_a_write_that_is_refused_while_room_is_made_begins_no_longer_wait() -> None:
    """It says that the disk is full once more: the next round tries at once. (§11)"""
    host = Disk()
    host.write("t", 20)
    host.driver.maintenance.disk_is_full(0)

    def refused(*given: Any) -> Any:
        host.driver.maintenance.schedule.disk_is_full = True
        raise OSError(errno.ENOSPC, "no space left")

    seal, host.store.seal = host.store.seal, refused  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"):
        host.round()
    host.store.seal = seal  # type: ignore[method-assign]

    assert host.driver.maintenance.schedule.disk_is_full
    assert host.round().count("checkpoint") == 2


def test_a_plan_that_fails_at_once_leaves_no_run_busy(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was planned by then. (§5)"""
    host = Disk()
    host.write("t", 120)

    def fail(planning: object) -> bool:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(sealing.SealPlanning, "go_on", fail)
        with pytest.raises(MemoryError):
            host.round()

    assert not host.driver.maintenance.schedule.sealing.busy
    host.round()
    assert "t" in host.driver.engine.state.topics


def test_a_large_job_is_installed_and_imaged_in_slices(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands run between them. (§8.2)"""
    monkeypatch.setattr(sealing, "ENTRIES_MAX", 1)
    monkeypatch.setattr(checkpoint, "SLICE_WEIGHT", 1)
    host = Disk()
    for n in range(4):
        host.write(f"t{n}", 3)
    slices: list[int] = []
    monkeypatch.setattr(schedule, "yield_to_commands", lambda: slices.append(1))

    assert "checkpoint" in host.round(checkpoint=True)

    assert len(slices) >= 8
    assert not host.driver.engine.state.memory.unsealed


def test_what_is_installed_when_a_round_is_ended_stays() -> None:
    """Only what was not sealed is taken up again. (§8.2)"""
    host = Disk()
    host.write("t", 3)
    found = host.driver.maintenance.schedule
    found.sealing.press()
    task = found.round()
    step: Any = next(task)
    while not (isinstance(step, UntilWritten) and "seal" in host.calls):
        step = task.send(step.call() if isinstance(step, Blocking) else None)

    task.close()

    assert not found.sealing.busy
    assert not host.driver.engine.state.memory.unsealed
    assert "seal" not in host.round()


def test_rewrites_go_on_in_the_next_round(monkeypatch: pytest.MonkeyPatch) -> None:
    """After some files, so that a checkpoint is not kept waiting. (§5)"""
    monkeypatch.setattr(schedule, "SEALS_MAX", 1)
    host = sparse(rate=0)
    found = host.driver.maintenance.schedule
    wanted: deque[Remains] = deque()
    for segment in sorted(host.driver.engine.state.segments):
        wanted += found.compaction.remains(segment, host.store.contents(segment))
    assert len(wanted) >= 2
    monkeypatch.setattr(sealing.SealBuilder, "is_full", property(lambda self: bool(self._entries)))

    host.driver.maintenance.run(found._rewrite(wanted, whole=False), lambda error: None)

    assert found.has_more
    assert wanted


def test_what_was_to_be_rewritten_may_be_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its topics were deleted meanwhile: there is nothing to write, and no file is. (§5)"""
    host = sparse(rate=0)
    found = host.driver.maintenance.schedule
    wanted = deque([Remains(1, 999, [1])])
    host.calls.clear()
    ended: list[Exception | None] = []

    host.driver.maintenance.run(found._rewrite(wanted, whole=False), ended.append)

    assert (ended, host.calls) == ([None], [])


def test_an_erasure_of_what_stays_in_use_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever refers to the segment still: the delete is not answered as erased. (§5)"""
    host = sparse(rate=0)
    found = host.driver.maintenance.schedule
    raw = b'{"before_seq": 46, "erase": true}'
    answers: list[object] = []

    def nothing(wanted: object, *, whole: bool) -> Iterator[None]:
        return iter(())

    with monkeypatch.context() as patch:
        patch.setattr(found, "_rewrite", nothing)
        host.driver.submit(parse_delete("t3", raw), answers.append)
        host.settle()
        with pytest.raises(OSError, match="segments to be erased are in use"):
            host.round()
    assert answers == []

    host.now_ms += maintenance.RETRY_MS
    host.round()
    assert len(answers) == 1


def test_what_one_rewrite_left_in_use_the_next_one_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A run may change while it is rewritten, and stay where it is: the erasure looks once more, and
    is over when nothing refers to the segment. (§5)"""
    host = sparse(rate=0)
    found = host.driver.maintenance.schedule
    rewrite, calls = found._rewrite, list[bool]()

    def at_the_second_call(wanted: Any, *, whole: bool) -> Any:
        calls.append(whole)
        return rewrite(wanted, whole=whole) if calls.count(True) > 1 else iter(())

    monkeypatch.setattr(found, "_rewrite", at_the_second_call)
    raw = b'{"before_seq": 46, "erase": true}'
    answers: list[object] = []
    host.driver.submit(parse_delete("t3", raw), answers.append)
    host.settle()
    host.round()

    assert calls.count(True) == 2
    assert len(answers) == 1


def test_a_segment_that_cannot_be_read_is_left_as_it_is() -> None:
    """It is told once, and the round goes on to its end. (§0.5)"""
    host = sparse(rate=0)
    damage_once(host, "contents")

    host.round()

    assert len(warnings(host)) == 1
    assert len(host.driver.maintenance.schedule.compaction.damaged) == 1


def test_a_candidate_that_nothing_refers_to_any_more_is_not_read() -> None:
    """Its last run was dropped while others were looked at. (§5)"""
    host = sparse(rate=0)
    found = host.driver.maintenance.schedule
    looked_at: dict[int, Any] = {}
    host.calls.clear()
    ended: list[Exception | None] = []

    host.driver.maintenance.run(found._inspect(999, looked_at), ended.append)

    assert (ended, looked_at, host.calls) == ([None], {}, [])
