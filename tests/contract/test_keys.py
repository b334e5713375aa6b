"""API keys over the wire: every cell of `access.py`, and what answers hold (§0.2, §8.3, §12)."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest

from topics.protocol.faces.http.routes import ROUTES

from .access import COMMANDS, INSIDE, OUTSIDE, ROWS, SCOPES, SUBSETS, Command, Row
from .hosts import OWN, STOCK, Host
from .keyed import FULL, INNER, Desk, key_with, prepared, said
from .server import Server
from .streams import Ws, Ws2, cut
from .wire import Http1, check

NO_KEYS: Mapping[str, Mapping[str, str]] = {
    "none": {},
    "unknown": {"authorization": "Bearer nobody"},
    "another scheme": {"authorization": f"Basic {FULL}"},
    "no scheme": {"authorization": FULL},
    "half a key": {"authorization": f"Bearer {FULL[:-1]}"},
    "two keys": {"authorization": f"Bearer {FULL}, Bearer {FULL}"},
    "another header": {"x-api-key": FULL},
}
"""What is no key, though each but two holds the secret of one."""


def _name(row: Row | Command) -> str:
    line = row.line if isinstance(row, Row) else row.op
    return " ".join((line, *row.names)).replace("/", ".")


# ---------------------------------------------------------------------- the table


def test_every_route_has_a_row() -> None:
    """A route that nobody thought about does not go out. (§0.2)"""
    assert {row.line for row in ROWS} == {route.line for route in ROUTES}


def test_the_servers_table_says_the_same() -> None:
    """Scopes are written twice, by hand, and agree. (§0.2)"""
    rows = {row.line: row for row in ROWS}
    for route in ROUTES:
        row = rows[route.line]
        assert route.scopes == (row.scopes or frozenset()), route.line
        assert (route.guard in ("open", "probe")) is (row.scopes is None), route.line
        assert route.takes_token is row.takes_token, route.line
        assert not route.has_name or row.names, route.line


# ---------------------------------------------------------------------- its cells


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_a_route_is_for_keys_with_its_scopes(desk: Desk, row: Row) -> None:
    """Every set of scopes: a key that has what the route needs is answered, any other gets 403, and
    nothing has changed then. (§0.2)"""
    needed = row.scopes or frozenset()
    before = desk.seen()

    for scopes in (each for each in SUBSETS if not needed <= each):
        answer = desk.row(row, key_with(scopes))
        assert answer.status == 403, scopes
        if row.method != "HEAD":
            assert answer.error["detail"] == {"scopes": sorted(needed - scopes)}
    assert desk.seen() == before
    for scopes in (each for each in SUBSETS if needed <= each):
        assert desk.row(row, key_with(scopes)).status == row.status, scopes


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_a_route_without_akey_with(desk: Desk, row: Row) -> None:
    """401 for whatever is no key, in the same words; probes and what holds no data are open. (§0.2,
    §8)"""
    target, body = row.filled()
    told = set()
    for what, headers in NO_KEYS.items():
        answer = desk.ask(None, row.method, target, body, **headers)
        if row.scopes is None:
            assert answer.status == 200, what
            continue
        assert answer.status == 401, what
        assert answer.headers["www-authenticate"] == "Bearer"
        if row.method != "HEAD":
            told.add(json.dumps(answer.error))
    assert len(told) <= 1


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_a_key_in_the_address(desk: Desk, row: Row) -> None:
    """`?token=` is a key on the two event streams only. (§7.1, §10.8)"""
    target, body = row.filled()
    target += ("&" if "?" in target else "?") + f"token={FULL}"

    status = desk.ask(None, row.method, target, body).status

    assert status == (row.status if row.takes_token or row.scopes is None else 401)


@pytest.mark.parametrize("row", [row for row in ROWS if row.names], ids=_name)
def test_every_name_is_inside_the_keys_prefixes(desk: Desk, row: Row) -> None:
    """In the path and in the body, one at a time: a name outside is 403, whether anything has it or
    not, in the same words, and nothing has changed then. (§0.2)"""
    assert desk.row(row, INNER).status == row.status
    before = desk.seen()
    for where in row.names:
        told = set()
        for name in OUTSIDE:
            answer = desk.row(row, INNER, **{where: name})
            assert answer.status == 403, (where, name)
            if row.method != "HEAD":
                told.add(json.dumps(answer.error).replace(name, "?"))
        assert len(told) <= 1, where
    assert desk.seen() == before


# ---------------------------------------------------------------------- commands of a WebSocket

SOCKETS = {"http1": Ws, "http2": Ws2}


@pytest.fixture(params=sorted(SOCKETS))
def dialled(
    request: pytest.FixtureRequest, keyed: Callable[[Host], Server]
) -> Iterator[Callable[[str], Ws]]:
    """Opens WebSockets with keys."""
    server = keyed(OWN)
    prepared(server, wire := Http1(server.port))
    wire.reset()
    made: list[Ws] = []

    def dial(key: str) -> Ws:
        made.append(SOCKETS[request.param](server.port, api_key=key))
        return made[-1]

    yield dial
    for each in made:
        cut(each)


@pytest.mark.parametrize("command", COMMANDS, ids=_name)
def test_a_command_is_for_keys_with_its_scopes(
    dialled: Callable[[str], Ws], command: Command
) -> None:
    """Any key opens the socket; each command asks for its own scopes. (§7.7)"""
    for scopes in SUBSETS:
        kind, fields = said(dialled(key_with(scopes)), command.filled())
        assert kind == (command.reply if command.scopes <= scopes else "error"), scopes
        assert kind != "error" or fields["code"] == "forbidden"


@pytest.mark.parametrize("command", [each for each in COMMANDS if each.names], ids=_name)
def test_every_name_of_a_command(dialled: Callable[[str], Ws], command: Command) -> None:
    """One at a time; the socket stays. (§7.7)"""
    client = dialled(INNER)
    for where in command.names:
        for name in OUTSIDE:
            kind, fields = said(client, command.filled(**{where: name}))
            assert (kind, fields.get("code")) == ("error", "forbidden"), (where, name)
    assert said(client, command.filled())[0] == command.reply


@pytest.mark.parametrize("over", ["http", "socket"])
def test_a_config_is_the_admins(desk: Desk, name: str, over: str) -> None:
    """A write may make a topic; with a `config` that would be applied it needs `admin`, too, and
    makes none without. (§0.2, §2)"""
    writer, admin = key_with(frozenset({"write"})), key_with(frozenset({"write", "admin"}))
    body = {"records": [{"data": 1}], "config": {"ttl_ms": 60_000}}

    def status(key: str) -> int:
        if over == "http":
            return desk.ask(key, "POST", f"/v0/topics/{name}", body).status
        socket = Ws(desk.server.port, api_key=key)
        kind, fields = said(socket, {"op": "publish", "topic": name, **body})
        cut(socket)
        return 201 if kind == "ack" and fields["created"] else 200 if kind == "ack" else 403

    assert status(writer) == 403
    assert desk.ask(FULL, "GET", f"/v0/topics/{name}").status == 404
    assert status(admin) == 201
    assert status(writer) == 200, "it exists, so the config is not applied"


# ---------------------------------------------------------------------- what answers hold


@pytest.mark.parametrize("size", [1, 2, 1000])
@pytest.mark.parametrize("kind", ["topics", "routers", "groups", "schedules"])
def test_lists_hold_what_the_key_may_touch(desk: Desk, kind: str, size: int) -> None:
    """Whatever the page size, each name once; a router is listed if all its names are inside. (§0.2)"""
    desk.ask(FULL, "PUT", "/v0/topics/also:this", {})
    offsets = {"offsets": [{"topic": "out.log", "seq": 0}]}
    desk.ask(FULL, "POST", "/v0/groups/also:that/commit", offsets)

    def listed(key: str, query: str) -> list[str]:
        names, cursor = list[str](), ""
        while True:
            target = f"/v0/{kind}?page_size={size}{query}{cursor}"
            page = desk.ask(key, "GET", target).json
            names += [each[kind.removesuffix("s")] for each in page[kind]]
            if "next_cursor" not in page:
                return names
            cursor = f"&cursor={page['next_cursor']}"

    everything = listed(FULL, "")
    mine = [name for name in everything if name.startswith(("in.", "also:")) and name != "in.leak"]
    assert listed(INNER, "") == mine
    assert len(mine) < len(everything)
    assert listed(INNER, "&prefix=out") == []
    assert listed(INNER, "&prefix=i") == [name for name in mine if name.startswith("i")]
    assert listed(INNER, "&prefix=in.l") == [name for name in mine if name.startswith("in.l")]


def test_a_schedule_with_a_foreign_topic_is_foreign(desk: Desk) -> None:
    """Its own name is inside, and the topic that it appends to is not. (§0.2, §14)"""
    mine = {"topic": "in.log", "record": {"data": 1}, "every_ms": 1000}
    for method, action, given in (
        *(("GET", "", None), ("PUT", "", mine), ("DELETE", "", None)),
        *(("POST", "/run", None), ("POST", "/pause", None), ("POST", "/resume", None)),
    ):
        answer = desk.ask(INNER, method, f"/v0/schedules/in.leak{action}", given)
        assert (answer.status, answer.code) == (403, "forbidden")

    assert desk.ask(FULL, "GET", "/v0/schedules/in.leak").json["topic"] == "out.log"


def test_a_group_shows_no_foreign_topic(desk: Desk) -> None:
    """Its own name is inside, and of its offsets those of topics that the key may touch. (§0.2, §13.2)"""
    everything, mine = (
        {each["topic"] for each in desk.ask(key, "GET", "/v0/groups/in.group").json["offsets"]}
        for key in (FULL, INNER)
    )
    assert everything - mine == {"out.log"}
    assert "in.log" in mine


def test_a_router_with_a_foreign_end_is_foreign(desk: Desk) -> None:
    """Its own name is inside, and it is neither shown, changed nor deleted. (§0.2)"""
    body = {"source": "in.log", "dest": "in.dest"}
    for method, given in (("GET", None), ("PUT", body), ("DELETE", None)):
        answer = desk.ask(INNER, method, "/v0/routers/in.leak", given)
        assert (answer.status, answer.code) == (403, "forbidden")
        assert b"out." not in answer.body
    assert desk.ask(FULL, "GET", "/v0/routers/in.leak").json["source"] == "out.log"


def test_refusals_name_no_foreign_topic(desk: Desk, name: str) -> None:
    """A ring and a second source are refused, and what is foreign in them is left out. (§0.2)"""
    mine, foreign = f"in.{name}", f"out.{name}"
    for router, source, dest in (("a", mine, foreign), ("b", foreign, f"{mine}.b")):
        body = {"source": source, "dest": dest}
        desk.ask(FULL, "PUT", f"/v0/routers/out.{name}.{router}", body)

    ring = desk.ask(INNER, "PUT", f"/v0/routers/{mine}.r", {"source": f"{mine}.b", "dest": mine})
    second = desk.ask(
        INNER, "PUT", f"/v0/routers/{mine}.r", {"source": "in.log", "dest": f"{mine}.b"}
    )

    assert (ring.status, ring.code) == (409, "router_cycle")
    assert set(ring.error["detail"]["cycle"]) == {mine, f"{mine}.b"}
    assert second.error["detail"] == {"reason": "router_dest_fan_in", "topic": f"{mine}.b"}
    assert foreign.encode() not in ring.body + second.body


def test_a_deleted_topic_names_no_foreign_router(desk: Desk, name: str) -> None:
    """Its routers go with it, and those that are the key's are named. (§0.2, §1.4)"""
    mine = f"in.{name}"
    for router, dest in ((f"in.{name}.r", f"{mine}.x"), (f"out.{name}", f"out.{name}")):
        desk.ask(FULL, "PUT", f"/v0/routers/{router}", {"source": mine, "dest": dest})

    answer = desk.ask(INNER, "DELETE", f"/v0/topics/{mine}")

    assert answer.json["routers_removed"] == [f"in.{name}.r"]
    assert desk.ask(FULL, "GET", f"/v0/routers/out.{name}").status == 404


def test_a_config_names_no_foreign_topic(desk: Desk, name: str) -> None:
    """A dead-letter topic that the key may not touch is not shown to it. (§0.2)"""
    config = {"type": "queue", "dead_letter": f"out.{name}"}
    desk.ask(FULL, "PUT", f"/v0/topics/in.{name}", config)

    def letters(key: str) -> Any:
        return desk.ask(key, "GET", f"/v0/topics/in.{name}").json["config"]["dead_letter"]

    assert letters(INNER) is None
    assert letters(FULL) == f"out.{name}"


def test_metrics_name_the_keys_topics(desk: Desk) -> None:
    """Gauges of single topics are of those inside; aggregates count all. (§8.3)"""
    mine, everything = (desk.ask(key, "GET", "/v0/metrics").body.decode() for key in (INNER, FULL))

    assert 'topic="in.log"' in mine
    assert 'topic="out.' not in mine
    assert 'topic="out.log"' in everything
    total = next(line for line in everything.splitlines() if line.startswith("topics_topics "))
    assert total in mine


# ---------------------------------------------------------------------- order


def test_refusals_come_in_order(desk: Desk) -> None:
    """Each request has all faults of the next one, and one more. (§0.6)"""
    evil, text = {"origin": "http://evil.example"}, {"content-type": "text/plain"}
    read, admin = key_with(frozenset({"read"})), key_with(frozenset({"admin"}))
    table: tuple[tuple[str | None, str, str, Any, Mapping[str, str], tuple[int, str]], ...] = (
        ("nobody", "PATCH", "/v0/nothing", None, {**evil}, (403, "forbidden")),
        ("nobody", "PATCH", "/v0/nothing", None, {}, (401, "unauthorized")),
        (read, "PATCH", "/v0/nothing", None, {}, (404, "not_found")),
        (read, "PATCH", "/v0/topics/out.log", None, {}, (405, "method_not_allowed")),
        (read, "PUT", "/v0/topics/out.log", "x", text, (403, "forbidden")),
        (INNER, "PUT", "/v0/topics/out.log", "x", text, (403, "forbidden")),
        (INNER, "PUT", "/v0/topics/in.log", "x", text, (415, "unsupported_media_type")),
        (INNER, "PUT", "/v0/topics/in.log", "x", {}, (400, "invalid_request")),
        (admin, "PUT", "/v0/topics/in.log", {"type": "queue"}, {},
         (409, "topic_exists_incompatible")),
    )  # fmt: skip
    for key, method, target, body, headers, refusal in table:
        answer = desk.ask(key, method, target, body, **headers)
        assert (answer.status, answer.code) == refusal, (method, target, refusal)


def test_two_keys_are_none(keyed: Callable[[Host], Server]) -> None:
    """Two `Authorization` headers are 401 whichever of them is a key: a proxy could go by the other
    one. (§0.2)"""
    wire = Http1(keyed(OWN).port)
    good, bad = f"Bearer {FULL}", "Bearer nobody"
    for values in ((good, bad), (bad, good), (good, good)):
        lines = "".join(f"Authorization: {value}\r\n" for value in values)
        wire.send_raw("GET", f"GET /v0/topics HTTP/1.1\r\nHost: localhost\r\n{lines}\r\n".encode())
        assert check(wire.receive()).status == 401
    wire.reset()


# ---------------------------------------------------------------------- beyond loopback


@pytest.mark.parametrize("has_keys", [False, True])
def test_who_may_be_addressed_beyond_loopback(
    private: Callable[..., Server], has_keys: bool
) -> None:
    """Without keys by an address, `localhost` or a name that was listed: any other may have been made to
    point here. With keys by any name, since a page would need one. (§0.2, §0.11)"""
    access = {"api_keys": FULL} if has_keys else {"allow_insecure_no_auth": 1}
    named = {} if has_keys else {"allowed_hosts": "topics.example"}
    desk = Desk(server := private(host="0.0.0.0", **access, **named), server.connect(Http1))
    for host, is_good in (
        ("127.0.0.1", True),
        ("192.0.2.7:4000", True),
        ("[2001:db8::7]:4000", True),
        ("localhost:4000", True),
        ("topics.example", True),
        ("evil.example", has_keys),
    ):
        answer = desk.ask(FULL, "GET", "/v0/topics", host=host)
        assert answer.status == (200 if is_good else 403), host


# ---------------------------------------------------------------------- stock servers

SAMPLE = [row for row in ROWS if row.names or row.scopes is None]


@pytest.mark.parametrize("host", STOCK, ids=lambda host: host.name)
def test_a_sample_over_stock_servers(host: Host, keyed: Callable[[Host], Server]) -> None:
    """The application asks for keys wherever it is hosted. (§0.2)"""
    server = keyed(host)
    desk = prepared(server, wire := Http1(server.port))
    for row in SAMPLE:
        is_open = row.scopes is None
        assert desk.row(row, None).status == (200 if is_open else 401), row.line
        assert desk.row(row, "nobody").status == (200 if is_open else 401), row.line
        assert desk.row(row, INNER).status == row.status, row.line
        for where in row.names:
            assert desk.row(row, INNER, **{where: "out.log"}).status == 403, (row.line, where)
        if row.scopes:
            lacking = frozenset(SCOPES) - {sorted(row.scopes)[0]}
            assert desk.row(row, key_with(lacking)).status == 403, row.line
    wire.reset()
    socket = Ws(server.port, api_key=key_with(frozenset({"write"})))
    assert said(socket, {"op": "subscribe", "topic": INSIDE["topic"]})[0] == "error"
    assert said(socket, {"op": "ping"})[0] == "pong"
    cut(socket)
