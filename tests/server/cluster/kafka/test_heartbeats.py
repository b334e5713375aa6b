"""What nodes say of themselves: who is live, what all have durably, whose clock is off. (§3, §6)"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import msgspec
import pytest

from topics.protocol.cluster.rule.trimming import Wait
from topics.protocol.cluster.rule.unit import FORMAT, FORMAT_OLDEST
from topics.server.cluster.kafka import heartbeats
from topics.server.cluster.kafka.asking import Brokers
from topics.server.cluster.kafka.heartbeats import (
    BEAT_MS,
    NODES_MAX,
    TWIN_MS,
    Beat,
    Heartbeats,
    Roster,
)
from topics.server.cluster.kafka.library import Consumer
from topics.server.cluster.kafka.settings import KafkaSettings
from topics.server.cluster.kafka.writing import Writer
from topics.server.cluster.node.status import TrimStatus

from .fakes import FakeConsumer, FakeMessage
from .joined import Node, joined, monotonic_ms, wall_ms

RETAIN_MS = 86_400_000


def test_all_names_that_were_heard_of_are_known() -> None:
    """Also of a node whose heartbeat this version cannot read: its number is taken. (128)"""
    found = Roster()
    found.hear(beat("b"), stamped_ms=100, at_ms=0)
    found.hear_strange("a", stamped_ms=100, at_ms=0)
    assert found.names == ["a", "b"]
    found.forget("b")
    assert found.names == ["a"]


def beat(node: str, **said: int) -> Beat:
    return Beat(node=node, process="0" * 32, url=f"http://{node}", **said)  # type: ignore[arg-type]


def roster(*heard: tuple[Beat, int], at_ms: int = 0) -> Roster:
    """Heartbeats with the times that the broker gave them, all read at one time."""
    found = Roster()
    for said, stamped_ms in heard:
        found.hear(said, stamped_ms=stamped_ms, at_ms=at_ms)
    return found


def test_ages_are_those_of_the_brokers_clock() -> None:
    """What was read just now may have been said long ago."""
    found = roster((beat("old"), 1_000), (beat("new"), 9_000), at_ms=50)

    assert found.silent_ms("new", 50) == 0
    assert found.silent_ms("old", 50) == 8_000
    assert found.silent_ms("old", 60) == 8_010
    assert found.silent_ms("nobody", 60) is None


def test_a_late_heartbeat_makes_no_clock_go_back() -> None:
    """A record that was long on its way says less about the broker's clock than one that was not."""
    found = roster((beat("a"), 9_000), at_ms=50)
    found.hear(beat("b"), stamped_ms=9_010, at_ms=400)

    assert found.silent_ms("a", 400) == 350
    assert found.silent_ms("b", 400) == 340


@pytest.mark.parametrize(("silent_ms", "counts"), [(RETAIN_MS, True), (RETAIN_MS + 1, False)])
def test_a_node_that_is_silent_for_longer_than_the_retention_does_not_count(
    silent_ms: int, counts: bool
) -> None:
    """The log is not kept for it: it takes a snapshot when it comes again. (§6)"""
    now_ms = 10 * RETAIN_MS
    found = roster(
        (beat("silent", durable=3), now_ms - silent_ms),
        (beat("a", durable=7), now_ms),
        (beat("b", durable=9), now_ms),
    )

    positions = found.positions(0, RETAIN_MS, near_ms=1000)

    assert min(each.offset for each in positions) == (3 if counts else 7)


def position(said: Beat, *, is_near: bool = True) -> tuple[int, bool] | None:
    found = said.position(is_near=is_near)
    return None if found is None else (found.offset, found.is_copy)


def test_what_a_node_needs_of_the_log() -> None:
    """From its mark on; what it gives or takes as a snapshot, too; nothing, if it takes one. (§6)"""
    assert position(beat("a", durable=7, durable_epoch=0)) == (7, True)
    assert position(beat("a", durable=7, durable_epoch=0), is_near=False) == (7, False)
    assert position(beat("a", durable=7)) == (7, False)
    assert position(beat("a")) == (-1, False)
    assert position(beat("a", durable=7, durable_epoch=0, holds=4)) == (4, True)
    assert position(beat("a", durable=7, durable_epoch=0, needs_log=False)) is None
    assert position(beat("a", durable=7, durable_epoch=0, needs_log=False, holds=9)) == (9, False)


def test_both_processes_of_one_node_count_while_both_speak() -> None:
    """A directory that was copied; one that was replaced does not count for long. (§2)"""
    twin = Beat(node="a", process="1" * 32, url="http://a", durable=3)
    found = roster((beat("a", durable=7), 100), (twin, 110), (beat("a", durable=8), 120))

    def offsets(at_ms: int) -> list[int]:
        return sorted(each.offset for each in found.positions(at_ms, RETAIN_MS, near_ms=1000))

    assert offsets(0) == [3, 8]
    assert offsets(TWIN_MS - 10) == [3, 8]
    assert offsets(TWIN_MS - 9) == [8]


def test_a_heartbeat_that_cannot_be_read_holds_the_log() -> None:
    """A newer version's: what it needs is not known, and what it reads neither. (§1, §6)"""
    found = roster((beat("a", durable=7), 100))
    found.hear_strange("b", stamped_ms=200, at_ms=0)

    assert [each.offset for each in found.positions(0, RETAIN_MS, near_ms=1000)] == [7, -1]
    assert found.format(0, RETAIN_MS) == FORMAT_OLDEST
    assert [each.offset for each in found.positions(RETAIN_MS + 1, RETAIN_MS, near_ms=1)] == []
    found.hear_strange("b", stamped_ms=300, at_ms=0)
    found.hear(beat("b", durable=9), stamped_ms=400, at_ms=0)
    assert [each.offset for each in found.positions(0, RETAIN_MS, near_ms=1000)] == [7, 9]
    found.hear_strange("c", stamped_ms=400, at_ms=0)
    found.forget("c")
    assert len(found.positions(0, RETAIN_MS, near_ms=1000)) == 2


def test_the_newest_that_any_node_says_of_the_trimming() -> None:
    """A leader says it by itself, the others pass it on. (§6)"""
    old, new = (TrimStatus(looked_ms=at, before=at, waits_for=Wait.RETENTION) for at in (1, 2))
    found = roster((beat("a"), 1))
    assert found.trim is None
    for node, trim in (("a", new), ("b", old)):
        said = Beat(node=node, process="0" * 32, url="u", trim=trim)
        found.hear(msgspec.json.decode(msgspec.json.encode(said), type=Beat), stamped_ms=9, at_ms=0)
    assert found.trim == new


def test_units_are_no_newer_than_the_oldest_live_node_reads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """§1"""
    monkeypatch.setattr(heartbeats, "FORMAT", 3)  # as if this version wrote a newer one
    found = roster((beat("new", reads_format=4), 9), (beat("old", reads_format=2), 8))

    assert found.format(0, RETAIN_MS) == 2
    found.forget("old")
    assert found.format(0, RETAIN_MS) == 3


def test_a_heartbeat_of_an_older_version_may_leave_its_format_out() -> None:
    """Such a version leaves out what is newest to it: it must not count as the newest here. (117)"""
    said = msgspec.json.decode(b'{"node": "old", "process": "p", "url": "u"}', type=Beat)
    found = roster((beat("new", reads_format=FORMAT), 9), (said, 8))

    assert found.format(0, RETAIN_MS) == FORMAT_OLDEST
    assert b"reads_format" in msgspec.json.encode(beat("new", reads_format=FORMAT))


def test_the_last_heartbeat_of_a_node_counts() -> None:
    found = roster((beat("a", index=1), 1), (beat("b"), 2), (beat("a", index=5), 3))

    assert [(one.node, one.index) for one in found.live(0, RETAIN_MS)] == [("a", 5), ("b", 0)]


def test_nodes_that_were_heard_of_are_bounded() -> None:
    """Nodes that were silent longest go: each new container may have a new id."""
    found = roster(*((beat(f"n{at:05}"), at) for at in range(NODES_MAX + 3)))

    live = found.live(0, RETAIN_MS)

    assert len(live) == NODES_MAX
    assert live[0].node == "n00003"


def beating(node: Node) -> Heartbeats:
    return Heartbeats(
        node.settings,
        node.found.writer,
        node.brokers,
        monotonic_ms=monotonic_ms,
        now_ms=wall_ms,
    )


async def until_heard(beats: Heartbeats, *nodes: str) -> None:
    while [one.node for one in beats.roster.live(monotonic_ms(), RETAIN_MS)] != list(nodes):
        await asyncio.sleep(0.01)


WithNode = Callable[[Callable[[Node], Awaitable[None]]], None]


class Bounded:
    """As `Brokers`: says where the topic begins and ends."""

    async def bounds(self, topic: str, partition: int) -> tuple[int, int]:
        return 4, 6


def test_all_was_read_that_was_there_though_there_is_always_more() -> None:
    """Where many nodes beat, the topic's end moves on before a reader is told that it came there: a leader would write
    in the oldest format for ever."""

    async def story() -> None:
        consumer = FakeConsumer()
        beats = Heartbeats(
            KafkaSettings("", node="n"),
            cast(Writer, None),
            cast(Brokers, Bounded()),
            monotonic_ms=monotonic_ms,
            now_ms=wall_ms,
            make=lambda _: cast(Consumer, consumer),
        )
        for at in (4, 5, 6):
            assert not beats.has_read.is_set()
            consumer.coming.put(FakeMessage(at, msgspec.json.encode(beat("a")), named=b"a"))
            if at == 4:
                await until_heard(beats, "a")
        await beats.has_read.wait()
        await beats.close()

    asyncio.run(story())


@pytest.mark.kafka
def test_what_a_node_says_is_read_by_all(with_node: WithNode) -> None:
    """Also by one that comes later; a node that was struck off is nobody's. (§3)"""

    async def story(node: Node) -> None:
        async with joined(node.settings) as other:
            first, second = beating(node), beating(other)
            assert await first.beat(beat("a", index=4, durable=17))
            assert await second.beat(beat("b"))
            for beats in (first, second):
                await until_heard(beats, "a", "b")
                [said, _] = beats.roster.live(monotonic_ms(), BEAT_MS * 60)
                assert (said.index, said.durable, said.url) == (4, 17, "http://a")
                assert abs(beats.skew_ms) < 1000
            late = beating(other)
            await late.has_read.wait()
            await until_heard(late, "a", "b")
            assert await second.catch_up(beat("b", durable=21))
            said = {one.node: one.durable for one in second.roster.live(monotonic_ms(), RETAIN_MS)}
            assert said == {"a": 17, "b": 21}
            await node.found.writer.send(node.settings.nodes_topic, 0, b"", key=b"a")
            await node.found.writer.send(node.settings.nodes_topic, 0, b"{}", key=b"c")
            await until_heard(late, "b")
            for beats in (first, second, late):
                await beats.close()

    with_node(story)


@pytest.mark.kafka
def test_a_heartbeat_that_is_not_taken_is_no_failure(with_node: WithNode) -> None:
    """Nor does the next one wait behind it."""

    async def story(node: Node) -> None:
        beats = beating(node)
        waiting = asyncio.ensure_future(beats.beat(beat("a")))
        await asyncio.sleep(0)
        assert not await beats.beat(beat("a"))
        assert await waiting
        await node.found.writer.close()
        assert not await beats.beat(beat("a"))
        assert not await beats.catch_up(beat("a"))
        await beats.close()

    with_node(story)
