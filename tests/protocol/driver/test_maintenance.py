"""Rounds of maintenance: what comes first, what is bounded, and what a failure of one means (§5, §8.2)."""

import errno
from collections.abc import Callable
from typing import Any

import pytest

from topics.protocol.driver import maintenance
from topics.protocol.driver.group_commit import Reply
from topics.protocol.http import bodies
from topics.protocol.maintenance import schedule
from topics.protocol.model.errors import WriteFailed
from topics.protocol.model.limits import Limits
from topics.protocol.state.hot_memory import freeze
from topics.store.memory import MemoryFiles, MemoryStore
from topics.store.store import DiskStore

from .test_group_commit import START_MS, InlineHost, append, diff

LOG_BYTES = 64 << 10


class Disk(InlineHost):
    """A server over files in memory, with a log file small enough to be full.

    Attributes:
        calls: What maintenance had done where it may wait, by the store's name for it.
        fails: The names of those that raise instead.
    """

    def __init__(self, **limits: int) -> None:
        self.calls: list[str] = []
        self.fails: dict[str, Exception] = {}
        bounds = Limits(wal_file_bytes=LOG_BYTES, segment_max_records=50, **limits)
        disk = DiskStore(MemoryFiles(), wal_file_bytes=LOG_BYTES, reserve_bytes=LOG_BYTES)
        for name in ("seal", "clear", "flip", "checkpoint", "rotate"):
            self._listen(disk, name)
        super().__init__(bounds, disk, START_MS)
        self.driver.recover()
        self.driver.start()
        self.driver.maintenance.calm()

    def _listen(self, disk: DiskStore, name: str) -> None:
        call: Callable[..., Any] = getattr(disk, name)

        def heard(*given: Any, **named: Any) -> Any:
            self.calls.append(f"{name} {named}" if named else name)
            if name in self.fails:
                raise self.fails[name]
            return call(*given, **named)

        setattr(disk, name, heard)

    def write(self, name: str, records: int) -> None:
        for first in range(0, records, 10):
            self.driver.submit(append(name, *["x" * 900] * min(10, records - first)), _nobody)
            self.settle()

    def delete(self, name: str) -> None:
        raw = b'{"before_seq": 1000000}'
        self.driver.submit(bodies.parse_delete(name, raw), _nobody)
        self.settle()

    def round(self, **asked: bool) -> list[str]:
        """What one round did; raises why it broke off."""
        self.calls.clear()
        ended: list[Exception | None] = []
        self.driver.maintenance.round(ended.append, **asked)
        if ended[0] is not None:
            raise ended[0]
        return list(self.calls)


def _nobody(reply: object) -> None:
    return


def test_a_checkpoint_that_is_due_comes_before_sealing() -> None:
    """However many runs are full: else the log would grow as long as they fill. (§8.2)"""
    host = Disk()
    for n in range(4):
        host.write(f"t{n}", 120)
    assert host.store.log_bytes > LOG_BYTES
    assert host.driver.engine.state.memory.full

    done = host.round()

    first = next(name.split()[0] for name in done if name.split()[0] in ("rotate", "seal"))
    assert first == "rotate"
    assert done.count("checkpoint") == 1
    assert host.store.log_bytes < LOG_BYTES


def test_a_round_seals_a_bounded_number_of_files() -> None:
    """What is left comes with the next one, which looks again whether something comes first."""
    host = Disk(segment_max_bytes=4096)
    host.driver.maintenance.schedule._limits = Limits(wal_file_bytes=1 << 30)
    for n in range(schedule.SEALS_MAX + 4):
        host.write(f"t{n}", 20)
    for topic in host.driver.engine.state.memory.unsealed.values():
        freeze(topic)
        host.driver.engine.state.memory.full[topic.topic_id] = topic

    assert host.round().count("seal") == schedule.SEALS_MAX
    assert host.driver.maintenance.schedule.has_more
    rounds = 0
    while host.driver.maintenance.schedule.has_more:
        assert host.round().count("seal") <= 2 * schedule.SEALS_MAX
        rounds += 1
    assert rounds <= 3
    assert not host.driver.engine.state.memory.unsealed


def test_space_comes_back_although_nothing_can_be_sealed() -> None:
    """A full disk refuses segments; what was deleted goes all the same. (§5)"""
    host = Disk()
    host.write("old", 100)
    host.round(checkpoint=True)
    segments = [name for name in host.store._files.names() if name.endswith(".seg")]
    assert segments
    host.delete("old")
    host.write("new", 120)
    host.fails["seal"] = OSError(errno.ENOSPC, "no space left")

    with pytest.raises(OSError, match="no space"):
        host.round()

    assert not [name for name in segments if name in host.store._files.names()]


def test_a_checkpoint_that_cannot_be_saved_is_saved_later_and_made_once() -> None:
    """Nothing is rotated and sealed again for it, and it is tried less and less often. (§8.2)"""
    host = Disk()
    host.write("t", 120)
    host.fails["checkpoint"] = OSError(errno.EIO, "not now")
    with pytest.raises(OSError, match="not now"):
        host.round()
    rotations = host.store.stats.rotations_total
    waits = []
    for _ in range(4):
        wait = 0
        while True:
            host.now_ms += 500
            wait += 500
            try:
                done = host.round()
            except OSError:
                break
            assert "checkpoint" not in done
        waits.append(wait)

    assert waits == sorted(waits)
    assert waits[-1] >= 8 * waits[0]
    assert host.store.stats.rotations_total == rotations
    host.fails.clear()
    host.now_ms += schedule.RETRY_MS_MAX
    assert host.round().count("checkpoint") == 1
    assert host.store.log_bytes < LOG_BYTES


def test_a_checkpoint_that_cannot_be_sealed_begins_no_file_after_another() -> None:
    """It is tried again in the log file that it began. (§8.2)"""
    host = Disk()
    host.write("t", 120)
    host.fails["seal"] = OSError(errno.ENOSPC, "no space left")
    for _ in range(3):
        host.now_ms += schedule.RETRY_MS_MAX
        with pytest.raises(OSError, match="no space"):
            host.round()
    rotations = [name for name in host.calls if name.startswith("rotate")]

    assert rotations == ["rotate {'fresh': False, 'stay': True}"]


def test_what_is_written_while_a_checkpoint_is_made_is_in_the_log_behind_it() -> None:
    """A restart shows each record once, wherever the turns fell. (§8.2)"""
    host = Disk()
    host.write("t", 60)
    seal = host.store.seal

    def busy(entries: Any) -> Any:
        host.write("t", 10)
        host.write("u", 10)
        return seal(entries)

    host.store.seal = busy  # type: ignore[method-assign]
    host.round(checkpoint=True)
    files = host.store._files
    host.store.close(None)
    disk = DiskStore(files, wal_file_bytes=LOG_BYTES, reserve_bytes=LOG_BYTES)
    again = InlineHost(Limits(), disk, START_MS)
    again.driver.recover()

    counts = {name: topic.count for name, topic in again.driver.engine.state.topics.items()}
    assert counts["t"] == 60 + counts["u"]
    assert counts["u"] >= 10


def test_a_failed_flag_makes_the_log_read_only() -> None:
    """A flag that cannot be written is a failed write like any other. (§0.6)"""
    host = Disk()
    host.write("t", 10)
    host.fails["flip"] = WriteFailed("0000000001.seg", "Input/output error")
    with pytest.raises(WriteFailed):
        host.round()

    assert host.driver.commit.failure is not None
    assert isinstance(host.driver.submit(diff("t"), _nobody), Reply)


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
