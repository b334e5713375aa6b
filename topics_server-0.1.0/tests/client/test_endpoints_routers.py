"""Routers: what is sent for each call, and what it makes of the answer."""

from typing import Any

import pytest

from topics.client import Conflict, InvalidRequest, RouterNotFound

from .script import ONE_TRY, Script, error, ok

PUT = {
    "router": "orders-audit",
    "created": True,
    "source": "orders",
    "dest": "audit",
    "preserve_node": True,
    "preserve_tag": False,
    "filter": ["tag", "Glob", "eu.*"],
    "allow_cycle": False,
    "guarantee": "exactly_once",
    "performance": {"server_total_ms": 0.2},
}
BLOCKED = {"code": "topic_full", "message": "audit is full", "since": 1_748_450_000_000}
LISTED = {
    "router": "orders-audit",
    "source": "orders",
    "dest": "audit",
    "guarantee": "at_least_once",
    "forwarded_total": 480_231,
}


def test_a_router_is_put(face: Any) -> None:
    """Every option is a field of the body, defaults included; the answer has what is in force. (§6.1)"""
    script = Script(ok(PUT, 201))

    answer = face(script).do(
        lambda c: c.put_router(
            "orders-audit",
            "orders",
            "audit",
            filter=("tag", "Glob", "eu.*"),
            preserve_tag=False,
            guarantee="exactly_once",
        )
    )

    assert script.lines == ["PUT /v0/routers/orders-audit"]
    assert script.bodies[0] == {
        "source": "orders",
        "dest": "audit",
        "filter": ["tag", "Glob", "eu.*"],
        "preserve_node": True,
        "preserve_tag": False,
        "create_dest": True,
        "allow_cycle": False,
        "guarantee": "exactly_once",
    }
    assert (answer.router, answer.created, answer.guarantee) == (
        "orders-audit",
        True,
        "exactly_once",
    )
    assert answer.filter == ("tag", "Glob", "eu.*")


def test_a_name_is_escaped(face: Any) -> None:
    """Whatever is in a name stays in its segment of the path. (§6.1)"""
    script = Script(ok({**LISTED, "router": "a->b"}))

    face(script).do(lambda c: c.router("a->b/c"))

    assert script.lines == ["GET /v0/routers/a-%3Eb%2Fc"]


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_is_none(face: Any, name: str) -> None:
    """A name that would change the path is refused before anything is sent."""
    script = Script()

    with pytest.raises(InvalidRequest):
        face(script).do(lambda c: c.delete_router(name))
    assert script.requests == []


def test_how_far_a_router_is(face: Any) -> None:
    """Its cursor, what is left, what was lost, and why it stands still. (§6.2)"""
    loss = {"gap_from": 3, "gap_to": 9, "reason": "cap", "ts": 1_748_450_000_001}
    state = {"cursor": 41, "lag": 2, "lost_total": 7, "loss": loss, "preserve_node": False}
    blocked = {**BLOCKED, "retry_ms": 400}
    script = Script(ok({**LISTED, **state, "blocked": blocked, "filter": "eu.*"}))

    router = face(script).do(lambda c: c.router("orders-audit"))

    assert (router.cursor_seq, router.lag, router.lost_total) == (41, 2, 7)
    assert (router.loss.gap_from, router.loss.gap_to, router.loss.ts_ms) == (
        3,
        9,
        1_748_450_000_001,
    )
    assert (router.blocked.code, router.blocked.retry_ms) == ("topic_full", 400)
    assert router.blocked.since_ms == 1_748_450_000_000
    assert (router.preserve_node, router.preserve_tag, router.filter) == (False, True, "eu.*")


def test_a_server_that_tells_less(face: Any) -> None:
    """The fields that are additions to the contract may be missing. (§6.2)"""
    router = face(Script(ok(LISTED))).do(lambda c: c.router("orders-audit"))

    assert (router.forwarded_total, router.lag, router.blocked, router.loss) == (
        480_231,
        0,
        None,
        None,
    )


def test_all_pages_of_the_list(face: Any) -> None:
    """The list goes on at `next_cursor` until there is none. (§6.3, §0.7)"""
    other = {**LISTED, "router": "orders-mirror", "lag": 5, "blocked": {**BLOCKED, "retry_ms": 50}}
    script = Script(ok({"routers": [LISTED], "next_cursor": "e=="}), ok({"routers": [other]}))

    routers = face(script).do(
        lambda c: c.routers(prefix="orders", source="orders", dest="audit", page_size=1)
    )

    asked = "prefix=orders&source=orders&dest=audit"
    assert script.lines == [
        f"GET /v0/routers?{asked}&page_size=1",
        f"GET /v0/routers?{asked}&cursor=e%3D%3D&page_size=1",
    ]
    assert [(r.router, r.lag) for r in routers] == [("orders-audit", 0), ("orders-mirror", 5)]
    assert routers[1].blocked.retry_ms == 50


def test_a_router_is_deleted(face: Any) -> None:
    """The answer says whether there was one. (§6.4)"""
    script = Script(ok({"router": "r", "deleted": False}))

    assert face(script).do(lambda c: c.delete_router("r")).deleted is False
    assert script.lines == ["DELETE /v0/routers/r"]


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (error(404, "router_not_found"), RouterNotFound),
        (error(409, "router_cycle", {"cycle": ["a", "b", "a"]}), Conflict),
        (error(409, "topic_exists_incompatible", {"reason": "router_dest_fan_in"}), Conflict),
    ],
)
def test_refusals(face: Any, answer: Any, kind: type[Exception]) -> None:
    """A refusal is the class that a program would catch, with its detail. (§6.1)"""
    with pytest.raises(kind) as raised:
        face(Script(answer), retry=ONE_TRY).do(lambda c: c.put_router("r", "a", "b"))

    assert raised.value.detail == answer.json()["error"].get("detail", {})  # type: ignore[attr-defined]
