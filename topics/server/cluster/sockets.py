"""A WebSocket on a node of a cluster: subscriptions are served here, publishes go to the leader (§7.7).

Owns the ways in which a command of a node's socket takes longer.  A publish is carried to the leader as the
append that it is, in the text in which it came; its reply is made of that answer.  A subscription to a
place that this replica does not have yet waits for it, or for the end of the log, also where it leads: a
leader that was deposed while it was paused does not know it yet.  One to topics of class `ephemeral` is
served by the leader (`carried`).

The ack of a publish has the field `position`, as an HTTP answer has `x-topics-position`, and a `subscribe`
may send one.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from topics.protocol.driver.group_commit import Reply
from topics.protocol.driver.streams import StreamEnd
from topics.protocol.http import websocket
from topics.protocol.http.answer_models import Position as AnswerPosition
from topics.protocol.http.answers import position
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Outcome
from topics.server.cluster.carried import CARRIED_MAX, Carried, refusal_of
from topics.server.cluster.forwarding import POSITION, Request
from topics.server.cluster.neighbours import Neighbours
from topics.server.cluster.positions import Position, parse_position
from topics.server.cluster.second_look import END_MS, behind
from topics.server.http.interface import Answer
from topics.server.http.socket_feed import REPLIES_BYTES_MAX, SocketFeed
from topics.server.service.service import LocalSocket, Service, WatchSocket
from topics.server.service.slots import Slot

log = logging.getLogger("topics.http")


class _Placed(msgspec.Struct):
    position: str | None = None


_PLACED = msgspec.json.Decoder(_Placed)


class ClusterSocketFeed(SocketFeed):
    """Implements `interface.Socket`.

    Args:
        authorization: Of the handshake; the leader asks for the key again.
        client: The address of the client.
    """

    def __init__(
        self,
        service: Service,
        stream: WatchSocket,
        slot: Slot,
        neighbours: Neighbours,
        *,
        authorization: bytes | None,
        client: str,
    ) -> None:
        super().__init__(service, stream, slot)
        assert isinstance(stream, LocalSocket)
        self._here = stream
        self._neighbours = neighbours
        self._authorization = authorization
        self._client = client
        self._text = b""
        self._task: asyncio.Task[None] | None = None
        self._carried: list[Carried] = []
        self._taken = asyncio.Event()

    def _carry_out(self, text: bytes, reply: Callable[[bytes], None]) -> bytes | None:
        self._text = text
        return super()._carry_out(text, reply)

    def _obey(
        self, request_id: bytes, order: websocket.Order, reply: Callable[[bytes], None]
    ) -> bytes | None:
        standing = self._neighbours.standing
        match order:
            case websocket.Publish() if not standing.leads:
                work = self._forwarded(request_id, order, self._text)
            case websocket.Subscribe():
                index = self._index_asked()
                if index <= standing.index and not self._is_doubtful(order):
                    self._drop(order.topics)
                    return super()._obey(request_id, order, reply)
                work = self._subscribed(request_id, order, self._text, index)
            case websocket.Unsubscribe(topic) if self._drop((topic,)):
                return websocket.reply(
                    "unsubscribed", request_id, {"topic": topic, "subscribed": True}
                )
            case _:
                return super()._obey(request_id, order, reply)
        self._start(request_id, work, reply)
        return None

    def _index_asked(self) -> int:
        """The index of the position that a subscription is to show; 0: none.  Raises Rejection."""
        try:
            given = _PLACED.decode(self._text).position
        except msgspec.DecodeError:
            given = ""
        if given is None:
            return 0
        shard = self._neighbours.standing.shard
        return parse_position(given.encode(), shard=shard, path="$.position")

    def _start(
        self,
        request_id: bytes,
        work: Coroutine[Any, Any, bytes],
        reply: Callable[[bytes], None],
    ) -> None:
        async def run() -> None:
            try:
                message = await work
            except Rejection as refusal:
                message = websocket.refused(request_id, refusal)
            except Exception:
                log.exception("internal error")
                message = websocket.refused(
                    request_id, Rejection(ErrorCode.INTERNAL, "internal error")
                )
            reply(message)
            self._start_carried()

        self._task = asyncio.get_running_loop().create_task(run())

    # ------------------------------------------------------------------ publish

    async def _forwarded(self, request_id: bytes, order: websocket.Publish, text: bytes) -> bytes:
        url = self._neighbours.require_leader_url()
        append = order.append
        headers = [(b"content-type", b"application/json")]
        if self._authorization is not None:
            headers.append((b"authorization", self._authorization))
        with_seqs = "" if append.return_seqs else "?return_seqs=false"
        request = Request(
            method="POST",
            target=f"/v0/topics/{quote(append.topic, safe='')}{with_seqs}".encode(),
            headers=headers,
            # A command is an append's body with fields of its own, which the append ignores.
            body=deque([text]),
            client=self._client,
            is_read=False,
            is_long=False,
        )
        standing = self._neighbours.standing
        made = await self._neighbours.forwarder.carry(
            request, url, lambda: standing.leader_url == url
        )
        assert isinstance(made, Answer)
        return reply_of(request_id, made)

    def _published(self, request_id: bytes, done: Reply) -> bytes:
        message = super()._published(request_id, done)
        if not isinstance(done.result, Outcome):
            return message
        # An answer to a write is given once its unit was applied here.
        standing = self._neighbours.standing
        return _with_position(message, Position(standing.shard, standing.index).text)

    # ------------------------------------------------------------------ subscribe

    def _is_doubtful(self, order: websocket.Subscribe) -> bool:
        """Whether this replica may not have all that the subscription begins with."""
        is_theirs = not self._neighbours.standing.leads and bool(self._ephemeral(order.topics))
        return is_theirs or self._is_beyond(order)

    def _is_beyond(self, order: websocket.Subscribe) -> bool:
        """Whether it begins in a topic, or at a place, that is not known here."""
        shown = self._shell.engine.has_shown
        return not all(shown(name, begin.from_seq) for name, begin in order.topics.items())

    def _ephemeral(self, names: Iterable[str]) -> list[str]:
        """Of these topics, those of which the leader alone has the records."""
        return [name for name in names if self._shell.engine.has_ephemeral((name,))]

    async def _subscribed(
        self, request_id: bytes, order: websocket.Subscribe, text: bytes, index: int
    ) -> bytes:
        """Add topics of which some are not here, or not yet; all or none."""
        standing = self._neighbours.standing
        if not await standing.wait_for(index, END_MS):
            raise behind(f"this replica does not show unit {index} yet")
        theirs = [] if standing.leads else self._ephemeral(order.topics)
        ours = {name: begin for name, begin in order.topics.items() if name not in theirs}
        own = msgspec.structs.replace(order, topics=ours)
        if self._is_beyond(own):
            if not await standing.wait_for_end(END_MS):
                raise behind()
            if not standing.leads and self._ephemeral(ours):  # it is known only now
                return await self._subscribed(request_id, order, text, 0)
        positions: dict[str, AnswerPosition] = {}
        carried = await self._carry(theirs, text, positions) if theirs else None
        try:
            if self._is_over:
                raise behind()  # the client is gone
            added = self._here.add(ours, order.view, self._shell.now_ms)
            positions |= {name: position(each) for name, each in added.items()}
        except BaseException:
            if carried is not None:
                carried.close()
            raise
        self._drop(order.topics)
        if carried is not None:
            for name in theirs:
                self._here.remove(name)
            self._carried.append(carried)
        return websocket.subscribed_at(request_id, positions)

    # ------------------------------------------------------------------ at the leader

    async def _carry(
        self, names: Sequence[str], text: bytes, positions: dict[str, AnswerPosition]
    ) -> Carried:
        """A session at the leader, which is not started yet.  Raises Rejection."""
        self._carried = [carried for carried in self._carried if carried.names]
        if len(self._carried) >= CARRIED_MAX:
            what = "too many subscriptions to topics of class ephemeral"
            raise Rejection(
                ErrorCode.THROTTLED, what, {"limit": "cluster_subscriptions", "max": CARRIED_MAX}
            )
        limit = self._shell.limits.max_watch_topics
        held = {name for carried in self._carried for name in carried.names}
        if len(held | set(self._here.names) | set(names)) > limit:
            raise Rejection(ErrorCode.INVALID_REQUEST, f"a socket watches at most {limit} topics")
        key = self._authorization
        headers = [] if key is None else [(b"authorization", key)]
        carried = Carried(self._neighbours, names, headers=headers, client=self._client)
        try:
            positions.update(await carried.open(text))
        except BaseException:
            carried.close()
            raise
        return carried

    def _start_carried(self) -> None:
        """The reply to their subscription stands before their first frame."""
        for carried in self._carried:
            if not carried.is_started:
                carried.start(self._reply, self._room, self._on_moved)

    def _next_reply(self) -> bytes:
        reply = super()._next_reply()
        self._taken.set()
        return reply

    async def _room(self) -> None:
        """Wait until the client has taken enough of its replies."""
        while self._replies_bytes > REPLIES_BYTES_MAX and not self._is_over:
            self._taken.clear()
            await self._taken.wait()

    def _on_moved(self) -> None:
        if not self._is_over:
            self._here.end(StreamEnd.MOVED)

    def _drop(self, names: Iterable[str]) -> bool:
        """Subscribe to topics at the leader no more; whether one of them was."""
        was = [carried.drop(name) for name in names for carried in self._carried]
        self._carried = [carried for carried in self._carried if carried.names]
        return any(was)

    def close(self) -> None:
        if self._task is not None:
            # What was sent to the leader may have been done: nobody is there to hear of it.
            self._task.cancel()
        carried, self._carried = self._carried, []
        for each in carried:
            each.close()
        super().close()
        self._taken.set()


def reply_of(request_id: bytes, answer: Answer) -> bytes:
    """The reply to a publish, of the leader's answer to the append."""
    body = b"".join(answer.body)
    if answer.status >= 300:
        return websocket.refused(request_id, refusal_of(answer))
    ack = websocket.opened("ack", request_id) + b"," + body.strip()[1:]
    place = next((value for name, value in answer.headers if name == POSITION), None)
    return ack if place is None else _with_position(ack, place)


def _with_position(ack: bytes, place: bytes) -> bytes:
    return b'%b,"position":"%b"}' % (ack[:-1], place)
