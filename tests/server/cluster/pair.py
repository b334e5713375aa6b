"""Nodes of a cluster for tests: engines in memory, the real exchange and transport, real sockets.

How a node stands is the test's to say (`FakeStanding`): there is no log between the nodes, and what a
replica has applied is what the test has put into it.  Everything is in one event loop.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import uvloop
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Response

from topics.protocol.cluster.rule.trimming import Bound, NodeNeeds, Wait
from topics.protocol.cluster.rule.unit import FORMAT
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.cluster import TrimBody
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Command
from topics.protocol.model.limits import Limits
from topics.server.access.guard import Guard
from topics.server.cluster.exchange import ClusterExchange
from topics.server.cluster.kafka_face import FaceNodes
from topics.server.cluster.neighbours import Neighbours
from topics.server.cluster.node.status import (
    ClusterStatus,
    HistoryLoss,
    NodeStatus,
    SnapshotStatus,
    TrimStatus,
)
from topics.server.cluster.node.trimmer import Trimmed
from topics.server.cluster.peers import Peers
from topics.server.http.holders import Holders
from topics.server.links.messages import decode_to_decide
from topics.server.transport.connection import Connection
from topics.server.transport.http1 import Http1
from topics.server.transport.http2 import Http2
from topics.server.transport.listener import accept, listen
from topics.server.transport.shared import Shared
from topics.testing import START_MS, _Shell

DEADLINE_S = 100.0
"""What anything may take before a test gives up on it; nothing is measured against it."""
SECRET = bytes(range(16))
T = TypeVar("T")


def run(story: Coroutine[Any, Any, T]) -> T:
    """Play a story in a loop of its own; it leaves no task behind."""

    async def bounded() -> T:
        async with asyncio.timeout(DEADLINE_S):
            return await story

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(bounded())


async def until(is_so: Callable[[], object]) -> None:
    """Let the loop go on until it is so; `run` ends a test in which it never is."""
    while not is_so():
        await asyncio.sleep(0.001)


@dataclass
class FakeStanding:
    """Implements `standing.Standing`: what the test says.

    Attributes:
        ends: What `wait_for_end` returns; it waits while this is None.
        waited: The `wait_ms` of each wait.
    """

    leads: bool = False
    leader_url: str | None = None
    term: int = 1
    shard: int = 0
    index: int = 0
    format: int | None = FORMAT
    ends: bool | None = True
    node: str = "n1"
    nodes: tuple[NodeStatus, ...] = ()
    lag_ms: int = 0
    loss: HistoryLoss | None = None
    waits_for: str | None = None
    snapshot: SnapshotStatus = field(default_factory=SnapshotStatus)
    trim_status: TrimStatus | None = None
    trims: list[TrimBody] = field(default_factory=list)
    on_end: Callable[[], object] = lambda: None
    waited: list[int] = field(default_factory=list)

    async def wait_for(self, index: int, wait_ms: int) -> bool:
        if index <= self.index:
            return True
        self.waited.append(wait_ms)
        while self.index < index and self.ends is None:
            await asyncio.sleep(0.001)
        return self.index >= index

    async def wait_for_end(self, wait_ms: int) -> bool:
        self.waited.append(wait_ms)
        while self.ends is None:
            await asyncio.sleep(0.001)
        self.on_end()
        return self.ends

    async def trim(self, asked: TrimBody) -> Trimmed:
        self.trims.append(asked)
        return Trimmed(
            before=asked.before or 57,
            log_start=7,
            log_end=70,
            bound=Bound(57, Wait.NODE, "n2"),
            positions=(
                NodeNeeds(node="n1", offset=69, is_copy=True),
                NodeNeeds(node="n2", offset=-1, is_copy=False),
            ),
        )

    def log_retained_until_ms(self, now_ms: int) -> int:
        return now_ms + 90_000

    def status(self) -> ClusterStatus:
        leader = next((each.node for each in self.nodes if each.role == "leader"), None)
        return ClusterStatus(
            cluster="topics",
            shard=self.shard,
            node=self.node,
            leader=leader,
            term=self.term,
            index=self.index,
            lag_units=1 if self.lag_ms else 0,
            lag_ms=self.lag_ms,
            nodes=self.nodes,
            loss=self.loss,
            waits_for=self.waits_for,
            snapshot=self.snapshot,
            trim=self.trim_status,
        )


@dataclass
class Answered:
    """A whole answer of HTTP/1.1."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> tuple[int, str]:
        return self.status, self.json["error"]["code"]


class Wire:
    """A client's connection, of which the test sends and reads bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def head(self) -> tuple[int, dict[str, str]]:
        raw = (await self.reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        first, *lines = raw.strip().split("\r\n")
        return int(first.split()[1]), dict(line.lower().split(": ", 1) for line in lines)

    async def answer(self, *, is_head: bool = False) -> Answered:
        status, headers = await self.head()
        size = 0 if is_head or status == 304 else int(headers["content-length"])
        return Answered(status, headers, await self.reader.readexactly(size))

    async def chunk(self) -> bytes:
        """The next chunk of a stream; empty at its end."""
        size = int(await self.reader.readuntil(b"\r\n"), 16)
        data = await self.reader.readexactly(size)
        assert await self.reader.readexactly(2) == b"\r\n"
        return data

    async def chunks_until(self, what: bytes) -> bytes:
        got = b""
        while what not in got:
            piece = await self.chunk()
            assert piece, got
            got += piece
        return got

    def close(self) -> None:
        self.writer.transport.abort()


def request(
    method: str, target: str, body: object = None, *lines: str, raw: bytes | None = None
) -> bytes:
    """A request of HTTP/1.1."""
    sent = raw if raw is not None else b"" if body is None else json.dumps(body).encode()
    head = [f"{method} {target} HTTP/1.1", "Host: localhost", *lines]
    if sent:
        head += ["Content-Type: application/json", f"Content-Length: {len(sent)}"]
    return "\r\n".join([*head, "", ""]).encode() + sent


class Node:
    """One node: an engine in memory behind real sockets.

    Attributes:
        standing: How it stands in its cluster.
    """

    def __init__(
        self, standing: FakeStanding, guard: Guard | None, limits: Limits | None, port: int = 0
    ) -> None:
        self.standing = standing
        self.shell = _Shell(limits or Limits(), START_MS)
        self.peers = Peers(SECRET, lambda: standing.leader_url)
        self.neighbours = Neighbours(standing, standing.node)
        self.exchange = ClusterExchange(
            self.shell,
            self.neighbours,
            self.peers,
            holders=Holders(()),
            guard=guard,
            kafka_nodes=FaceNodes(self.neighbours, standing.node, replicas=3, min_in_sync=2),
        )
        self._listener = listen("127.0.0.1", port)
        self.port: int = self._listener.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        self.shared: Shared
        self._server: asyncio.AbstractServer
        self._wires: list[Wire] = []

    async def start(self) -> None:
        self.shared = Shared(self.exchange)
        self.exchange.carried_by(self.shared)
        self._server = await accept(self._listener, lambda: Connection(self.shared, Http1, Http2))

    async def stop(self) -> None:
        for wire in self._wires:
            wire.close()
        self.peers.close()
        self._server.close()
        for connection in list(self.shared.connections):
            connection.abort()
        await until(lambda: not self.shared.connections)

    async def connect(self) -> Wire:
        wire = Wire(*await asyncio.open_connection("127.0.0.1", self.port))
        self._wires.append(wire)
        return wire

    async def ask(
        self, method: str, target: str, body: object = None, *lines: str, raw: bytes | None = None
    ) -> Answered:
        """One request on a connection of its own."""
        wire = await self.connect()
        wire.send(request(method, target, body, *lines, raw=raw))
        answer = await wire.answer(is_head=method == "HEAD")
        wire.close()
        self._wires.remove(wire)
        return answer

    def append(self, topic: str, *data: object, **config: object) -> Awaitable[Answered]:
        body: dict[str, object] = {"records": [{"data": each} for each in data]}
        if config:
            body["config"] = config
        return self.ask("POST", f"/v0/topics/{topic}", body)

    def put(self, topic: str, *data: object, **config: object) -> None:
        """Have its engine apply a topic with this config, if any is given, and an append, as it would
        by the log."""
        if config:
            self._apply(parse_put(topic, json.dumps(config).encode()))
        if data:
            raw = json.dumps({"records": [{"data": each} for each in data]}).encode()
            limits = self.shell.limits
            self._apply(parse_append(topic, raw, limits, return_seqs=True, header_key=None))

    def _apply(self, command: Command) -> None:
        self.shell.submit(command, lambda reply: None)


@dataclass
class Pair:
    """A leader and a follower, which knows where it is."""

    leader: Node
    follower: Node


@asynccontextmanager
async def a_pair(
    guard: Callable[[], Guard] | None = None, limits: Limits | None = None
) -> AsyncIterator[Pair]:
    async with AsyncExitStack() as stack:
        leader = Node(FakeStanding(leads=True, node="n1"), guard and guard(), limits)
        follower = Node(FakeStanding(node="n2"), guard and guard(), limits)
        nodes = (
            node_status("n1", leader.url, "leader"),
            node_status("n2", follower.url, "follower"),
        )
        for node in (leader, follower):
            node.standing.leader_url = leader.url
            node.standing.nodes = nodes
            await node.start()
            stack.push_async_callback(node.stop)
        yield Pair(leader, follower)


def node_status(node: str, url: str, role: Any) -> NodeStatus:
    kafka = url.removeprefix("http://")
    return NodeStatus(node=node, url=url, role=role, index=0, lag_units=0, lag_ms=0, kafka=kafka)


Play = Callable[[ServerConnection], Awaitable[None]]
"""What a leader does with a link."""


class BadLeader:
    """A leader that does what the test says with each link.

    Attributes:
        taken: Links that were opened so far.
        status: With which a handshake is refused; None: it is not.
    """

    def __init__(self, play: Play) -> None:
        self._play = play
        self._server: Server
        self.url = ""
        self.taken = 0
        self.ended = 0
        self.status: int | None = None

    async def _serve(self, link: ServerConnection) -> None:
        self.taken += 1
        try:
            await self._play(link)
        except ConnectionClosed:
            pass
        finally:
            self.ended += 1
            link.transport.abort()

    def _judge(self, link: ServerConnection, _: object) -> Response | None:
        return None if self.status is None else link.respond(self.status, "no\n")

    async def start(self) -> None:
        self._server = await serve(
            self._serve, "127.0.0.1", 0, process_request=self._judge, compression=None
        )
        self.url = f"http://127.0.0.1:{next(iter(self._server.sockets)).getsockname()[1]}"

    async def stop(self) -> None:
        self._server.close(close_connections=True)
        await self._server.wait_closed()


async def asked_of(link: ServerConnection) -> Any:
    """The next message that a node says."""
    data = await link.recv()
    assert isinstance(data, bytes)
    return decode_to_decide(data)


@asynccontextmanager
async def a_follower_of(play: Play) -> AsyncIterator[tuple[Node, BadLeader]]:
    """A follower of a leader that behaves badly."""
    leader = BadLeader(play)
    await leader.start()
    follower = Node(FakeStanding(node="n2", leader_url=leader.url), None, None)
    await follower.start()
    try:
        yield follower, leader
    finally:
        await follower.stop()
        await leader.stop()
