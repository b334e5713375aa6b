"""The state of schedules: by name and by id, what they take, and when each is looked at."""

from topics.protocol.model.events import Fired, ScheduleConfigured
from topics.protocol.model.schedules import SCHEDULE_BYTES, Run, ScheduleConfig, ScheduledRecord
from topics.protocol.state.expiry import SUPERSEDED_MIN
from topics.protocol.state.schedules import Schedules


def config(size_bytes: int = 10) -> ScheduleConfig:
    return ScheduleConfig(topic="t", record=ScheduledRecord(b"x" * size_bytes), every_ms=1000)


def made(*names: str) -> Schedules:
    schedules = Schedules()
    for number, name in enumerate(names, 1):
        schedules.configure(ScheduleConfigured(1, number, name, config(), False, 1000 * number))
    return schedules


RUN = Run(1000, 1001, "t", 0, 1)


def test_what_they_take_is_counted() -> None:
    """A record that grows, a schedule that goes."""
    schedules = made("a", "b")
    assert schedules.size_bytes == 2 * (SCHEDULE_BYTES + 10)
    schedules.configure(ScheduleConfigured(2, 1, "a", config(50), False, 1000))
    assert schedules.size_bytes == 2 * SCHEDULE_BYTES + 60
    for name in ("a", "b"):
        schedules.remove(schedules.by_name[name])
    assert (schedules.size_bytes, len(schedules), schedules.names) == (0, 0, [])


def test_names_are_in_order() -> None:
    assert made("c", "a", "b").names == ["a", "b", "c"]


def test_a_schedule_is_looked_at_at_its_next_tick() -> None:
    schedules = made("a", "b")
    assert schedules.due.next_ms() == 1000
    schedules.fire(Fired(1, 1000, 5000, missed=2), RUN)
    assert schedules.due.next_ms() == 2000
    schedule = schedules.by_name["a"]
    assert (schedule.fired_total, schedule.missed_total, schedule.run) == (1, 2, RUN)
    schedules.configure(ScheduleConfigured(2, 2, "b", None, True, None))
    assert schedules.by_name["b"].config == config()
    assert schedules.due.next_ms() == 5000


def test_a_tick_that_ends_its_schedule_takes_it_away() -> None:
    schedules = made("a")
    schedules.fire(Fired(1, 1000, None, ends=True), RUN)
    assert (len(schedules), schedules.due.next_ms(), schedules.fired) == (0, None, 1)


def test_a_refusal_puts_a_schedule_off_until_a_tick_happens() -> None:
    schedules = made("a")
    schedule = schedules.by_name["a"]
    schedules.due.take(1000)
    schedules.block(schedule, "topic_full", "full", 1000)
    assert schedules.due.next_ms() == schedules.blocked[1].retry_at_ms > 1000
    schedules.fire(Fired(1, 1000, 2000), RUN)
    assert (schedules.blocked, schedules.due.next_ms()) == ({}, 2000)


def test_an_image_is_the_schedule() -> None:
    schedules = made("a", "b")
    schedules.fire(Fired(1, 1000, 5000, missed=2), RUN)
    restored = Schedules()
    for schedule in schedules.by_id.values():
        restored.restore(schedule.image())
    assert [s.image() for s in restored.by_id.values()] == [
        s.image() for s in schedules.by_id.values()
    ]
    assert (restored.next_id, restored.size_bytes) == (3, schedules.size_bytes)
    assert restored.due.next_ms() == 2000


def test_times_that_are_set_again_and_again_do_not_pile_up() -> None:
    schedules = made("a")
    for n in range(1000):
        schedules.fire(Fired(1, n, n + 1), RUN)
    assert len(schedules.due._heap) <= 2 + SUPERSEDED_MIN
    assert schedules.due.next_ms() == 1000
