"""WebSockets in readers: what is subscribed there, and what goes to the engine's process."""

import asyncio
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import orjson
import pytest
from contract.server import until
from contract.streams import Ended, News, Ws, Ws2
from contract.streams import read as read_news
from contract.wire import ask
from sim.files import SimFiles

from server.http.feeds import slot_of
from topics.protocol.model.commands import DeleteTopic
from topics.protocol.state.watched import StreamEnd
from topics.server.http.socket_feed import SocketFeed
from topics.server.readers.joint_socket import ReaderSocket
from topics.server.service.service import LocalService
from topics.server.service.shell import Phase

from .served import WithReaders, append, kill, put
from .writing import LIMITS, Writer, appended, begun
from .writing import put as put_command


class Talk:
    """A client that says one thing after the other, and hears what comes of it."""

    def __init__(self, port: int, kind: Any = Ws, **fields: Any) -> None:
        self.ws = kind(port, **fields)
        self._news: list[News] = []

    def say(self, **message: object) -> "Talk":
        self.ws.say(**message)
        return self

    def next(self) -> News:
        while not self._news:
            self._news += read_news(self.ws)[1]
        return self._news.pop(0)

    def until(self, kind: str, **fields: object) -> Any:
        """The fields of the next message of a kind."""
        while True:
            each = self.next()
            if each.kind == kind and all(each.fields.get(k) == v for k, v in fields.items()):
                return each.fields
            assert each.kind != "error", each

    def seqs(self, topic: str, count: int) -> list[int]:
        found: list[int] = []
        while len(found) < count:
            for record in self.until("record", topic=topic)["records"]:
                found.append(record["$seq"])
        return found

    def reset(self) -> None:
        self.ws.socket.close()


def talk(server: WithReaders, kind: Any = Ws, **fields: Any) -> Talk:
    return server.connect(lambda port: Talk(port, kind, **fields))


def test_readers_are_as_strict_as_the_server(start: Callable[..., WithReaders]) -> None:
    """`TOPICS_HANDLING` (113)"""
    server = start(1, handling="strict")

    assert ask(server.http(), "GET", "/v0/limits?tuch=1").status == 400
    client = talk(server)
    client.say(op="ping", request_idd=1)
    assert client.next().fields["detail"]["did_you_mean"] == "request_id"


@pytest.mark.parametrize("kind", [Ws, Ws2])
def test_one_socket_publishes_and_watches_what_it_published(served: WithReaders, kind: Any) -> None:
    """The watch is the reader's and the write is the engine's; each record comes once and in order.
    (§7.7)"""
    name = f"said-{kind.__name__}"
    put(served.http(), name)
    client = talk(served, kind)
    client.say(op="subscribe", request_id="s", topic=name, tail=True)
    assert client.until("subscribed")["topics"][name]["head_seq"] == 0
    for turn in range(1, 40):
        client.say(op="publish", request_id=turn, topic=name, records=[{"data": turn}])
        kinds = {client.next().kind, client.next().kind}
        while kinds != {"ack", "record"}:
            kinds = (kinds | {client.next().kind}) - {"caught-up"}
    client.say(op="ping", request_id="p")
    assert client.until("pong")["request_id"] == "p"


def test_a_subscription_sees_what_was_acknowledged_before(served: WithReaders) -> None:
    """Commands are carried out in order: a subscription that follows a write on its heels begins
    behind it. (§7.7)"""
    put(served.http(), "ordered")
    client = talk(served)
    for turn in range(1, 30):
        client.say(op="publish", request_id=turn, topic="ordered", records=[{"data": turn}])
        client.say(op="subscribe", request_id=f"s{turn}", topic="ordered", tail=True)
        client.until("ack", request_id=turn)
        found = client.until("subscribed", request_id=f"s{turn}")
        assert found["topics"]["ordered"]["head_seq"] == turn
        client.say(op="unsubscribe", topic="ordered")
        assert client.until("unsubscribed")["subscribed"] is True


def test_topics_of_both_processes_on_one_socket(served: WithReaders) -> None:
    """A topic that is the engine's comes over the relay; a command with both is carried out there whole,
    and takes over what was subscribed here. (§7.7)"""
    writer = served.http()
    put(writer, "lasts")
    put(writer, "fades", durability="ephemeral")
    client = talk(served)
    client.say(op="subscribe", topic="lasts", from_seq=0).until("subscribed")
    client.say(op="subscribe", topic="fades", from_seq=0).until("subscribed")
    for turn in range(1, 10):
        append(writer, "lasts", turn)
        assert client.seqs("lasts", 1) == [turn]
        append(writer, "fades", turn)
        assert client.seqs("fades", 1) == [turn]
    both = {"lasts": {"from_seq": 9}, "fades": {"from_seq": 9}}
    client.say(op="subscribe", request_id="both", topics=both).until("subscribed")
    append(writer, "lasts", 10)
    assert client.seqs("lasts", 1) == [10]
    client.say(op="unsubscribe", topic="lasts")
    assert client.until("unsubscribed")["subscribed"] is True
    client.say(op="unsubscribe", topic="lasts")
    assert client.until("unsubscribed")["subscribed"] is False


def test_a_destination_on_a_socket(served: WithReaders) -> None:
    """Copies come as they are made, before `caught_up` all that were owed. (§6, §7.7)"""
    writer = served.http()
    put(writer, "said-from")
    for source, dest in (("said-from", "said-via"), ("said-via", "said-to")):
        route = orjson.dumps({"source": source, "dest": dest})
        assert ask(writer, "PUT", f"/v0/routers/{dest}", route).status == 201
    append(writer, "said-from", *range(500))
    client = talk(served)
    client.say(op="subscribe", topic="said-to", from_seq=0).until("subscribed")
    found: list[int] = []
    while (each := client.next()).kind != "caught-up":
        found += [record["$seq"] for record in each.fields["records"]]
    assert found == list(range(1, 501))
    for turn in range(501, 520):
        append(writer, "said-from", turn)
        assert client.seqs("said-to", 1) == [turn]


def test_what_is_wrong_is_refused_as_ever(served: WithReaders) -> None:
    """By whichever half has to say so. (§7.7)"""
    put(served.http(), "right")
    client = talk(served)
    for text, code in (
        (b'{"op":"subscribe"', "invalid_json"),
        (b'{"op":"subscribe","topic":"none-such"}', "topic_not_found"),
        (b'{"op":"subscribe","topics":{}}', "invalid_request"),
        (b'{"op":"what","topic":"subscribe"}', "invalid_request"),
    ):
        client.ws.send(1, text)
        while (found := client.next()).kind != "error":
            pass
        assert found.fields["code"] == code
    client.ws.send(2, b"\0")
    assert client.next().fields["code"] == "invalid_request"
    many = {f"t{each}": None for each in range(300)}
    client.say(op="subscribe", topics=many)
    assert client.next().kind == "error"
    client.say(op="subscribe", topic="right").until("subscribed")


def test_a_topic_that_leaves_the_readers_goes_on_over_the_relay(served: WithReaders) -> None:
    """A topic that becomes `ephemeral` is the engine's from then on; its subscriptions stay where they
    stood."""
    writer = served.http()
    put(writer, "leaving")
    client = talk(served)
    client.say(op="subscribe", topics={"leaving": {"from_seq": 0}}, include_tags=True)
    client.until("subscribed")
    append(writer, "leaving", 1)
    assert client.seqs("leaving", 1) == [1]
    put(writer, "leaving", durability="ephemeral")
    append(writer, "leaving", 2)
    assert client.seqs("leaving", 1) == [2]
    client.say(op="unsubscribe", topic="leaving")
    assert client.until("unsubscribed")["subscribed"] is True


def to(partition: int, *datas: object) -> bytes:
    return orjson.dumps({"records": [{"data": data, "partition": partition} for data in datas]})


def test_partitions_join_in_the_process_that_watches_them(served: WithReaders) -> None:
    """One after the other, of a topic that is a reader's and of one that is the engine's; and all of them move with
    their topic, none from its beginning. (§2.1, §7.7)"""
    writer = served.http()
    for name, durability in (("parts", "disk"), ("fleeting", "ephemeral")):
        put(writer, name, durability=durability)
        client = talk(served)
        client.say(op="subscribe", topic=name).until("subscribed")
        client.until("caught-up", topic=name, head_seq=0)
        for count in (2, 3, 4):
            put(writer, name, durability=durability, partitions=count)
            ask(writer, "POST", f"/v0/topics/{name}", to(count - 1, "a", "b"))
            found = client.until("record", partition=count - 1)
            assert [record["$seq"] for record in found["records"]] in ([1, 2], [1])
        if name == "parts":
            put(writer, name, durability="ephemeral", partitions=5)
            ask(writer, "POST", f"/v0/topics/{name}", to(4, "c"))
            ask(writer, "POST", f"/v0/topics/{name}", to(3, "d"))
            seen: dict[int, list[int]] = {}
            while len(seen) < 2:
                fields = client.until("record")
                seqs = [record["$seq"] for record in fields["records"] if record["data"] in "cd"]
                if seqs:
                    seen[fields["partition"]] = seqs
            assert seen == {4: [1], 3: [3]}
        client.say(op="unsubscribe", topic=name)
        assert client.until("unsubscribed")["subscribed"] is True
        client.say(op="ping", request_id="after").until("pong")


def test_a_large_message_goes_both_ways(served: WithReaders) -> None:
    """In parts, as each end has room for them."""
    put(served.http(), "wide", durability="ephemeral")
    client = talk(served)
    client.say(op="subscribe", topic="wide", from_seq=0).until("subscribed")
    large = "x" * 900_000
    client.say(op="publish", request_id=1, topic="wide", records=[{"data": large}] * 5)
    assert client.until("ack")["last_seq"] == 5
    assert client.seqs("wide", 5) == [1, 2, 3, 4, 5]


def test_a_reader_that_is_killed_ends_its_sockets(start: Callable[..., WithReaders]) -> None:
    """The engine's half is closed with them, and its place among the connections is free."""
    server = start(1, max_sse_connections=1)
    put(server.http(), "t")
    client = talk(server)
    client.say(op="publish", request_id=1, topic="t", records=[{"data": 1}]).until("ack")
    kill(server.reader_pids()[0])
    with pytest.raises((Ended, OSError)):
        client.until("never")
    until("free", lambda: server.metric("topics_sse_connections") == 0)
    again = talk(server)
    again.say(op="subscribe", topic="t", from_seq=0).until("subscribed")
    assert again.seqs("t", 1) == [1]


def test_a_stop_ends_a_socket_with_a_last_message(start: Callable[..., WithReaders]) -> None:
    """As in the engine's process. (§12)"""
    server = start(1)
    put(server.http(), "t")
    client = talk(server)
    client.say(op="subscribe", topic="t").until("subscribed")
    server.signal(signal.SIGTERM)
    while (found := client.next()).kind != "error":
        pass
    assert found.fields["code"] == "shutting_down"
    assert client.next().kind == "close"
    client.reset()
    assert server.wait() == 0


def test_a_handshake_is_judged_by_the_engine(start: Callable[..., WithReaders]) -> None:
    """Connections are counted there, and one too many is refused. (§11)"""
    server = start(1, max_sse_connections=1)
    talk(server)
    asks = {"upgrade": "websocket", "connection": "Upgrade", "sec-websocket-version": "13"}
    asks["sec-websocket-key"] = "AAAAAAAAAAAAAAAAAAAAAA=="
    assert ask(server.http(), "GET", "/v0/ws", b"", asks).status == 429
    assert ask(server.http(), "GET", "/v0/ws").status == 400


def test_a_key_that_is_removed_ends_its_sockets(tmp_path: Path) -> None:
    """Its commands are permitted by whichever half carries them out. (§0.2)"""
    keys = tmp_path / "keys"
    one, two = "k" * 24, "m" * 24
    keys.write_text(f"{one}\n{two}\n")
    keys.chmod(0o600)
    server = WithReaders(tmp_path / "keyed", api_keys_file=keys)
    try:
        server._settings["readers"] = 1
        server.start()
        until("readers", lambda: len(server.reader_pids()) == 1)
        ask(server.http(), "PUT", "/v0/topics/t", b"{}", {"authorization": f"Bearer {one}"})
        client = talk(server, api_key=two)
        client.say(op="subscribe", topic="t").until("subscribed")
        keys.write_text(f"{one}\n")
        server.signal(signal.SIGHUP)
        while (found := client.next()).kind != "error":
            pass
        assert found.fields["code"] == "unauthorized"
    finally:
        server.__exit__(None, None, None)


class Remote:
    """The engine's half, as far as it is told something."""

    ended_by = None

    def __init__(self) -> None:
        self.adopted: list[Any] = []

    def wake_by(self, wake: Callable[[], None]) -> None: ...

    def next_frame(self, now_ms: int) -> None: ...

    def close(self) -> None: ...

    def adopt(self, standing: Any) -> None:
        self.adopted.append(standing)


def joint(remote: Remote, shell: Any) -> SocketFeed:
    """A socket of a reader that may serve every topic."""
    local, slot = LocalService(shell), slot_of(shell)
    theirs: Any = remote
    stream = ReaderSocket(theirs, shell, lambda: local.socket(slot), lambda _: True, 100)
    return SocketFeed(local, stream, slot)


@pytest.mark.parametrize("is_made_anew", [True, False])
def test_a_topic_that_is_gone_where_its_socket_moves_is_told(is_made_anew: bool) -> None:
    """Its watcher is told that it is gone, with its last head, whatever this process knew of that;
    records of another of its name come to nobody who did not ask. (§7.5, §7.7)"""

    async def story() -> None:
        files = SimFiles()
        writer = Writer(files)
        writer.do(put_command("t", durability="disk"))
        writer.do(appended("t", 1, 2))
        follower = begun(writer, files)
        shell: Any = SimpleNamespace(
            engine=follower.engine,
            limits=LIMITS,
            phase=Phase.READY,
            now_ms=writer.now_ms,
            can_follow=True,
            look=lambda: True,
        )
        remote = Remote()
        socket = joint(remote, shell)
        socket.listen(lambda: None)
        socket.hear(b'{"op":"subscribe","topic":"t","from_seq":0}')
        heard = [orjson.loads(each) for _ in range(6) if (each := socket.take()) is not None]
        assert [each["op"] for each in heard] == ["subscribed", "record", "caught_up"]

        writer.do(put_command("t", durability="ephemeral"))
        assert follower.follow(writer.shown)
        writer.do(appended("t", 3))
        writer.do(DeleteTopic("t", False))
        if is_made_anew:
            writer.do(put_command("t", durability="ephemeral"))
            writer.do(appended("t", *range(10)))
        for stream in list(follower.engine.watches.streams):
            stream.end(StreamEnd.MOVED)
        assert socket.take() is None
        there: Any = SimpleNamespace(
            engine=writer.driver.engine, limits=LIMITS, phase=Phase.READY, now_ms=writer.now_ms
        )
        stream = LocalService(there).socket(slot_of(there))
        half = SocketFeed(LocalService(there), stream, slot_of(there))
        half.listen(lambda: None)
        [standing] = remote.adopted
        stream.adopt(standing)

        found = [orjson.loads(each) for _ in range(4) if (each := half.take()) is not None]
        assert [(each["op"], each["topic"], each["head_seq"]) for each in found] == [
            ("topic_deleted", "t", 3)
        ]
        socket.close()
        half.close()

    asyncio.run(story())


def test_a_frame_that_a_thread_reads_comes_before_its_topic_moves() -> None:
    """The engine's half begins behind it: no record is passed over. (§7.7)"""

    async def story() -> None:
        files = SimFiles()
        writer = Writer(files)
        writer.do(put_command("t", durability="disk"))
        writer.do(appended("t", "x" * 30_000))
        follower = begun(writer, files)
        reading: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        calls: list[Callable[[], object]] = []

        def read_in_thread(call: Callable[[], object]) -> Any:
            calls.append(call)
            return reading

        shell: Any = SimpleNamespace(
            engine=follower.engine,
            limits=LIMITS,
            phase=Phase.READY,
            now_ms=writer.now_ms,
            can_follow=True,
            look=lambda: True,
            read_in_thread=read_in_thread,
        )
        remote = Remote()
        socket = joint(remote, shell)
        socket.listen(lambda: None)
        socket.hear(b'{"op":"subscribe","topic":"t","from_seq":0}')
        store: Any = follower._store
        store._files.cold = True
        heard = [each for _ in range(6) if (each := socket.take()) is not None]
        assert [orjson.loads(each)["op"] for each in heard] == ["subscribed"]
        assert len(calls) == 1

        for stream in list(follower.engine.watches.streams):
            stream.end(StreamEnd.MOVED)
        assert socket.take() is None
        assert remote.adopted == [] or len(calls) == 1
        reading.set_result(calls[0]())
        await asyncio.sleep(0)

        found = [orjson.loads(each) for _ in range(4) if (each := socket.take()) is not None]
        assert [[r["$seq"] for r in each["records"]] for each in found] == [[1]]
        assert [(each.name, each.cursor) for each in remote.adopted] == [("t", 1)]
        socket.close()

    asyncio.run(story())


def test_what_a_socket_subscribed_is_not_kept_as_it_came(served: WithReaders) -> None:
    """A command may have 256 KiB, of which a subscription holds what it counts: its names and filters.
    (§11)"""
    names = [f"kept-{n}" for n in range(60)]
    for name in names:
        put(served.http(), name)
    client = talk(served)

    def own_kib() -> int:
        lines = [
            line
            for pid in served.reader_pids()
            for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        ]
        return sum(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))

    client.say(op="subscribe", topic=names[0], from_seq=0, ignored="x" * 240_000).until(
        "subscribed"
    )
    before = own_kib()
    for name in names[1:]:
        client.say(op="subscribe", topic=name, from_seq=0, ignored="x" * 240_000)
        client.until("subscribed")
    assert own_kib() - before < 8 << 10
