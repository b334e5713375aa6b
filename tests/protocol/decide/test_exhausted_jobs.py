"""Dead letters that no claim asks for: when, after what restart, and what a refusal costs (§10.6)."""

from itertools import pairwise

import pytest

from protocol.durable import Durable
from protocol.harness import START_MS, Harness
from protocol.workers import cold, held_by, queue
from topics.protocol.decide.dead_letters import MOVED_MAX
from topics.protocol.model.backoff import BACKOFF_MAX_MS
from topics.protocol.model.events import RecordsAppended
from topics.protocol.state import queue as queues
from topics.store.runs import SealedRun

AFTER_MS = 5000


def exhausted(engine: Harness | None = None, n: int = 1, **config: object) -> Harness:
    """Jobs on their last delivery, whose leases end in a second."""
    settings = {"max_deliveries": 1, "dead_letter": "d", "lease_ms": 1000, **config}
    engine = queue(engine, **settings)
    engine.append(*range(n), name="q")
    assert len(engine.claimed(max=1000)) == min(n, 1000)
    return engine


def ring(engine: Harness) -> bool:
    """Let the clock go on to the engine's next time, and do what is owed; False where none is."""
    at_ms = engine.engine.alarm_ms()
    if at_ms is None:
        return False
    engine.now_ms = max(at_ms, engine.now_ms)
    engine.work_off()
    return True


def dead_lettered(engine: Harness) -> int:
    return int(engine.state("q")["queue"]["dead_lettered"])


def test_a_job_goes_without_a_claim() -> None:
    """Its last lease ran out, it could have been claimed for five seconds, and nobody asked: the
    alarm alone moves it, and there is no other after that."""
    engine = exhausted()
    assert engine.engine.alarm_ms() == START_MS + 1001 + AFTER_MS

    engine.now_ms += 1000 + AFTER_MS
    engine.work_off()
    assert (dead_lettered(engine), engine.counters()) == (0, (1, 0, 0))
    assert ring(engine)

    assert (dead_lettered(engine), engine.counters()) == (1, (0, 0, 0))
    assert engine.seqs(name="d") == [1]
    assert not ring(engine)


@pytest.mark.parametrize("delay_ms", [0, 700])
def test_a_nacked_job_waits_from_the_time_that_it_may_be_claimed(delay_ms: int) -> None:
    """A delay is none of the five seconds. (§10.5)"""
    engine = exhausted()
    engine.now_ms += 10

    engine.nack(1, delay_ms=delay_ms)

    at_ms = engine.now_ms + delay_ms + AFTER_MS
    while dead_lettered(engine) == 0:
        assert ring(engine)
    assert engine.now_ms == at_ms


def test_a_job_whose_time_was_noted_twice_goes_once() -> None:
    """The limit fell, and before the jobs were looked at for that, one of them was given back.
    (§10.6)"""
    engine = exhausted(max_deliveries=2)
    engine.put("q", type="queue", max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.nack(1)

    engine.now_ms += AFTER_MS
    engine.work_off()

    assert (dead_lettered(engine), engine.seqs(name="d")) == (1, [1])


def test_a_queue_without_such_a_job_has_no_alarm() -> None:
    """Nothing is asked of the clock for jobs that may be delivered again, nor where there is no
    dead-letter topic."""
    for config in ({"max_deliveries": 2}, {"dead_letter": None}, {"max_deliveries": 0}):
        engine = exhausted(**config)
        assert engine.engine.alarm_ms() is None
        engine.nack(1)
        assert engine.engine.alarm_ms() is None


def test_the_setting_zero_leaves_it_to_the_next_claim() -> None:
    """As §10.6 has it, and no more."""
    engine = exhausted(Harness(dead_letter_after_ms=0))
    assert engine.engine.alarm_ms() is None
    engine.now_ms += 60_000
    assert engine.counters() == (1, 0, 0)
    assert engine.claimed() == []
    assert engine.seqs(name="d") == [1]


def test_a_holder_that_extends_moves_the_time() -> None:
    """The time of the first lease is let come, and is none."""
    engine = exhausted()
    engine.extend(1, lease_ms=60_000)
    assert ring(engine)
    assert engine.now_ms == START_MS + 60_001 + AFTER_MS
    assert dead_lettered(engine) == 1


def test_a_raised_limit_saves_the_job() -> None:
    """Until it has gone; and a limit lowered again, or given later, takes it at once, as it has
    waited long enough."""
    engine = exhausted()
    engine.now_ms += 5000
    config = {"type": "queue", "dead_letter": "d", "lease_ms": 1000}
    engine.put("q", **config, max_deliveries=2)
    engine.now_ms += 60_000
    engine.work_off()
    assert (dead_lettered(engine), engine.counters()) == (0, (1, 0, 0))

    engine.put("q", **config, max_deliveries=1)
    engine.work_off()

    assert (dead_lettered(engine), engine.counters()) == (1, (0, 0, 0))


def test_a_changed_limit_looks_at_many_jobs_a_part_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No turn looks at all of them."""
    monkeypatch.setattr(queues, "_SORTED_MAX", 4)
    engine = exhausted(n=10, max_deliveries=0)
    engine.now_ms += 60_000
    engine.put("q", type="queue", max_deliveries=1, dead_letter="d")

    turns = 0
    while dead_lettered(engine) < 10:
        engine.engine.work_off(engine.moment)
        engine.sync()
        turns += 1

    assert turns == 3


def test_one_turn_moves_a_bounded_number() -> None:
    """The next follows without another event."""
    engine = queue(max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append(*range(MOVED_MAX + 500), name="q")
    for _ in range(2):
        engine.claim(max=1000)
    engine.now_ms += 1001 + AFTER_MS

    engine.engine.work_off(engine.moment)
    engine.sync()
    assert dead_lettered(engine) == MOVED_MAX
    assert engine.engine.has_work()

    engine.work_off()
    assert dead_lettered(engine) == MOVED_MAX + 500


@pytest.mark.parametrize("how", ["stop", "kill"])
@pytest.mark.parametrize("held", [True, False])
def test_a_job_goes_after_a_restart_too(how: str, held: bool) -> None:
    """Leases that last, or a clean stop: what was due goes five seconds after the start, so that
    its last holder may still be heard; what a lease still holds, five seconds after that ends."""
    engine: Harness = exhausted(Durable(), leases_durable=True)
    if not held:
        engine.nack(1)
    engine.now_ms += 500
    assert isinstance(engine, Durable)
    engine = engine.stop() if how == "stop" else engine.kill()
    assert engine.counters() == ((0, 1, 0) if held else (1, 0, 0))
    began_ms = engine.now_ms

    while dead_lettered(engine) == 0:
        assert ring(engine)

    free_ms = START_MS + 1001 if held else began_ms
    assert engine.now_ms == free_ms + AFTER_MS
    assert engine.seqs(name="d") == [1]


def test_a_job_whose_lease_a_crash_took_goes_after_the_start() -> None:
    """Its lease was from before leases ceased to be logged, and no claim holds it now: the deadline that
    it had is no part of the five seconds. (§0.10, §10.6)"""
    engine: Harness = exhausted(Durable(), leases_durable=True, lease_ms=60_000)
    config = engine.topic("q").config
    for lasting in (False, True):
        fields = {"max_deliveries": 1, "dead_letter": "d", "lease_ms": config.lease_ms}
        engine.put("q", type="queue", leases_durable=lasting, **fields)
    assert isinstance(engine, Durable)
    engine = engine.kill()
    assert engine.counters() == (1, 0, 0)
    began_ms = engine.now_ms

    while dead_lettered(engine) == 0:
        assert ring(engine)

    assert engine.now_ms == began_ms + AFTER_MS


def test_a_replay_moves_nothing_twice() -> None:
    """The move is one entry of the log: a restart finds it made, and makes no other. (§10.6)"""
    engine: Harness = exhausted(Durable(), leases_durable=True)
    ring(engine)
    assert isinstance(engine, Durable)
    engine = engine.kill()

    assert (engine.counters(), dead_lettered(engine), engine.seqs(name="d")) == ((0, 0, 0), 1, [1])
    assert not ring(engine)


def test_a_full_dead_letter_topic_is_tried_again_later_and_later() -> None:
    """50 ms at first, 5 s at most, however many jobs wait; once there is room all of them go."""
    n = MOVED_MAX + 700
    engine = queue(max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.put("d", cap_records=1, discard="reject")
    engine.append("full", name="d")
    engine.append(*range(n), name="q")
    for _ in range(2):
        engine.claim(max=1000)
    engine.now_ms += 1001 + AFTER_MS
    tries: list[int] = []
    while len(tries) < 12:
        engine.work_off()
        tries.append(engine.now_ms)
        assert sum(engine.counters()) == n
        assert ring(engine)

    pauses = [later - sooner for sooner, later in pairwise(tries)]
    assert pauses[:4] == [50, 100, 200, 400]
    assert max(pauses) == BACKOFF_MAX_MS
    assert pauses == sorted(pauses)

    engine.put("d")
    while dead_lettered(engine) < n:
        assert ring(engine)
    assert engine.counters() == (0, 0, 0)


def test_a_log_without_room_leaves_the_job_where_it_is() -> None:
    """Until there is room again. (§11)"""
    engine = exhausted()
    engine.room_bytes = 100
    for _ in range(5):
        assert ring(engine)
    assert (dead_lettered(engine), sum(engine.counters())) == (0, 1)

    engine.room_bytes = 1 << 40
    while dead_lettered(engine) == 0:
        assert ring(engine)
    assert engine.seqs(name="d") == [1]


def test_a_failed_log_moves_nothing_and_asks_for_nothing() -> None:
    """It is read-only: an alarm would only come again and again."""
    engine = exhausted()
    engine.now_ms += 1001 + AFTER_MS
    engine.engine.on_failed()

    engine.engine.work_off(engine.moment)

    assert engine.engine.alarm_ms() is None
    assert not engine.engine.has_work()
    assert engine.counters() == (1, 0, 0)


def test_cold_text_is_read_for_one_part_of_a_queue_at_a_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What is being read is memory: the rest waits until that has moved."""
    engine = queue(max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append(*range(MOVED_MAX + 500), name="q")
    engine.seal_all()
    for _ in range(2):
        engine.claim(max=1000)
    engine.now_ms += 1001 + AFTER_MS
    with cold(monkeypatch):
        engine.engine.work_off(engine.moment)
        assert engine.counters() == (500, 0, MOVED_MAX)
        assert engine.engine.alarm_ms() is None

        engine.work_off()

    assert dead_lettered(engine) == MOVED_MAX + 500


def test_a_job_whose_holder_speaks_up_does_not_go() -> None:
    """Nobody has claimed it since: its ack counts, and leaves nothing to move. (§10.4)"""
    engine = exhausted()
    engine.now_ms += 3000
    assert engine.ack(1)["acked"] == 1
    ring(engine)
    assert dead_lettered(engine) == 0
    assert "d" not in engine.engine.state.topics


def test_a_queue_that_is_deleted_meanwhile_is_nobodys() -> None:
    """Its alarm comes, and finds nothing. (§1.4)"""
    engine = exhausted()
    engine.drop("q")
    engine.now_ms += 60_000
    engine.work_off()
    assert engine.engine.alarm_ms() is None
    assert not any(isinstance(e, RecordsAppended) and e.cause for e in engine.events)


def test_a_job_extended_often_leaves_no_heap_behind() -> None:
    """Entries of times that no longer hold are let go of before they come up."""
    engine = exhausted()
    for _ in range(1000):
        engine.extend(1, lease_ms=60_000)
        engine.now_ms += 1
    assert len(held_by(engine)._ends) <= 80


def test_an_erased_or_damaged_text_keeps_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs beside a job that cannot be read go, and that job stays in the queue. (§10.6)"""
    engine = queue(max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append("a", "b", "c", name="q")
    engine.seal_all()
    engine.claim(max=3)
    engine.now_ms += 1001 + AFTER_MS
    read = SealedRun.read

    def damaged(run: SealedRun, spans: list[tuple[int, int]]) -> object:
        if any(lo <= 1 < hi for lo, hi in spans):
            raise OSError(5, "Input/output error")
        return read(run, spans)

    with monkeypatch.context() as patch:
        patch.setattr(SealedRun, "read", damaged)
        engine.work_off()

    assert (dead_lettered(engine), engine.counters()) == (2, (0, 0, 1))
    assert engine.datas("d") == ["a", "c"]


def test_a_queue_whose_text_is_being_read_has_no_alarm_of_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Another job of it comes to its end meanwhile: it is looked at when the text has come."""
    engine = queue(max_deliveries=1, dead_letter="d", lease_ms=1000)
    engine.append("first", "second", name="q")
    engine.seal_all()
    engine.claim(max=1)
    engine.now_ms += 1001 + AFTER_MS
    with cold(monkeypatch):
        engine.engine.work_off(engine.moment)
        assert engine.counters() == (1, 0, 1)
        assert engine.claimed() == [2]
        assert engine.engine.alarm_ms() is None

        engine.work_off()
        assert engine.engine.alarm_ms() == engine.now_ms + 1001 + AFTER_MS
        ring(engine)

    assert engine.seqs(name="d") == [1, 2]
