"""Which topic flows into which: fan-in, rings, ways back, and how often a record goes round (§6)."""

import pytest

from topics.protocol.model.backoff import BACKOFF_MAX_MS
from topics.protocol.model.config import RouterConfig
from topics.protocol.model.events import Loss, RouterConfigured
from topics.protocol.state.routers import HOPS_MAX, Router, Routers


def graph(*edges: str) -> Routers:
    """Routers r1, r2, ... along edges like "12" (from topic 1 to topic 2)."""
    routers = Routers()
    for i, (source, dest) in enumerate(edges, 1):
        connect(routers, i, int(source), int(dest))
    return routers


def connect(routers: Routers, router_id: int, source: int, dest: int, cursor: int = 0) -> None:
    config = RouterConfig(source=f"t{source}", dest=f"t{dest}")
    name = f"r{router_id}"
    routers.configure(RouterConfigured(0, router_id, name, config, source, dest, cursor))


def names(routers: list[Router]) -> list[str]:
    return [router.name for router in routers]


WALKS = [
    # edges                      way back from 3   ring of a router 3 -> 1
    ((), [], []),
    (("23",), [2], []),
    (("12", "23"), [2, 1], [3, 1, 2, 3]),
    (("12", "23", "34"), [2, 1], [3, 1, 2, 3]),
    (("13", "14", "15"), [1], [3, 1, 3]),
    (("13", "13"), [1], [3, 1, 3]),
    (("12", "23", "31"), [2, 1], [3, 1, 2, 3]),
    (("13", "31"), [1], [3, 1, 3]),
    (("45", "54", "43"), [4, 5], []),
    (("41", "12", "23"), [2, 1, 4], [3, 1, 2, 3]),
    (("31", "32"), [], []),
]


@pytest.mark.parametrize(("edges", "back", "ring"), WALKS)
def test_the_way_back_is_a_line_or_a_ring(
    edges: tuple[str, ...], back: list[int], ring: list[int]
) -> None:
    """Nearest first, each topic once; and the ring that a router would close, its ends alike. (§6.1)"""
    routers = graph(*edges)

    assert list(routers.way_back(3)) == back
    assert routers.cycle(3, 1) == ring


def test_a_router_that_changes_closes_no_ring_with_itself() -> None:
    """What it was until now does not count. (§6.1)"""
    routers = graph("12", "23")

    assert routers.cycle(2, 1, but=routers.by_name["r1"]) == []
    assert routers.cycle(3, 1, but=routers.by_name["r2"]) == []
    assert routers.source_of(2, but=routers.by_name["r1"]) is None
    assert routers.source_of(2) == 1


HOPS = [
    # a ring of n topics: a record goes on while it is this many copies away from its origin
    (("12",), None),
    (("12", "23"), None),
    (("12", "21"), 1),
    (("12", "23", "31"), 2),
    (("12", "23", "34", "41"), 3),
]


@pytest.mark.parametrize(("edges", "allowed"), HOPS)
def test_a_record_goes_round_a_ring_once(edges: tuple[str, ...], allowed: int | None) -> None:
    """Every router of a ring counts alike. (§6.1)"""
    routers = graph(*edges)

    assert {routers.hops_allowed(r) for r in routers.by_id.values()} == {allowed}


def test_a_large_ring_is_bounded_by_the_hop_cap() -> None:
    """§6.1: at runtime the hop cap breaks loops."""
    routers = Routers()
    for i in range(1, 13):
        connect(routers, i, i, i % 12 + 1)

    assert routers.hops_allowed(routers.by_name["r5"]) == HOPS_MAX


def test_what_leads_out_of_a_ring_counts_no_hops() -> None:
    """A branch is no part of the ring."""
    routers = graph("12", "21", "23")

    assert routers.hops_allowed(routers.by_name["r3"]) is None
    assert routers.hops_allowed(routers.by_name["r1"]) == 1


def test_hops_follow_the_ring_as_it_changes() -> None:
    """A ring that is opened, closed, or made longer counts anew."""
    routers = graph("12", "21")
    first = routers.by_name["r1"]
    assert routers.hops_allowed(first) == 1

    routers.remove(routers.by_name["r2"])
    assert routers.hops_allowed(first) is None
    connect(routers, 3, 2, 3)
    connect(routers, 4, 3, 1)
    assert routers.hops_allowed(first) == 2
    routers.remove_of(3)
    assert routers.hops_allowed(first) is None


UPSTREAM = [
    (("12", "23"), 3, ["r1", "r2"]),
    (("12", "23"), 2, ["r1"]),
    (("12", "23"), 1, []),
    (("23", "12"), 3, ["r2", "r1"]),
    (("13", "13"), 3, ["r2", "r1"]),
    (("12", "21"), 1, ["r1", "r2"]),
    (("12", "21"), 2, ["r2", "r1"]),
    (("12", "23", "31"), 1, ["r1", "r2", "r3"]),
    (("12", "21", "23"), 3, ["r2", "r1", "r3"]),
]


@pytest.mark.parametrize(("edges", "topic", "found"), UPSTREAM)
def test_upstream_is_told_farthest_first(
    edges: tuple[str, ...], topic: int, found: list[str]
) -> None:
    """So that who works it off in this order lets everything arrive."""
    assert names(graph(*edges).upstream(topic)) == found


def test_tables_forget_what_was_removed() -> None:
    """By name, by id, at both ends."""
    routers = graph("12", "13", "42")
    assert names(routers.of(2)) == ["r1", "r3"]

    routers.remove_of(1)

    assert routers.names == ["r3"]
    assert (routers.is_source(1), routers.is_derived(3), routers.is_derived(2)) == (
        False,
        False,
        True,
    )
    assert (list(routers.out_of(1)), names(list(routers.into(2)))) == ([], ["r3"])
    assert (len(routers), routers.next_id) == (1, 4)


def test_a_router_that_changes_keeps_what_it_counted() -> None:
    """`forwarded_total` and losses are of the name, not of the config. (§6.2)"""
    routers = graph("12")
    old = routers.by_name["r1"]
    old.forwarded_total = 7
    old.lose(Loss(3, 5, "cap", 1))
    old.block("topic_full", "full", 10)

    connect(routers, 1, 1, 3, cursor=9)

    new = routers.by_name["r1"]
    assert (new.forwarded_total, new.lost_total, new.loss) == (7, 3, Loss(3, 5, "cap", 1))
    assert (new.cursor, new.blocked) == (9, None)
    assert (routers.is_derived(2), routers.is_derived(3)) == (False, True)


def test_an_image_is_the_router() -> None:
    """What a checkpoint keeps is all but what only this process knows."""
    routers = graph("12")
    router = routers.by_name["r1"]
    router.cursor, router.forwarded_total = 4, 2
    router.lose(Loss(5, 6, "ttl", 1))

    again = Routers()
    again.restore(router.image())

    assert again.by_name["r1"].image() == router.image()
    assert again.by_name["r1"].cursor == 6


def test_the_pause_doubles_up_to_a_bound_and_counts_from_the_first_refusal() -> None:
    """50 ms to 5 s; a retry at once forgets nothing. (§6.1)"""
    router = graph("12").by_name["r1"]
    pauses = []
    for now_ms in range(1000, 11_000, 1000):
        router.block("topic_full", "full", now_ms)
        assert router.blocked is not None
        assert router.blocked.since_ms == 1000
        pauses.append(router.blocked.retry_at_ms - now_ms)

    assert pauses == [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000, BACKOFF_MAX_MS]
    router.retry()
    assert router.blocked is not None
    assert (router.blocked.retry_at_ms, router.blocked.backoff_ms) == (0, 5000)


def test_a_retry_of_a_router_that_is_not_blocked_changes_nothing() -> None:
    """There is no pause to end. (§6.1)"""
    routers = graph("12")
    router = routers.by_name["r1"]

    router.retry()

    assert router.blocked is None
