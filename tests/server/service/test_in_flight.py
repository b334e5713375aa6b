"""How many requests a key has in flight (§11)."""

from protocol.harness import refusal

from topics.protocol.model.access import ANYONE, Caller
from topics.server.service.in_flight import InFlight


def test_a_key_has_so_many() -> None:
    """429 beyond them; another key has its own; one that left makes room, once. (§11)"""
    known: InFlight[str] = InFlight(2)
    one, other = Caller("one"), Caller("other")
    for request in "ab":
        known.enter(one, request)

    assert refusal(known.enter, one, "c").detail == {"limit": "max_inflight_per_key", "max": 2}
    known.enter(other, "d")
    known.leave(one, "a")
    known.leave(one, "a")
    known.enter(one, "c")
    assert known.of(one) == ["b", "c"]
    known.leave(one, "c")
    known.leave(one, "b")
    known.leave(one, "b")
    assert known.of(one) == []


def test_0_is_no_bound() -> None:
    """As for every limit. (§11)"""
    known: InFlight[int] = InFlight(0)
    one = Caller("one")
    for request in range(100):
        known.enter(one, request)

    assert len(known.of(one)) == 100


def test_without_keys_nothing_is_counted() -> None:
    """There is nobody to attribute it to. (§11)"""
    known: InFlight[int] = InFlight(1)
    for request in range(3):
        known.enter(ANYONE, request)

    assert known.of(ANYONE) == []
    known.leave(ANYONE, 0)


def test_what_is_in_flight_in_other_processes_counts() -> None:
    """A key has one bound, however many processes serve it. (§11)"""
    known: InFlight[str] = InFlight(2)
    one = Caller("one")
    known.elsewhere = {"one": 2, "other": 5}
    assert refusal(known.enter, one, "a").detail == {"limit": "max_inflight_per_key", "max": 2}
    assert known.counts() == {}

    known.elsewhere = {"one": 1}
    known.enter(one, "a")

    assert known.counts() == {"one": 1}
    assert refusal(known.enter, one, "b").detail == {"limit": "max_inflight_per_key", "max": 2}
