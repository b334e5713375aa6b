"""The host without threads: its clock is a number, and every step is done at once (docs/testing.md)."""

import errno
from collections.abc import Callable
from typing import Any

import orjson
import pytest

from protocol.workers import cold
from topics.protocol.commit.unit_of_work import StateUnknown
from topics.protocol.driver.group_commit import Mark
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.model.commands import Append, Command
from topics.protocol.model.errors import Corrupt, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome
from topics.protocol.state.hot_memory import freeze
from topics.store.memory import MemoryStore

START_MS = 1_750_000_000_000


def started(store: MemoryStore | None = None) -> InlineHost:
    host = InlineHost(Limits(), store or MemoryStore(), START_MS)
    host.driver.recover()
    host.driver.start()
    host.settle()
    return host


def append(name: str = "t", **config: object) -> Append:
    body = orjson.dumps({"records": [{"data": 1}], "config": config})
    return parse_append(name, body, Limits(), return_seqs=True, header_key=None)


def poll(wait_ms: int, name: str = "t") -> Command:
    return parse_diff(name, orjson.dumps({"wait_ms": wait_ms, "from_seq": 1}), Limits())


def asked(host: InlineHost, command: Command) -> list[Reply]:
    """The replies of a command: one, once it is answered."""
    replies: list[Reply] = []
    answer = host.driver.submit(command, replies.append)
    if isinstance(answer, Reply):
        replies.append(answer)
    else:
        assert isinstance(answer, Ticket)
    host.settle()
    return replies


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_a_write_is_answered_when_the_turn_has_ended(durability: str) -> None:
    """In every class: nothing is left to wait for. (§0.10)"""
    host = started()

    (reply,) = asked(host, append(durability=durability))

    assert isinstance(reply.result, Outcome)


def test_a_poll_ends_with_the_clock() -> None:
    """At its deadline, in the moment in which the clock reaches it, and not before. (§3)"""
    host = started()
    asked(host, append())
    replies = asked(host, poll(1000))

    host.advance(999)
    assert replies == []
    assert host.driver.alarm_ms() is not None
    host.advance(1)

    assert len(replies) == 1


def test_alarms_ring_in_one_advance_however_many_are_due() -> None:
    """A long jump does all that fell due on its way. (docs/testing.md)"""
    host = started()
    asked(host, append())
    replies = [asked(host, poll(wait_ms)) for wait_ms in (10, 5000, 29_000, 60_000)]

    host.advance(30_000)

    assert [len(each) for each in replies] == [1, 1, 1, 1]


def test_the_clock_is_not_before_what_the_log_has_seen() -> None:
    """And is not set back by an older time. (§0.10)"""
    host = started()

    host.not_before(START_MS - 5)
    assert host.now_ms == START_MS
    host.not_before(START_MS + 5)
    assert (host.now_ms, host.steady_ms) == (START_MS + 5, START_MS + 5)


class Failing(MemoryStore):
    """A store of which one call fails from now on."""

    def __init__(self, call: str) -> None:
        super().__init__()
        self._call, self.is_broken = call, False
        work: Callable[..., Any] = getattr(super(), call)

        def failing(*args: Any, **named: Any) -> Any:
            if self.is_broken:
                raise OSError(errno.EIO, "the disk is gone")
            return work(*args, **named)

        setattr(self, call, failing)


@pytest.mark.parametrize("call", ["write", "sync"])
def test_a_step_that_fails_makes_the_log_read_only(call: str) -> None:
    """The write that met it is refused, as is each after it; what was there can be read. (F1)"""
    store = Failing(call)
    host = started(store)
    asked(host, append(durability="fsync"))
    store.is_broken = True

    (reply,) = asked(host, append(durability="fsync"))

    assert isinstance(reply.result, Rejection)
    assert any(level == "critical" for level, _ in host.lines)
    with pytest.raises(Rejection):
        asked(host, append(durability="fsync"))
    (page,) = asked(host, parse_diff("t", b"{}", Limits()))
    assert isinstance(page.result, Outcome)


def test_an_answer_that_cannot_be_delivered_is_the_caller_s() -> None:
    """A test that fails while it takes a reply sees its own error, and not a line in a log."""
    host = started()

    def broken(reply: Reply) -> None:
        raise ZeroDivisionError

    host.driver.submit(append(), broken)
    with pytest.raises(ZeroDivisionError):
        host.settle()


def test_time_goes_forward() -> None:
    """A test that means to go back has made a mistake."""
    with pytest.raises(AssertionError):
        started().advance(-1)


def test_a_log_without_space_for_another_file_goes_on_in_its_own() -> None:
    """A rotation that finds no space is refused, and nothing has failed. (F6)"""
    store = MemoryStore()
    host = started(store)
    asked(host, append())

    def full(**_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    store.rotate = full  # type: ignore[method-assign]
    told: list[tuple[int, Exception | None]] = []
    host.driver.commit.rotate(lambda boundary, error: told.append((boundary, error)))

    [(boundary, error)] = told
    assert (boundary, isinstance(error, OSError)) == (0, True)
    assert host.driver.commit.failure is None
    (reply,) = asked(host, append())
    assert isinstance(reply.result, Outcome)


@pytest.mark.parametrize("call", ["rotate", "idle"])
def test_another_step_of_the_log_that_fails_ends_writing_too(call: str) -> None:
    """Whatever it was that failed, it is not known what the file holds. (F1)"""
    store = MemoryStore()
    host = started(store)
    asked(host, append())

    def broken(**_: object) -> int:
        raise ValueError("a bug")

    setattr(store, call, broken)
    if call == "rotate":
        host.driver.commit.rotate(lambda boundary, error: None)
    else:
        host.perform(Mark())

    assert isinstance(host.driver.commit.failure, ValueError)


def test_a_failure_of_which_no_mark_can_be_left_is_told() -> None:
    """An operator has to leave it: the next start would believe the page cache. (§0.10)"""
    store = MemoryStore()
    host = started(store)
    store.leave_failure_mark = lambda: "no mark could be left"  # type: ignore[method-assign]

    host.driver.commit.failed(OSError("the disk is gone"))

    assert ("critical", "no mark could be left") in host.lines


def test_text_that_a_disk_has_is_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A dead letter whose text is not in memory moves in the same turn. (§10.6)"""
    host = started()
    config = {"type": "queue", "max_deliveries": 1, "dead_letter": "d", "lease_ms": 1000}
    asked(host, append("q", **config))
    host.driver.maintenance.calm()
    for topic in host.driver.engine.state.by_id.values():
        freeze(topic)
        host.driver.engine.state.memory.full[topic.topic_id] = topic
    host.driver.maintenance.round(lambda error: None)
    host.settle()
    asked(host, parse_claim("q", b'{"node": "w"}', Limits()))

    with cold(monkeypatch):
        host.advance(10_000)

    assert host.driver.engine.state.topics["d"].count == 1


def test_a_state_that_is_unknown_is_told_by_the_answers_alone() -> None:
    """There is no process to end: the engine refuses all from then on. (§0.5)"""
    host = started()

    host.on_broken(StateUnknown("a bug"))

    assert host.lines == []
    host.on_damage(Corrupt("a.seg", 7, "does not verify"))
    assert host.lines == [("error", "a.seg: corrupt at byte 7: does not verify")]
