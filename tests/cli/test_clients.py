"""`topics clients`: who is connected. (§8.9)"""

import json
from typing import Any

import httpx
import pytest
from client.script import Script, ok

import topics.client
from topics.testing import MemoryTopics

WATCH = {
    "client": "0-17",
    "kind": "watch",
    "key": "key-9f86d081",
    "address": "192.0.2.7",
    "since_ms": 1_795_254_710_021,
    "agent": "probe\x1b[2J/1",
    "lag": 1203,
    "topic_count": 9,
    "topics": [
        {"topic": "clicks", "partition": 3, "seq": 4, "lag": 1200},
        {"topic": "orders", "seq": 9, "lag": 3},
        {"topic": "a", "seq": 1, "lag": 0},
        {"topic": "b", "seq": 1, "lag": 0},
    ],
}
WORK = {
    "client": "1-2",
    "kind": "work",
    "address": "192.0.2.8",
    "since_ms": 1_795_254_710_021,
    "agent": "curl/8",
    "node": "w-1",
    "in_flight": 2,
    "topic_count": 1,
    "topics": [{"topic": "jobs"}],
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What the command talks to."""
    script = Script()
    real = topics.client.Client

    def client(url: str, **options: Any) -> Any:
        return real(url, **{**options, "transport": httpx.MockTransport(script)})

    monkeypatch.setattr(topics.client, "Client", client)
    return script


def test_a_table_of_all_pages(script: Script, run: Any) -> None:
    """A few topics of each are named, and what a client calls itself steers no terminal. (§8.9)"""
    script.answers = [
        ok({"clients": [WATCH], "next_after": "0-17"}),
        ok({"clients": [WORK], "next_after": None}),
    ]

    head, watch, work = run("clients").stdout.splitlines()

    assert script.lines == [
        "GET /v0/clients?limit=1000",
        "GET /v0/clients?limit=1000&after=0-17",
    ]
    assert head.split() == [
        *("client", "kind", "key", "address", "since", "name", "lag", "in", "flight", "topics"),
    ]
    assert "\x1b" not in watch
    assert watch.split()[:4] == ["0-17", "watch", "key-9f86d081", "192.0.2.7"]
    assert watch.endswith("clicks#3, orders, a, 6 more")
    assert "1,203" in watch
    assert work.split()[-3:] == ["w-1", "2", "jobs"]


def test_those_of_a_topic_as_json(script: Script, run: Any) -> None:
    """A line each, at most as many as are wanted. (§8.9)"""
    script.answers = [ok({"clients": [WATCH], "next_after": "0-17"})]

    [line] = run("clients", "orders", "--json", "--limit", "1").stdout.splitlines()

    assert script.lines == ["GET /v0/clients?topic=orders&limit=1"]
    found = json.loads(line)
    assert (found["client"], found["topics"][0]["lag"]) == ("0-17", 1200)


def test_nobody_is_connected(memory: MemoryTopics, run: Any) -> None:
    """To a server in memory, which has no connections."""
    assert run("clients", "--json").stdout == ""
    assert run("clients").stdout.split()[0] == "client"
