"""Routers over real sockets, and what SIGKILL leaves of copies and cursors (§6)."""

import random
import threading
from collections.abc import Callable
from itertools import pairwise
from typing import Any
from urllib.parse import quote

import pytest

from .api import Api, dumps, tagged
from .server import Server, until
from .wire import Ended, Http1, check

Start = Callable[..., Server]


def path(router: str) -> str:
    return f"/v0/routers/{quote(router, safe='')}"


def route(api: Api, router: str, source: str, dest: str, **fields: object) -> Any:
    return api.ok("PUT", path(router), {"source": source, "dest": dest, **fields})


def test_a_router_from_first_to_last(api: Api, name: str) -> None:
    """PUT, identical PUT, GET, list, DELETE; a name with `>` in it. (§6)"""
    router, source, dest = f"{name}->copy", f"{name}.s", f"{name}.d"
    answer = api.ask("PUT", path(router), {"source": source, "dest": dest})
    assert (answer.status, answer.json["created"]) == (201, True)
    assert "performance" in answer.json
    assert api.ask("PUT", path(router), {"source": source, "dest": dest}).status == 200
    api.append(source, tagged("t", {"a": 1}))

    assert api.walk(dest, include_tags=True)[0]["$tag"] == "t"

    told = api.ok("GET", path(router))
    assert (told["forwarded_total"], told["cursor"], told["lag"]) == (1, 1, 0)
    (listed,) = api.ok("GET", f"/v0/routers?source={source}")["routers"]
    assert (listed["router"], listed["forwarded_total"]) == (router, 1)
    assert api.drop(source)["routers_removed"] == [router]
    assert api.refused("GET", path(router)) == (404, "router_not_found")
    assert api.ok("DELETE", path(router))["deleted"] is False


def test_pages_of_routers(api: Api, name: str) -> None:
    """Every router once, whatever the page size; a cursor is opaque. (§0.7, §6.3)"""
    for i in range(5):
        route(api, f"{name}.r{i}", name, f"{name}.d{i}")
    for size in (1, 2, 5, 100):
        found: list[str] = []
        query = f"?prefix={name}.&page_size={size}"
        cursor = ""
        while True:
            page = api.ok("GET", f"/v0/routers{query}{cursor}")
            found += [router["router"] for router in page["routers"]]
            if "next_cursor" not in page:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert found == [f"{name}.r{i}" for i in range(5)]
    assert api.refused("GET", "/v0/routers?cursor=nonsense") == (400, "invalid_request")
    assert api.refused("GET", "/v0/routers?page_size=x") == (400, "invalid_request")


REFUSED = [
    ("PUT", "/v0/routers/-r", {"source": "s", "dest": "d"}, (400, "invalid_request")),
    ("DELETE", "/v0/routers/a%20b", None, (400, "invalid_request")),
    ("GET", "/v0/routers/a%20b", None, (404, "router_not_found")),
    ("PUT", "/v0/routers/r", {"source": "s"}, (400, "invalid_request")),
    ("PUT", "/v0/routers/r", {"source": "s", "dest": "s"}, (400, "invalid_request")),
    ("POST", "/v0/routers/r", {}, (405, "method_not_allowed")),
    ("DELETE", "/v0/routers", None, (405, "method_not_allowed")),
]


@pytest.mark.parametrize(("method", "target", "body", "expected"), REFUSED)
def test_what_is_refused(
    api: Api, method: str, target: str, body: Any, expected: tuple[int, str]
) -> None:
    """A bad name is 400 in a write and 404 in a read. (§6)"""
    refused = api.refused(method, target) if body is None else api.refused(method, target, body)
    assert refused == expected


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_everybody_reads_their_own_writes_behind_a_chain(
    api: Api, name: str, durability: str
) -> None:
    """A write at one end of a chain of routers is read at the other end at once (read-your-writes).
    (§6)"""
    names = [f"{name}.{i}" for i in range(4)]
    for one in names:
        api.put(one, durability=durability)
    for source, dest in pairwise(names):
        route(api, f"{source}->{dest}", source, dest)
    for i in range(20):
        api.append(names[0], i)
        assert api.state(names[-1])["head_seq"] == i + 1
    assert [r["data"] for r in api.walk(names[-1])] == list(range(20))


def test_a_blocked_router_goes_on_when_it_may(api: Api, name: str) -> None:
    """Nothing is lost or duplicated; `GET` has the reason. (§6.1)"""
    source, dest = f"{name}.s", f"{name}.d"
    api.put(dest, cap_records=2, discard="reject")
    route(api, name, source, dest)
    api.append(source, *range(5))

    assert [r["data"] for r in api.walk(dest)] == [0, 1]
    blocked = api.ok("GET", path(name))["blocked"]
    assert (blocked["code"], blocked["retry_ms"] <= 5000) == ("topic_full", True)
    api.put(dest, cap_records=10, discard="reject")
    until("the rest", lambda: api.state(dest)["head_seq"] == 5)
    assert [r["data"] for r in api.walk(dest)] == list(range(5))


class Writer(threading.Thread):
    """Writes numbers to a topic until its server ends, and keeps which were acknowledged."""

    def __init__(self, port: int, topic: str, first: int) -> None:
        super().__init__()
        self.acked = first - 1
        self.next = first
        self._topic = topic
        self._wire = Http1(port)

    def run(self) -> None:
        while True:
            numbers = range(self.next, self.next + 1 + self.next % 7)
            self.next = numbers[-1] + 1
            body = dumps({"records": [{"data": n} for n in numbers]})
            json = {"content-type": "application/json"}
            try:
                self._wire.send("POST", f"/v0/topics/{self._topic}", body, json)
                answer = check(self._wire.receive())
            except (Ended, OSError):
                self._wire.reset()
                return
            assert answer.status in (200, 201), answer
            self.acked = numbers[-1]


@pytest.mark.long
def test_killed_while_it_forwards(private: Start, is_full: bool) -> None:
    """SIGKILL at any moment: each acknowledged record is copied once, in order, and a seq of the
    destination never holds another record; sixty times with `-m long`. (§6)"""
    kills = 60 if is_full else 4
    draw = random.Random(5)
    server = private(segment_max_records=256)
    api = Api(server.connect(Http1))
    api.put("s", durability="fsync")
    dests = {"a": "at_least_once", "b": "exactly_once", "c": "at_least_once"}
    for dest, guarantee in dests.items():
        api.put(dest, durability=draw.choice(("disk", "fsync")))
        route(api, dest, "c" if dest == "b" else "s", dest, guarantee=guarantee)
    seen: dict[str, dict[int, int]] = {dest: {} for dest in dests}
    number = 0
    for _ in range(kills):
        writer = Writer(server.port, "s", number + 1)
        writer.start()
        enough = number + draw.randrange(1, 60)
        until("some writes", lambda w=writer, n=enough: w.acked >= n or not w.is_alive())
        server.kill()
        writer.join()
        number = writer.next - 1
        server.start()
        api = Api(server.connect(Http1))
        source = [record["data"] for record in api.walk("s", limit=1000)]
        assert source == sorted(set(source))
        assert writer.acked in source
        for dest in dests:
            found = {r["$seq"]: r["data"] for r in api.walk(dest, limit=1000)}
            assert list(found.values()) == source, dest
            assert seen[dest].items() <= found.items()
            seen[dest] = found
    (stamp,) = (r["meta"]["_topics_router"] for r in api.diff("b", limit=1)["records"])
    assert (stamp["source"], stamp["seq"]) == ("c", 1)
    assert server.stop() == 0
    server.assert_log_is_quiet()


def test_routers_survive_every_end(private: Start) -> None:
    """Definitions, cursors and counters survive; a backlog that a stop left is copied. (§6)"""
    server = private()
    api = Api(server.connect(Http1))
    api.put("d", cap_records=3, discard="reject")
    route(api, "r", "s", "d", filter="t*", preserve_node=False)
    api.append("s", *(tagged("t", i) for i in range(5)), 5)
    for end in (Server.stop, Server.kill):
        before = api.ok("GET", path("r"))
        assert (before["forwarded_total"], before["lag"]) == (3, 3)
        end(server)
        api = Api(server.start().connect(Http1))
        after = api.ok("GET", path("r"))
        for field in ("filter", "preserve_node", "cursor", "forwarded_total", "lag"):
            assert after[field] == before[field], field
    api.put("d", cap_records=30, discard="reject")
    until("the rest", lambda: api.state("d")["head_seq"] == 5)
    assert api.ok("GET", path("r"))["forwarded_total"] == 5
