"""Copies give way to writers: under pressure they go on in a trickle (§6.1, §0.6)."""

import orjson

from topics.protocol.driver.copy_pace import (
    BESIDE_BYTES_EACH_MS,
    BESIDE_MS,
    COPIES_SOFT,
    OWED_BYTES_MAX,
    OWED_EACH,
    SLICE_EVERY_MS,
    SYNC_BYTES,
    UNIT_BYTES,
    UNSYNCED_BYTES,
    CopyPace,
)
from topics.protocol.driver.group_commit import Sync, Write
from topics.protocol.driver.reply import Ticket
from topics.protocol.faces.http.routers import parse_put_router

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
        put = parse_put_router(
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
        put = parse_put_router(
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
        put = parse_put_router(
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


MIB = 1 << 20


def copied_in(
    pace: CopyPace, ms: int, slice_bytes: int, *, written: int = 0, asks_every_ms: int = 10
) -> int:
    """Bytes that are copied in so many milliseconds, on a disk without bounds, beside commands that
    come every so often and write so much in each millisecond."""
    copied = ever = 0
    for now_ms in range(1000, 1000 + ms):
        ever += written
        for turn in range(100):
            is_awaited = asks_every_ms > 0 and now_ms % asks_every_ms == 0 and turn == 0
            if not pace.may_go(0.0, 0, now_ms, is_awaited=is_awaited):
                break
            copied += slice_bytes
            ever += slice_bytes
            pace.went(0.0, now_ms, slice_bytes, lsn=1, ever_bytes=ever)
            pace.synced(1)
            pace.wrote()
            pace.wrote()
    return copied


def test_beside_commands_copies_have_a_rate() -> None:
    """Of large records and of small ones: what is left is for the commands. (§6.1, §0.6)"""
    for slice_bytes in (MIB, 256 << 10, 10_000, 1000):
        copied = copied_in(CopyPace(), 1000, slice_bytes)

        assert 900 * BESIDE_BYTES_EACH_MS < copied < 1020 * BESIDE_BYTES_EACH_MS + slice_bytes


def test_with_nobody_beside_copies_go_as_fast_as_they_can() -> None:
    """A while after the last command, too. (§6.1)"""
    pace = CopyPace()
    alone = copied_in(pace, 100, MIB, asks_every_ms=0)
    assert alone == 100 * 100 * MIB
    assert not pace.may_go(0.0, 0, 1100, is_awaited=True)

    assert pace.alarm_ms(1100) == 1100 + SLICE_EVERY_MS - 1
    assert pace.may_go(0.0, 0, 1100 + BESIDE_MS, is_awaited=False)


def test_a_slow_rate_says_when_it_goes_on() -> None:
    """The next slice is asked for by the clock, where nothing else asks. (§6.1)"""
    pace = CopyPace()
    assert pace.may_go(0.0, 0, 7, is_awaited=True)
    pace.went(0.0, 7, 10 * BESIDE_BYTES_EACH_MS, lsn=1, ever_bytes=10 * BESIDE_BYTES_EACH_MS)
    pace.wrote()
    pace.wrote()

    for now_ms in (7, 15):
        assert not pace.may_go(0.0, 0, now_ms, is_awaited=False)
        assert pace.alarm_ms(now_ms) == max(17, now_ms + 1)
    assert pace.may_go(0.0, 0, 16, is_awaited=False)
    assert pace.alarm_ms(16) is None


def test_what_few_routers_copy_keeps_up_with_what_is_written() -> None:
    """However fast that is: a lag that only grows would end in loss.  More routers than that have the
    rate besides. (§6.1)"""
    written = 200_000  # in a millisecond: 200 MB a second

    copied = copied_in(CopyPace(), 1000, 100_000, written=written)

    owed = 1000 * written * OWED_EACH
    assert owed <= copied < owed + 1050 * BESIDE_BYTES_EACH_MS


def test_what_was_written_long_ago_is_not_owed_for_ever() -> None:
    """A topic without routers may have taken gigabytes. (§6.1)"""
    pace = CopyPace()
    pace.went(0.0, 999, ever_bytes=1 << 40)
    pace.wrote()
    pace.wrote()

    copied = 0
    while pace.may_go(0.0, 0, 1000, is_awaited=copied == 0):
        copied += MIB
        pace.went(0.0, 1000, MIB, lsn=1, ever_bytes=(1 << 40) + copied)
        pace.synced(1)
        pace.wrote()
        pace.wrote()

    assert OWED_BYTES_MAX < copied <= OWED_BYTES_MAX + MIB


def test_a_record_of_any_size_holds_copies_up_for_a_bounded_time() -> None:
    """A read that waits for copies waits for no more than that. (§6.1)"""
    pace = CopyPace()
    assert pace.may_go(0.0, 0, 7, is_awaited=True)
    pace.went(0.0, 7, 1 << 30, lsn=1, ever_bytes=1 << 30)
    pace.synced(1)

    assert pace.may_go(0.0, 0, 7 + SLICE_EVERY_MS, is_awaited=False)
