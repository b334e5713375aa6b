"""Schedules beside a naive scheduler, over clocks that leap and restarts: each tick once, and what was missed counted. (§14)"""

from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.decide.test_schedules import again
from protocol.harness import START_MS, Harness
from topics.protocol.model.schedules import LATE_MS

STEP_S = (1, 7, 20, 60, 90, 900)
LEAPS_S = (0, 1, 5, 59, 61, 130, 600, 4000)


class Naive:
    """A list of ticks, looked at whenever it is asked: no heap, no log."""

    def __init__(self, step_ms: int, missed: str) -> None:
        self.step_ms, self.missed = step_ms, missed
        self.next_ms = START_MS + step_ms
        self.happened: list[int] = []
        self.left_out = 0

    def look(self, now_ms: int) -> None:
        due = []
        while self.next_ms <= now_ms:
            due.append(self.next_ms)
            self.next_ms += self.step_ms
        if self.missed == "all":
            self.happened += due
        elif due and (self.missed == "one" or now_ms - due[-1] <= LATE_MS):
            self.happened.append(due[-1])
            self.left_out += len(due) - 1
        else:
            self.left_out += len(due)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEP_S), st.sampled_from(["none", "one", "all"])),
        min_size=1,
        max_size=4,
    ),
    st.lists(st.tuples(st.sampled_from(LEAPS_S), st.booleans()), max_size=8),
)
def test_each_tick_is_there_once_or_counted(
    asked: list[tuple[int, str]], leaps: list[tuple[int, bool]]
) -> None:
    """Records and counters are those of the naive one; a restart in between changes nothing."""
    engine = Harness()
    naive = []
    for n, (step_s, missed) in enumerate(asked):
        engine.at_times(f"s{n}", f"t{n}", every_ms=1000 * step_s, missed=missed)
        naive.append(Naive(1000 * step_s, missed))
    for leap_s, restarts in leaps:
        now_ms = engine.now_ms + 1000 * leap_s
        engine.pass_time(now_ms)
        for each in naive:
            each.look(now_ms)
        if restarts:
            kept = [engine.scheduled(f"s{n}") for n in range(len(asked))]
            assert [again(engine).scheduled(f"s{n}") for n in range(len(asked))] == kept

    for n, each in enumerate(naive):
        state = engine.scheduled(f"s{n}")
        assert (state["fired_total"], state["missed_total"]) == (len(each.happened), each.left_out)
        assert state["next_at"] == each.next_ms
        if each.happened:
            assert all_ticks(engine, f"t{n}") == each.happened


def all_ticks(engine: Harness, topic: str) -> list[int]:
    """Of a topic with any number of records."""
    found: list[int] = []
    from_seq = 0
    while True:
        page = engine.diff(from_seq, name=topic, limit=1000)
        found += [record["meta"]["$schedule_at"] for record in page["records"]]
        from_seq = page["next_from_seq"]
        if page["caught_up"]:
            return found
