"""Copies give way to writers: under pressure they go on in a trickle (§6.1, §0.6)."""

import orjson

from topics.protocol.driver.copy_pace import COPIES_SOFT, SLICE_EVERY_MS, UNIT_BYTES, CopyPace
from topics.protocol.driver.group_commit import Ticket
from topics.protocol.http import bodies

from .test_delayed_writes import Pressed, body
from .test_group_commit import diff


def test_without_pressure_copies_go_on() -> None:
    """As often as they are asked for."""
    pace = CopyPace()
    for now_ms in (0, 0, 1):
        assert pace.may_go(COPIES_SOFT - 0.01, 0, now_ms)
        pace.went(COPIES_SOFT - 0.01, now_ms)
    assert pace.alarm_ms(1) is None


def test_under_pressure_copies_trickle() -> None:
    """A slice every so often, at any pressure: none that waits for copies waits for ever."""
    pace = CopyPace()
    made = 0
    for now_ms in range(1000):
        if pace.may_go(0.99, 0, now_ms):
            pace.went(0.99, now_ms)
            made += 1
        else:
            assert pace.alarm_ms(now_ms) is not None
    assert made == 1000 // SLICE_EVERY_MS


def test_a_full_write_is_not_added_to() -> None:
    """A command that is decided meanwhile waits for all that its write carries."""
    pace = CopyPace()
    assert not pace.may_go(0.0, UNIT_BYTES, 5)
    assert pace.alarm_ms(5) == 6
    assert pace.may_go(0.0, 0, 6)


def test_copies_of_a_large_write_leave_room_for_writers() -> None:
    """A star of routers copies at its own pace: the log fills with its copies no further than to
    where writes would wait, and reading a copy ends the wait for it. (§6.1)"""
    host = Pressed()
    for n in range(20):
        put = bodies.parse_put_router(
            f"r{n}", orjson.dumps({"source": "t", "dest": f"d{n}", "create_dest": True})
        )
        host.ask(put, f"put {n}")
    host.settle()
    host.fill(COPIES_SOFT + 0.01)
    host.driver.submit(body(100_000), lambda reply: None)
    host.settle()
    topics = host.driver.engine.state.topics

    def copied() -> int:
        return sum(topics[f"d{n}"].published_seq for n in range(20))

    at_once = copied()
    assert at_once < 20
    host.heard.clear()
    assert isinstance(host.ask(diff("d19"), "read"), Ticket)
    for _ in range(40):
        host.advance(ms=SLICE_EVERY_MS)
        host.settle()
    assert copied() == 20
    assert host.heard == ["read: done"]
