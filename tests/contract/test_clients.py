"""Who is connected, over real sockets: every kind, and who may know. (§8.9)"""

import time
from collections.abc import Callable
from typing import Any

import pytest

from .conftest import PROTOCOLS
from .keyed import FULL, INNER, Desk, prepared, said
from .server import Server, until
from .streams import Sse1, Sse2, Ws, Ws2, cut
from .streams import until as until_news
from .wire import Http1

STREAMS = {"http1": (Sse1, Ws), "http2": (Sse2, Ws2)}
KEYS = f"{FULL},{INNER}::in.,watcher-1:r,worker-2:rw"


def clients(desk: Desk, key: str = FULL, query: str = "") -> list[Any]:
    found: list[Any] = desk.ask(key, "GET", f"/v0/clients{query}").json["clients"]
    return found


@pytest.mark.parametrize("protocol", sorted(STREAMS))
def test_every_client_is_told_of(private: Callable[..., Server], protocol: str) -> None:
    """From its begin to its end: what it does, by which key, where it is, how far behind. (§8.9)"""
    server = private(api_keys=KEYS)
    desk = prepared(server, server.connect(PROTOCOLS[protocol]))
    begun_ms = time.time_ns() // 1_000_000
    desk.ask(FULL, "POST", "/v0/topics/in.log", {"records": [{"data": n} for n in range(3)]})
    desk.ask(FULL, "POST", "/v0/topics/in.queue", {"records": [{"data": 1}, {"data": 2}]})
    sse, ws = STREAMS[protocol]
    begin = {"topics": {"in.log": {"from_seq": 0}, "out.log": {"tail": True}}}
    wid = desk.ask("watcher-1", "POST", "/v0/watch", begin).json["wid"]
    watch = sse(server.port, f"/v0/watch/{wid}", api_key="watcher-1")
    until_news(watch, "caught-up", topic="in.log")
    work = sse(server.port, "/v0/topics/in.queue/work?node=n&max=2", api_key="worker-2")
    until_news(work, "job")
    socket = ws(server.port, api_key=FULL)
    assert said(socket, {"op": "subscribe", "topic": "in.second"})[0] == "subscribed"
    poll = PROTOCOLS[protocol](server.port)
    head = {"authorization": f"Bearer {FULL}", "content-type": "application/json"}
    head["user-agent"] = "probe/1"
    body = b'{"from_seq": 0, "wait_ms": 30000}'
    poll.send("POST", "/v0/topics/in.second/diff", body, head)
    until("all are there", lambda: len(clients(desk)) == 4)
    until("it has both jobs", lambda: clients(desk, query="?topic=in.queue")[0]["in_flight"] == 2)

    found = {each["kind"]: each for each in clients(desk)}
    assert {each["address"] for each in found.values()} == {"127.0.0.1"}
    assert all(each["since_ms"] >= begun_ms for each in found.values())
    names = {each["key"] for each in found.values()}
    assert len(names) == 3
    assert all(name.startswith("key-") for name in names)
    assert (found["watch"]["topic_count"], found["watch"]["lag"]) == (2, 0)
    assert {"topic": "in.log", "seq": 3, "lag": 0} in found["watch"]["topics"]
    assert (found["work"]["node"], found["work"]["in_flight"]) == ("n", 2)
    assert found["websocket"]["topics"] == [{"topic": "in.second", "seq": 0, "lag": 0}]
    assert (found["read"]["agent"], found["read"]["lag"]) == ("probe/1", 0)

    desk.ask(FULL, "POST", "/v0/topics/in.queue/ack", {"node": "n", "seqs": [1]})
    [worker] = clients(desk, query="?topic=in.queue")
    assert worker["in_flight"] == 1
    assert [each["kind"] for each in clients(desk, query="?topic=out.log")] == ["watch"]

    [inner] = [each for each in clients(desk, INNER) if each["kind"] == "watch"]
    assert [each["topic"] for each in inner["topics"]] == ["in.log"]
    assert clients(desk, INNER, "?topic=out.log") == []
    assert desk.ask("watcher-1", "GET", "/v0/clients").status == 403

    for each in (watch, work, socket):
        cut(each)
    poll.reset()
    until("all are gone", lambda: clients(desk) == [])


def test_a_proxys_client_has_its_own_address(private: Callable[..., Server]) -> None:
    """As in the lines of the log, where the proxy is trusted. (§12)"""
    server = private(trusted_proxies="127.0.0.1")
    wire = server.connect(Http1)
    poll = Http1(server.port)
    wire.send("PUT", "/v0/topics/t", b"{}", {"content-type": "application/json"})
    assert wire.receive().status in (200, 201)
    head = {"x-forwarded-for": "203.0.113.7", "content-type": "application/json"}
    poll.send("POST", "/v0/topics/t/diff", b'{"wait_ms": 30000}', head)

    def addresses() -> list[str]:
        wire.send("GET", "/v0/clients", b"", {})
        return [each["address"] for each in wire.receive().json["clients"]]

    until("it waits", lambda: addresses() == ["203.0.113.7"])
    poll.reset()
    until("it is gone", lambda: addresses() == [])
