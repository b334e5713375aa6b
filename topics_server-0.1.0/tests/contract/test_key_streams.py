"""Keys and what they have open: sessions, streams, removed keys, limits of a key (§0.2, §7.1, §11)."""

import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from .conftest import PROTOCOLS
from .keyed import FULL, INNER, OTHER, Desk, prepared, said
from .server import Server, until
from .streams import Client, News, Sse1, Sse2, Ws, Ws2, cut, news, read
from .streams import until as until_news
from .wire import Http1, ask


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
    desk = prepared(server, server.connect(PROTOCOLS[protocol]))
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


def test_a_key_with_other_rights_is_anotherkey_with(
    private: Callable[..., Server], tmp_path: Path
) -> None:
    """What it had open ends with its old rights; the same entry read again changes nothing. (§7.1)"""
    file = tmp_path / "keys"
    file.write_text(f"{FULL}\n{OTHER}:read\n")
    server = private(api_keys_file=file)
    desk = prepared(server, server.connect(Http1))
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
    desk = prepared(server, server.connect(Http1))
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
    desk = prepared(server, server.connect(Http1))
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
