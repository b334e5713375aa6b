"""Subscriptions of a follower's WebSocket that the leader serves: topics of class `ephemeral`.

Owns one watch session at the leader for each `subscribe` that names such topics, and the change of its
events into the messages of the socket.  A session at the leader has what a socket's subscription has: the
same views, cursors, frames and refusals.  The key and the client's address go along, so the leader judges
both and counts the session in its client's share.

A stream of the leader that ends, for whatever reason, ends the socket, as a leader's own sockets end when
another node leads.  The client connects again and goes on from the positions that it has.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Any, Final
from urllib.parse import quote

import msgspec

from topics.protocol.http import websocket
from topics.protocol.http.answer_models import Position
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.forwarding import Request, not_leader
from topics.server.cluster.neighbours import Neighbours
from topics.server.http.awaited import Awaited
from topics.server.http.interface import Answer, Headers, Streaming

CARRIED_MAX: Final = 16
"""Sessions at the leader for one socket; each has a connection."""
HEARTBEAT_MS: Final = 5000
SILENCE_S: Final = 20.0
"""A leader that is silent for longer is taken to be gone."""
LOOK_S: Final = 1.0
"""How often a stream that waits looks whether the leader is another one by now."""
OPS: Final = {
    b"record": b"record",
    b"tombstone": b"tombstone",
    b"caught-up": b"caught_up",
    b"topic-deleted": b"topic_deleted",
}
"""What an event of a session is called on a socket; the fields are the same (§7.5, §7.7)."""
_OF_ORDER: Final = frozenset(
    (
        "op",
        "topic",
        "topics",
        "from_seq",
        "from_ts",
        "tail",
        "request_id",
        "return_seqs",
        "position",
    )
)
"""Fields of a `subscribe` that are none of a session."""
_BEGIN: Final = ("from_seq", "from_ts", "tail")


class _Session(msgspec.Struct):
    wid: str
    topics: dict[str, Position]


class _Named(msgspec.Struct):
    topic: str = ""


class _Problem(msgspec.Struct):
    error: str = ""
    topics: list[str] = []
    detail: dict[str, Any] = {}


_SESSION: Final = msgspec.json.Decoder(_Session)
_NAMED: Final = msgspec.json.Decoder(_Named)
_PROBLEM: Final = msgspec.json.Decoder(_Problem)


def session_body(order: bytes, names: Collection[str]) -> bytes:
    """The body of a session for some of the topics that a `subscribe` names."""
    asked: dict[str, Any] = msgspec.json.decode(order)
    body = {field: value for field, value in asked.items() if field not in _OF_ORDER}
    topics = asked.get("topics")
    if topics is None:
        topics = {asked["topic"]: {field: asked[field] for field in _BEGIN if field in asked}}
    body["topics"] = {name: topics[name] for name in names}
    return msgspec.json.encode(body | {"heartbeat_ms": HEARTBEAT_MS})


class Events:
    """The events of a stream, out of its pieces."""

    def __init__(self) -> None:
        self._rest = b""

    def take(self, piece: bytes) -> Iterator[tuple[bytes, bytes]]:
        """(event, data) of each event that is whole by now."""
        *blocks, self._rest = (self._rest + piece).split(b"\n\n")
        for block in blocks:
            event = data = b""
            for line in block.split(b"\n"):
                if line.startswith(b"event: "):
                    event = line[7:]
                elif line.startswith(b"data: "):
                    data = line[6:]
            if event:
                yield event, data


class Carried:
    """One session at the leader.

    Args:
        headers: Of each request: the socket's key.
        client: The socket's address.

    Attributes:
        names: Topics that are still subscribed to.
    """

    def __init__(
        self, neighbours: Neighbours, names: Collection[str], *, headers: Headers, client: str
    ) -> None:
        self.names = set(names)
        self._neighbours = neighbours
        self._headers = headers
        self._client = client
        self._url = neighbours.require_leader_url()
        self._has_all = True
        self._feed: Awaited | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    @property
    def is_started(self) -> bool:
        return self._task is not None

    @property
    def _is_current(self) -> bool:
        return self._neighbours.standing.leader_url == self._url

    async def open(self, order: bytes) -> dict[str, Position]:
        """Where it stands in each topic.

        Raises:
            Rejection: The leader's refusal; 503 `not_leader`.
        """
        made = await self._carry("POST", b"/v0/watch", [session_body(order, self.names)])
        if not isinstance(made, Answer) or made.status >= 300:
            raise refusal_of(made)
        session = _SESSION.decode(b"".join(made.body))
        streaming = await self._carry("GET", f"/v0/watch/{quote(session.wid)}".encode(), [])
        if not isinstance(streaming, Streaming) or streaming.feed is None:
            raise refusal_of(streaming)
        self._feed = Awaited(streaming.feed)
        if self._is_closed:
            self.close()
        return session.topics

    async def _carry(self, method: str, target: bytes, body: list[bytes]) -> Answer | Streaming:
        kind = [(b"content-type", b"application/json")] if body else []
        request = Request(
            method=method,
            target=target,
            headers=[*kind, *self._headers],
            body=deque(body),
            client=self._client,
            is_read=True,
            is_long=not body,
        )
        return await self._neighbours.forwarder.carry(request, self._url, lambda: self._is_current)

    def start(
        self,
        tell: Callable[[bytes], None],
        has_room: Callable[[], Awaitable[None]],
        ended: Callable[[], None],
    ) -> None:
        """Tell the socket what comes.

        Args:
            has_room: Returns once the client has taken enough of what it was told.
            ended: Called where the stream ended.
        """
        if not self._is_closed:
            work = self._run(tell, has_room, ended)
            self._task = asyncio.get_running_loop().create_task(work)

    async def _run(
        self,
        tell: Callable[[bytes], None],
        has_room: Callable[[], Awaitable[None]],
        ended: Callable[[], None],
    ) -> None:
        events = Events()
        while (piece := await self._piece()) is not None:
            for event, data in events.take(piece):
                message = self._message(event, data)
                if message is None:
                    ended()
                    return
                if message:
                    tell(message)
            await has_room()
        if not self._is_closed:
            ended()

    async def _piece(self) -> bytes | None:
        """The next piece; None where there is none, or it would be of a node that leads no more."""
        if self._feed is None:
            return None
        reading = asyncio.ensure_future(self._feed.next())
        loop = asyncio.get_running_loop()
        until_s = loop.time() + SILENCE_S
        try:
            while not reading.done() and self._is_current and loop.time() < until_s:
                await asyncio.wait((reading,), timeout=LOOK_S)
            piece = reading.result() if reading.done() else None
            return None if piece is None else bytes(piece)
        finally:
            if not reading.done():
                reading.cancel()

    def _message(self, event: bytes, data: bytes) -> bytes | None:
        """What the socket says; empty: nothing.  None where the stream ends."""
        op = OPS.get(event)
        if op is not None:
            if not self._has_all and _NAMED.decode(data).topic not in self.names:
                return b""
            return b'{"op":"%b",%b' % (op, data[1:])
        problem = _PROBLEM.decode(data)
        if not problem.topics:
            return None
        [topic] = problem.topics
        self.drop(topic)
        return websocket.unreadable(
            topic, Rejection(ErrorCode.INTERNAL, problem.error, problem.detail)
        )

    def drop(self, name: str) -> bool:
        """Subscribe to a topic no more; whether it was."""
        if name not in self.names:
            return False
        self.names.discard(name)
        self._has_all = False
        if not self.names:
            self.close()
        return True

    def close(self) -> None:
        self._is_closed = True
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()
        feed, self._feed = self._feed, None
        if feed is not None:
            feed.close()


class _Error(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] | None = None


class _Envelope(msgspec.Struct):
    error: _Error


_ENVELOPE: Final = msgspec.json.Decoder(_Envelope)


def refusal_of(made: Answer | Streaming) -> Rejection:
    """The refusal that another node answered with."""
    try:
        error = _ENVELOPE.decode(b"".join(made.body if isinstance(made, Answer) else ()))
        return Rejection(ErrorCode(error.error.code), error.error.message, error.error.detail)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        # A leader of a newer version, or a proxy between: nothing is known of what it means.
        return not_leader("the leader's answer could not be read", None, is_unknown=True)
