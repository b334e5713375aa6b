"""Watches of topics with several partitions, over the wire: growth, cuts, kills and restarts (§2.1, §7)."""

import random
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from .api import Api
from .hosts import OWN, READERS
from .server import Server
from .streams import Client, News, Sse1, Sse2, Truth, Ws, cut, news, read, until
from .wire import Http1

every_protocol = pytest.mark.parametrize("protocol", ["http1", "http2", "websocket"])


def api_of(server: Server) -> Api:
    return Api(server.connect(Http1))


def write(api: Api, name: str, partition: int, *datas: object) -> None:
    records = [{"data": data, "partition": partition} for data in datas]
    api.ok("POST", f"/v0/topics/{name}", {"records": records})


class Reader:
    """A client that goes on from what it believes, over connections, sessions and servers."""

    def __init__(self, server: Server, protocol: str, *names: str, **begin: object) -> None:
        self.server, self.protocol = server, protocol
        self.truth = Truth(dict.fromkeys(names, 0))
        self.topics = dict.fromkeys(names, begin)
        self.is_begun = False
        self.wid = ""
        self.client: Client | None = None

    def post(self) -> Any:
        """Another session, from the last id."""
        last_id = self.truth.last_id or None
        posted = api_of(self.server).ok(
            "POST", "/v0/watch", {"topics": self.topics, "cursor": last_id}
        )
        self.wid, self.truth.last_id = posted["wid"], self.truth.last_id or posted["cursor"]
        return posted

    def connect(self) -> Client:
        self.close()
        self.truth.caught_up.clear()
        if self.protocol == "websocket":
            made = Ws(self.server.port)
            cursor = self.truth.positions if self.is_begun else {}
            made.say(op="subscribe", topics=self.topics, cursor=cursor)
            self.is_begun = True
            self.client = made
            return made
        if not self.wid:
            self.post()
        kind = Sse1 if self.protocol == "http1" else Sse2
        self.client = kind(self.server.port, self.wid, self.truth.last_id)
        return self.client

    def close(self) -> None:
        if self.client is not None:
            cut(self.client)
            self.client = None

    def believe(self, each: News) -> None:
        assert each.kind in ("record", "tombstone", "caught-up", "subscribed"), each
        self.truth.believe(each)

    def read_to(self, **heads: int) -> dict[str, list[Any]]:
        """Read until these heads are reached; `t_1` is partition 1 of `t`.  The datas by partition."""
        wanted = {name.replace("_", "#"): head for name, head in heads.items()}
        client = self.client or self.connect()
        while any(self.truth.positions.get(name, -1) < head for name, head in wanted.items()):
            for each in read(client)[1]:
                self.believe(each)
        return {name: [data for _, data in found] for name, found in self.truth.records.items()}


@pytest.fixture
def readers() -> Iterator[Callable[..., Reader]]:
    made: list[Reader] = []

    def open_(*args: Any, **begin: object) -> Reader:
        made.append(Reader(*args, **begin))
        return made[-1]

    yield open_
    for reader in made:
        reader.close()


Open = Callable[..., Reader]


@pytest.mark.every_server
@every_protocol
def test_partitions_join_a_live_stream(
    server: Server, api: Api, name: str, protocol: str, readers: Open
) -> None:
    """Frames say which one they are of from then on, and nothing is missing. (§2.1, §7.5)"""
    api.put(name)
    api.append(name, "a")
    reader = readers(server, protocol, name)
    reader.read_to(**{name: 1})
    assert name not in {key for key in reader.truth.positions if "#" in key}

    api.put(name, partitions=3)
    write(api, name, 2, "b", "c")
    write(api, name, 0, "d")

    client = reader.client
    assert client is not None
    seen: dict[int, list[object]] = {}
    for each in news(client):
        reader.believe(each)
        if each.kind == "record":
            datas = [record["data"] for record in each.fields["records"]]
            seen.setdefault(each.fields["partition"], []).extend(datas)
        if seen == {0: ["d"], 2: ["b", "c"]}:
            break


@pytest.mark.parametrize("private", [OWN.name, READERS.name], indirect=True)
@every_protocol
def test_a_kill_and_partitions_that_came_meanwhile(
    private: Callable[..., Server], protocol: str, readers: Open
) -> None:
    """A client goes on in each partition where it was, and has all of those that there were none of. (§7.2, §7.4)"""
    server = private()
    api = api_of(server)
    api.put("t", partitions=2, durability="fsync")
    write(api, "t", 0, "a")
    write(api, "t", 1, "b")
    reader = readers(server, protocol, "t", tail=True)
    client = reader.connect()
    until(client, "caught-up", partition=1)
    reader.truth.positions |= {"t": 1, "t#1": 1}
    write(api, "t", 1, "c")
    assert reader.read_to(t_1=2) == {"t#1": ["c"]}

    server.kill()
    reader.close()
    server.start()
    api = api_of(server)
    write(api, "t", 0, "d")
    api.put("t", partitions=4)
    write(api, "t", 3, "e", "f")

    reader.wid = ""
    assert reader.read_to(t=2, t_1=2, t_3=2) == {"t": ["d"], "t#1": ["c"], "t#3": ["e", "f"]}

    # And a partition that comes while the session has no stream.
    reader.close()
    api.put("t", partitions=5)
    write(api, "t", 4, "g")
    write(api, "t", 3, "h")
    found = reader.read_to(t_3=3, t_4=1)
    assert (found["t#3"], found["t#4"]) == (["e", "f", "h"], ["g"])


@pytest.mark.long
@every_protocol
def test_cut_anywhere_while_topics_grow(
    private: Callable[..., Server], protocol: str, readers: Open, is_full: bool
) -> None:
    """At random bytes, over 40 topics that become more than 64 partitions: each record comes once and in the order of
    its partition. (§7.4)"""
    cuts, rounds = (150, 600) if is_full else (25, 120)
    draw = random.Random(11)
    server = private()
    api = api_of(server)
    names = [f"t{nth}" for nth in range(40)]
    counts = dict.fromkeys(names, 1)
    heads: dict[str, int] = {}
    for name in names:
        api.put(name, durability="memory")
    failed: list[BaseException] = []

    def write_all() -> None:
        try:
            mine = Api(Http1(server.port))
            for turn in range(rounds):
                name = draw.choice(names)
                if turn % 3 == 0:
                    counts[name] += draw.randint(1, 3)
                    mine.put(name, durability="memory", partitions=counts[name])
                partition = draw.randrange(counts[name])
                key = f"{name}#{partition}" if partition else name
                heads[key] = heads.get(key, 0) + 20
                write(mine, name, partition, *range(heads[key] - 19, heads[key] + 1))
            mine.wire.reset()
        except BaseException as error:
            failed.append(error)

    reader = readers(server, protocol, *names)
    cutting = random.Random(7)
    writer = threading.Thread(target=write_all)
    writer.start()
    for _ in range(cuts):
        client, size = reader.connect(), int(cutting.paretovariate(0.5) * 100) % 20_000 + 1
        while size > 0:
            got, found = read(client, min(size, 1 << 16))
            size -= got
            for each in found:
                reader.believe(each)
    writer.join()
    assert not failed, failed
    reader.connect()
    reader.read_to(**{key.replace("#", "_"): head for key, head in heads.items()})

    assert sum(counts.values()) > 64
    for key, head in heads.items():
        assert reader.truth.records[key] == [(seq, seq) for seq in range(1, head + 1)], key
    server.assert_log_is_quiet()


def test_partitions_are_chosen_and_refused(
    server: Server, api: Api, name: str, readers: Open
) -> None:
    """By number, with a place of one; a name of the engine's is none. (§7.2)"""
    api.put(name, partitions=3)
    write(api, name, 2, "a", "b")
    begin = {"partitions": [2], "from_seq": 1}
    posted = api.ok("POST", "/v0/watch", {"topics": {name: begin}})
    assert [each["partition"] for each in posted["topics"][name]["partitions"]] == [2]
    for protocol in ("http1", "websocket"):
        reader = readers(server, protocol, name, **begin)
        record = until(reader.connect(), "record").fields
        assert (record["partition"], record["from_seq"]) == (2, 1)

    def refused(body: object) -> tuple[int, str]:
        return api.refused("POST", "/v0/watch", body)

    assert refused({"topics": {name: {"from_seq": 1}}}) == (400, "partition_required")
    assert refused({"topics": {name: {"partitions": [3]}}}) == (404, "partition_not_found")
    assert refused({"topics": {f"{name}#1": {}}}) == (404, "topic_not_found")
    for cursor in ({f"{name}#x": 1}, {name: 2**64}, {name: -1}, {name: "1"}, 7):
        assert refused({"topics": {name: {}}, "cursor": cursor}) == (400, "invalid_request")
