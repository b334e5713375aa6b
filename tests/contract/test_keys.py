"""API keys over the wire: every cell of `access.py`, and what keys do to streams (§0.2, §7.1, §12)."""

import json
import signal
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from topics.protocol.http.routes import ROUTES

from .access import COMMANDS, INSIDE, OUTSIDE, ROWS, SCOPES, SUBSETS, Command, Row
from .api import dumps
from .conftest import PROTOCOLS
from .hosts import OWN, STOCK, Host
from .server import Server, until
from .streams import Client, News, Sse1, Sse2, Ws, Ws2, cut, news, read
from .streams import until as until_news
from .wire import Answer, Http1, Wire, ask, check

FULL, OTHER, INNER = "full-7f3a", "other-19bc", "inner-55d0"
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


def _key(scopes: frozenset[str]) -> str:
    return "k-" + "-".join(sorted(scopes))


ENTRIES = (
    FULL,
    OTHER,
    f"{INNER}::in.|also:",
    *(f"{_key(scopes)}:{'+'.join(sorted(scopes))}" for scopes in SUBSETS),
)


class Desk:
    """A server with keys, asked with any of them."""

    def __init__(self, server: Server, wire: Wire) -> None:
        self.server, self.wire = server, wire

    def ask(
        self, key: str | None, method: str, target: str, body: Any = None, **headers: str
    ) -> Answer:
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        return ask(self.wire, method, target, b"" if body is None else dumps(body), headers)

    def row(self, row: Row, key: str | None, **other: str) -> Answer:
        target, body = row.filled(**other)
        return self.ask(key, row.method, target, body)

    def seen(self) -> Any:
        """Every topic and router with what a refusal must not change, as a key that may see all of
        them does; not what routers still copy."""
        topics = self.ask(FULL, "GET", "/v0/topics").json["topics"]
        routers = self.ask(FULL, "GET", "/v0/routers").json["routers"]
        ends = {each["router"]: (each["source"], each["dest"]) for each in routers}
        copies = {dest for _, dest in ends.values()}
        return ends, {
            each["topic"]: each["topic"] in copies or (each["head_seq"], each["count"])
            for each in topics
        }


def _prepared(server: Server, wire: Wire) -> Desk:
    desk = Desk(server, wire)
    for name in ("in.log", "in.second", "out.log"):
        desk.ask(FULL, "PUT", f"/v0/topics/{name}", {})
    desk.ask(FULL, "PUT", "/v0/topics/in.queue", {"type": "queue"})
    for name, source, dest in (
        ("in.router", "in.log", "in.dest"),
        ("out.router", "out.log", "out.dest"),
        ("in.leak", "out.log", "out.other"),
    ):
        desk.ask(FULL, "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})
    return desk


@pytest.fixture(scope="module")
def keyed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[Host], Server]]:
    """Servers with the keys of `ENTRIES`; whatever they were sent, their logs hold no secret."""
    servers: dict[str, Server] = {}

    def start(host: Host) -> Server:
        if host.name not in servers:
            home = tmp_path_factory.mktemp(f"keyed-{host.name}")
            servers[host.name] = Server(home, host, api_keys=",".join(ENTRIES)).start()
        return servers[host.name]

    yield start
    for server in servers.values():
        assert server.stop() == 0
        server.assert_log_is_quiet()
        for secret in (FULL, OTHER, INNER):
            assert secret not in server.log_text()


@pytest.fixture(params=sorted(PROTOCOLS))
def desk(request: pytest.FixtureRequest, keyed: Callable[[Host], Server]) -> Iterator[Desk]:
    server = keyed(OWN)
    wire = PROTOCOLS[request.param](server.port)
    yield _prepared(server, wire)
    wire.reset()


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
        answer = desk.row(row, _key(scopes))
        assert answer.status == 403, scopes
        if row.method != "HEAD":
            assert answer.error["detail"] == {"scopes": sorted(needed - scopes)}
    assert desk.seen() == before
    for scopes in (each for each in SUBSETS if needed <= each):
        assert desk.row(row, _key(scopes)).status == row.status, scopes


@pytest.mark.parametrize("row", ROWS, ids=_name)
def test_a_route_without_a_key(desk: Desk, row: Row) -> None:
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
    _prepared(server, wire := Http1(server.port))
    wire.reset()
    made: list[Ws] = []

    def dial(key: str) -> Ws:
        made.append(SOCKETS[request.param](server.port, api_key=key))
        return made[-1]

    yield dial
    for each in made:
        cut(each)


def said(client: Client, message: Mapping[str, Any]) -> tuple[str, Mapping[str, Any]]:
    """The reply to a command; frames of what was subscribed before are passed over."""
    client.say(**message, request_id=7)  # type: ignore[attr-defined]
    for each in news(client):
        if each.fields.get("request_id") == 7:
            return each.kind, each.fields
    raise AssertionError("unreachable")


@pytest.mark.parametrize("command", COMMANDS, ids=_name)
def test_a_command_is_for_keys_with_its_scopes(
    dialled: Callable[[str], Ws], command: Command
) -> None:
    """Any key opens the socket; each command asks for its own scopes. (§7.7)"""
    for scopes in SUBSETS:
        kind, fields = said(dialled(_key(scopes)), command.filled())
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
    writer, admin = _key(frozenset({"write"})), _key(frozenset({"write", "admin"}))
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
@pytest.mark.parametrize("kind", ["topics", "routers"])
def test_lists_hold_what_the_key_may_touch(desk: Desk, kind: str, size: int) -> None:
    """Whatever the page size, each name once; a router is listed if all its names are inside. (§0.2)"""
    desk.ask(FULL, "PUT", "/v0/topics/also:this", {})

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
    read, admin = _key(frozenset({"read"})), _key(frozenset({"admin"}))
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


# ---------------------------------------------------------------------- sessions and streams


def test_a_session_is_its_keys(desk: Desk) -> None:
    """Another key is refused in the words for an unknown one: a `wid` is no credential. (§7.1)"""
    wid = desk.ask(FULL, "POST", "/v0/watch", {"topics": {"in.log": {}}}).json["wid"]

    def told(key: str | None) -> tuple[int, Any]:
        # A refusal of a stream is an answer like any other.
        wire = Http1(desk.server.port)
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        answer = ask(wire, "GET", f"/v0/watch/{wid}", b"", headers)
        wire.reset()
        return answer.status, answer.error

    assert told(OTHER) == told(INNER) == told("nobody") == told(None)
    assert told(OTHER)[0] == 401
    assert desk.ask(FULL, "HEAD", f"/v0/watch/{wid}").status == 200
    assert desk.ask(OTHER, "HEAD", f"/v0/watch/{wid}").status == 401


STREAMS = {"http1": (Sse1, Ws), "http2": (Sse2, Ws2)}


@pytest.mark.parametrize("protocol", sorted(STREAMS))
def test_a_removed_key_has_nothing_open(
    private: Callable[..., Server], tmp_path: Path, protocol: str
) -> None:
    """After a SIGHUP: streams, sockets and long polls of a key that is gone end, and say why; its jobs
    go back; those of a key that stayed go on. (§0.2)"""
    file = tmp_path / "keys"
    file.write_text(f"# two keys\n{FULL}\n\n{OTHER}:rw\n")
    server = private(api_keys_file=file)
    desk = _prepared(server, server.connect(PROTOCOLS[protocol]))
    desk.ask(FULL, "POST", "/v0/topics/in.queue", {"records": [{"data": 1}]})
    sse, ws = STREAMS[protocol]
    wids = {
        key: desk.ask(key, "POST", "/v0/watch", {"topics": {"in.log": {}}}).json["wid"]
        for key in (FULL, OTHER)
    }
    watches = {key: sse(server.port, f"/v0/watch/{wids[key]}", api_key=key) for key in wids}
    sockets = {key: ws(server.port, api_key=key) for key in wids}
    work = sse(server.port, "/v0/topics/in.queue/work?node=n", api_key=OTHER)
    for key in wids:
        until_news(watches[key], "caught-up")
        assert said(sockets[key], {"op": "subscribe", "topic": "in.log"})[0] == "subscribed"
    until_news(work, "job")
    poll = PROTOCOLS[protocol](server.port)
    head = {"authorization": f"Bearer {OTHER}", "content-type": "application/json"}
    poll.send("POST", "/v0/topics/in.second/diff", b'{"wait_ms": 30000}', head)
    # It is in flight once a later request of the same key has been answered.
    desk.ask(OTHER, "GET", "/v0/topics")

    file.write_text(f"{FULL}\n")
    server.signal(signal.SIGHUP)

    assert until_news(watches[OTHER], "error").fields["code"] == 401
    assert until_news(work, "error").fields["code"] == 401
    last = _to_the_end(sockets[OTHER])
    assert [each.fields["code"] for each in last] == ["unauthorized", 1001]
    assert poll.receive().status == 401
    assert desk.ask(OTHER, "GET", "/v0/topics").status == 401
    until("the job is back", lambda: _ready(desk) == 1)
    desk.ask(FULL, "POST", "/v0/topics/in.log", {"records": [{"data": 2}]})
    until_news(watches[FULL], "record")
    until_news(sockets[FULL], "record")
    for each in (*watches.values(), *sockets.values(), work):
        cut(each)
    poll.reset()


def _to_the_end(client: Client) -> list[News]:
    found = list[News]()
    for each in news(client):
        found += [each] if each.kind in ("error", "close") else []
        if each.kind == "close":
            return found
    raise AssertionError("unreachable")


def _ready(desk: Desk) -> int:
    return int(desk.ask(FULL, "GET", "/v0/topics/in.queue").json["queue"]["ready"])


def test_a_key_with_other_rights_is_another_key(
    private: Callable[..., Server], tmp_path: Path
) -> None:
    """What it had open ends with its old rights; the same entry read again changes nothing. (§7.1)"""
    file = tmp_path / "keys"
    file.write_text(f"{FULL}\n{OTHER}:read\n")
    server = private(api_keys_file=file)
    desk = _prepared(server, server.connect(Http1))
    watch = {"topics": {"in.log": {}}}
    wids = {key: desk.ask(key, "POST", "/v0/watch", watch).json["wid"] for key in (FULL, OTHER)}

    def reread(text: str, times: int) -> None:
        file.write_text(text)
        server.signal(signal.SIGHUP)
        until("it is read", lambda: server.log_text().count("SIGHUP") == times)

    reread(f"{OTHER}:read\n{FULL}\n", 1)
    assert desk.ask(OTHER, "HEAD", f"/v0/watch/{wids[OTHER]}").status == 200
    reread(f"{OTHER}:read:in.\n{FULL}\n", 2)
    assert desk.ask(OTHER, "HEAD", f"/v0/watch/{wids[OTHER]}").status == 404
    assert desk.ask(FULL, "HEAD", f"/v0/watch/{wids[FULL]}").status == 200
    assert desk.ask(OTHER, "GET", "/v0/topics/out.log").status == 403


@pytest.mark.parametrize("text", ["", "# none\n", f"{FULL}:bogus\n", f"{FULL}\n{FULL}\n", None])
def test_a_bad_keys_file_changes_nothing(
    private: Callable[..., Server], tmp_path: Path, text: str | None
) -> None:
    """The keys in force stay, and the log says what is wrong, without the secret. (§0.2)"""
    file = tmp_path / "keys"
    file.write_text(f"{FULL}\n")
    server = private(api_keys_file=file)
    desk = _prepared(server, server.connect(Http1))
    if text is None:
        file.unlink()
    else:
        file.write_text(text)

    server.signal(signal.SIGHUP)
    until("it is refused", lambda: "the keys in force stay" in server.log_text())

    assert desk.ask(FULL, "GET", "/v0/topics").status == 200
    assert desk.ask("nobody", "GET", "/v0/topics").status == 401
    assert FULL not in server.log_text()


def test_a_key_has_so_many_requests_and_streams(private: Callable[..., Server]) -> None:
    """429 names the limit; other keys go on; what ends makes room. (§11)"""
    server = private(
        api_keys=f"{FULL},{OTHER}", max_inflight_per_key=1, max_sse_connections_per_key=1
    )
    desk = _prepared(server, server.connect(Http1))
    poll, socket = server.connect(Http1), Ws(server.port, api_key=OTHER)
    assert said(socket, {"op": "ping"})[0] == "pong"
    head = {"authorization": f"Bearer {OTHER}", "content-type": "application/json"}
    poll.send("POST", "/v0/topics/in.second/diff", b'{"wait_ms": 30000}', head)

    def told() -> Any:
        answer = desk.ask(OTHER, "GET", "/v0/topics")
        return answer.status, answer.status == 429 and answer.error["detail"]

    until("the poll is in flight", lambda: told()[0] == 429)
    assert told() == (429, {"limit": "max_inflight_per_key", "max": 1})
    assert desk.ask(FULL, "GET", "/v0/topics").status == 200
    poll.reset()
    until("the poll is over", lambda: told()[0] == 200)
    # A socket is a stream, and no request in flight.
    answer = ask(desk.wire, "GET", "/v0/topics/in.queue/work?node=n", b"", head)
    assert answer.error["detail"] == {"limit": "max_sse_connections_per_key", "max": 1}
    cut(socket)
    until("the socket is over", lambda: _may_stream(server))


def _may_stream(server: Server) -> bool:
    client = Sse1(server.port, "/v0/topics/in.queue/work?node=n", api_key=OTHER)
    try:
        read(client)
    except AssertionError:
        return False
    finally:
        cut(client)
    return True


# ---------------------------------------------------------------------- stock servers

SAMPLE = [row for row in ROWS if row.names or row.scopes is None]


@pytest.mark.parametrize("host", STOCK, ids=lambda host: host.name)
def test_a_sample_over_stock_servers(host: Host, keyed: Callable[[Host], Server]) -> None:
    """The application asks for keys wherever it is hosted. (§0.2)"""
    server = keyed(host)
    desk = _prepared(server, wire := Http1(server.port))
    for row in SAMPLE:
        is_open = row.scopes is None
        assert desk.row(row, None).status == (200 if is_open else 401), row.line
        assert desk.row(row, "nobody").status == (200 if is_open else 401), row.line
        assert desk.row(row, INNER).status == row.status, row.line
        for where in row.names:
            assert desk.row(row, INNER, **{where: "out.log"}).status == 403, (row.line, where)
        if row.scopes:
            lacking = frozenset(SCOPES) - {sorted(row.scopes)[0]}
            assert desk.row(row, _key(lacking)).status == 403, row.line
    wire.reset()
    socket = Ws(server.port, api_key=_key(frozenset({"write"})))
    assert said(socket, {"op": "subscribe", "topic": INSIDE["topic"]})[0] == "error"
    assert said(socket, {"op": "ping"})[0] == "pong"
    cut(socket)
