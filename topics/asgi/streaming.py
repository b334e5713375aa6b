"""Answers that go on, under an ASGI server: event streams and WebSockets.

Backpressure: the next piece is made when the client has taken the one before.  A client that does
not read holds one piece and the transport's buffer, and is disconnected when it has taken none for
a while; an event stream ends with a last frame, behind what its client has yet to read.  Between
two pieces other tasks get a turn.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

from topics.asgi.limits import HostLimits, Timeouts
from topics.protocol.faces.http import sse
from topics.server.http.awaited import Awaited, AwaitedSocket
from topics.server.http.interface import Socket, Streaming

Send = Callable[[Any], Awaitable[None]]
Receive = Callable[[], Awaitable[Any]]

TAKE_S: Final = Timeouts().take_s
"""A client that does not take one piece in this time is cut (§7.6)."""
SLOW: Final = sse.encode_error(408, "nothing was taken for too long; connect again")
"""The last frame for such a client, which resumes from its last id."""
MESSAGE_BYTES_MAX: Final = HostLimits().message_bytes


class Gone(Exception):
    """The client is gone: the server raised an error for what was sent."""


def guarded(send: Send) -> Send:
    """A `send` that raises `Gone` where the server raises OSError, as ASGI 2.4 has it for a client
    that is gone; an older server says nothing, and what is sent is lost."""

    async def send_or_raise_gone(message: Any) -> None:
        try:
            await send(message)
        except OSError as error:
            raise Gone from error

    return send_or_raise_gone


async def stream(
    streaming: Streaming,
    send: Send,
    gone: Awaitable[object],
    *,
    take_s: float = TAKE_S,
) -> None:
    """Write an event stream until its feed ends it, or the client is gone or does not read."""
    feed = None if streaming.feed is None else Awaited(streaming.feed)
    leaving = asyncio.ensure_future(gone)
    pumping = None
    is_slow = False
    try:
        await send(
            {
                "type": "http.response.start",
                "status": streaming.status,
                "headers": list(streaming.headers),
            }
        )
        ended = feed is None
        if feed is not None:
            pumping = asyncio.ensure_future(_pump(feed, send, take_s))
            either: set[asyncio.Future[Any]] = {pumping, leaving}
            await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
            ended = pumping.done() and pumping.result()
            is_slow = not ended and not leaving.done()
        if ended:
            await send({"type": "http.response.body", "body": b"", "more_body": False})
    finally:
        leaving.cancel()
        if pumping is not None:
            pumping.cancel()
        if feed is not None:
            feed.close()
    if is_slow and pumping is not None:
        last = {"type": "http.response.body", "body": SLOW, "more_body": False}
        await _is_taken(send, last, take_s)


async def _pump(feed: Awaited, send: Send, take_s: float) -> bool:
    """Pull and send; whether the feed came to its end."""
    while (piece := await feed.next()) is not None:
        message = {"type": "http.response.body", "body": piece, "more_body": True}
        if not await _is_taken(send, message, take_s):
            return False
    return True


async def _is_taken(send: Send, message: Any, take_s: float) -> bool:
    try:
        async with asyncio.timeout(take_s):
            await send(message)
    except TimeoutError:
        return False
    await asyncio.sleep(0)
    return True


async def converse(
    socket: Socket,
    send: Send,
    receive: Receive,
    *,
    take_s: float = TAKE_S,
    message_bytes: int = MESSAGE_BYTES_MAX,
) -> None:
    """Carry a WebSocket until either side ends it; commands are carried out in order."""
    await send({"type": "websocket.accept"})
    awaited = AwaitedSocket(socket)
    sending = asyncio.ensure_future(_send_messages(awaited, send, take_s))
    receiving = asyncio.ensure_future(_receive_commands(awaited, receive, message_bytes))
    try:
        await asyncio.wait({sending, receiving}, return_when=asyncio.FIRST_COMPLETED)
        code: int | None = 1001
        if sending.done() and not sending.result():
            return
        if receiving.done():
            code = receiving.result()
        if code is not None:
            await _is_taken(send, {"type": "websocket.close", "code": code}, take_s)
    finally:
        sending.cancel()
        receiving.cancel()
        awaited.close()


async def _send_messages(socket: AwaitedSocket, send: Send, take_s: float) -> bool:
    """Pull and send; whether the exchange ended the WebSocket."""
    while (message := await socket.next()) is not None:
        text = str(message, "utf-8")
        if not await _is_taken(send, {"type": "websocket.send", "text": text}, take_s):
            return False
    return True


async def _receive_commands(
    socket: AwaitedSocket, receive: Receive, message_bytes: int
) -> int | None:
    """Read commands; the code to close with; None where the client has closed."""
    while True:
        message = await receive()
        if message["type"] == "websocket.disconnect":
            return None
        if message["type"] != "websocket.receive":
            continue
        text = message.get("text")
        if text is None:
            await socket.hear_unexpected()
        elif len(text) > message_bytes or (
            not text.isascii() and len(text.encode("utf-8", "replace")) > message_bytes
        ):
            return 1009
        else:
            await socket.hear(text.encode("utf-8", "surrogatepass"))
