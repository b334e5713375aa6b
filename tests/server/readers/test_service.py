"""What of a connection in a reader is decided there, and what in the engine's process: a real server's
HTTP/2 clients, in life, at its end, and when a reader is killed; and lists, with both ends on one loop."""

import asyncio
import signal
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson
import pytest
from contract.server import until
from contract.streams import Ended as StreamEnded
from contract.streams import Sse2
from contract.wire import Answer, Ended, Http2, ask

from server.links.joined import Joined
from server.links.joined import until as asked_until
from topics.protocol.model.commands import ListTopics
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.outcomes import TopicsListed
from topics.server.readers import service
from topics.server.readers.service import ReaderService

from .served import Sse, WithReaders, append, kill, put, read

LIST = ListTopics("", 5, "")


def wire_of(server: WithReaders) -> Http2:
    return server.connect(Http2)


def post(wire: Any, path: str, **fields: Any) -> Answer:
    return ask(wire, "POST", path, orjson.dumps(fields))


def watching(wire: Any, *topics: str) -> str:
    """The id of a new watch session."""
    return str(post(wire, "/v0/watch", topics={t: {"from_seq": 0} for t in topics}).json["wid"])


def test_one_connection_writes_reads_its_own_write_and_works(served: WithReaders) -> None:
    """A connection that a reader carries asks for everything: what is not the reader's is relayed, and
    each read sees every write that was acknowledged before. (§0.10)"""
    wire = wire_of(served)
    reads, relayed = (
        served.metric("topics_reader_requests_total"),
        served.metric("topics_reader_relayed_total"),
    )
    put(wire, "h2")
    for turn in range(1, 40):
        assert append(wire, "h2", turn).json["head_seq"] == turn
        page = read(wire, "h2", from_seq=turn - 1).json
        assert [record["data"] for record in page["records"]] == [turn]
    put(wire, "jobs", type="queue")
    append(wire, "jobs", "work")
    [job] = post(wire, "/v0/topics/jobs/claim", node="w").json["claimed"]
    leases = [job["lease_id"]]
    acked = post(wire, "/v0/topics/jobs/ack", node="w", seqs=[1], lease_ids=leases)
    assert acked.json["acked"] == 1
    until("reads", lambda: served.metric("topics_reader_requests_total") >= reads + 39)
    until("relayed", lambda: served.metric("topics_reader_relayed_total") >= relayed + 40)


def test_every_answer_is_the_engines_byte_for_byte(served: WithReaders) -> None:
    """Pages and refusals over a relay are those of a connection in the engine's process. (§0.5)"""
    relayed, engine = wire_of(served), served.http()
    put(engine, "same")
    append(engine, "same", *range(5))
    asks: list[tuple[str, str, bytes]] = [
        ("GET", "/v0/topics/same/records?limit=2", b""),
        ("HEAD", "/v0/topics/same/records", b""),
        ("GET", "/v0/topics/same/records?limit=x", b""),
        ("GET", "/v0/nowhere", b""),
        ("PATCH", "/v0/topics/same", b""),
        ("POST", "/v0/topics/none/diff", b"{}"),
        ("POST", "/v0/topics/same", b'{"records": ['),
        ("GET", "/v0/watch/unknown", b""),
        ("PUT", "/v0/topics/same/diff", b""),
        ("POST", "/v0/topics/sa%6De/nack", b"{}"),
    ]
    for method, path, body in asks:
        here, there = ask(relayed, method, path, body), ask(engine, method, path, body)
        assert (here.status, here.headers.get("etag")) == (there.status, there.headers.get("etag"))
        if here.status == 200:
            assert here.body == there.body
        else:
            assert here.json["error"] == there.json["error"], path


def test_lists_are_made_in_the_reader(served: WithReaders) -> None:
    """A list over HTTP/2 counts as a request of the reader, which asks for its numbers alone; its text
    is the engine's, and it shows the topic that was made before it. (§2.4)"""
    wire, engine = wire_of(served), served.http()
    reads = served.metric("topics_reader_requests_total")
    for turn in range(20):
        put(wire, f"listed-{turn}")
        listed = ask(wire, "GET", f"/v0/topics?prefix=listed-{turn}")
        assert listed.json["topics"][0]["topic"] == f"listed-{turn}"
    for path in ("/v0/topics?prefix=listed-&page_size=3", "/v0/routers", "/v0/topics?page_size=x"):
        here, there = ask(wire, "GET", path), ask(engine, "GET", f"http://127.0.0.1{path}")
        assert here.status == there.status
        differs = {"performance": None, "request_id": None}
        assert here.json | differs == there.json | differs
        assert ask(wire, "HEAD", path).body == b""
    until("reads", lambda: served.metric("topics_reader_requests_total") >= reads + 20)


def test_a_hundred_streams_at_once(served: WithReaders) -> None:
    """Each request of one connection has its own answer, relayed and served in turn."""
    wire = wire_of(served)
    put(wire, "many")
    for turn in range(50):
        wire.send("POST", "/v0/topics/many", b'{"records":[{"data":%d}]}' % turn, JSON)
        wire.send("POST", "/v0/topics/many/diff", b'{"from_seq":0}', JSON)
    answers = [wire.receive() for _ in range(100)]
    assert [answer.status for answer in answers] == [200] * 100
    heads = sorted(answer.json["head_seq"] for answer in answers[::2])
    assert heads == list(range(1, 51))
    assert len(read(wire, "many").json["records"]) == 50


JSON = {"content-type": "application/json"}
LARGE = "x" * 900_000


def test_a_large_body_and_a_large_answer_are_relayed(served: WithReaders) -> None:
    """8 MiB go to the engine's process in parts, and a page of them comes back from a topic that is
    not the reader's."""
    wire, other = wire_of(served), wire_of(served)
    put(wire, "large", durability="ephemeral")
    assert append(wire, "large", *[LARGE] * 9).json["head_seq"] == 9
    page = read(other, "large", max_batch_bytes=8 << 20).json
    assert len(page["records"]) >= 8
    assert all(record["data"] == LARGE for record in page["records"])


def test_a_body_without_bounds_is_refused_as_ever(served: WithReaders) -> None:
    """413 for more than a route takes, before and while it comes. (§11)"""
    wire = wire_of(served)
    put(wire, "bounded")
    for pieces in (b" " * 300_000, [b" " * 16_000] * 20):
        wire.send("POST", "/v0/topics/bounded/delete", pieces, JSON)
        assert wire.receive().status == 413
    assert append(wire, "bounded", 1).json["head_seq"] == 1


def test_a_client_that_does_not_read_holds_up_nobody(served: WithReaders) -> None:
    """Its answer waits in the reader, and others are relayed over the same channel."""
    writer = wire_of(served)
    put(writer, "slow", durability="ephemeral")
    append(writer, "slow", *[LARGE] * 9)
    wires = [Unread(served.port, "slow") for _ in range(4)]
    for turn in range(10, 30):
        assert append(writer, "slow", turn).json["head_seq"] == turn
    assert [wire.all() for wire in wires] == [200] * 4


class Unread(Sse2):
    """A client that asks for a large page over HTTP/2 and opens no window for it, until `all`."""

    def __init__(self, port: int, topic: str) -> None:
        super().__init__(port, f"/v0/topics/{topic}/records?max_batch_bytes=8000000", window=0)

    def all(self) -> int:
        """Read it; returns its status."""
        size = 0
        self.h2.increment_flow_control_window(1 << 24)
        self.h2.increment_flow_control_window(1 << 24, 1)
        self.socket.sendall(self.h2.data_to_send())
        status = 0
        while True:
            for event in self.h2.receive_data(self.socket.recv(1 << 16)):
                headers = dict(getattr(event, "headers", None) or {})
                status = status or int(headers.get(":status", 0))
                size += len(getattr(event, "data", b"") or b"")
                if type(event).__name__ == "StreamEnded":
                    assert size > 7_000_000
                    self.socket.close()
                    return status


def test_a_stream_in_a_reader_over_http2(served: WithReaders) -> None:
    """A session is lent for one stream of many on a connection; it is carried by the reader, and comes
    back with its positions. (§7.3)"""
    writer = wire_of(served)
    put(writer, "watched2")
    append(writer, "watched2", 1, 2)
    wid = watching(writer, "watched2")
    stream = served.connect(lambda port: Sse(port, wid, kind=Sse2))
    assert stream.seqs(2) == [1, 2]
    for turn in range(3, 20):
        append(writer, "watched2", turn)
        assert stream.seqs(1) == [turn]
    stream.reset()
    append(writer, "watched2", 20)
    again = served.connect(lambda port: Sse(port, wid, kind=Sse2))
    assert again.seqs(1) == [20]
    third = served.connect(lambda port: Sse(port, wid, again.last_id))
    third.caught_up()
    assert again.last_error()["code"] == 409


def test_a_stream_of_a_topic_that_is_the_engines_is_relayed(served: WithReaders) -> None:
    """A watch of an `ephemeral` topic, and the jobs of a queue, come over the relay."""
    writer = wire_of(served)
    put(writer, "fleeting", durability="ephemeral")
    wid = watching(writer, "fleeting")
    stream = served.connect(lambda port: Sse(port, wid, kind=Sse2))
    stream.caught_up()
    put(writer, "pushed", type="queue")
    work = Sse2(served.port, "/v0/topics/pushed/work?node=w")
    for turn in range(1, 10):
        append(writer, "fleeting", turn)
        assert stream.seqs(1) == [turn]
    append(writer, "pushed", 1)
    assert delivered(work) == 1
    work.socket.close()


def delivered(client: Sse2) -> int:
    """The seq of the next job of a stream of work."""
    while True:
        for event in client.h2.receive_data(client.socket.recv(1 << 16)):
            for news in client.source.feed(getattr(event, "data", b"") or b""):
                if news.kind == "job":
                    return int(orjson.loads(news.data)["$seq"])


def polls(server: WithReaders, key: dict[str, str] | None = None) -> int:
    """Long polls that wait."""
    wire = server.http()
    text = ask(wire, "GET", "/v0/metrics", b"", key).body.decode()
    wire.reset()
    line = next(line for line in text.splitlines() if 'used{limit="max_long_polls"}' in line)
    return int(float(line.split()[1]))


def test_a_claim_whose_client_went_away_leases_nothing(start: Callable[..., WithReaders]) -> None:
    """A claim in its window is over with its stream: the job goes to the next claim. (§10.2)"""
    server = start(1)
    writer = wire_of(server)
    put(writer, "q", type="queue")
    waiting = wire_of(server)
    claim = orjson.dumps({"node": "a", "wait_ms": 60_000})
    waiting.send("POST", "/v0/topics/q/claim", claim, JSON)
    until("waits", lambda: polls(server) == 1)
    waiting.reset()
    until("left", lambda: polls(server) == 0)
    append(writer, "q", 1)
    assert len(post(writer, "/v0/topics/q/claim", node="b").json["claimed"]) == 1


def test_a_reader_that_is_killed_gives_up_what_it_relayed(
    start: Callable[..., WithReaders],
) -> None:
    """Its connections end; slots are free again, and nothing that was acknowledged is lost."""
    server = start(1)
    wire = wire_of(server)
    put(wire, "q", type="queue")
    claim = orjson.dumps({"node": "a", "wait_ms": 60_000})
    wire.send("POST", "/v0/topics/q/claim", claim, JSON)
    engine = server.http()
    until("waits", lambda: polls(server) == 1)
    put(engine, "kept")
    writer, acknowledged = wire_of(server), 0
    for turn in range(50):
        acknowledged = append(writer, "kept", turn).json["head_seq"]
    writer.send("POST", "/v0/topics/kept", b'{"records":[{"data":50}]}', JSON)
    kill(server.reader_pids()[0])
    with pytest.raises((Ended, OSError)):
        wire.receive()
    until("free", lambda: polls(server) == 0)
    until("replaced", lambda: server.metric("topics_reader_up") == 1)
    again = wire_of(server)
    found = read(again, "kept").json["records"]
    assert [record["data"] for record in found[:50]] == list(range(50))
    assert acknowledged == 50


def test_a_stop_answers_what_is_relayed(start: Callable[..., WithReaders]) -> None:
    """SIGTERM: a claim in its window is answered, and a stream has its last frame. (§12)"""
    server = start(1)
    writer = wire_of(server)
    put(writer, "q", type="queue")
    put(writer, "t", durability="ephemeral")
    wid = watching(writer, "t")
    stream = server.connect(lambda port: Sse(port, wid, kind=Sse2))
    stream.caught_up()
    wire = wire_of(server)
    claim = orjson.dumps({"node": "a", "wait_ms": 60_000})
    wire.send("POST", "/v0/topics/q/claim", claim, JSON)
    until("waits", lambda: polls(server) == 1)
    server.signal(signal.SIGTERM)
    assert wire.receive().status in (200, 503)
    assert stream.last_error()["code"] == 503
    assert server.wait() == 0


def test_a_key_holds_for_what_it_sends_over_a_relay(tmp_path: Path) -> None:
    """Its scopes are asked for, its requests in flight are counted, and those that wait end when it is
    removed. (§11)"""
    keys = tmp_path / "keys"
    one, two = "k" * 24, "m" * 24
    keys.write_text(f"{one}\n{two}\n")
    keys.chmod(0o600)
    server = WithReaders(tmp_path / "keyed", api_keys_file=keys, max_inflight_per_key=2)
    first, second = ({"authorization": f"Bearer {key}"} for key in (one, two))
    try:
        server._settings["readers"] = 1
        server.start()
        until("readers", lambda: _is_up(server, first))
        wire, other = wire_of(server), wire_of(server)
        assert ask(wire, "PUT", "/v0/topics/q", b"{}").status == 401
        assert ask(wire, "PUT", "/v0/topics/q", b'{"type":"queue"}', first).status == 201
        claim = orjson.dumps({"node": "a", "wait_ms": 60_000})
        for _ in range(2):
            other.send("POST", "/v0/topics/q/claim", claim, JSON | second)
        path = "/v0/topics/q/claim"
        until("full", lambda: polls(server, first) == 2)
        assert ask(wire, "POST", path, b'{"node":"b"}', second).status == 429
        assert ask(wire, "POST", path, b'{"node":"b"}', first).status == 200
        keys.write_text(f"{one}\n")
        server.signal(signal.SIGHUP)
        assert [other.receive().status for _ in range(2)] == [401, 401]
    finally:
        server.__exit__(None, None, None)


def _is_up(server: WithReaders, key: dict[str, str]) -> bool:
    wire = server.http()
    text = ask(wire, "GET", "/v0/metrics", b"", key).body.decode()
    wire.reset()
    return 'topics_reader_up{reader="0"} 1' in text


def test_bytes_that_are_no_http2_end_the_connection(served: WithReaders) -> None:
    """As in the engine's process."""
    raw = socket.create_connection(("127.0.0.1", served.port))
    raw.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + b"\xff" * 100)
    while raw.recv(65536):
        pass
    raw.close()


def test_a_stream_in_a_reader_that_is_killed_goes_on_elsewhere(
    start: Callable[..., WithReaders],
) -> None:
    """The client's last id is all that it needs. (§7.5)"""
    server = start(1)
    writer = server.http()
    put(writer, "t")
    append(writer, "t", 1, 2, 3)
    wid = watching(writer, "t")
    stream = server.connect(lambda port: Sse(port, wid, kind=Sse2))
    assert stream.seqs(3) == [1, 2, 3]
    kill(server.reader_pids()[0])
    with pytest.raises((StreamEnded, OSError)):
        stream.seqs(1)
    append(writer, "t", 4)
    again = server.connect(lambda port: Sse(port, wid, stream.last_id, kind=Sse2))
    assert again.seqs(1) == [4]


class Follower:
    """The shell of a reader that has read some topics, as far as lists ask it."""

    def __init__(self) -> None:
        self.requests = 0
        self.reads = {3: 17}

    def take_reads(self) -> dict[int, int]:
        reads, self.reads = self.reads, {}
        return reads


class Asker:
    """A reader's service over a link, and what it was told."""

    def __init__(self) -> None:
        self.joined = Joined()
        self.reads: list[Any] = []
        shell: Any = Follower()
        sessions: Any = None
        self.service = ReaderService(shell, self.joined.link, sessions, self.reads.append)
        self.replies: list[Any] = []

    def ask(self, command: Any = LIST) -> Any:
        return self.service.submit(
            command, lambda reply: self.replies.append(reply.result), self.joined.slot()
        )


def asking(story: Callable[[Asker], Any]) -> None:
    async def run() -> None:
        await story(Asker())

    asyncio.run(run())


def test_what_was_read_before_is_told_with_a_list() -> None:
    """So that the list has it, once. (§1.2)"""

    async def story(asker: Asker) -> None:
        asker.ask()
        asker.ask()
        await asked_until(lambda: len(asker.replies) == 2)
        assert asker.reads == [{3: 17}, {}]
        assert asker.replies == [TopicsListed([], None)] * 2
        assert (asker.service.asked_total, asker.service.shell.requests) == (0, 2)

    asking(story)


def test_a_list_without_an_answer_is_refused_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """503: the client asks again, and an answer that comes later is dropped. (§0.6)"""
    monkeypatch.setattr(service, "PATIENCE_S", 0.0)

    async def story(asker: Asker) -> None:
        asker.joined.back.receive = None
        asker.ask()
        await asked_until(lambda: asker.replies)
        refused = asker.replies.pop()
        assert refused.code is ErrorCode.NOT_READY
        assert (refused.detail, refused.retry_after_s) == ({"reason": "moved"}, 1)
        for data in asker.joined.back.sent:
            asker.joined.link.received(data)
        assert asker.replies == []
        assert asker.service.is_prompt

    asking(story)


def test_where_lists_are_not_to_be_had_soon_nobody_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A channel that is full, many that wait, or a list that waits for long: until that is over."""
    monkeypatch.setattr(service, "LISTS_MAX", 3)

    async def story(asker: Asker) -> None:
        line = asker.joined.there
        line.receive = None
        assert asker.service.is_prompt
        line.is_clear = False
        assert not asker.service.is_prompt
        line.is_clear = True
        tickets = []
        for _ in range(3):
            assert asker.service.is_prompt
            tickets.append(asker.ask())
        assert not asker.service.is_prompt
        tickets[0].cancel()
        assert asker.service.is_prompt
        monkeypatch.setattr(service, "PROMPT_S", -1.0)
        assert not asker.service.is_prompt
        for ticket in tickets[1:]:
            ticket.cancel()
        assert asker.service.is_prompt
        assert asker.replies == []

    asking(story)
