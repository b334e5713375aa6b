"""A request carried to another node, and its answer carried back.

Owns what of a request's head goes with it, what a failure means, and how many bytes of answers are in
hand.  It asks nothing of what the request does; whether it should be forwarded is `exchange`'s.

The other node judges everything anew: its own origin rule has nothing to judge, because a page's origin
was judged where the page is served (`Origin` stays behind), but the key goes along and is asked for
again.  The client's address goes in `X-Forwarded-For`, which the other node believes of a request with
the cluster's token, and of no other.

A failure says whether the request may have taken effect.  `detail.outcome` is `not_applied` where
nothing of it was sent, or where all that it does is read, and `unknown` everywhere else.
"""

import asyncio
import hashlib
import hmac
import logging
import re
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final, TypeAlias

import msgspec

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.cluster.answer_memory import Room
from topics.server.cluster.link import Broken, Link, connect, peer_at
from topics.server.cluster.pool import Full, Pool
from topics.server.http.interface import Answer, Headers, Streaming

log = logging.getLogger("topics.cluster")

FORWARDED: Final = b"x-topics-forwarded"
LEADER: Final = b"x-topics-leader"
POSITION: Final = b"x-topics-position"

ANSWER_S: Final = 40.0
"""How long an answer's head may take beyond the time that the request itself may wait: a sync of the
leader's disk may take 30 s."""
LONG_S: Final = 30.0
"""The longest that a request may wait for news (§3)."""
PIECE_S: Final = 35.0
"""Between two pieces of an answer that is no stream."""
LOOK_S: Final = 2.0
"""How often a request that waits looks whether the leader is another one by now."""
ANSWERS_BYTES: Final = 64 << 20
"""Of answers in hand; the largest page has 8 MiB."""
SMALL_BYTES: Final = 64 << 10
"""An answer up to this size takes no room; the connections bound those."""
ANSWER_BYTES_MAX: Final = 256 << 20
"""No answer of this API is larger."""

_OURS: Final = frozenset(
    b"connection keep-alive proxy-connection proxy-authenticate te trailer transfer-encoding upgrade"
    b" host content-length expect x-forwarded-for forwarded x-topics-forwarded"
    b" origin sec-fetch-site sec-fetch-mode sec-fetch-dest cookie".split()
)
"""Of a request: of one connection, made anew, or judged here."""
_THEIRS: Final = frozenset(
    (b"connection", b"keep-alive", b"transfer-encoding", b"trailer", b"upgrade", b"date", LEADER)
)


_BREAKS: Final = re.compile(rb"[\r\n\0]")


def token_of(secret: bytes) -> bytes:
    """By which nodes of one cluster know requests of one another: who reads the cluster's topics in Kafka
    knows the secret, and could read all data there."""
    return hashlib.blake2s(b"forwarded", key=secret[:32], digest_size=16).hexdigest().encode()


def is_token(given: bytes, token: bytes) -> bool:
    return hmac.compare_digest(given, token)


class Request(msgspec.Struct):
    """What is carried.

    Attributes:
        target: Path and query, as they came.
        body: Pieces; each is dropped when it is sent, unless `is_read`.
        client: The address that it came from; empty where that is not known.
        is_read: It changes nothing, so it may be sent a second time.
        is_long: It may wait for news, or is answered by a stream.
    """

    method: str
    target: bytes
    headers: Headers
    body: deque[bytes]
    client: str
    is_read: bool
    is_long: bool

    @property
    def is_head(self) -> bool:
        return self.method == "HEAD"


IsCurrent: TypeAlias = Callable[[], bool]


class Counts(msgspec.Struct):
    """What metrics say of forwarding; since the start."""

    forwarded: int = 0
    failed: int = 0
    unknown: int = 0
    """Of the failed, those that may have taken effect."""


class Forwarder:
    """Carries requests to other nodes.

    Args:
        secret: Known to the nodes of the cluster alone, at least 16 bytes.
        now_s: The loop's time.
    """

    def __init__(self, secret: bytes, now_s: Callable[[], float] | None = None) -> None:
        assert len(secret) >= 16
        self.token = token_of(secret)
        self.room = Room(ANSWERS_BYTES)
        self.counts = Counts()
        self._now_s = now_s
        self._pools: dict[str, Pool] = {}

    def know(self, secret: bytes) -> None:
        """The cluster's secret, where it was not known at the start."""
        assert len(secret) >= 16
        self.token = token_of(secret)

    def pool(self, url: str) -> Pool:
        pool = self._pools.get(url)
        if pool is None:
            # Nodes come and go: what no request uses is closed when another one is first used.
            for old in [old for old, known in self._pools.items() if known.is_unused]:
                self._pools.pop(old).close()
            now_s = self._now_s or asyncio.get_running_loop().time
            pool = self._pools[url] = Pool(peer_at(url), now_s, open_link=connect)
        return pool

    @property
    def connections(self) -> tuple[int, int, int]:
        """Connections that carry a request which is answered soon, that wait or stream, and that are idle
        ones."""
        pools = self._pools.values()
        return (
            sum(pool.short for pool in pools),
            sum(pool.long for pool in pools),
            sum(pool.idle for pool in pools),
        )

    def drain(self) -> None:
        """End what waits for news, and streams; what is answered soon is waited for."""
        for pool in self._pools.values():
            pool.drain()

    def close(self) -> None:
        for pool in self._pools.values():
            pool.close()

    async def carry(
        self, request: Request, url: str, is_current: Callable[[], bool]
    ) -> Answer | Streaming:
        """The other node's answer.

        Args:
            is_current: Whether the request would go to this URL now.

        Raises:
            Rejection: 503 `not_leader`; 429.
        """
        self.counts.forwarded += 1
        try:
            return await self._carried(request, url, is_current)
        except Rejection as refusal:
            self.counts.failed += 1
            if refusal.detail is not None and refusal.detail.get("outcome") == "unknown":
                self.counts.unknown += 1
            raise

    async def _carried(
        self, request: Request, url: str, is_current: Callable[[], bool]
    ) -> Answer | Streaming:
        try:
            return await self._once(request, url, is_current, is_new=False)
        except Rejection as refusal:
            # A connection that was kept may have been closed as the request went out.
            if not request.is_read or refusal.code is not ErrorCode.NOT_LEADER or not is_current():
                raise
            return await self._once(request, url, is_current, is_new=True)

    async def _once(
        self, request: Request, url: str, is_current: Callable[[], bool], *, is_new: bool
    ) -> Answer | Streaming:
        pool = self.pool(url)
        head = self._head(request, pool.peer.authority)
        passage = _Passage(request, url, self.room, is_current)
        try:
            link = await pool.take(is_long=request.is_long, is_new=is_new)
        except Full:
            raise _busy() from None
        except Broken as error:
            raise passage.refusal(f"cannot be reached: {error}") from None
        is_streaming = False
        try:
            answer = await passage.answer(link, head)
            if isinstance(answer, Answer):
                return answer
            is_streaming = True
            feed = _Feed(link, partial(pool.put, link, is_long=request.is_long))
            return Streaming(answer.status, answer.headers, feed)
        except Broken as error:
            raise passage.refusal(f"gave no answer: {error}") from None
        finally:
            if not is_streaming:
                pool.put(link, is_long=request.is_long)

    def _head(self, request: Request, authority: bytes) -> bytes:
        lines = [
            b"%b %b HTTP/1.1" % (request.method.encode("latin-1"), request.target),
            b"host: " + authority,
            b"%b: %b" % (FORWARDED, self.token),
        ]
        if request.client:
            lines.append(b"x-forwarded-for: " + request.client.encode("latin-1", "replace"))
        named = _named_by_connection(request.headers)
        lines += [
            b"%b: %b" % (name, value)
            for name, value in request.headers
            if name not in _OURS and name not in named
        ]
        if request.body or request.method not in ("GET", "HEAD"):
            lines.append(b"content-length: %d" % sum(map(len, request.body)))
        if b" " in request.target or any(map(_BREAKS.search, lines)):
            # In HTTP/2 a path or a value is no line, and could end one here.
            raise Rejection(
                ErrorCode.INVALID_REQUEST, "a path or a header that HTTP/1.1 cannot carry"
            )
        return b"\r\n".join((*lines, b"", b""))


class _Passage:
    """One request on its way."""

    def __init__(
        self, request: Request, url: str, room: Room, is_current: Callable[[], bool]
    ) -> None:
        self._request = request
        self._url = url
        self._room = room
        self._is_current = is_current
        self._is_sent = False

    async def answer(self, link: Link, head: bytes) -> Answer | Streaming:
        """The whole answer; of a stream the head, and no feed."""
        request = self._request
        self._is_sent = True
        # What is only read may have to be sent again.
        body = deque(request.body) if request.is_read else request.body
        with self._watched(link):
            await link.ask(head, body, is_head=request.is_head)
        parser = link.parser
        headers = [each for each in parser.headers if each[0] not in _THEIRS]
        headers.append((LEADER, self._url.encode()))
        if request.is_head or parser.status == 304:
            return Answer(parser.status, headers, [])
        if _is_stream(headers):
            return Streaming(parser.status, headers, None)
        size = parser.length
        if size is None or size > ANSWER_BYTES_MAX:
            raise Broken("an answer that does not say its length, or is too large")
        return Answer(parser.status, headers, await self._body(link, size))

    @contextmanager
    def _watched(self, link: Link) -> Iterator[None]:
        """Give up where the head takes too long, or the node that was asked is another one than would
        be asked now.  A timer and no task: most heads come within a millisecond."""
        loop = asyncio.get_running_loop()
        until_s = loop.time() + ANSWER_S + (LONG_S if self._request.is_long else 0)
        was_current = True
        timer: asyncio.TimerHandle

        def look() -> None:
            nonlocal timer, was_current
            is_current = self._is_current()
            if loop.time() >= until_s:
                link.give_up("no answer in time")
            elif not (was_current or is_current):
                # A node that was deposed says so by itself; this one is silent.
                link.give_up("it does not lead any more")
            else:
                was_current = is_current
                timer = loop.call_later(min(LOOK_S, until_s - loop.time()), look)

        timer = loop.call_later(min(LOOK_S, until_s - loop.time()), look)
        try:
            yield
        finally:
            timer.cancel()

    async def _body(self, link: Link, size: int) -> list[bytes]:
        held = size if size > SMALL_BYTES else 0
        if held:
            await self._room.take(held)
        try:
            pieces: list[bytes] = []
            try:
                while True:
                    async with asyncio.timeout(PIECE_S):
                        piece = await link.read()
                    if piece is None:
                        return pieces
                    pieces.append(piece)
            except TimeoutError:
                raise Broken("the rest of an answer did not come in time") from None
        finally:
            if held:
                self._room.give_back(held)

    def refusal(self, what: str) -> Rejection:
        is_unknown = self._is_sent and not self._request.is_read
        return not_leader(f"the leader {what}", self._url, is_unknown=is_unknown)


class _Feed:
    """Implements `interface.Source`: a stream of another node, piece by piece as the client takes
    it."""

    def __init__(self, link: Link, put_back: Callable[[], None]) -> None:
        self._link = link
        self._put_back: Callable[[], None] | None = put_back

    @property
    def is_over(self) -> bool:
        # To the client a stream that breaks off ends; it comes back with its last event's id.
        return self._put_back is None or self._link.is_over

    @property
    def is_drained(self) -> bool:
        return not (self._link.parser.buffered_bytes or self._link.is_over)

    def listen(self, wake: Callable[[], None]) -> None:
        self._link.listen(wake)
        wake()

    def take(self) -> bytes | None:
        return None if self._put_back is None else self._link.take()

    def close(self) -> None:
        put_back, self._put_back = self._put_back, None
        if put_back is None:
            return
        if self._link.failure is not None:
            log.info("a stream of another node ended: %s", self._link.failure)
        self._link.listen(None)
        put_back()  # which closes it where the stream has not ended


def not_leader(why: str, url: str | None, *, is_unknown: bool = False) -> Rejection:
    """503; `detail` names the leader, where it is known, and says what became of the request."""
    detail = {"leader": url, "outcome": "unknown" if is_unknown else "not_applied"}
    return Rejection(ErrorCode.NOT_LEADER, why, detail)


def _busy() -> Rejection:
    limit = {"limit": "cluster_connections"}
    return Rejection(ErrorCode.THROTTLED, "too many requests wait for the leader", limit)


def _is_stream(headers: Headers) -> bool:
    return any(n == b"content-type" and v.startswith(b"text/event-stream") for n, v in headers)


def _named_by_connection(headers: Headers) -> frozenset[bytes]:
    """Headers that are of one connection because its `Connection` header names them."""
    named = [value for name, value in headers if name == b"connection"]
    return frozenset(word.strip().lower() for value in named for word in value.split(b","))
