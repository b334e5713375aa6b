"""Jobs with options on their way to workers: the table, the records and time (130-133).

What a queue gives over all of it is held against a naive queue in `sim/test_ordering.py`.
"""

import pytest

from topics.protocol.model.errors import Corrupt
from topics.protocol.state import backlog as backlogs
from topics.store.runs import SealedRun

from .queued import backlog, queue, sealed


def test_a_queue_has_none_before_it_needs_one() -> None:
    engine = queue({}, {"tag": "t"})
    queues = engine.engine.state.queues
    assert queues[engine.topic("q").topic_id].backlog is None
    engine.append({"data": 0, "priority": 1}, name="q")
    assert engine.claimed(max=9) == [3, 1, 2]


def test_records_are_looked_at_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over several runs, some of which are gone as a whole, with jobs that were delivered before."""
    monkeypatch.setattr(backlogs, "ABSORBED_ROWS", 4)
    engine = queue(*[{"tag": "ab"[n % 2]} for n in range(9)])
    sealed(engine)
    engine.append(*[{"data": 0} for _ in range(9)], name="q")
    assert engine.claimed(max=6) == [1, 2, 3, 4, 5, 6]
    engine.put("q", type="queue", fair=True)
    found = backlog(engine)
    assert engine.claim(max=20) is None
    for seen in (4, 8, 12):
        engine.engine.work_off(engine.moment)
        assert found.seen == seen
        assert engine.counters() == (12, 6, 0)
    engine.work_off()
    assert sorted(job["$seq"] for job in engine.woken()[0]["claimed"]) == [*range(7, 19)]
    assert engine.claimed(max=5) == []

    engine.append({"data": 0}, name="q")
    engine.delete("q", before_seq=20)
    assert engine.claimed(max=5) == []
    engine.put("q", type="queue", fair=True, cap_records=1)
    engine.append({"data": 0}, {"data": 1}, {"data": 2}, name="q")
    assert engine.claimed(max=5) == [22]
    engine.ack(22)
    assert engine.counters() == (0, 0, 0)


def test_known_jobs_are_met_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each costs more than a record that nobody knows: a config of ten thousands of jobs that had been delivered
    before held everybody up for seconds.  Nobody claims meanwhile. (§10, 133)"""
    monkeypatch.setattr(backlogs, "MET_MAX", 2)
    engine = queue(*[{"tag": "ab"[n % 2]} for n in range(7)])
    assert engine.claimed(max=5) == [1, 2, 3, 4, 5]
    for seq in (1, 2, 3, 4, 5):
        engine.nack(seq)
    engine.put("q", type="queue", fair=True)
    found = backlog(engine)
    assert engine.claim(max=9) is None
    for seen in (2, 4):
        engine.engine.work_off(engine.moment)
        assert found.seen == seen
    engine.engine.work_off(engine.moment)
    assert found.seen == 7
    engine.engine.work_off(engine.moment)
    assert [job["$seq"] for job in engine.woken()[0]["claimed"]] == [1, 2, 3, 4, 5, 6, 7]


def test_claims_go_on_after_groups_were_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    """The backlog then looks at all records anew.  Where these are many, nobody went on with that before another record
    was shown: workers waited beside jobs that were ready. (§10.2, 133)"""
    monkeypatch.setattr(backlogs, "ABSORBED_ROWS", 8)
    monkeypatch.setattr(backlogs, "IDLE_GROUPS", 4)
    engine = queue({"delay_ms": 1000, "group": "late"}, order="group")
    for seq in range(2, 22):
        engine.append({"data": 0, "group": f"g{seq}"}, name="q")
        answer = engine.claim(wait_ms=1000)
        if answer is None:
            engine.work_off()
            answer = engine.woken()[0]
        assert [job["$seq"] for job in answer["claimed"]] == [seq]
        engine.ack(seq)


def test_options_outlive_a_seal_and_a_merge() -> None:
    """Options of jobs that are gone are left out, and so is a group that is only a tag."""
    engine = sealed(
        queue({"priority": 3}, {"group": "g"}, {"tag": "t", "priority": 1}, order="group")
    )
    assert engine.claimed(max=9) == [1, 3, 2]
    engine.ack(1)
    engine.append({"data": 0}, {"data": 0, "unique": "k"}, name="q")
    sealed(engine)
    found = [run.job_options() for run in engine.topic("q").runs]
    [options] = [each for each in found if each is not None]
    assert options.rows["seq"].tolist() == [2, 3, 5]
    assert options.rows["priority"].tolist() == [0, 1, 0]
    assert [g and options.groups[g - 1] for g in options.rows["group"].tolist()] == ["g", 0, 0]
    assert options.digests is not None
    assert options.digests.any(axis=1).tolist() == [False, False, True]


def test_a_seal_of_jobs_without_options_says_none() -> None:
    engine = queue({}, {"tag": "t"}, order="group")
    sealed(engine)
    assert [run.job_options() for run in engine.topic("q").runs] == [None]


def test_options_that_cannot_be_read_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """The jobs go on without any. (§0.5)"""
    engine = sealed(queue({"priority": 3}))
    options = backlog(engine)
    options.is_loaded = False

    def damaged(run: SealedRun) -> None:
        raise Corrupt("file", 7, "a section of a run does not verify")

    monkeypatch.setattr(SealedRun, "job_options", damaged)
    report: list[str] = []
    assert options.load(report) == []
    [told] = report
    assert "lost their options" in told


def test_many_delays_end_a_part_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backlogs, "SETTLED_MAX", 10)
    engine = queue(*[{"delay_ms": 100} for _ in range(35)])
    assert engine.counters()[2] == 35
    engine.now_ms += 100
    seen = [engine.counters()[2] for _ in range(5)]
    assert seen == [25, 15, 5, 0, 0]


def test_scattered_deletes_free_options() -> None:
    """Such as stand as bits in the log."""
    engine = queue(*[{"tag": "ab"[n % 2], "delay_ms": 1000} for n in range(4000)])
    assert engine.counters()[2] == 4000
    engine.delete("q", match="a")
    assert engine.counters()[2] == 2000
    assert backlog(engine).table.live == 2000


def test_an_eviction_frees_options() -> None:
    engine = queue(cap_records=3)
    for n in range(5):
        engine.append({"data": n, "unique": f"k{n}", "delay_ms": 10}, name="q")
    assert engine.counters() == (0, 0, 3)
    assert "unique" not in engine.append({"data": 0, "unique": "k0"}, name="q")


def test_what_was_not_asked_for_is_nothing() -> None:
    engine = queue({"priority": 2}, {"group": "g"}, {}, order="group")
    found = backlog(engine)
    assert found.options_of([1, 2, 3]) == [(2, None), (0, "g"), (0, None)]
    assert found.group_of(2) == "g"
    assert not found.is_late(1, None, 1 << 60)
    assert found.order.blocked == 0


def test_records_that_are_gone_before_anybody_asked() -> None:
    """All of them expired: nothing is looked at."""
    engine = queue({"priority": 1}, {"priority": 2}, ttl_ms=1000)
    engine.now_ms += 2000
    assert engine.claimed(max=9) == []
    assert engine.counters() == (0, 0, 0)


def test_a_seq_that_never_was_is_not_live() -> None:
    engine = queue({})
    assert [engine.topic("q").is_live(seq) for seq in (0, 1, 2)] == [False, True, False]


def test_a_delay_of_a_job_that_is_gone_ends_nothing() -> None:
    """Its time comes up all the same. (130)"""
    engine = queue({"delay_ms": 10}, {"delay_ms": 20})
    assert engine.counters() == (0, 0, 2)
    engine.delete("q", before_seq=2)
    engine.now_ms += 10
    assert engine.counters() == (0, 0, 1)


def test_a_lag_may_end_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cap takes the records that were to be looked at. (§10.2)"""
    monkeypatch.setattr(backlogs, "ABSORBED_ROWS", 4)
    engine = queue(*[{"priority": 1} for _ in range(9)])
    engine.put("q", type="queue", fair=True)
    assert backlog(engine).lags
    engine.put("q", type="queue", fair=True, cap_records=2)
    assert not backlog(engine).lags
    engine.work_off()
    assert engine.claimed(max=9) == [8, 9]


def orders(field: str, config: dict[str, object]) -> tuple[list[object], int]:
    """Many groups have a job each beside a few that stay: what was claimed and counted, and how many groups are known."""
    engine = queue({field: "held"}, {field: "held"}, {field: "late", "delay_ms": 50_000}, **config)
    engine.append({"data": 0, field: "late", "priority": 3, "delay_ms": 50_000}, name="q")
    seen: list[object] = [engine.claimed(max=1)]
    for n in range(100):
        engine.append({"data": 0, field: f"order-{n}", "priority": n % 3 + 1}, name="q")
        seen += [engine.claimed(max=1), engine.counters(), engine.state("q")["queue"]]
        engine.ack(5 + n)
    known = len(backlog(engine).table.groups)
    seen += [backlog(engine).options_of([4]), engine.claimed(max=9)]
    engine.ack(1)
    engine.now_ms += 50_000
    seen += [engine.claimed(max=9), engine.counters()]
    return seen, known


@pytest.mark.parametrize(
    "config", [{}, {"order": "group"}, {"fair": True}, {"group_max_in_flight": 1}], ids=str
)
@pytest.mark.parametrize("field", ["group", "tag"])
def test_groups_that_had_their_last_job_are_forgotten(
    field: str, config: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A queue with a group for each order does not remember all orders that there ever were.  Jobs with a worker, with a
    delay, or behind others of their group are where they were. (133)"""
    kept, _ = orders(field, config)
    monkeypatch.setattr(backlogs, "IDLE_GROUPS", 8)
    forgotten, known = orders(field, config)
    assert forgotten == kept
    assert known < 40
