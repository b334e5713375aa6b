"""Copies give way to writers: under pressure they go on in a trickle (§6.1, §0.6)."""

import orjson

from topics.protocol.driver.copy_pace import (
    COPIES_SOFT,
    SLICE_EVERY_MS,
    SYNC_BYTES,
    UNIT_BYTES,
    UNSYNCED_BYTES,
    CopyPace,
)
from topics.protocol.driver.group_commit import Sync, Ticket, Write
from topics.protocol.http import bodies

from .test_delayed_writes import Pressed, body
from .test_group_commit import append, diff


def test_without_pressure_copies_go_on() -> None:
    """As often as they are asked for."""
    pace = CopyPace()
    for now_ms in (0, 0, 1):
        assert pace.may_go(COPIES_SOFT - 0.01, 0, now_ms, is_awaited=False)
        pace.went(COPIES_SOFT - 0.01, now_ms)
    assert pace.alarm_ms(1) is None


def test_under_pressure_copies_trickle() -> None:
    """A slice every so often, at any pressure: none that waits for copies waits for ever."""
    pace = CopyPace()
    made = 0
    for now_ms in range(1000):
        if pace.may_go(0.99, 0, now_ms, is_awaited=False):
            pace.went(0.99, now_ms)
            made += 1
        else:
            assert pace.alarm_ms(now_ms) is not None
    assert made == 1000 // SLICE_EVERY_MS


def test_a_full_write_is_not_added_to() -> None:
    """A command that is decided meanwhile waits for all that its write carries."""
    pace = CopyPace()
    assert not pace.may_go(0.0, UNIT_BYTES, 5, is_awaited=False)
    assert pace.alarm_ms(5) == 5 + SLICE_EVERY_MS  # the end of the write asks before that
    assert pace.may_go(0.0, 0, 6, is_awaited=False)


def test_a_command_waits_for_the_copies_in_one_write() -> None:
    """The write after one with copies is left to the commands that wait for it, and the one after that
    may have copies again: neither waits for the other for ever. (§6.1)"""
    pace = CopyPace()
    assert pace.may_go(0.0, 0, 1, is_awaited=True)
    pace.went(0.0, 1)

    assert not pace.may_go(0.0, 100, 1, is_awaited=True)  # while the copies are written
    pace.wrote()
    assert not pace.may_go(0.0, 0, 1, is_awaited=True)
    assert not pace.may_go(0.0, 0, 1, is_awaited=True)
    assert pace.alarm_ms(1) == 1 + SLICE_EVERY_MS
    pace.wrote()  # the commands are answered, and more of them came meanwhile

    assert pace.may_go(0.0, 0, 1, is_awaited=True)


def test_copies_that_nobody_waits_behind_go_on() -> None:
    """Write after write."""
    pace = CopyPace()
    for _ in range(3):
        assert pace.may_go(0.0, 0, 1, is_awaited=False)
        pace.went(0.0, 1)
        pace.wrote()


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


def test_a_write_between_copies_carries_none() -> None:
    """A command that comes while copies are written is answered by a write of its own, which is small;
    then the copies go on. (§6.1)"""
    host = Pressed()
    for n in range(9):
        put = bodies.parse_put_router(
            f"r{n}", orjson.dumps({"source": "t", "dest": f"d{n}", "create_dest": True})
        )
        host.ask(put)
    host.settle()
    host.holds = {Write}
    host.ask(body(300_000), "source")
    sizes = []
    for n in range(7):
        host.settle()
        writing = host.steps[0]
        assert isinstance(writing, Write)
        sizes.append(writing.frames.size_bytes > 300_000)
        if n in (2, 4):  # copies are on their way, and no more were made yet
            host.ask(append("mine", n), f"mine {n}")
        host.next()

    assert sizes == [True, True, True, False, True, False, True]
    assert host.heard[-3:] == ["source: done", "mine 2: done", "mine 4: done"]


def test_copies_wait_for_the_disk() -> None:
    """A sync is wanted before copies have to wait for it, and they go on as soon as it has ended."""
    pace = CopyPace()
    written = 0
    while pace.may_go(0.0, 0, 1, is_awaited=False):
        assert pace.wants_sync is (written * UNIT_BYTES >= SYNC_BYTES)
        written += 1
        pace.went(0.0, 1, UNIT_BYTES, lsn=written)
        pace.wrote()
    assert written * UNIT_BYTES == UNSYNCED_BYTES

    pace.synced(written - 1)
    assert not pace.wants_sync
    assert pace.may_go(0.0, 0, 1, is_awaited=False)


def test_a_star_of_routers_is_no_further_ahead_than_a_short_sync() -> None:
    """While the disk syncs, a megabyte for each of many routers is not copied into the log: the command
    that needs another file of it would wait for all of that. Others go on. (§6.1)"""
    host = Pressed()
    for n in range(20):
        put = bodies.parse_put_router(
            f"r{n}", orjson.dumps({"source": "t", "dest": f"d{n}", "create_dest": True})
        )
        host.ask(put)
    host.ask(append("mine", 0))
    host.settle()
    host.heard.clear()
    topics = host.driver.engine.state.topics

    def copied() -> int:
        return sum(topics[f"d{n}"].published_seq for n in range(20))

    host.holds = {Sync}
    host.driver.submit(body(1_000_000), lambda reply: None)
    host.settle()
    assert UNSYNCED_BYTES // 1_000_000 <= copied() <= UNSYNCED_BYTES // 1_000_000 + 1
    assert host.steps == [Sync()]
    host.ask(append("mine", 1), "mine")
    host.settle()
    assert host.heard == ["mine: done"]

    while host.steps:
        host.next()
        host.settle()
    assert copied() == 20


def test_copies_are_at_rest_once_they_are_durable() -> None:
    """Then a write of the log is none of their business."""
    pace = CopyPace()
    assert pace.is_at_rest
    pace.went(0.0, 1, 100, lsn=7)
    for _ in range(2):
        assert not pace.is_at_rest
        pace.wrote()
    assert not pace.is_at_rest
    pace.synced(6)
    assert not pace.is_at_rest
    pace.synced(7)
    assert pace.is_at_rest
