"""`topics routers`: what flows where, as a table, as JSON, and drawn."""

import json
from typing import Any

import httpx
import pytest
from client.script import Script, ok

import topics.client
from topics.cli.routers import drawing, filter_of
from topics.client import RouterSummary

AUDIT = {
    "router": "orders-audit",
    "source": "orders",
    "dest": "audit",
    "guarantee": "exactly_once",
    "filter": ["tag", "Glob", "eu.*"],
    "forwarded_total": 480_231,
    "lag": 1200,
    "blocked": {"code": "topic_full", "message": "full", "since": 5, "retry_ms": 400},
}
MIRROR = {"router": "orders-mirror", "source": "orders", "dest": "mirror", "forwarded_total": 7}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What the command talks to."""
    script = Script()
    real = topics.client.Client

    def client(url: str, **options: Any) -> Any:
        return real(url, **{**options, "transport": httpx.MockTransport(script)})

    monkeypatch.setattr(topics.client, "Client", client)
    return script


def test_a_table(script: Script, run: Any) -> None:
    """A line each: what is forwarded, how far behind it is, what blocks it. (§6.3)"""
    script.answers = [ok({"routers": [AUDIT], "next_cursor": "x"}), ok({"routers": [MIRROR]})]

    done = run("routers", "--prefix", "orders", "--source", "orders", "--dest", "audit")

    asked = "prefix=orders&source=orders&dest=audit"
    assert script.lines[0] == f"GET /v0/routers?{asked}&page_size=1000"
    head, audit, mirror = done.stdout.splitlines()
    assert (done.exit_code, head.split()) == (
        0,
        ["router", "source", "dest", "filter", "guarantee", "forwarded", "lag", "blocked"],
    )
    assert audit.split() == [
        "orders-audit",
        "orders",
        "audit",
        "eu.*",
        "exactly_once",
        "480,231",
        "1,200",
        "topic_full",
    ]
    assert mirror.split() == ["orders-mirror", "orders", "mirror", "at_least_once", "7", "0"]


def test_json(script: Script, run: Any) -> None:
    """The list for programs: one object a line."""
    script.answers = [ok({"routers": [AUDIT, MIRROR]})]

    rows = [json.loads(line) for line in run("routers", "--json").stdout.splitlines()]

    assert [row["router"] for row in rows] == ["orders-audit", "orders-mirror"]
    assert rows[0]["blocked"]["code"] == "topic_full"
    assert rows[0]["filter"] == ["tag", "Glob", "eu.*"]


def test_json_or_a_drawing(script: Script, run: Any) -> None:
    """One or the other."""
    assert run("routers", "--json", "--graph").exit_code == 2
    assert script.requests == []


def test_a_drawing(script: Script, run: Any) -> None:
    """From the topics where it begins, with the routers on the edges. (§6)"""
    cold = {"router": "audit-cold", "source": "audit", "dest": "cold"}
    script.answers = [ok({"routers": [AUDIT, MIRROR, cold]})]

    done = run("routers", "--graph")

    assert done.stdout.splitlines() == [
        "orders",
        "├── orders-audit -> audit  only eu.*  lag 1,200  blocked: topic_full",
        "│   └── audit-cold -> cold",
        "└── orders-mirror -> mirror",
    ]


def drawn(*edges: str) -> list[str]:
    """The lines of a drawing of `router: source dest` edges."""
    routers = []
    for edge in edges:
        name, _, ends = edge.partition(": ")
        source, dest = ends.split()
        routers.append(RouterSummary(router=name, source=source, dest=dest))
    return ["".join(getattr(part, "text", part) for part in line) for line in drawing(routers)]


@pytest.mark.parametrize(
    ("edges", "lines"),
    [
        ([], []),
        (["r: a b", "s: c d"], ["a", "└── r -> b", "c", "└── s -> d"]),
        (
            ["r: a b", "s: b a"],
            ["a", "└── r -> b", "    └── s -> a  (a ring)"],
        ),
        (
            # What hangs on a ring does not begin it.
            ["r: y x", "s: x y", "t: y a", "u: a b"],
            [
                "x",
                "└── s -> y",
                "    ├── r -> x  (a ring)",
                "    └── t -> a",
                "        └── u -> b",
            ],
        ),
        (
            ["r: a b", "s: a b", "t: b c"],
            ["a", "├── r -> b", "│   └── t -> c", "└── s -> b  (drawn above)"],
        ),
    ],
    ids=["nothing", "two", "a ring", "a tail", "twice"],
)
def test_shapes(edges: list[str], lines: list[str]) -> None:
    """Rings are marked where they close, and nothing is drawn twice. (§6.1)"""
    assert drawn(*edges) == lines


def test_a_long_chain() -> None:
    """Each topic hangs on the one before."""
    lines = drawn(*(f"r{n}: t{n} t{n + 1}" for n in range(40)))

    assert len(lines) == 41


@pytest.mark.parametrize(
    ("filter", "shown"),
    [
        (None, ""),
        ("eu.*", "eu.*"),
        (("tag", "Glob", "eu.*"), "eu.*"),
        (("tag", "Eq", "eu"), "eu"),
        (("tag", "Eq", "eu.*"), "= eu.*"),
    ],
)
def test_filters(filter: Any, shown: str) -> None:
    """As a person would write them. (§5)"""
    router = RouterSummary(router="r", source="a", dest="b", filter=filter)

    assert filter_of(router) == shown
