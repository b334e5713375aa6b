"""Delayed writes: first come, first served, at the pace of the disk, before any is refused (§0.6)."""

from typing import Any

import orjson
import pytest

from topics.protocol.driver.delayed_writes import RETRY_MS, UNIT_BYTES_MAX, _DelayedWrite
from topics.protocol.driver.group_commit import Sync, Write
from topics.protocol.driver.load import LAG_MS_MAX
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.driver.throttle import WAIT_MS_MAX
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Append
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome
from topics.store.memory import MemoryStore

from .test_group_commit import Slow, diff

LIMITS = Limits()
MB = 1_000_000


def body(size: int = 1000, **fields: Any) -> Append:
    raw = orjson.dumps({"records": [{"data": "x" * size}], **fields})
    return parse_append("t", raw, LIMITS, return_seqs=True, header_key=None)


class Pressed(Slow):
    """A server whose log is as full as a test says."""

    log_bytes = 0

    def fill(self, part: float) -> None:
        bound = self.driver.maintenance.schedule.log_bound()
        self.store.log_bytes = int(part * bound)  # type: ignore[misc]

    def append(self, name: str = "", size: int = 1000, **fields: Any) -> Reply | Ticket:
        return self.ask(body(size, **fields), name)


@pytest.fixture
def host() -> Pressed:
    host = Pressed()
    host.append("first")
    host.settle()
    host.heard.clear()
    return host


def test_a_write_waits_and_its_answer_says_how_long(host: Pressed) -> None:
    """`throttle_wait_ms` is the time for which it stood in line. (§0.9)"""
    host.fill(0.75)
    replies: list[Reply] = []
    for _ in range(3):
        host.driver.submit(body(5 * MB // 10), replies.append)
    host.settle()
    assert len(replies) == 1

    while len(replies) < 3:
        host.advance(ms=1)
    assert all(isinstance(reply.result, Outcome) for reply in replies)
    waited = [reply.throttle_ms for reply in replies]
    assert waited[0] == 0
    assert 5 <= waited[1] <= 15 < waited[2] <= 30


def test_a_write_that_would_wait_too_long_is_refused_when_it_comes(host: Pressed) -> None:
    """429 at once, with the time after which to come again; nothing is stored. (§0.6)"""
    host.fill(0.99)

    def crowd() -> None:
        for _ in range(100):
            host.append(size=MB)

    with pytest.raises(Rejection) as refused:
        crowd()

    assert refused.value.code is ErrorCode.THROTTLED
    assert (refused.value.detail or {})["retry_after_ms"] >= WAIT_MS_MAX
    assert refused.value.retry_after_s is not None


def test_the_bound_refuses_whatever_the_pace(host: Pressed) -> None:
    """The log does not pass its bound by waiting."""
    host.fill(1.0)
    with pytest.raises(Rejection) as refused:
        host.append()
    assert refused.value.code is ErrorCode.THROTTLED


def test_a_loader_may_wait_longer_and_is_not_refused(host: Pressed) -> None:
    """`disable_backpressure` trades latency for not failing. (§0.6)"""
    host.fill(0.99)
    for n in range(40):
        assert isinstance(host.append(str(n), size=MB // 2, disable_backpressure=True), Ticket)
    host.fill(0.0)
    for _ in range(100):
        host.advance(ms=1000)
    assert len([line for line in host.heard if line.endswith("done")]) == 40


def test_writers_in_line_are_served_in_their_order(host: Pressed) -> None:
    """First come, first served, also where the pressure went meanwhile."""
    host.fill(0.8)
    for n in range(5):
        host.append(f"{n}", size=MB)
    host.fill(0.0)
    host.append("last")
    for _ in range(10):
        host.advance(ms=200)

    assert host.heard == [f"{n}: done" for n in range(5)] + ["last: done"]


def test_reads_do_not_wait(host: Pressed) -> None:
    host.fill(1.0)
    assert isinstance(host.ask(diff("t")), Reply)


def test_who_leaves_the_line_writes_nothing(host: Pressed) -> None:
    """A client that hung up while it waited: nothing of it is stored."""
    host.fill(0.8)
    host.append("first", size=MB)
    ticket = host.append("gone", size=MB)
    assert isinstance(ticket, Ticket)
    ticket.cancel()
    host.append("third", size=MB)
    for _ in range(10):
        host.advance(ms=200)

    assert host.heard == ["first: done", "third: done"]
    assert host.driver.engine.state.topics["t"].count == 3


def test_what_comes_together_is_no_more_than_one_write_can_take(host: Pressed) -> None:
    """Writers over that wait for the write that is under way: everybody in a write waits for all of
    it."""
    host.holds = {Write}
    for n in range(20):
        host.append(f"{n}", size=MB)
    host.settle()
    (write,) = host.steps
    assert isinstance(write, Write)
    assert write.frames.size_bytes <= UNIT_BYTES_MAX + MB + 4096

    while host.steps:
        host.next()
        host.settle()
    assert host.heard == [f"{n}: done" for n in range(20)]


def test_draining_lets_the_line_in(host: Pressed) -> None:
    """A stop answers those who wait, and keeps what it acknowledges. (§8.2)"""
    host.fill(0.8)
    for n in range(3):
        host.append(f"{n}", size=MB)
    host.driver.drain()
    ended: list[Exception | None] = []
    host.driver.stop(ended.append)

    assert host.heard == [f"{n}: done" for n in range(3)]
    assert ended == [None]


def test_draining_waits_for_no_room_in_memory(host: Pressed) -> None:
    """Who finds none is refused at once: a stop does not turn round and round for it. (§8.2)"""
    host.fill(0.8)
    for n in range(2):
        host.append(f"{n}", size=MB)
    full = Rejection(ErrorCode.THROTTLED, "full", {"limit": "max_hot_bytes", "max": 1})

    def refuse(command: Any, **given: Any) -> Any:
        raise full

    host.driver.engine.submit = refuse  # type: ignore[method-assign]
    host.driver.drain()

    assert host.heard == ["1: 429 throttled"]


def test_no_memory_for_one_in_line_is_that_ones_alone(
    host: Pressed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others behind it are let in."""
    host.fill(0.8)
    for n in range(3):
        host.append(f"{n}", size=MB)
    submit = host.driver.engine.submit
    asked: list[object] = []

    def once(command: Any, **given: Any) -> Any:
        asked.append(command)
        if len(asked) == 1:
            raise MemoryError
        return submit(command, **given)

    monkeypatch.setattr(host.driver.engine, "submit", once)
    for _ in range(10):
        host.advance(ms=200)

    assert host.heard == ["0: done", "1: MemoryError()", "2: done"]


# ---------------------------------------------------------------------- load


def lag(host: Pressed, level: float) -> None:
    """Have the event loop lag so far behind that this is the load."""
    for _ in range(20):
        host.advance(ms=int(level * LAG_MS_MAX))
        host.driver.lagged(level * LAG_MS_MAX)


def write_to(host: Pressed, name: str, priority: int | None, **fields: Any) -> Reply | Ticket:
    """A write to a topic of this priority, whose answer is told by the topic's name."""
    raw = orjson.dumps({"records": [{"data": 1}], **fields})
    command = parse_append(name, raw, LIMITS, return_seqs=True, header_key=None)
    return host.ask(command, name)


def made(host: Pressed, **priorities: int) -> None:
    for name, priority in priorities.items():
        write_to(host, name, priority, config={"priority": priority})
    host.settle()
    host.heard.clear()


def test_under_load_writes_wait_by_priority(host: Pressed) -> None:
    """The lowest longest; each comes in, and says how long it waited. (§0.6, §0.9)"""
    made(host, low=-5, middle=0, high=900)
    lag(host, 0.58)
    replies: list[Reply] = []
    command = parse_append(
        "low", b'{"records":[{"data":1}]}', LIMITS, return_seqs=True, header_key=None
    )
    host.driver.submit(command, replies.append)
    for name in ("middle", "high"):
        write_to(host, name, None)
    host.settle()
    assert (host.heard, replies) == (["middle: done", "high: done"], [])
    while not replies:
        host.advance(ms=10)
    assert isinstance(replies[0].result, Outcome)
    assert 100 < replies[0].throttle_ms <= WAIT_MS_MAX


def test_the_load_is_told_in_figures(host: Pressed) -> None:
    """How far the loop lags, and what part of the bound that is; both go when it rests. (§8.3)"""
    assert (host.driver.lag_ms, host.driver.load) == (0, 0)

    lag(host, 0.5)
    assert 0.4 * LAG_MS_MAX < host.driver.lag_ms <= 0.5 * LAG_MS_MAX
    assert 0.4 < host.driver.load <= 0.5

    host.advance(ms=600_000)
    assert host.driver.lag_ms < 1
    assert host.driver.load < 0.01


def test_under_more_load_the_lowest_are_refused(host: Pressed) -> None:
    """429 when they come, while higher ones wait or pass. (§0.6)"""
    made(host, low=-5, middle=0, high=900)
    lag(host, 0.7)
    with pytest.raises(Rejection) as refused:
        write_to(host, "low", None)
    assert (refused.value.detail or {})["retry_after_ms"] > WAIT_MS_MAX
    assert isinstance(write_to(host, "middle", None), Ticket)
    write_to(host, "high", None)
    host.settle()
    assert host.heard == ["high: done"]
    host.advance(ms=WAIT_MS_MAX)
    assert host.heard == ["high: done", "middle: done"]


def test_a_topic_that_is_read_comes_before_one_that_is_not(host: Pressed) -> None:
    """Without a manual priority, by how recently it was read. (§0.10)"""
    write_to(host, "read", None)
    write_to(host, "other", None)
    host.settle()
    lag(host, 0.7)
    host.ask(diff("read"))
    host.heard.clear()
    write_to(host, "read", None)
    assert isinstance(write_to(host, "other", None), Ticket)
    host.settle()
    assert host.heard == ["read: done"]


def test_at_the_bound_only_loaders_are_let_in(host: Pressed) -> None:
    """429 with `retry_after_ms` for all others; a loader waits, and no longer than a second. (§0.6)"""
    made(host, high=1000)
    lag(host, 1.0)
    lag(host, 1.0)
    assert host.driver.engine.state.topics["high"].config.priority == 1000
    waits = write_to(host, "high", None, disable_backpressure=True)
    host.settle()
    assert isinstance(waits, Ticket)
    assert host.heard == []
    host.advance(ms=WAIT_MS_MAX + 1)
    assert host.heard == ["high: done"]


def test_a_write_that_left_while_it_gave_way_writes_nothing(host: Pressed) -> None:
    """As one that stands in line."""
    made(host, t2=-5)
    lag(host, 0.55)
    ticket = write_to(host, "t2", None)
    assert isinstance(ticket, Ticket)
    ticket.cancel()
    host.advance(ms=2000)
    assert host.heard == []
    assert host.driver.engine.state.topics["t2"].count == 1


def test_draining_lets_in_what_gives_way(host: Pressed) -> None:
    """A stop answers it. (§8.2)"""
    made(host, t2=-5)
    lag(host, 0.55)
    assert isinstance(write_to(host, "t2", None), Ticket)
    host.driver.drain()
    host.settle()
    assert host.heard == ["t2: done"]


def test_a_loader_is_refused_where_the_line_is_too_long(host: Pressed) -> None:
    """`disable_backpressure` waits, but what waits is bounded in time. (§0.6)"""
    host.fill(0.999)

    def crowd() -> None:
        for _ in range(1000):
            host.append(size=MB, disable_backpressure=True)

    with pytest.raises(Rejection) as refused:
        crowd()
    assert (refused.value.detail or {})["retry_after_ms"] > WAIT_MS_MAX


def test_what_waits_is_bounded_in_bytes(host: Pressed) -> None:
    """At the queue's bound a loader is refused as well. (§0.6)"""
    host.holds = {Write}

    def crowd() -> None:
        for _ in range(100):
            host.append(size=MB, disable_backpressure=True)

    with pytest.raises(Rejection) as refused:
        crowd()
    assert refused.value.code is ErrorCode.THROTTLED
    while host.steps:
        host.next()
        host.settle()
    host.advance(ms=WAIT_MS_MAX + 1)
    while host.steps:
        host.next()
        host.settle()
    assert 60 < len(host.heard) < 80
    assert set(host.heard) == {": done"}


class Narrow(MemoryStore):
    """A log with as much room as was allocated, on a disk with so much space."""

    allocated_bytes = 20_000
    disk_bytes = 200_000
    asked_bytes = 0

    def room(self, *, reserve: bool) -> int:
        return self.allocated_bytes

    def ask_room(self, need_bytes: int) -> bool:
        self.asked_bytes = max(self.asked_bytes, need_bytes)
        return need_bytes <= self.disk_bytes

    def sync(self) -> int:
        if self.asked_bytes <= self.disk_bytes:
            self.allocated_bytes = max(self.allocated_bytes, self.asked_bytes)
        return super().sync()


@pytest.fixture
def narrow() -> Pressed:
    host = Pressed(Narrow())
    host.append("first")
    host.settle()
    host.heard.clear()
    return host


def test_a_batch_waits_for_the_room_that_is_made_for_it(narrow: Pressed) -> None:
    """More than is allocated is asked for; the next sync makes it, and the write follows, before those
    that came later. (§0.6, F6)"""
    narrow.holds = {Sync}
    assert isinstance(narrow.append("large", size=50_000), Ticket)
    narrow.append("later")
    narrow.advance(ms=50)
    assert narrow.heard == []

    narrow.holds.clear()
    while narrow.steps:
        narrow.next()
    for _ in range(3):
        narrow.advance(ms=RETRY_MS + 1)
    assert narrow.heard == ["large: done", "later: done"]


def test_a_host_that_syncs_at_once_decides_at_once(narrow: Pressed) -> None:
    assert isinstance(narrow.append("large", size=50_000), Ticket)
    narrow.settle()
    assert narrow.heard == ["large: done"]


def test_a_batch_that_the_disk_has_no_space_for_is_refused_at_once(narrow: Pressed) -> None:
    """429 `disk`, nothing is stored, and the next small write goes on. (§11, F6)"""
    with pytest.raises(Rejection) as refused:
        narrow.append("huge", size=500_000)
    assert (refused.value.detail or {})["limit"] == "disk"
    narrow.append("small")
    narrow.settle()
    assert narrow.heard == ["small: done"]


def test_a_batch_whose_space_went_is_refused(narrow: Pressed) -> None:
    """Another program was faster: what waited is 429 `disk` as soon as that is known."""
    narrow.holds = {Sync}
    narrow.append("large", size=50_000)
    narrow.driver.store.disk_bytes = 0  # type: ignore[attr-defined]
    narrow.holds.clear()
    while narrow.steps:
        narrow.next()
    narrow.advance(ms=RETRY_MS + 1)
    assert narrow.heard == ["large: 429 throttled"]


def test_another_command_waits_for_room_too(narrow: Pressed) -> None:
    """A topic is created once there is room for it."""
    narrow.driver.store.allocated_bytes = 100  # type: ignore[attr-defined]
    narrow.holds = {Sync}
    put = parse_put("new", b"{}")
    assert isinstance(narrow.ask(put, "put"), Ticket)
    narrow.holds.clear()
    while narrow.steps:
        narrow.next()
    narrow.advance(ms=RETRY_MS + 1)
    assert narrow.heard == ["put: done"]


def test_what_gives_way_may_find_the_line_too_long(host: Pressed) -> None:
    """The log filled up while it waited: it is refused then, as it would be now. (§0.6)"""
    made(host, low=-5)
    lag(host, 0.55)
    ticket = write_to(host, "low", None)
    assert isinstance(ticket, Ticket)
    host.fill(1.0)

    while not host.heard:
        host.advance(ms=50)

    assert [line.split()[1] for line in host.heard] == ["429"]


def test_draining_passes_over_who_left_while_it_gave_way(host: Pressed) -> None:
    """The others are let in. (§0.5)"""
    made(host, low=-5)
    lag(host, 0.55)
    ticket = write_to(host, "low", None)
    assert isinstance(ticket, Ticket)
    ticket.cancel()
    before = host.driver.engine.state.topics["low"].count

    host.driver.drain()

    assert host.heard == []
    assert host.driver.engine.state.topics["low"].count == before
    assert host.driver._delayed.waiting == 0


def test_a_command_that_finds_no_room_yet_waits_on(narrow: Pressed) -> None:
    """It is tried again, since nothing says how much it needs. (§0.6, F6)"""
    narrow.driver.store.allocated_bytes = 100  # type: ignore[attr-defined]
    narrow.holds = {Sync}
    narrow.ask(parse_put("new", b"{}"), "put")
    for _ in range(3):
        narrow.advance(ms=RETRY_MS + 1)
    assert narrow.heard == []
    narrow.holds.clear()
    while narrow.steps:
        narrow.next()

    narrow.advance(ms=RETRY_MS + 1)

    assert narrow.heard == ["put: done"]


def test_a_client_that_leaves_after_its_turn_came_takes_nothing_back(host: Pressed) -> None:
    """The write is on its way to the log; the ticket is that of a write which did not wait. (§2.2)"""
    host.fill(0.75)
    host.append("first", size=MB)
    ticket = host.append("second", size=MB)
    assert isinstance(ticket, Ticket)
    host.settle()
    host.heard.clear()
    host.holds = {Write}
    while not host.steps:
        host.advance(ms=10)

    ticket.cancel()
    host.holds.clear()
    while host.steps:
        host.next()
    host.settle()

    assert host.heard == ["second: done"]


def test_what_waits_holds_its_text_once() -> None:
    """A thread rendered it beside its body: the bound of what waits counts one of the two. (§11)"""
    drafted = body().drafted(1, 1_750_000_000_000, lambda: None)
    assert drafted.draft is not None
    waiting = _DelayedWrite(drafted, lambda reply: None, 0, 0)
    assert isinstance(waiting.command, Append)
    assert waiting.command.draft is None
    assert waiting.command.datas == drafted.datas
