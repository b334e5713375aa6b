"""Rounds of maintenance as they are driven: what a failure of one means, and their pace (§5, §8.2)."""

import errno

import pytest

from protocol.disk import Disk, nobody
from topics.protocol.driver import maintenance
from topics.protocol.driver.reply import Reply
from topics.protocol.model.errors import WriteFailed
from topics.protocol.model.limits import Limits
from topics.store.memory import MemoryStore

from .test_group_commit import START_MS, InlineHost, diff


def test_a_failed_flag_makes_the_log_read_only() -> None:
    """A flag that cannot be written is a failed write like any other. (§0.6)"""
    host = Disk()
    host.write("t", 10)
    host.fails["flip"] = WriteFailed("0000000001.seg", "Input/output error")
    with pytest.raises(WriteFailed):
        host.round()

    assert host.driver.commit.failure is not None
    assert isinstance(host.driver.submit(diff("t"), nobody), Reply)


def test_a_round_that_breaks_off_is_told_once_and_tried_again() -> None:
    """An operator hears of each trouble, not of each second. (§8.3)"""
    host = Disk()
    host.fails["flip"] = OSError(errno.EIO, "the disk is gone")
    host.driver.maintenance.start()
    for _ in range(5):
        host.advance(ms=maintenance.ROUND_EVERY_MS)
    assert [what for _, what in host.lines] == [
        "maintenance goes on trying: [Errno 5] the disk is gone"
    ]

    host.fails.clear()
    host.calls.clear()
    host.advance(ms=maintenance.RETRY_MS)
    assert "flip" in host.calls


def test_rounds_do_not_follow_each_other_without_a_pause() -> None:
    """Whatever presses: clients have their turns between them."""
    host = Disk()
    host.write("t", 120)
    host.driver.maintenance.start()
    host.driver.maintenance.soon()
    host.ring()
    host.calls.clear()
    host.driver.maintenance.soon()
    host.ring()
    assert host.calls == []

    host.advance(ms=maintenance.ROUND_SOON_MS)
    assert "flip" in host.calls


def test_a_chore_that_was_let_go_of_hears_no_more() -> None:
    """A stop ends the round that is under way; what its thread says later is nobody's."""
    asked: list[maintenance.Call] = []

    class Waiting(InlineHost):
        def call(self, step: maintenance.Call) -> None:
            asked.append(step)

    host = Waiting(Limits(), MemoryStore(), START_MS)
    host.driver.recover()
    host.driver.start()
    ended: list[Exception | None] = []
    host.driver.maintenance.round(ended.append)
    assert len(asked) == 1
    host.driver.maintenance.end()
    host.driver.maintenance.run(iter(()), ended.append)  # type: ignore[arg-type]

    asked[0].done(0, None)
    assert len(asked) == 1


def test_a_full_disk_is_looked_at_every_second() -> None:
    """Others may free space, which nothing tells of; without trouble rounds are rare. (§11)"""
    host = Disk()
    host.driver.maintenance.start()
    host.driver.maintenance.disk_is_full(1 << 30)
    host.advance(ms=maintenance.ROUND_SOON_MS)
    host.calls.clear()

    for _ in range(5):
        host.advance(ms=maintenance.RETRY_MS)

    assert host.calls.count("flip") == 5


def test_a_step_that_cannot_be_begun_fails_the_task() -> None:
    """As one does that fails later: a host without a thread to spare says so at once. (§8.3)"""

    class Crowded(InlineHost):
        def call(self, step: maintenance.Call) -> None:
            raise RuntimeError("no thread can be started")

    host = Crowded(Limits(), MemoryStore(), START_MS)
    host.driver.recover()
    host.driver.start()
    ended: list[Exception | None] = []

    host.driver.maintenance.round(ended.append)

    assert [str(error) for error in ended] == ["no thread can be started"]
    assert host.driver.maintenance.is_idle
    assert host.driver.commit.failure is None
