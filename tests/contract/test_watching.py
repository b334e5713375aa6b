"""Watching over real sockets: HTTP/1.1, HTTP/2 and WebSocket; cuts, stalls, takeovers, a stop (§7)."""

import json
import random
import re
import selectors
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from .api import Api
from .server import Server
from .server import until as wait_until
from .streams import Client, Ended, News, Sse1, Sse2, Truth, Ws, Ws2, cut, news, read, until
from .wire import Http1

PROTOCOLS: Final = ("http1", "http2", "websocket")
every_protocol = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture
def clients() -> Iterator[Callable[..., Any]]:
    """Opens streams that end with the test."""
    made: list[Client] = []

    def open_(kind: Callable[..., Any], *args: Any, **named: Any) -> Any:
        made.append(kind(*args, **named))
        return made[-1]

    yield open_
    for client in made:
        client.socket.close()


Open = Callable[..., Any]


def api_of(server: Server) -> Api:
    return Api(server.connect(Http1))


def session(api: Api, *names: str, **fields: object) -> Any:
    topics: dict[str, object] = {name: {} for name in names}
    return api.ok("POST", "/v0/watch", {"topics": topics, **fields})


def gauges(api: Api) -> tuple[int, int]:
    """(streams, sessions)."""
    told = api.ask("GET", "/v0/metrics", headers={"accept": "application/json"}).json
    return told["topics_sse_connections"], told["topics_watch_sessions"]


# ---------------------------------------------------------------------- one stream


@pytest.mark.every_server
@pytest.mark.parametrize("kind", [Sse1, Sse2])
def test_backlog_live_and_resume(server: Server, name: str, kind: Any, clients: Open) -> None:
    """The first block has an id before any event; each frame moves it; a client resumes with it.
    (§7.3, §7.4)"""
    api = api_of(server)
    api.append(name, 1, 2, 3)
    posted = session(api, name, limit=2)
    stream = clients(kind, server.port, posted["wid"])
    first = until(stream, "record")
    assert [r["$seq"] for r in first.fields["records"]] == [1, 2]
    stream = clients(kind, server.port, posted["wid"], first.id)
    assert [r["$seq"] for r in until(stream, "record").fields["records"]] == [3]
    stream = clients(kind, server.port, posted["wid"], posted["cursor"])
    assert until(stream, "caught-up").fields["head_seq"] == 3
    api.append(name, "live")
    assert until(stream, "record").fields["records"][0]["data"] == "live"
    assert (stream.source.retry_ms, len(stream.source.comments)) == (2000, 1)


def test_an_id_may_come_in_the_query(server: Server, name: str, clients: Open) -> None:
    """A browser's first connection has it there; the header, which the browser sets later,
    overrides it. (§7.4)"""
    api = api_of(server)
    api.append(name, 1, 2, 3)
    posted = session(api, name)
    wid = posted["wid"]
    stream = clients(Sse1, server.port, wid)
    until(stream, "caught-up")
    stream = clients(Sse1, server.port, f"{wid}?last_event_id={posted['cursor']}")
    record = until(stream, "record")
    assert record.fields["from_seq"] == 0
    stream = clients(Sse1, server.port, f"{wid}?last_event_id={posted['cursor']}", record.id)
    assert next(iter(news(stream))).kind == "caught-up"


@pytest.mark.every_server
@pytest.mark.parametrize("kind", [Sse1, Sse2])
def test_256_topics_fit_into_an_id(server: Server, name: str, kind: Any, clients: Open) -> None:
    """The id of 256 topics with the longest numbers fits into a header. (§7.4)"""
    api = api_of(server)
    names = [f"{name}-{i}-{'x' * 200}" for i in range(256)]
    for each in names:
        api.append(each, 1)
    topics = {each: {"from_seq": 2**63} for each in names}
    posted = api.ok("POST", "/v0/watch", {"topics": topics})
    assert 6000 < len(posted["cursor"]) < 8000
    stream = clients(kind, server.port, posted["wid"], posted["cursor"])
    seen = {each.fields["topic"] for each in _until_caught_up(stream, names)}
    assert seen == set(names)
    again = clients(kind, server.port, posted["wid"], stream.source.last_event_id)
    kinds = {each.kind for each in _until_caught_up(again, names)}
    assert kinds == {"caught-up"}


def _until_caught_up(stream: Client, names: list[str]) -> Iterator[News]:
    left = set(names)
    for each in news(stream):
        yield each
        if each.kind == "caught-up":
            left.discard(each.fields["topic"])
        if not left:
            return


@pytest.mark.parametrize(
    ("accept", "status"), [("text/html", 406), ("text/event-stream", 200), ("*/*", 200)]
)
def test_head_opens_nothing(server: Server, name: str, accept: str, status: int) -> None:
    """The head of the stream, without a takeover; a wrong `Accept` is 406. (§7.3)"""
    api = api_of(server)
    api.append(name, 1)
    wid = session(api, name)["wid"]
    before = gauges(api)[0]
    wire = Http1(server.port)
    wire.send("HEAD", f"/v0/watch/{wid}", headers={"accept": accept})
    answer = wire.receive()
    assert answer.status == status
    if status == 200:
        assert answer.headers["connection"] == "keep-alive"
        assert answer.headers["cache-control"] == "no-store"
        assert answer.headers["x-accel-buffering"] == "no"
    assert gauges(api)[0] == before
    assert api.refused("GET", "/v0/watch/wid_nobody") == (404, "not_found")
    wire.reset()


@pytest.mark.parametrize(("old", "new"), [(Sse1, Sse2), (Sse2, Sse1)])
def test_the_newer_stream_takes_over(
    server: Server, name: str, old: Any, new: Any, clients: Open
) -> None:
    """The older stream gets an error of 409 and ends, over any two protocols. (§7.3)"""
    api = api_of(server)
    api.append(name, 1)
    wid = session(api, name)["wid"]
    older = clients(old, server.port, wid)
    until(older, "caught-up")
    newer = clients(new, server.port, wid)
    until(newer, "caught-up")
    assert until(older, "error").fields["code"] == 409
    api.append(name, "for the newer")
    assert until(newer, "record").fields["to_seq"] == 2


@pytest.mark.parametrize("kind", [Ws, Ws2])
@pytest.mark.parametrize(
    ("frame", "code"),
    [
        (b"\x81\x81\0\0\0\0\xff", 1007),
        (b"\x81\x01x", 1002),
        (b"\x83\x80\0\0\0\0", 1002),
        (b"\xc1\x80\0\0\0\0", 1002),
        (b"\x88\x82\0\0\0\0\x03\xe8", 1000),
    ],
    ids=["no text", "not masked", "unknown opcode", "reserved bit", "its own close"],
)
def test_a_socket_that_is_broken_off_is_closed(
    server: Server, clients: Open, kind: Any, frame: bytes, code: int
) -> None:
    """With a Close frame that has the reason (RFC 6455 §7.1.7). (§7.7)"""
    socket = clients(kind, server.port)
    socket.say(op="ping", request_id=1)
    until(socket, "pong")
    socket.put(frame)
    for each in news(socket):
        assert (each.kind, each.fields) == ("close", {"code": code})
        break


@pytest.mark.every_server
@every_protocol
def test_a_stop_is_told(private: Callable[..., Server], protocol: str, clients: Open) -> None:
    """The last frame is an error of 503, and the server ends within its grace period, cleanly.
    (§7.5)"""
    server = private()
    api = api_of(server)
    api.append("t", 1)
    stream = opened(server, api, protocol, clients)
    until(stream, "caught-up")
    pid_ends = threading.Thread(target=server.stop)
    pid_ends.start()
    error = until(stream, "error").fields
    assert error["code"] == ("shutting_down" if protocol == "websocket" else 503)
    pid_ends.join()
    server.assert_log_is_quiet()


def opened(server: Server, api: Api, protocol: str, clients: Open, *names: str, **more: Any) -> Any:
    """A stream over some topics, from their beginning."""
    names = names or ("t",)
    receive_bytes = more.pop("receive_bytes", None)
    if protocol == "websocket":
        socket = clients(Ws, server.port, receive_bytes=receive_bytes)
        socket.say(op="subscribe", topics={name: {} for name in names}, **more)
        return socket
    wid = session(api, *names, **more)["wid"]
    if protocol == "http1":
        return clients(Sse1, server.port, wid, receive_bytes=receive_bytes)
    window = None if receive_bytes is None else 0
    return clients(Sse2, server.port, wid, receive_bytes=receive_bytes, window=window)


@pytest.mark.every_server
def test_a_socket_is_told_that_a_compacted_topic_needs_keys(
    server: Server, name: str, clients: Open
) -> None:
    """As over HTTP. (§2, §7.7)"""
    socket = clients(Ws, server.port)
    keyed = {"data": 1, "tag": "a"}
    config = {"compact": True}
    socket.say(op="publish", topic=name, records=[keyed], config=config, request_id=1)
    assert until(socket, "ack").fields["seqs"] == [1]
    socket.say(op="publish", topic=name, records=[keyed, {"data": 2}], request_id=2)
    assert until(socket, "error").fields["code"] == "key_required"


@pytest.mark.every_server
def test_a_socket_writes_and_reads(server: Server, name: str, clients: Open) -> None:
    """One connection for both directions; a long message is one message. (§7.7)"""
    socket = clients(Ws, server.port)
    long = "x" * 90_000
    socket.say(op="publish", topic=name, records=[{"data": 1}], request_id=1)
    assert until(socket, "ack").fields["seqs"] == [1]
    socket.say(op="subscribe", topic=name, tail=True, request_id=2)
    assert until(socket, "subscribed").fields["topics"][name]["from_seq"] == 1
    socket.say(op="publish", topic=name, records=[{"data": long}], return_seqs=False)
    kinds = {}
    for each in news(socket):
        kinds[each.kind] = each.fields
        if {"ack", "record"} <= set(kinds):
            break
    assert "seqs" not in kinds["ack"]
    assert kinds["record"]["records"][0]["data"] == long
    socket.send(2, b"binary")
    assert until(socket, "error").fields["code"] == "invalid_request"
    socket.say(op="ping", request_id=2**70)
    error = until(socket, "error").fields
    assert (error["code"], error.get("request_id")) == ("invalid_request", None)
    socket.say(op="ping", request_id="still there")
    assert until(socket, "pong").fields["request_id"] == "still there"


def test_the_gauges_count_streams_and_sessions(
    private: Callable[..., Server], clients: Open
) -> None:
    """Event streams and WebSockets are counted, and no longer once they end in any way. (§8.3)"""
    server = private()
    api = api_of(server)
    api.append("t", 1)
    assert gauges(api) == (0, 0)
    streams = [opened(server, api, protocol, clients) for protocol in PROTOCOLS]
    for stream in streams:
        until(stream, "caught-up")
    assert gauges(api) == (3, 2)
    for stream in streams:
        cut(stream)
    wait_until("no stream", lambda: gauges(api) == (0, 2))


def test_connections_are_bounded(private: Callable[..., Server], clients: Open) -> None:
    """429 with the limit's name, and another stream opens when one ends. (§11)"""
    server = private(max_sse_connections=2)
    api = api_of(server)
    api.append("t", 1)
    streams = [opened(server, api, protocol, clients) for protocol in ("http1", "websocket")]
    for stream in streams:
        until(stream, "caught-up")
    wid = session(api, "t")["wid"]
    refused = api.ask("GET", f"/v0/watch/{wid}")
    assert (refused.status, refused.error["detail"]["limit"]) == (429, "max_sse_connections")
    cut(streams[1])
    wait_until("room", lambda: gauges(api)[0] == 1)
    until(clients(Sse1, server.port, wid), "caught-up")


# ---------------------------------------------------------------------- cuts

TOPICS: Final = tuple(f"t{i:02}" for i in range(64))
CAPPED: Final = TOPICS[::4]
CAP_RECORDS: Final = 60
BATCH: Final = 25


class Writer(threading.Thread):
    """Appends to all topics, deletes from them and has the capped ones evict, until it is done.

    Attributes:
        heads: By topic, the greatest seq that was given out.
        deleted: Seqs that deletes have covered.
    """

    def __init__(self, server: Server, records: int, seed: int) -> None:
        super().__init__()
        self._api = Api(Http1(server.port))
        self._records = records
        self._draw = random.Random(seed)
        self.heads = dict.fromkeys(TOPICS, 0)
        self.deleted: dict[str, set[int]] = {name: set() for name in TOPICS}
        self._tagged: dict[tuple[str, str], list[int]] = {}
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            written = 0
            while written < self._records:
                name = self._draw.choice(TOPICS)
                self._append(name)
                written += BATCH
                if self._draw.random() < 0.15:
                    self._remove(name)
        except BaseException as error:
            self.error = error
        finally:
            self._api.wire.reset()

    def _append(self, name: str) -> None:
        first = self.heads[name] + 1
        records = []
        for seq in range(first, first + BATCH):
            tag = self._draw.choice("abcd")
            self._tagged.setdefault((name, tag), []).append(seq)
            records.append({"data": [name, seq], "tag": tag})
        told = self._api.append(name, *records)
        assert told["first_seq"] == first
        self.heads[name] = told["last_seq"]

    def _remove(self, name: str) -> None:
        tag = self._draw.choice("abcd")
        self.deleted[name].update(self._tagged.pop((name, tag), []))
        self._api.delete(name, match=tag)


class Reader:
    """A client that is cut off again and again and resumes with the id that it has."""

    def __init__(self, server: Server, api: Api, protocol: str) -> None:
        self._server = server
        self._protocol = protocol
        self.truth = Truth(dict.fromkeys(TOPICS, 0))
        if protocol != "websocket":
            posted = session(api, *TOPICS, limit=20)
            self._wid = posted["wid"]
            self.truth.last_id = posted["cursor"]

    def connect(self) -> Client:
        self.truth.caught_up.clear()
        if self._protocol != "websocket":
            kind = Sse1 if self._protocol == "http1" else Sse2
            return kind(self._server.port, self._wid, self.truth.last_id)
        socket = Ws(self._server.port)
        topics = {name: {"from_seq": seq} for name, seq in self.truth.positions.items()}
        socket.say(op="subscribe", topics=topics, limit=20)
        return socket

    def read_and_be_cut(self, size: int) -> None:
        """Read exactly so many bytes of the wire, take what is whole among them, and disconnect."""
        client = self.connect()
        while size > 0:
            got, found = read(client, min(size, 1 << 16))
            size -= got
            for each in found:
                self._believe(each)
        cut(client)

    def read_to(self, heads: dict[str, int]) -> None:
        """Resume once more and read until caught up with everything."""
        client = self.connect()
        for each in news(client):
            self._believe(each)
            if self.truth.caught_up == heads:
                break
        cut(client)

    def _believe(self, each: News) -> None:
        assert each.kind in ("record", "tombstone", "caught-up", "subscribed"), each
        self.truth.believe(each)


@pytest.mark.long
@every_protocol
def test_cut_anywhere_nothing_is_lost_or_doubled(
    private: Callable[..., Server], protocol: str, is_full: bool
) -> None:
    """Cut at random bytes, over 64 topics with deletes and evictions: every record arrives once and
    in order, or is in a tombstone, or was deleted on request. (§7.4)"""
    cuts, records = (200, 100_000) if is_full else (25, 10_000)
    draw = random.Random(7)
    server = private()
    api = api_of(server)
    for name in TOPICS:
        api.put(name, cap_records=CAP_RECORDS if name in CAPPED else 0, durability="memory")
    writer = Writer(server, records, seed=11)
    reader = Reader(server, api, protocol)
    writer.start()
    for _ in range(cuts):
        # Some within the first block, some after many frames; a frame here is up to 3 KiB.
        reader.read_and_be_cut(int(draw.paretovariate(0.5) * 100) % (400 * records // cuts) + 1)
    writer.join()
    assert writer.error is None, writer.error
    reader.read_to(writer.heads)

    truth = reader.truth
    for name in TOPICS:
        found = truth.records.get(name, [])
        seqs = [seq for seq, _ in found]
        assert seqs == sorted(set(seqs)), name
        assert all(data == [name, seq] for seq, data in found), name
        missing = set(range(1, writer.heads[name] + 1)) - set(seqs)
        lost = truth.lost.get(name, set())
        assert missing <= lost | writer.deleted[name], name
        assert not lost or name in CAPPED, name
    assert sum(map(len, truth.records.values())) > records // 4
    wait_until("no stream", lambda: gauges(api)[0] == 0)
    server.assert_log_is_quiet()


# ---------------------------------------------------------------------- stalls


def resident_bytes(server: Server) -> int:
    lines = Path(f"/proc/{server.pid}/status").read_text().splitlines()
    (line,) = (line for line in lines if line.startswith("VmRSS"))
    return int(line.split()[1]) << 10


def drain(selector: selectors.BaseSelector, within_s: float) -> None:
    """Read what has arrived for the healthy readers."""
    for key, _ in selector.select(within_s):
        client, truth = key.data
        for each in read(client)[1]:
            truth.believe(each)


@pytest.mark.long
def test_stalled_readers_cost_little_and_hold_up_nobody(
    private: Callable[..., Server], clients: Open, is_full: bool
) -> None:
    """A client that does not read costs a cursor: memory stays constant, and other clients keep
    receiving. (§7.6)"""
    each_stalled, healthy = (200, 20) if is_full else (20, 6)
    server = private(hot_max_bytes=16 << 20)
    api = api_of(server)
    api.put("t", cap_records=1000, durability="memory")
    api.append("t", "first")
    for protocol in PROTOCOLS:
        for _ in range(each_stalled):
            stalled = opened(
                server, api, protocol, clients, receive_bytes=4096, max_batch_bytes=65_536
            )
            del stalled
    selector = selectors.DefaultSelector()
    truths = []
    for i in range(healthy):
        client = opened(server, api, PROTOCOLS[i % 3], clients, max_batch_bytes=65_536)
        truths.append(Truth({"t": 0}))
        selector.register(client.socket, selectors.EVENT_READ, (client, truths[-1]))
    wait_until("streams", lambda: gauges(api)[0] == 3 * each_stalled + healthy)
    before = resident_bytes(server)

    batch = ["x" * 10_000] * 50
    records = {"records": [{"data": data} for data in batch]}
    left = 60
    while left:
        # Where the disk is slower than the writer, the bound on memory pushes back.
        answer = api.ask("POST", "/v0/topics/t", records)
        assert answer.status in (200, 429), answer
        if answer.status == 200:
            head_seq = answer.json["head_seq"]
            left -= 1
        drain(selector, 0)
    while not all(truth.positions["t"] == head_seq for truth in truths):
        assert selector.select(20), "a healthy stream receives nothing"
        drain(selector, 0)

    # 30 MB went by; held back for each of them it would be gigabytes.
    held = resident_bytes(server) - before
    assert held < (64 << 20) + 3 * each_stalled * (512 << 10), held
    assert gauges(api)[0] == 3 * each_stalled + healthy
    for truth in truths:
        assert truth.records["t"][-1][0] == head_seq
    selector.close()
    server.assert_log_is_quiet()


def test_a_stalled_reader_that_wakes_up_is_told_what_it_missed(
    private: Callable[..., Server], clients: Open
) -> None:
    """In a capped topic it gets a tombstone, and then the live records. (§7.6)"""
    server = private()
    api = api_of(server)
    api.put("t", cap_records=100)
    streams = [
        opened(server, api, protocol, clients, receive_bytes=4096, limit=10)
        for protocol in ("http1", "websocket")
    ]
    for _ in range(40):
        api.append("t", *["x" * 5000] * 100)
    head_seq = api.state("t")["head_seq"]
    for stream in streams:
        truth = Truth({"t": 0})
        for each in news(stream):
            truth.believe(each)
            if truth.positions["t"] == head_seq:
                break
        seqs = {seq for seq, _ in truth.records["t"]}
        assert truth.lost["t"]
        assert seqs | truth.lost["t"] == set(range(1, head_seq + 1))


def test_a_client_that_ends_its_half_is_let_go(server: Server, name: str, clients: Open) -> None:
    """When a client closes its half of the connection, its stream ends, and its session stays.
    (§7.1)"""
    api = api_of(server)
    api.append(name, 1)
    posted = session(api, name)
    stream = clients(Sse1, server.port, posted["wid"])
    until(stream, "caught-up")
    stream.socket.close()
    again = clients(Sse1, server.port, posted["wid"], posted["cursor"])
    assert until(again, "record").fields["to_seq"] == 1
    again.socket.shutdown(1)
    with pytest.raises(Ended):
        list(news(again))


def test_a_restart_loses_sessions_and_no_position(private: Callable[..., Server]) -> None:
    """The old session is 404; a new one continues from its last id. (§7.1, §7.2)"""
    server = private()
    api = api_of(server)
    api.append("t", 1, 2, 3)
    posted = session(api, "t", limit=2)
    stream = Sse1(server.port, posted["wid"])
    first = until(stream, "record")
    assert server.stop() == 0
    stream.socket.close()
    server.start()
    api = api_of(server)
    assert api.refused("GET", f"/v0/watch/{posted['wid']}") == (404, "not_found")
    again = session(api, "t", cursor=first.id)
    stream = Sse1(server.port, again["wid"])
    assert json.dumps(until(stream, "record").fields["from_seq"]) == "2"
    stream.socket.close()


def test_the_reader_in_the_documentation(server: Server, name: str, clients: Open) -> None:
    """It reads, receives new records, and ends when another stream takes over its session. (§7)"""
    page = (Path(__file__).parents[2] / "docs" / "watching.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", page, re.S)
    known: dict[str, Any] = {}
    exec(code, known)
    api = api_of(server)
    api.append(name, 1, 2)

    events = known["follow"](f"http://localhost:{server.port}", {name: {"from_seq": 0}})
    assert [next(events)[0] for _ in range(2)] == ["record", "caught-up"]
    api.append(name, "new")
    event, data = next(events)
    assert (event, data["records"][0]["data"]) == ("record", "new")
    until(clients(Sse1, server.port, events.gi_frame.f_locals["session"]["wid"]), "caught-up")
    assert [(event, data["code"]) for event, data in events] == [("error", 409)]
