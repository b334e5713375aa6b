"""The last hour in figures: what a row says, when rows are made, and who may see which queue (§8.6)."""

from collections.abc import Callable

import pytest

from server.http.desk import Desk, code, document
from topics.protocol.driver.figures import QUEUES_MAX
from topics.protocol.faces.http.routes import find_route
from topics.protocol.model.access import Caller
from topics.protocol.model.limits import Limits
from topics.server.http.exchange import TopicsExchange
from topics.server.observing.history import (
    HOUR_MS,
    ROWS_MAX,
    History,
    Ring,
    percentile_ms,
)
from topics.server.observing.measures import BOUNDS_S
from topics.server.service.shell import Phase
from topics.testing import START_MS, _Shell


class Timed(_Shell):
    """A shell whose timers the test rings."""

    def __init__(self) -> None:
        super().__init__(Limits(), START_MS)
        self.timers: list[tuple[int, Callable[[], object]]] = []

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        self.timers.append((self.now_ms + round(delay_s * 1000), call))

    def pass_time(self, ms: int) -> None:
        """Let time pass, and ring what is due on the way."""
        end = self.now_ms + ms
        while due := sorted(t for t, _ in self.timers if t <= end):
            at = due[0]
            calls = [call for t, call in self.timers if t == at]
            self.timers = [each for each in self.timers if each[0] != at]
            self.advance(at - self.now_ms)
            for call in calls:
                call()
        self.advance(end - self.now_ms)


@pytest.fixture
def desk() -> Desk:
    return Desk(shell=Timed())


def timed(desk: Desk) -> Timed:
    assert isinstance(desk.shell, Timed)
    return desk.shell


def append(desk: Desk, topic: str, records: int) -> None:
    desk.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": 1}] * records})


def series(desk: Desk, step_ms: int, after_ms: int = 0) -> dict[str, list[float]]:
    found = desk.ask("GET", f"/v0/stats/history?step_ms={step_ms}&after_ms={after_ms}")
    columns: dict[str, list[float]] = document(found)["series"]
    return columns


# ---------------------------------------------------------------------- rows


def test_a_row_says_what_a_second_was(desk: Desk) -> None:
    """Rates are of the step that ends with the row; what is held is as of then."""
    append(desk, "jobs", 1)
    timed(desk).pass_time(1000)
    append(desk, "jobs", 30)
    desk.ask("POST", "/v0/topics/jobs/diff", {})
    timed(desk).pass_time(1000)

    columns = series(desk, 1000)

    assert columns["records_in_per_s"] == [1.0, 30.0]
    assert columns["reads_per_s"] == [0.0, 1.0]
    assert columns["requests_per_s"] == [1.0, 2.0]
    assert columns["records"] == [1.0, 31.0]
    assert [at % 1000 for at in columns["at_ms"]] == [0.0, 0.0]


def test_ten_seconds_are_a_row_of_their_own(desk: Desk) -> None:
    """A rate at ten seconds is the mean of them."""
    append(desk, "jobs", 10)
    timed(desk).pass_time(10_000)
    append(desk, "jobs", 50)
    timed(desk).pass_time(10_000)

    assert series(desk, 10_000)["records_in_per_s"] == [1.0, 5.0]


def test_an_idle_server_has_no_timer(desk: Desk) -> None:
    """The last answer has its rows, and after those nothing wakes the server. (§8.6)"""
    append(desk, "jobs", 1)
    assert len(timed(desk).timers) == 2

    timed(desk).pass_time(60_000)

    assert timed(desk).timers == []
    assert len(series(desk, 1000)["at_ms"]) == 1


def test_what_came_before_a_silence_is_not_of_its_end(desk: Desk) -> None:
    """Records of a second before a silence are in the row of that second, and not in the next one."""
    append(desk, "jobs", 1)
    timed(desk).pass_time(10_000)
    append(desk, "jobs", 40)
    timed(desk).pass_time(600_000)
    append(desk, "jobs", 2)
    timed(desk).pass_time(10_000)

    assert series(desk, 1000)["records_in_per_s"] == [1.0, 40.0, 2.0]
    assert series(desk, 10_000)["records_in_per_s"] == [0.1, 4.0, 0.2]


def test_a_clock_that_is_set_back_adds_no_row(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    """Times of rows rise."""
    append(desk, "jobs", 1)
    timed(desk).pass_time(1000)
    before = series(desk, 1000)["at_ms"]
    monkeypatch.setattr(Timed, "now_ms", before[-1] - 5000)

    desk.exchange.history.sample(1000)

    assert series(desk, 1000)["at_ms"] == before


def test_no_row_while_another_thread_has_the_state(desk: Desk) -> None:
    """During a replay, and at the end of a stop. (§8.2)"""
    desk.shell.phase = Phase.STARTING

    desk.exchange.history.sample(1000)

    assert series(desk, 1000)["at_ms"] == []


# ---------------------------------------------------------------------- bounds


def test_a_ring_keeps_the_newest_rows() -> None:
    """Its size is fixed, and what it is asked for is in order."""
    ring = Ring(("at", "value"), 3)
    for n in range(1, 6):
        ring.add((n, 10 * n))

    assert ring.after(0) == {"at": [3.0, 4.0, 5.0], "value": [30.0, 40.0, 50.0]}
    assert ring.after(4) == {"at": [5.0], "value": [50.0]}
    assert ring.newest == 5.0


def test_an_answer_has_a_bounded_number_of_rows() -> None:
    """The oldest first; one goes on with the time of the last. (§8.6)"""
    ring = Ring(("at",), HOUR_MS // 1000)
    for n in range(1, 2001):
        ring.add((n,))

    first = ring.after(0)["at"]

    assert len(first) == ROWS_MAX
    assert ring.after(first[-1])["at"][0] == first[-1] + 1


def test_the_queues_written_to_last_have_figures(desk: Desk) -> None:
    """So many, however many there are."""
    for n in range(QUEUES_MAX + 5):
        desk.ask("PUT", f"/v0/topics/q{n:02}", {"type": "queue"})
    append(desk, "q03", 7)
    desk.ask("POST", "/v0/topics/q03/claim", {"node": "w", "max": 2})
    timed(desk).pass_time(10_000)

    queues = document(desk.ask("GET", "/v0/stats/history"))["queues"]

    assert len(queues) == QUEUES_MAX
    (jobs,) = [queue for queue in queues if queue["topic"] == "q03"]
    assert (jobs["ready"], jobs["in_flight"], jobs["delayed"]) == ([5.0], [2.0], [0.0])


def test_a_queue_that_is_gone_has_none(desk: Desk) -> None:
    """Its rows go with the next row."""
    desk.ask("PUT", "/v0/topics/q", {"type": "queue"})
    timed(desk).pass_time(10_000)
    desk.ask("DELETE", "/v0/topics/q")
    timed(desk).pass_time(10_000)

    assert document(desk.ask("GET", "/v0/stats/history"))["queues"] == []


def test_a_key_sees_the_queues_of_its_prefixes(desk: Desk) -> None:
    """Names of others are in no answer. (§0.2)"""
    for name in ("mine.q", "theirs.q"):
        desk.ask("PUT", f"/v0/topics/{name}", {"type": "queue"})
    timed(desk).pass_time(10_000)

    text = desk.exchange.history.document(10_000, 0, Caller("key", prefixes=("mine.",)))

    assert b"mine.q" in text
    assert b"theirs.q" not in text


# ---------------------------------------------------------------------- the route


@pytest.mark.parametrize("query", ["step_ms=5", "step_ms=x", "after_ms=-1"])
def test_other_steps_are_refused(desk: Desk, query: str) -> None:
    """400, and which there are is said. (§8.6)"""
    assert code(desk.ask("GET", f"/v0/stats/history?{query}")) == (400, "invalid_request")


def test_it_needs_the_scope_of_metrics() -> None:
    """It tells what metrics tell. (§9)"""
    route, _ = find_route("GET", b"/v0/stats/history")
    metrics, _ = find_route("GET", b"/v0/metrics")

    assert route.guard == metrics.guard == "read"


def test_each_exchange_notes_its_answers() -> None:
    """What is answered is what arms the timers."""
    shell = Timed()
    exchange = TopicsExchange(shell)
    assert isinstance(exchange.history, History)
    assert shell.timers == []

    exchange._observer.answered(
        Desk(shell=shell).head("GET", b"/", b"", ()), lambda _: None, "x", 200, 0.0, is_timed=False
    )

    assert len(shell.timers) == 2


# ---------------------------------------------------------------------- percentiles


def test_a_percentile_is_interpolated_in_its_bucket() -> None:
    """Of what came between two readings, and of nothing before."""
    before = [5] * (len(BOUNDS_S) + 1)
    now = list(before)
    now[0] += 98  # up to 0.5 ms
    now[4] += 2  # 5 to 10 ms

    assert percentile_ms(before, now, 0.98) == pytest.approx(0.5)
    assert percentile_ms(before, now, 0.99) == pytest.approx(7.5)


def test_no_request_has_no_percentile_and_a_slow_one_the_last_bound() -> None:
    """0 where there was none; beyond the bounds, the last one."""
    none = [0] * (len(BOUNDS_S) + 1)
    slow = [*none[:-1], 1]

    assert percentile_ms(none, none, 0.99) == 0.0
    assert percentile_ms(none, slow, 0.99) == 1000 * BOUNDS_S[-1]
