"""A WebSocket on a node of a cluster: subscriptions are served here, publishes go to the leader (§7.7).

Owns the two ways in which a command of such a socket takes longer.  A publish is carried to the
leader as the append that it is, in the text in which it came; its reply is made of that answer.  A
subscription to a place that this replica does not have yet waits for the end of the log, also where it
leads: a leader that was deposed while it was paused does not know it yet.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any
from urllib.parse import quote

import msgspec

from topics.protocol.http import websocket
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.holder import Holder
from topics.server.cluster.doubt import END_MS, behind
from topics.server.cluster.forwarding import Request, not_leader
from topics.server.cluster.neighbours import Neighbours
from topics.server.exchange.interface import Answer
from topics.server.exchange.shell import Shell
from topics.server.exchange.socket_feed import SocketFeed

log = logging.getLogger("topics.exchange")


class _Error(msgspec.Struct):
    code: str
    message: str
    detail: dict[str, Any] | None = None


class _Envelope(msgspec.Struct):
    error: _Error


_ENVELOPE = msgspec.json.Decoder(_Envelope)


class ClusterSocketFeed(SocketFeed):
    """Implements `interface.SourceSocket`.

    Args:
        authorization: Of the handshake; the leader asks for the key again.
        client: The address of the client.

    Raises:
        Rejection: Too many connections.
    """

    def __init__(
        self,
        shell: Shell,
        neighbours: Neighbours,
        *,
        authorization: bytes | None,
        client: str,
        caller: Caller,
        holder: Holder,
    ) -> None:
        super().__init__(shell, caller, holder)
        self._neighbours = neighbours
        self._authorization = authorization
        self._client = client
        self._text = b""
        self._task: asyncio.Task[None] | None = None

    def _carry_out(self, text: bytes, reply: Callable[[bytes], None]) -> bytes | None:
        self._text = text
        return super()._carry_out(text, reply)

    def _obey(
        self, request_id: bytes, order: websocket.Order, reply: Callable[[bytes], None]
    ) -> bytes | None:
        leads = self._neighbours.standing.leads
        match order:
            case websocket.Publish() if not leads:
                work = self._forwarded(request_id, order, self._text)
            case websocket.Subscribe(topics) if not leads and self._is_ephemeral(topics):
                url = self._neighbours.standing.leader_url
                raise not_leader("the leader alone has records of class ephemeral", url)
            case websocket.Subscribe() if self._is_beyond(order):
                work = self._later(request_id, order, reply)
            case _:
                return super()._obey(request_id, order, reply)
        self._start(request_id, work, reply)
        return None

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

    # ------------------------------------------------------------------ subscribe

    def _is_ephemeral(self, topics: Any) -> bool:
        known = map(self._shell.engine.state.topics.get, topics)
        return any(topic is not None and not topic.durability.is_logged for topic in known)

    def _is_beyond(self, order: websocket.Subscribe) -> bool:
        topics = self._shell.engine.state.topics
        for name, begin in order.topics.items():
            topic = topics.get(name)
            if topic is None or begin.from_seq > topic.published_seq:
                return True
        return False

    async def _later(
        self, request_id: bytes, order: websocket.Subscribe, reply: Callable[[bytes], None]
    ) -> bytes:
        if not await self._neighbours.standing.wait_for_end(END_MS):
            raise behind()
        now = super()._obey(request_id, order, reply)
        assert now is not None, "a subscription is answered at once"
        return now

    def close(self) -> None:
        if self._task is not None:
            # What was sent to the leader may have been done: nobody is there to hear of it.
            self._task.cancel()
        super().close()


def reply_of(request_id: bytes, answer: Answer) -> bytes:
    """The reply to a publish, of the leader's answer to the append."""
    body = b"".join(answer.body)
    if answer.status < 300:
        return websocket.opened("ack", request_id) + b"," + body.strip()[1:]
    try:
        error = _ENVELOPE.decode(body).error
        code = ErrorCode(error.code)
    except (msgspec.DecodeError, UnicodeDecodeError, ValueError):
        # A leader of a newer version, or a proxy between: nothing is known of what it means.
        refusal = not_leader("the leader's answer could not be read", None, is_unknown=True)
    else:
        refusal = Rejection(code, error.message, error.detail)
    return websocket.refused(request_id, refusal)
