"""Stories of schedules: what a tick appends, which ticks happen, and what keeps one from happening. (§14)"""

from typing import Any

import msgspec
import orjson
import pytest

from protocol.harness import START_MS, Harness, read_back, refusal, shown, status_of
from topics.protocol.decide import schedules
from topics.protocol.engine import Engine
from topics.protocol.faces.http.schedules import parse_put_schedule
from topics.protocol.model import timetable
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import (
    DeleteSchedule,
    GetSchedule,
    ListSchedules,
    PauseSchedule,
    ResumeSchedule,
    RunSchedule,
)
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.events import Fired, RecordsAppended, ScheduleConfigured
from topics.protocol.model.job_options import DELAY_MS_MAX
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Gate
from topics.protocol.model.permission import permitted
from topics.protocol.model.schedules import LATE_MS
from topics.protocol.state.state import State
from topics.store.memory import MemoryStore

MINUTE = 60_000
HOUR = 60 * MINUTE


def put(engine: Harness, name: str = "s", **fields: object) -> Any:
    """The command of a `PUT`."""
    body = {"topic": "t", "record": {"data": 1}, **fields}
    return parse_put_schedule(name, orjson.dumps(body), engine.limits)


def again(engine: Harness) -> Harness:
    """The engine of a restart: what its log and its checkpoint say, and nothing that it remembered."""
    image = read_back(engine.engine.state.image())
    other = Harness(now_ms=engine.now_ms)
    other.engine.state.restore(image)
    other.engine.finish_recovery(other.recovery, engine.now_ms)
    return other


# ---------------------------------------------------------------------- ticks


def test_a_tick_appends_the_record_and_says_which_it_is() -> None:
    """`meta.$schedule` and `$schedule_at` stand behind what the record has itself."""
    engine = Harness()
    record = {"data": {"a": 1}, "tag": "x", "node": "n", "meta": {"trace": "7"}}
    made = engine.at_times(record=record, every_ms=5000)
    assert (made["created"], made["next_at"], made["record"]) == (True, START_MS + 5000, record)

    engine.pass_time(START_MS + 5007)

    [found] = engine.diff(include_tags=True)["records"]
    meta = {"trace": "7", "$schedule": "s", "$schedule_at": START_MS + 5000}
    assert found == {
        "$seq": 1, "$ts": START_MS + 5007, "$node": "n", "$tag": "x", "data": {"a": 1}, "meta": meta,
    }  # fmt: skip
    run = {"at": START_MS + 5000, "ts": START_MS + 5007, "topic": "t", "partition": 0, "seq": 1}
    state = engine.scheduled()
    assert (state["last_run"], state["next_at"]) == (run, START_MS + 10_000)
    assert (state["fired_total"], state["missed_total"]) == (1, 0)


def test_a_tick_is_one_entry_of_the_log_with_its_record() -> None:
    """The record, and when the next tick is: no crash comes between the two."""
    engine = Harness()
    engine.put()
    engine.at_times(every_ms=5000)
    engine.events.clear()

    engine.pass_time(START_MS + 5000)

    [event] = engine.events
    assert isinstance(event, RecordsAppended)
    assert event.cause == Fired(1, START_MS + 5000, START_MS + 10_000)


def test_nothing_happens_before_its_time() -> None:
    """The engine's alarm is the tick that comes first, and none rings before."""
    engine = Harness()
    engine.at_times("late", every_ms=9000)
    engine.at_times("soon", every_ms=4000)
    assert engine.engine.alarm_ms() == START_MS + 4000

    engine.pass_time(START_MS + 3999)

    assert not engine.engine.has_work()
    assert "t" not in engine.engine.state.topics


def test_one_at_a_time_is_over_once_it_was_there() -> None:
    """`at` has one tick; the schedule goes with it."""
    engine = Harness()
    engine.at_times(at=START_MS + 1500)
    engine.pass_time(START_MS + 1500)

    assert engine.ticks() == [START_MS + 1500]
    assert status_of(engine.scheduled) == 404
    assert engine.engine.state.schedules.size_bytes == 0
    assert engine.engine.alarm_ms() is None


def test_until_is_exclusive() -> None:
    """No tick is at `until` or later; the schedule stays, without a next tick."""
    engine = Harness()
    engine.at_times(every_ms=1000, until=START_MS + 3000)
    for second in range(1, 6):
        engine.pass_time(START_MS + 1000 * second)

    assert engine.ticks() == [START_MS + 1000, START_MS + 2000]
    assert engine.scheduled()["next_at"] is None


def test_a_cron_expression_of_six_fields_begins_with_the_second() -> None:
    engine = Harness()  # START_MS is 2025-06-15 15:06:40 UTC
    engine.at_times(cron="*/20 * * * * *")
    for at_ms in range(START_MS, START_MS + 41_000, 1000):
        engine.pass_time(at_ms)

    assert engine.ticks() == [START_MS + 20_000, START_MS + 40_000]


def test_a_cron_expression_is_read_in_its_time_zone() -> None:
    engine = Harness()
    assert engine.at_times("utc", cron="0 18 * * *")["next_at"] == 1_750_010_400_000
    berlin = engine.at_times("berlin", cron="0 18 * * *", tz="Europe/Berlin")
    assert berlin["next_at"] == 1_750_010_400_000 - 2 * HOUR


# ---------------------------------------------------------------------- into which topic


def test_jobs_come_by_the_clock() -> None:
    """A tick into a queue is a job. (§10)"""
    engine = Harness()
    engine.put("q", type="queue")
    engine.at_times(topic="q", every_ms=1000)
    assert engine.claim("q", wait_ms=5000) is None

    engine.pass_time(START_MS + 1000)

    [woken] = engine.woken()
    assert [job["data"] for job in woken["claimed"]] == ["s"]


def test_a_topic_is_made_as_the_config_says_and_made_again() -> None:
    """A topic that was deleted is made again by the next tick."""
    engine = Harness()
    engine.at_times(topic="q", every_ms=1000, config={"type": "queue"})
    engine.pass_time(START_MS + 1000)
    assert engine.counters("q") == (1, 0, 0)
    engine.drop("q")

    engine.pass_time(START_MS + 2000)

    assert engine.counters("q") == (1, 0, 0)
    assert engine.scheduled()["fired_total"] == 2


def test_a_deleted_topic_that_is_not_to_be_made_blocks() -> None:
    """Tried again by itself; once the topic is there, the last tick happens and the others count as missed."""
    engine = Harness()
    engine.put()
    engine.at_times(every_ms=1000, config={"auto_create": False})
    engine.drop()
    for second in range(1, 4):
        engine.pass_time(START_MS + 1000 * second)
    blocked = engine.scheduled()["blocked"]
    assert (blocked["code"], blocked["since"]) == ("topic_not_found", START_MS + 1000)
    assert blocked["retry_ms"] > 0
    engine.put()

    engine.pass_time(START_MS + 9000)

    assert engine.ticks() == [START_MS + 9000]
    state = engine.scheduled()
    assert (state["blocked"], state["missed_total"]) == (None, 8)


def test_a_full_topic_blocks_its_schedule_and_no_other() -> None:
    engine = Harness()
    engine.put("full", discard="reject", cap_records=1)
    engine.append(0, name="full")
    engine.at_times("a", topic="full", every_ms=1000)
    engine.at_times("b", topic="t", every_ms=1000)

    engine.pass_time(START_MS + 1000)

    assert engine.scheduled("a")["blocked"]["code"] == "topic_full"
    assert engine.scheduled("b")["blocked"] is None
    assert engine.ticks() == [START_MS + 1000]


def test_a_keyed_record_goes_where_its_key_belongs_and_others_take_turns() -> None:
    """The partitioner places a tick as it does an append. (§1.1)"""
    engine = Harness()
    engine.put(partitions=3)
    key = engine.append({"data": 0, "tag": "k"})["partitions"][0]["partition"]
    engine.at_times("keyed", record={"data": 1, "tag": "k"}, every_ms=1000)
    engine.at_times("plain", every_ms=1000)
    engine.at_times("named", record={"data": 1, "partition": 2}, every_ms=1000)
    places = set()
    for second in range(1, 7):
        engine.pass_time(START_MS + 1000 * second)
        assert engine.scheduled("keyed")["last_run"]["partition"] == key
        assert engine.scheduled("named")["last_run"]["partition"] == 2
        places.add(engine.scheduled("plain")["last_run"]["partition"])
    assert places == {0, 1, 2}


def test_a_compacted_topic_needs_a_key() -> None:
    """§2: 422 of an append; a schedule is blocked for it."""
    engine = Harness()
    engine.put(compact=True)
    engine.at_times("plain", every_ms=1000)
    engine.at_times("keyed", record={"data": 1, "tag": "k"}, every_ms=1000)

    engine.pass_time(START_MS + 1000)

    assert engine.scheduled("plain")["blocked"]["code"] == "key_required"
    assert engine.scheduled("keyed")["fired_total"] == 1


@pytest.mark.parametrize("partitions", [1, 3])
def test_of_records_that_are_in_no_log_the_log_has_the_tick(partitions: int) -> None:
    """`ephemeral`: the tick is over after a restart, as the record is gone."""
    engine = Harness()
    engine.put(durability="ephemeral", partitions=partitions)
    engine.at_times(every_ms=1000)
    engine.at_times("once", at=START_MS + 1000)
    engine.events.clear()

    engine.pass_time(START_MS + 1000)

    assert not any(isinstance(event, RecordsAppended) for event in engine.events)
    assert any(isinstance(event, ScheduleConfigured) for event in engine.events)
    assert status_of(engine.scheduled, "once") == 404
    before = engine.scheduled()
    assert (before["fired_total"], before["last_run"]["topic"]) == (1, "t")
    restarted = again(engine)
    assert restarted.scheduled() == before
    restarted.pass_time(START_MS + 1001)
    assert restarted.scheduled()["fired_total"] == 1


def test_a_record_of_kafkas_keeps_what_it_says_beside_its_data() -> None:
    """`form`, `key`, `time` and `headers`, as an append takes them."""
    engine = Harness()
    record = {"data": "aGk=", "form": "base64", "key": "aw==", "time": 5, "headers": [["a", "b"]]}
    made = engine.at_times(record=record, every_ms=1000)
    assert made["record"] == {**record, "meta": {"a": "b"}}

    engine.pass_time(START_MS + 1000)

    [found] = engine.diff(include_tags=True)["records"]
    assert (found["$form"], found["$key"], found["$time"]) == ("base64", "aw==", 5)


def test_a_tick_is_a_job_with_the_options_of_an_append() -> None:
    """Priority, delay and the others, as an append takes them; a delay counts from the tick. (§10)"""
    engine = Harness()
    record = {"data": 1, "priority": 7, "delay_ms": 500, "group": "g", "unique": {"key": "k"}}
    made = engine.at_times(topic="q", record=record, every_ms=5000, config={"type": "queue"})
    assert made["record"] == record

    engine.pass_time(START_MS + 5000)
    assert engine.claimed("q") == []
    engine.now_ms += 500

    [job] = engine.claim("q")["claimed"]
    assert (job["priority"], job["group"]) == (7, "g")


@pytest.mark.parametrize("durability", ["disk", "ephemeral"])
def test_a_tick_whose_unique_job_is_there_makes_no_other(durability: str) -> None:
    """The tick is over, and says which job stands for it; so it is after a restart."""
    engine = Harness()
    engine.put("q", type="queue", durability=durability)
    engine.at_times(topic="q", record={"data": 1, "unique": "k"}, every_ms=1000)
    engine.pass_time(START_MS + 1000)
    engine.pass_time(START_MS + 2000)

    assert engine.counters("q")[0] == 1
    state = engine.scheduled()
    assert (state["fired_total"], state["next_at"]) == (2, START_MS + 3000)
    assert (state["last_run"]["at"], state["last_run"]["seq"]) == (START_MS + 2000, 1)
    assert again(engine).scheduled() == state
    engine.room_bytes = 0
    engine.pass_time(START_MS + 3000)
    assert engine.scheduled()["blocked"]["code"] == "throttled"
    engine.room_bytes = 1 << 30
    [seq] = engine.claimed("q")
    engine.ack(seq, name="q")
    engine.pass_time(START_MS + 4000)
    assert engine.counters("q")[0] == 1


def test_a_log_takes_no_options_of_jobs() -> None:
    """Neither one that is there nor one that a tick would make; a queue that was made a log blocks its ticks. (115)"""
    engine = Harness()
    engine.put("log")
    urgent: dict[str, object] = {"record": {"data": 1, "priority": 7}, "every_ms": 1000}
    for topic in ("log", "new"):
        with pytest.raises(Rejection) as refused:
            engine.at_times(topic=topic, **urgent)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert "new" not in engine.engine.state.topics
    engine.at_times(topic="q", config={"type": "queue"}, **urgent)
    engine.pass_time(START_MS + 1000)
    assert engine.counters("q")[0] == 1
    engine.drop("q")
    engine.put("q")
    engine.pass_time(START_MS + 2000)
    assert engine.scheduled()["blocked"]["code"] == "invalid_request"


def test_the_job_of_a_tick_waits_for_ten_years_at_most() -> None:
    """As that of an append. (132)"""
    engine = Harness()
    config = {"type": "queue"}
    latest_ms = START_MS + DELAY_MS_MAX
    with pytest.raises(Rejection) as refused:
        engine.at_times(
            record={"data": 1, "not_before": latest_ms + 1}, every_ms=1000, config=config
        )
    assert "$.record.not_before" in str(refused.value)
    engine.at_times(record={"data": 1, "not_before": latest_ms}, every_ms=1000, config=config)


def test_the_job_of_a_tick_does_not_wait_for_longer_than_its_queue_keeps_it() -> None:
    """Of a queue that is there, and of one that a tick would make: no append of it was ever taken. (132)"""
    engine = Harness()
    engine.put("q", type="queue", ttl_ms=5000)
    late: dict[str, object] = {"record": {"data": 1, "delay_ms": 5001}, "every_ms": 1000}
    for where in ({"topic": "q"}, {"topic": "new", "config": {"type": "queue", "ttl_ms": 5000}}):
        with pytest.raises(Rejection) as refused:
            engine.at_times(**late, **where)
        assert "$.record.delay_ms" in str(refused.value)
    engine.at_times(record={"data": 1, "delay_ms": 5000}, every_ms=1000, topic="q")
    engine.pass_time(START_MS + 1000)
    assert engine.scheduled()["fired_total"] == 1


# ---------------------------------------------------------------------- missed ticks


def down(engine: Harness, missed: str, until_ms: int, **fields: object) -> Harness:
    """A schedule of an engine that is down until then."""
    engine.at_times(missed=missed, **{"every_ms": MINUTE, **fields})
    restarted = again(engine)
    restarted.pass_time(until_ms)
    return restarted


def test_of_missed_ticks_the_last_happens_by_default() -> None:
    """A server that was down for three hours: one record, and the others are counted."""
    engine = down(Harness(), "one", START_MS + 3 * HOUR + 5)

    assert engine.ticks() == [START_MS + 3 * HOUR]
    assert engine.scheduled()["missed_total"] == 179
    assert engine.scheduled()["next_at"] == START_MS + 3 * HOUR + MINUTE


def test_all_missed_ticks_happen_where_that_was_asked_for() -> None:
    engine = down(Harness(), "all", START_MS + 3 * HOUR)

    assert engine.ticks() == [START_MS + MINUTE * (n + 1) for n in range(180)]
    assert engine.scheduled()["missed_total"] == 0


def test_no_missed_tick_happens_where_none_was_asked_for() -> None:
    """A tick that is at most a minute late is not missed."""
    engine = down(Harness(), "none", START_MS + 3 * HOUR + MINUTE - 1)
    assert engine.ticks() == [START_MS + 3 * HOUR]
    assert engine.scheduled()["missed_total"] == 179

    late = Harness()
    late.at_times(missed="none", every_ms=HOUR)
    late.pass_time(START_MS + 3 * HOUR + LATE_MS + 1)
    assert "t" not in late.engine.state.topics
    state = late.scheduled()
    assert (state["missed_total"], state["next_at"]) == (3, START_MS + 4 * HOUR)


def test_one_tick_that_was_missed_by_all_means_stays_to_be_seen() -> None:
    """`at` with `missed` none: it did not fire, so the schedule is not deleted."""
    engine = Harness()
    engine.at_times(at=START_MS + 1000, missed="none")
    engine.pass_time(START_MS + HOUR)

    state = engine.scheduled()
    assert (state["missed_total"], state["next_at"], state["fired_total"]) == (1, None, 0)


def test_missed_ticks_of_cron_are_counted_in_parts() -> None:
    """A turn looks at a bounded number of them, and others have their turn meanwhile."""
    engine = Harness()
    engine.at_times(cron="* * * * * *", until=START_MS + HOUR)
    engine.at_times("b", every_ms=HOUR, topic="other")
    engine.now_ms = START_MS + 2 * HOUR
    engine.engine.advance(engine.now_ms)
    turns = 0
    while engine.engine.has_work():
        engine.engine.work_off(engine.moment)
        engine.sync()
        turns += 1
        if turns == 2:
            assert engine.scheduled("b")["fired_total"] == 1
            assert engine.scheduled()["fired_total"] == 0

    assert turns > HOUR // 1000 // schedules.LOOKS_MAX
    assert engine.ticks() == [START_MS + HOUR - 1000]
    assert engine.scheduled()["missed_total"] == HOUR // 1000 - 2
    assert engine.ticks("other") == [START_MS + 2 * HOUR]


def test_one_turn_has_a_bounded_number_of_ticks() -> None:
    """Schedules that are due take turns; so do requests."""
    engine = Harness()
    engine.at_times("all", every_ms=1000, missed="all", topic="all")
    for n in range(40):
        engine.at_times(f"s{n:02}", every_ms=1000)
    engine.now_ms = START_MS + 100_000

    engine.engine.work_off(engine.moment)

    assert engine.engine.state.schedules.fired == schedules.TICKS_MAX
    assert engine.scheduled("all")["fired_total"] == 1
    engine.work_off()
    assert engine.scheduled("all")["fired_total"] == 100
    assert engine.state()["count"] == 40


def test_a_turn_finds_a_bounded_number_of_schedules_due(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedules, "TAKEN_MAX", 2)
    engine = Harness()
    for n in range(5):
        engine.at_times(f"s{n}", every_ms=1000)
    engine.now_ms = START_MS + 1000

    engine.engine.work_off(engine.moment)

    assert engine.engine.state.schedules.fired == 2
    engine.work_off()
    assert engine.state()["count"] == 5


def test_a_turn_has_a_bounded_number_of_bytes() -> None:
    engine = Harness()
    for n in range(4):
        engine.at_times(f"s{n}", record={"data": "x" * 200_000}, every_ms=1000)
    engine.now_ms = START_MS + 1000

    engine.engine.work_off(engine.moment)

    assert engine.engine.state.schedules.fired == 2
    engine.work_off()
    assert engine.state()["count"] == 4


# ---------------------------------------------------------------------- clocks


def test_a_clock_that_is_set_back_repeats_no_tick() -> None:
    """Engine time never runs backwards: a tick that was there is over."""
    engine = Harness()
    engine.at_times(every_ms=MINUTE)
    engine.pass_time(START_MS + 2 * MINUTE)
    before = engine.ticks()

    for minute in range(-60, 3):
        engine.pass_time(START_MS + minute * MINUTE)
    assert engine.ticks() == before

    engine.pass_time(START_MS + 3 * MINUTE)
    assert engine.ticks() == [*before, START_MS + 3 * MINUTE]


def test_a_clock_that_is_set_forth_misses_what_it_passed_over() -> None:
    engine = Harness()
    engine.at_times(every_ms=MINUTE)
    engine.pass_time(START_MS + MINUTE)
    engine.pass_time(START_MS + HOUR)

    assert engine.ticks() == [START_MS + MINUTE, START_MS + HOUR]
    assert engine.scheduled()["missed_total"] == 58


# ---------------------------------------------------------------------- changes


def test_the_same_put_changes_nothing() -> None:
    engine = Harness()
    engine.at_times(every_ms=5000)
    engine.now_ms += 1000
    engine.events.clear()

    repeated = engine.at_times(every_ms=5000)

    assert (repeated["created"], repeated["next_at"]) == (False, START_MS + 5000)
    assert engine.events == []


def test_a_change_of_the_record_leaves_the_ticks_where_they_are() -> None:
    """Also one that is due, and that the topic of before refused."""
    engine = Harness()
    engine.put("full", discard="reject", cap_records=1)
    engine.append(0, name="full")
    engine.at_times(topic="full", at=START_MS + 1000)
    engine.pass_time(START_MS + 1000)
    assert engine.scheduled()["blocked"] is not None
    engine.now_ms += 5000

    changed = engine.at_times(topic="t", at=START_MS + 1000)

    assert (changed["created"], changed["blocked"]) == (False, None)
    engine.work_off()
    assert engine.ticks() == [START_MS + 1000]


def test_other_times_begin_anew_and_an_interval_goes_on_from_the_beginning() -> None:
    engine = Harness()
    engine.at_times(every_ms=5000)
    engine.now_ms += 12_000
    assert engine.at_times(every_ms=7000)["next_at"] == START_MS + 14_000
    assert engine.at_times(cron="0 0 * * *")["next_at"] % (24 * HOUR) == 0
    assert engine.scheduled()["created_at"] == START_MS


def test_a_paused_schedule_has_no_ticks_and_counts_none() -> None:
    engine = Harness()
    engine.at_times(every_ms=1000)
    paused = shown(engine.ask(PauseSchedule("s")))
    assert paused["changed"] is True
    assert (paused["paused"], paused["next_at"]) == (True, None)
    assert shown(engine.ask(PauseSchedule("s")))["changed"] is False
    engine.pass_time(START_MS + 10_500)
    assert engine.engine.alarm_ms() is None

    resumed = shown(engine.ask(ResumeSchedule("s")))

    assert (resumed["changed"], resumed["next_at"]) == (True, START_MS + 11_000)
    assert shown(engine.ask(ResumeSchedule("s")))["changed"] is False
    engine.pass_time(START_MS + 11_000)
    assert engine.ticks() == [START_MS + 11_000]
    assert engine.scheduled()["missed_total"] == 0


def test_a_put_may_pause_and_end_the_pause() -> None:
    engine = Harness()
    made = engine.at_times(every_ms=1000, paused=True)
    assert (made["paused"], made["next_at"]) == (True, None)
    assert engine.at_times(every_ms=1000)["next_at"] == START_MS + 1000
    assert engine.at_times(every_ms=1000, paused=True)["next_at"] is None
    engine.now_ms += 5000
    assert engine.at_times(every_ms=1000)["next_at"] == START_MS + 6000


def test_a_schedule_that_has_no_tick_any_more_is_not_resumed() -> None:
    engine = Harness()
    engine.at_times(at=START_MS + 1000)
    engine.ask(PauseSchedule("s"))
    engine.now_ms += 2000

    refused = refusal(engine.ask, ResumeSchedule("s"))

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert "`$.at`" in refused.message


def test_a_run_is_beside_the_ticks() -> None:
    """Also of a schedule that is paused; the next tick stays where it is."""
    engine = Harness()
    engine.at_times(every_ms=5000)
    engine.now_ms += 700

    ran = shown(engine.ask(RunSchedule("s")))

    assert ran["schedule"] == "s"
    assert (ran["at"], ran["ts"], ran["topic"], ran["seq"]) == (START_MS + 700,) * 2 + ("t", 1)
    assert engine.scheduled()["next_at"] == START_MS + 5000
    engine.ask(PauseSchedule("s"))
    engine.ask(RunSchedule("s"))
    assert engine.ticks() == [START_MS + 700] * 2
    assert engine.scheduled()["paused"] is True


def test_a_run_of_one_at_a_time_is_not_its_tick() -> None:
    engine = Harness()
    engine.at_times(at=START_MS + 1000)
    engine.ask(RunSchedule("s"))
    engine.pass_time(START_MS + 1000)
    assert engine.ticks() == [START_MS, START_MS + 1000]


def test_a_run_that_the_topic_refuses_is_refused() -> None:
    engine = Harness()
    engine.put(discard="reject", cap_records=1)
    engine.append(0)
    engine.at_times(every_ms=5000)

    assert status_of(engine.ask, RunSchedule("s")) == 422
    assert engine.scheduled()["fired_total"] == 0


def test_a_deleted_schedule_has_no_tick_any_more() -> None:
    """And a delete of none is none."""
    engine = Harness()
    engine.at_times(every_ms=1000)
    assert shown(engine.ask(DeleteSchedule("s"))) == {"schedule": "s", "deleted": True}
    assert shown(engine.ask(DeleteSchedule("s"))) == {"schedule": "s", "deleted": False}

    engine.pass_time(START_MS + 1000)

    assert "t" not in engine.engine.state.topics
    for command in (GetSchedule("s"), RunSchedule("s"), PauseSchedule("s"), ResumeSchedule("s")):
        assert refusal(engine.ask, command).code is ErrorCode.SCHEDULE_NOT_FOUND


def test_a_schedule_that_goes_while_it_waits_for_its_turn_goes() -> None:
    """Of many that are due, one is deleted, and one put off, before their turn."""
    engine = Harness()
    for n in range(schedules.TICKS_MAX + 2):
        engine.at_times(f"s{n:02}", every_ms=1000)
    engine.now_ms = START_MS + 1000
    engine.engine.work_off(engine.moment)
    engine.ask(DeleteSchedule(f"s{schedules.TICKS_MAX}"))
    engine.ask(PauseSchedule(f"s{schedules.TICKS_MAX + 1}"))

    engine.work_off()

    assert engine.state()["count"] == schedules.TICKS_MAX


# ---------------------------------------------------------------------- lists


def test_a_list_goes_on_where_the_page_before_ended() -> None:
    engine = Harness()
    for name in ("b", "a", "c", "x.1"):
        engine.at_times(name, topic="u" if name == "c" else "t", every_ms=1000)

    def names(page: Any) -> list[str]:
        return [each["schedule"] for each in page["schedules"]]

    first = engine.ask(ListSchedules("", 2, ""))
    assert names(shown(first)) == ["a", "b"]
    assert names(shown(engine.ask(ListSchedules("", 2, first.after)))) == ["c", "x.1"]  # type: ignore[union-attr]
    assert names(shown(engine.ask(ListSchedules("x", 9, "")))) == ["x.1"]
    assert names(shown(engine.ask(ListSchedules("", 9, "", "u")))) == ["c"]
    page = shown(engine.ask(ListSchedules("", 1, "")))
    assert "record" not in page["schedules"][0]


def test_a_key_sees_schedules_whose_names_are_both_its_own() -> None:
    """§0.2: what it may not touch it may not know of."""
    engine = Harness()
    engine.at_times("in.a", topic="in.t", every_ms=1000)
    engine.at_times("in.b", topic="out.t", every_ms=1000)
    engine.at_times("out.c", topic="in.t", every_ms=1000)
    inner = Caller("k", prefixes=("in.",))

    listed = shown(engine.ask(permitted(ListSchedules("", 9, ""), inner)))

    assert [each["schedule"] for each in listed["schedules"]] == ["in.a"]
    assert status_of(engine.ask, permitted(GetSchedule("in.b"), inner)) == 403
    assert status_of(permitted, GetSchedule("out.c"), inner) == 403
    assert status_of(engine.ask, permitted(RunSchedule("in.b"), inner)) == 403


def test_a_key_sees_no_name_of_others_in_a_schedule_that_is_its_own() -> None:
    """Neither of the dead letters that the config names, nor of the topic that the schedule had before. (§0.2, 41)"""
    engine, inner = Harness(), Caller("k", prefixes=("in.",))
    config = {"type": "queue", "dead_letter": "out.dead"}
    engine.at_times("in.s", "out.t", every_ms=1000)
    engine.ask(RunSchedule("in.s"))
    body = {"topic": "in.t", "record": {"data": 1}, "every_ms": 1000, "config": config}
    own = {**body, "config": {"type": "queue", "dead_letter": "in.dead"}}
    engine.at_times("in.s", **body)
    assert engine.scheduled("in.s")["config"]["dead_letter"] == "out.dead"
    assert engine.scheduled("in.s")["last_run"]["topic"] == "out.t"
    commands: list[Any] = [GetSchedule("in.s"), ListSchedules("", 9, "")]
    commands.append(parse_put_schedule("in.s", orjson.dumps(own), engine.limits))
    for command in commands:
        told = shown(engine.ask(msgspec.structs.replace(command, caller=inner)))
        assert "out." not in str(told)
        assert "in.s" in str(told)
    engine.ask(RunSchedule("in.s"))
    told = shown(engine.ask(GetSchedule("in.s", caller=inner)))
    assert (told["config"]["dead_letter"], told["last_run"]["topic"]) == ("in.dead", "in.t")


def test_no_tick_closes_a_ring_of_dead_letters() -> None:
    """The `PUT` is refused as that of the topic would be; where the ring would be closed later on, no tick makes the
    queue. (135)"""
    engine = Harness()
    config = {"type": "queue", "dead_letter": "a"}
    engine.at_times("s", "b", every_ms=1000, config=config)
    engine.put("a", type="queue", dead_letter="b")
    engine.pass_time(START_MS + 1000)
    assert engine.scheduled()["blocked"]["code"] == "invalid_request"
    assert "b" not in engine.engine.state.topics
    with pytest.raises(Rejection) as refused:
        engine.at_times("other", "b", every_ms=1000, config=config)
    assert refused.value.detail == {"cycle": ["b", "a", "b"]}
    with pytest.raises(Rejection) as refused:
        engine.ask(RunSchedule("s", caller=Caller("k", prefixes=("b", "s"))))
    assert refused.value.detail == {"cycle": ["b", "b"]}  # no name outside of a key's prefixes (41)


# ---------------------------------------------------------------------- refusals


@pytest.mark.parametrize(
    ("fields", "path"),
    [
        ({"cron": "0 0 30 2 *"}, "$.cron"),
        ({"cron": "0 0 */31 * MON#5"}, "$.cron"),
        ({"cron": "0 0 */31 * MON#5", "tz": "Europe/Berlin"}, "$.cron"),
        ({"cron": "0 0"}, "$.cron"),
        ({"cron": "0 0 * * * * *"}, "$.cron"),
        ({"cron": "61 * * * *"}, "$.cron"),
        ({"cron": "@daily"}, "$.cron"),
        ({"cron": "0 0 * * *", "tz": "Mars/Olympus"}, "$.tz"),
        ({"cron": "0 0 * * *", "tz": "../../etc/passwd"}, "$.tz"),
        ({"cron": "0 0 * * *", "tz": "Europe"}, "$.tz"),
        ({"at": START_MS}, "$.at"),
        ({"every_ms": 1000, "until": START_MS + 1000}, "$.until"),
        ({"cron": "0 0 * * *", "until": START_MS + 1}, "$.until"),
    ],
)
@pytest.mark.parametrize("paused", [False, True])
def test_a_schedule_that_would_never_run_is_refused(
    fields: dict[str, Any], path: str, *, paused: bool
) -> None:
    engine = Harness()

    refused = refusal(engine.ask, put(engine, **fields, paused=paused))

    assert refused.code is ErrorCode.INVALID_REQUEST
    assert f"`{path}`" in refused.message
    assert not len(engine.engine.state.schedules)


def test_a_date_that_never_comes_is_looked_for_no_longer_than_fifty_years() -> None:
    engine = Harness(now_ms=253_000_000_000_000)
    assert "`$.cron`" in refusal(engine.ask, put(engine, cron="0 0 * * *")).message


def test_a_topic_that_is_not_there_and_not_to_be_made_is_refused() -> None:
    engine = Harness()
    assert status_of(engine.ask, put(engine, every_ms=1000, config={"auto_create": False})) == 404
    several = {"type": "queue", "partitions": 3}
    assert status_of(engine.ask, put(engine, every_ms=1000, config=several)) == 409


def test_there_are_so_many_schedules() -> None:
    """§11: 429 with the bound; another of those that are there is taken."""
    engine = Harness(max_schedules=1)
    engine.at_times(every_ms=1000)

    refused = refusal(engine.ask, put(engine, "other", every_ms=1000))

    assert refused.detail == {"limit": "max_schedules", "max": 1}
    engine.at_times(every_ms=2000)


def test_all_records_of_schedules_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """They are in memory, and in every checkpoint."""
    monkeypatch.setattr(schedules, "SCHEDULES_BYTES_MAX", 5000)
    engine = Harness()
    engine.at_times(every_ms=1000, record={"data": "x" * 2500})

    refused = refusal(engine.ask, put(engine, "b", every_ms=1000, record={"data": "x" * 2500}))
    assert refused.detail == {"limit": "max_schedule_bytes", "max": 5000}
    refused = refusal(engine.ask, put(engine, every_ms=1000, record={"data": "x" * 5000}))
    assert refused.detail == {"limit": "max_schedule_bytes", "max": 5000}
    engine.at_times(every_ms=1000, record={"data": "x"})


# ---------------------------------------------------------------------- what fails


def test_a_tick_waits_for_room_in_the_log_that_is_being_made() -> None:
    """Room that is being made blocks no schedule before a second is over. (§0.6)"""
    engine = Harness()
    engine.put()
    engine.at_times(every_ms=5000)
    engine.engine.unit.ask_room = lambda _: True
    engine.room_bytes = 0

    engine.pass_time(START_MS + 5000)
    assert engine.scheduled()["blocked"] is None
    assert engine.engine.alarm_ms() == START_MS + 5000 + schedules.ROOM_RETRY_MS

    engine.pass_time(START_MS + 5010)
    assert engine.scheduled()["blocked"] is None
    engine.pass_time(START_MS + 6010)
    assert engine.scheduled()["blocked"]["code"] == "throttled"
    engine.room_bytes = 1 << 30
    engine.pass_time(START_MS + 7000)
    assert engine.ticks() == [START_MS + 5000]


def test_skipped_ticks_need_room_as_well() -> None:
    engine = Harness()
    engine.at_times(every_ms=HOUR, missed="none")
    engine.room_bytes = 0
    engine.pass_time(START_MS + 2 * HOUR + 2 * MINUTE)
    assert engine.scheduled()["blocked"]["code"] == "throttled"
    engine.room_bytes = 1 << 30
    engine.pass_time(START_MS + 2 * HOUR + 3 * MINUTE)
    state = engine.scheduled()
    assert (state["blocked"], state["missed_total"]) == (None, 2)


@pytest.mark.parametrize("error", [Corrupt("a.seg", 7, "bad"), OSError(5, "bad")])
def test_a_topic_that_cannot_be_read_blocks(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = Harness()
    engine.at_times(every_ms=1000)

    def fails(*_: object) -> Any:
        raise error

    monkeypatch.setattr(engine.engine._records, "append", fails)
    engine.pass_time(START_MS + 1000)

    assert engine.scheduled()["blocked"]["code"] == "internal"
    monkeypatch.undo()
    engine.pass_time(START_MS + 2000)
    assert engine.ticks() == [START_MS + 2000]


def test_what_is_shown_of_ticks_waits_for_their_sync() -> None:
    """So that who reads their records then finds them, in every class."""
    engine = Harness(auto=False)
    engine.ask(put(engine, every_ms=1000))
    for asked in (GetSchedule("s"), ListSchedules("", 9, "")):
        assert engine.ask(asked).gate is Gate.SYNCED  # type: ignore[union-attr]


def test_nothing_is_appended_to_a_log_that_is_read_only() -> None:
    engine = Harness(auto=False)
    engine.ask(put(engine, every_ms=1000))
    engine.engine.on_failed()

    assert engine.ask(GetSchedule("s")).gate is Gate.NOW  # type: ignore[union-attr]
    engine.now_ms = START_MS + 5000
    engine.engine.advance(engine.now_ms)
    assert engine.engine.alarm_ms() is None
    assert not engine.engine.has_work()
    engine.engine.work_off(engine.moment)

    assert engine.engine.state.schedules.fired == 0


# ---------------------------------------------------------------------- after a restart


def test_a_schedule_is_in_a_checkpoint_as_it_is() -> None:
    """Config, next tick, last record, counters: and changes of the image are found."""
    engine = Harness()
    engine.at_times(
        "cron",
        cron="*/5 9-17 * * 1-5",
        tz="Europe/Berlin",
        record={"data": 1, "tag": "k", "meta": {}},
        missed="all",
        until=START_MS + 400 * 24 * HOUR,
        config={"type": "queue"},
    )
    engine.at_times("gone", every_ms=1000)
    engine.at_times("s", every_ms=1000)
    first = engine.finish_checkpoint(engine.begin_checkpoint())
    assert sorted(each.name for each in first.schedules) == ["cron", "gone", "s"]
    engine.ask(DeleteSchedule("gone"))
    engine.pass_time(START_MS + 3000)

    found = engine.finish_checkpoint(engine.begin_checkpoint())

    assert sorted(each.name for each in found.schedules) == ["cron", "s"]
    state = State(engine.limits, MemoryStore(instance_id=engine.store.instance_id))
    state.restore(found)
    for name, schedule in engine.engine.state.schedules.by_name.items():
        assert state.schedules.by_name[name].image() == schedule.image()
    assert state.schedules.due.next_ms() == START_MS + 4000
    assert state.schedules.next_id > 3


def test_a_checkpoint_has_a_schedule_as_it_was_at_its_boundary() -> None:
    """A tick that comes while the images are taken is in the log behind it."""
    engine = Harness()
    engine.at_times(every_ms=1000)
    plan = engine.checkpointing.begin(engine.now_ms)
    engine.pass_time(START_MS + 1000)
    while engine.checkpointing.make_images(plan):
        pass

    found = engine.finish_checkpoint(plan)

    assert [each.next_ms for each in found.schedules] == [START_MS + 1000]
    assert [each.fired_total for each in found.schedules] == [0]


def test_a_checkpoint_that_is_given_up_forgets_no_schedule() -> None:
    engine = Harness()
    engine.at_times(every_ms=1000)
    plan = engine.checkpointing.begin(engine.now_ms)
    engine.checkpointing.abandon(plan)

    found = engine.finish_checkpoint(engine.begin_checkpoint())

    assert [each.name for each in found.schedules] == ["s"]


def test_an_engine_that_follows_has_no_ticks_and_holds_no_more_than_its_schedules() -> None:
    """A replica gets each tick from the log; times that are over do not pile up."""
    engine = Harness()
    engine.at_times(every_ms=1000)
    replica = Engine(engine.limits, MemoryStore(instance_id=engine.store.instance_id))
    for n in range(1, 1001):
        engine.now_ms = START_MS + 1000 * n
        engine.engine.work_off(engine.moment)
        engine.sync()
    for event in engine.events:
        replica.state.apply(event)

    assert (
        replica.state.schedules.by_name["s"].image()
        == engine.engine.state.schedules.by_name["s"].image()
    )
    assert len(replica.state.schedules.due._heap) < 100


def test_figures_count_from_the_start() -> None:
    """As records appended do: a replay counts nothing."""
    engine = Harness()
    engine.at_times(every_ms=1000)
    engine.pass_time(START_MS + 5000)
    assert (engine.engine.state.schedules.fired, engine.engine.state.schedules.missed) == (1, 4)

    restarted = again(engine)

    assert (restarted.engine.state.schedules.fired, restarted.engine.state.schedules.missed) == (
        0,
        0,
    )
    assert restarted.scheduled()["missed_total"] == 4


def test_time_zones_are_at_hand_before_their_first_tick() -> None:
    """From the start on; one that is not there keeps no server from starting."""
    engine = Harness()
    engine.at_times("here", cron="* * * * *", tz="Europe/Berlin")
    engine.at_times("gone", cron="* * * * *", tz="Europe/Paris")
    gone = engine.engine.state.schedules.by_name["gone"]
    gone.config = msgspec.structs.replace(gone.config, tz="Gone/Away")
    timetable.zone_of.cache_clear()

    restarted = again(engine)

    assert timetable.zone_of.cache_info().currsize == 1
    restarted.pass_time(START_MS + MINUTE)
    assert restarted.scheduled("here")["fired_total"] == 1
    assert "Gone/Away" in restarted.scheduled("gone")["blocked"]["message"]


def test_a_time_zone_that_is_not_there_any_more_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A directory that was moved to another machine: the tick is tried again."""
    engine = Harness()
    engine.at_times(cron="* * * * *", tz="Europe/Berlin")
    schedule = engine.engine.state.schedules.by_name["s"]
    known = schedule.config
    schedule.config = msgspec.structs.replace(known, tz="Gone/Away")
    engine.pass_time(START_MS + MINUTE)
    blocked = engine.scheduled()["blocked"]
    assert "Gone/Away" in blocked["message"]

    schedule.config = known
    engine.pass_time(START_MS + 2 * MINUTE)
    assert engine.scheduled()["fired_total"] == 1


def test_a_leader_begins_with_every_schedule() -> None:
    """What an engine that led before had put off is looked at again."""
    engine = Harness()
    engine.put(discard="reject", cap_records=1)
    engine.append(0)
    engine.at_times(every_ms=1000)
    engine.pass_time(START_MS + 1000)
    assert engine.scheduled()["blocked"] is not None
    engine.purge()

    engine.engine.begin_term(2, engine.now_ms)
    assert engine.scheduled()["blocked"] is None
    engine.engine.work_off(Moment(engine.now_ms, lambda _: 1 << 30))
    engine.sync()

    assert engine.scheduled()["fired_total"] == 1
