"""What a turn touches, and what of it streams wait for."""

from typing import Any

import pytest

from topics.protocol.cluster.footprint import Footprint
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import DeleteTopic

from .rig import Rig


@pytest.fixture
def rig() -> Rig:
    """A log `t`, a log `capped` and a queue `work`, each with two records."""
    rig = Rig()
    rig.put("t")
    rig.put("capped", cap_records=2)
    rig.put("work", type="queue", max_deliveries=1, dead_letter="buried")
    rig.put("buried")
    for name in ("t", "capped", "work"):
        rig.append(f"{name} 1", f"{name} 2", name=name)
    rig.land()
    return rig


def turned(rig: Rig) -> Footprint:
    """Of the leader's turn, which is on its way."""
    rig.leader.host.driver.end_turn()
    return rig.leader.host.acceptance.turns._sent[-1].footprint


def claim(rig: Rig) -> None:
    rig.ask(
        parse_claim("work", b'{"node":"w","max":1,"lease_ms":1000}', rig.leader.host.driver.limits)
    )


def test_an_append_touches_its_topic_and_hides_nothing(rig: Rig) -> None:
    """Its records are not shown before they are accepted, to anybody. (§2)"""
    rig.append("a")

    footprint = turned(rig)

    assert (footprint.touched, footprint.hidden, footprint.is_wide) == ({"t"}, set(), False)


@pytest.mark.parametrize("what", ["evicts", "deletes", "configures", "creates"])
def test_what_readers_see_less_of_is_hidden(rig: Rig, what: str) -> None:
    """A stream may not pass what is gone only if the unit is accepted. (§2)"""
    name = {"evicts": "capped", "creates": "new"}.get(what, "t")
    does: dict[str, Any] = {
        "evicts": lambda: rig.append("a", name=name),
        "deletes": lambda: rig.delete(2, name=name),
        "configures": lambda: rig.put(name, cap_records=1),
        "creates": lambda: rig.put(name),
    }
    does[what]()

    footprint = turned(rig)

    assert name in footprint.touched
    assert name in footprint.hidden
    assert not footprint.is_wide


def test_a_claim_touches_its_queue_and_hides_nothing(rig: Rig) -> None:
    """A stream over a queue shows jobs, whoever has them."""
    claim(rig)

    footprint = turned(rig)

    assert (footprint.touched, footprint.hidden, footprint.is_wide) == ({"work"}, set(), False)


def test_a_dead_letter_hides_a_job_in_its_queue(rig: Rig) -> None:
    """One event appends to a topic and takes from another."""
    rig.world.reference.take = lambda index, events: None  # type: ignore[method-assign]
    claim(rig)
    rig.land()
    rig.world.now_ms += 2000
    found: list[Footprint] = []
    turns = rig.leader.host.acceptance.turns
    claim(rig)
    for _ in range(20):
        rig.leader.host.ring_once()
        rig.turn()
        found += [turn.footprint for turn in turns._sent]
        rig.land()

    assert any({"work", "buried"} <= each.touched and "work" in each.hidden for each in found)


@pytest.mark.parametrize("what", ["a topic is deleted", "a router is made"])
def test_what_is_not_known_to_be_harmless_touches_every_topic(rig: Rig, what: str) -> None:
    if what == "a topic is deleted":
        rig.ask(DeleteTopic("t"))
    else:
        rig.ask(parse_put_router("r", b'{"source":"t","dest":"work"}'))

    assert turned(rig).is_wide


def test_time_and_places_touch_nothing(rig: Rig) -> None:
    """Each unit has both; what time takes is looked at by topic."""
    rig.ask(parse_put("t", b"{}"))  # it changes nothing

    footprint = turned(rig)

    assert (footprint.touched, footprint.hidden, footprint.is_wide) == (set(), set(), False)
