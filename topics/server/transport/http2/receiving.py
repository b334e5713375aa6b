"""Requests on their way in: heads judged, bodies gathered, handed to the exchange.

Owns the bounds on what a request may be, and the answer to a malformed one (RFC 9113, 8.1.1).
Knows nothing of how an answer is sent.
"""

import re
from functools import partial
from typing import Final

import h2.events
from h2.errors import ErrorCodes

from topics.protocol.model.errors import ErrorCode
from topics.server.http.interface import (
    Answer,
    Exchange,
    Head,
    Opening,
    Socket,
    Streaming,
)
from topics.server.http.refusals import refusal
from topics.server.transport.abuse_counts import Abuse
from topics.server.transport.bodies import BodyShare
from topics.server.transport.http2.fields import (
    Fields,
    content_length,
    fault_of_head,
    fault_of_trailers,
    pseudo_headers,
    size_bytes,
)
from topics.server.transport.http2.frame_charges import LARGE_HEAD
from topics.server.transport.http2.frames import Broken
from topics.server.transport.http2.link import Http2Link
from topics.server.transport.http2.sending import Sender
from topics.server.transport.http2.stream import (
    CLOSED,
    ENDED,
    RECEIVING,
    TUNNEL,
    WAITING,
    Stream,
)
from topics.server.transport.http2.tunnel import Tunnel
from topics.server.transport.limits import HEAD_BYTES_MAX, HEADERS_MAX

_UNSAFE: Final = re.compile(rb"[^\x21-\x7e]")
_CONTINUE: Final = ((b":status", b"100"),)
_SHORT: Final = "the body is shorter than its Content-Length"
_LONG: Final = "the body is longer than its Content-Length"


class Receiver:
    """The requests of one connection."""

    def __init__(self, link: Http2Link, sender: Sender, exchange: Exchange) -> None:
        self._link = link
        self._sender = sender
        self._exchange = exchange

    # ------------------------------------------------------------------ heads

    def on_request(self, stream_id: int, fields: Fields, fault: str | None, *, ends: bool) -> None:
        """A head came.

        Args:
            fault: What was found to be wrong with it already.
            ends: It ends its stream.
        """
        link = self._link
        if len(link.streams) >= link.limits.streams:
            link.h2.reset_stream(stream_id, ErrorCodes.REFUSED_STREAM)
            link.pay()
            return
        link.charges.earn()
        pseudo = pseudo_headers(fields)
        is_head = pseudo.get(b":method") == b"HEAD"
        if _is_large(fields, len(pseudo)):
            link.reject(stream_id, _too_large(), is_head=is_head, ends=ends)
            link.pay(LARGE_HEAD)
            return
        rest = fields[len(pseudo) :]
        fault = fault or fault_of_head(pseudo, rest)
        length = None if fault else content_length(rest)
        if ends and length:
            fault = _SHORT
        if fault is not None:
            link.reject(stream_id, _malformed(fault), is_head=is_head, spoilt=True)
            return
        stream = Stream(
            stream_id, is_head=is_head, coming=length, discard=link.shared.deferred_free.take
        )
        link.open(stream)
        if ends:
            stream.move(ENDED)
        head = _head(pseudo, rest, link.connection.client)
        if head.method == "CONNECT" and not ends:
            self._connect(stream, head)
        else:
            self._begin(stream, head, ends=ends)

    def _begin(self, stream: Stream, head: Head, *, ends: bool) -> None:
        link = self._link
        verdict = self._exchange.begin(head)
        if isinstance(verdict, Answer):
            self._sender.answer(stream, verdict)
            return
        stream.admission = verdict
        if ends:
            self._finish(stream)
            return
        stream.until_s = link.now_s() + link.timeouts.body_s
        link.put_off(stream, link.timeouts.first_s)
        if _expects_leave(head):
            link.h2.send_headers(stream.id, _CONTINUE)

    def _connect(self, stream: Stream, head: Head) -> None:
        """A WebSocket's handshake, which in everything but its answer is a GET (§7.7)."""
        verdict = self._exchange.connect(
            Head("GET", head.path, head.query, head.headers, head.client)
        )
        if isinstance(verdict, Answer | Socket):
            self._opened(stream, verdict)
            return
        assert isinstance(verdict, Opening)
        stream.opening = verdict
        verdict.then(partial(self._settle_opening, stream))

    def _settle_opening(self, stream: Stream, verdict: Answer | Socket) -> None:
        """The handshake was judged by another process, unless the client is gone."""
        stream.opening = None
        if stream.state is RECEIVING:
            self._opened(stream, verdict)
            self._link.connection.work_soon()
        elif isinstance(verdict, Socket):
            verdict.close()

    def _opened(self, stream: Stream, verdict: Answer | Socket) -> None:
        link = self._link
        if isinstance(verdict, Answer):
            self._refuse(stream, verdict)
            return
        tunnel = Tunnel(
            verdict,
            link.limits,
            link.timeouts,
            now_s=link.now_s,
            later=link.shared.loop.call_later,
            on_flood=partial(link.shared.abuses.hit, Abuse.WEBSOCKET_FLOOD),
        )
        for piece in stream.take_pieces():  # what came before the verdict
            tunnel.add(piece)
            link.hears[stream.id] = stream
        self._sender.open_tunnel(stream, tunnel)

    # ------------------------------------------------------------------ bodies

    def on_data(self, event: h2.events.DataReceived) -> None:
        link = self._link
        size, room = len(event.data), event.flow_controlled_length
        ends = event.stream_ended is not None
        stream = link.streams.get(event.stream_id)
        begins = stream is not None and stream.state is RECEIVING and not stream.received_bytes
        if not link.charges.data(size, link.now_s(), ends=ends, begins=begins):
            raise Broken(ErrorCodes.ENHANCE_YOUR_CALM, "too much DATA with next to nothing in it")
        if stream is not None:
            if not stream.counts(size, ends=ends):
                self._spoil(stream, _SHORT if ends else _LONG)
            elif size and stream.state is RECEIVING:
                self._gather(stream, event.data)
        if not room:
            return
        if stream is not None and stream.state is RECEIVING:
            link.h2.acknowledge_received_data(room, event.stream_id)
            return
        # Dropped bytes open the connection's window, for other streams, and not their stream's;
        # bytes for a tunnel open its stream's window when they are taken.
        link.h2.increment_flow_control_window(room)
        if stream is not None and stream.tunnel is not None:
            stream.tunnel.add(event.data)
            self._open_window(stream, room - size)
            link.hears[stream.id] = stream

    def _gather(self, stream: Stream, piece: bytes) -> None:
        """Keep a piece of the body, in the bounds of one and of all."""
        link, admission, size = self._link, stream.admission, len(piece)
        if admission is None:
            self._keep_early(stream, piece)
            return
        if stream.received_bytes + size > admission.max_body_bytes:
            self._refuse(stream, admission.too_large())
            return
        is_small = stream.received_bytes + size <= link.limits.body_free_bytes
        if not is_small and not self._take_room(stream, size):
            self._give_way(stream)
            return
        stream.keep(piece)
        if stream.progress_bytes >= link.limits.window_bytes or stream.received_bytes == size:
            stream.progress_bytes = 0
            left_s = stream.until_s - link.now_s()
            link.put_off(stream, min(link.timeouts.window_s, left_s))

    def _keep_early(self, stream: Stream, piece: bytes) -> None:
        """Keep what comes for a WebSocket while its handshake is judged."""
        stream.keep(piece)
        if stream.received_bytes > self._link.limits.body_free_bytes:
            self._link.reset(stream, ErrorCodes.ENHANCE_YOUR_CALM)

    def hear_next(self) -> bool:
        """Have a tunnel take one frame that came; False where there is none to take."""
        hears = self._link.hears
        if not hears:
            return False
        stream = hears.pop(next(iter(hears)))
        tunnel = stream.tunnel
        if tunnel is not None and stream.state is not CLOSED:
            taken = tunnel.hear()
            self._open_window(stream, taken)
            if taken and tunnel.has_more:
                hears[stream.id] = stream
        return True

    def _open_window(self, stream: Stream, size: int) -> None:
        if size and stream.is_open:
            self._link.h2.increment_flow_control_window(size, stream.id)

    def on_end(self, stream_id: int) -> None:
        """The client has ended its half, and the body is as long as declared."""
        stream = self._link.streams.get(stream_id)
        if stream is None or not stream.is_open:
            return
        if stream.opening is not None:
            self._link.reset(stream, ErrorCodes.NO_ERROR)  # its client is gone
            return
        was = stream.state
        stream.move(ENDED)
        if was is RECEIVING:
            self._finish(stream)
        elif was is TUNNEL:
            self._sender.end_tunnel(stream)
        elif stream.state is CLOSED:
            self._link.close(stream)

    def on_trailers(self, stream_id: int, fields: Fields, fault: str | None) -> None:
        """Trailers end a request; their content is not used."""
        stream = self._link.streams.get(stream_id)
        if stream is None:
            return
        if _is_large(fields, 0):
            fault = "trailers without bounds"
        fault = fault or fault_of_trailers(fields)
        if fault is None and not stream.counts(0, ends=True):
            fault = _SHORT
        if fault is not None:
            self._spoil(stream, fault)
            self._link.pay()
        else:
            self.on_end(stream_id)

    def too_slow(self, stream: Stream) -> None:
        """A body did not come in time."""
        assert stream.admission is not None
        self._link.shared.abuses.hit(Abuse.SLOW_BODY)
        self._refuse(stream, stream.admission.too_slow())

    def _take_room(self, stream: Stream, size: int) -> bool:
        if stream.body_share is None:
            give_way = partial(self._give_way, stream)
            link = self._link
            stream.body_share = BodyShare(link.shared.bodies, link.connection.client, give_way)
            size += stream.received_bytes
        return stream.body_share.take(size)

    def _give_way(self, stream: Stream) -> None:
        """Refuse a body for want of memory: its own, or that of another one (`bodies`)."""
        self._refuse(stream, _no_room(self._link.limits.bodies_bytes))
        self._link.connection.work_soon()

    def _refuse(self, stream: Stream, answer: Answer) -> None:
        """Answer a request whose body is not whole; the rest of it is dropped."""
        stream.drop_body()
        stream.due_s = None
        self._sender.answer(stream, answer)

    def _spoil(self, stream: Stream, why: str) -> None:
        """A request turned out malformed after its head."""
        if stream.is_begun:
            self._link.reset(stream, ErrorCodes.PROTOCOL_ERROR)
        else:
            self._link.reject(stream.id, _malformed(why), is_head=stream.is_head, spoilt=True)
            self._link.close(stream)

    # ------------------------------------------------------------------ the exchange

    def _finish(self, stream: Stream) -> None:
        """The request is whole: submit it, or wait until the client has read more answers."""
        stream.due_s = None
        if stream.body_share is not None:
            stream.body_share.settle()
        if self._link.is_full:
            self._link.asks.append(stream)
        else:
            self._ask(stream)

    def ask_next(self) -> bool:
        """Submit a request that had to wait; False where there is none, or still no room."""
        link = self._link
        if not link.asks or link.is_full:
            return False
        stream = link.asks.popleft()
        if stream.state is WAITING:
            self._ask(stream)
        return True

    def _ask(self, stream: Stream) -> None:
        admission = stream.admission
        assert admission is not None
        made = admission.finish(stream.take_pieces())
        if isinstance(made, Answer | Streaming):
            self._sender.answer(stream, made)
        else:
            stream.pending = made
            if made.is_apart:
                self._link.apart.add(stream)
            made.then(partial(self._deliver, stream))

    def _deliver(self, stream: Stream, answer: Answer | Streaming) -> None:
        stream.pending = None
        self._link.apart.discard(stream)
        if stream.state is WAITING:
            self._sender.answer(stream, answer)
            self._link.connection.work_soon()
        elif isinstance(answer, Streaming) and answer.feed is not None:
            answer.feed.close()


def _is_large(fields: Fields, pseudo: int) -> bool:
    return len(fields) > HEADERS_MAX + pseudo or size_bytes(fields) > HEAD_BYTES_MAX


def _expects_leave(head: Head) -> bool:
    return any(n == b"expect" and v.lower() == b"100-continue" for n, v in head.headers)


def _head(pseudo: dict[bytes, bytes], fields: Fields, client: str) -> Head:
    """A sound head in the form that the exchange takes for any version of HTTP."""
    path, _, query = pseudo[b":path"].partition(b"?")
    headers = fields
    if b":authority" in pseudo:
        headers = [(b"host", pseudo[b":authority"])]
        headers += [header for header in fields if header[0] != b"host"]
    method = pseudo[b":method"].decode("ascii").upper()
    return Head(method, _UNSAFE.sub(_escaped, path), _UNSAFE.sub(_escaped, query), headers, client)


def _escaped(found: re.Match[bytes]) -> bytes:
    return b"%%%02X" % ord(found[0])


def _malformed(why: str) -> Answer:
    return refusal(ErrorCode.INVALID_REQUEST, f"the request is not valid HTTP: {why}")


def _too_large() -> Answer:
    why = f"the head is larger than {HEAD_BYTES_MAX} bytes or {HEADERS_MAX} headers"
    return refusal(ErrorCode.INVALID_REQUEST, why, {"limit": "headers"}, status=431)


def _no_room(most: int) -> Answer:
    limit = {"limit": "max_body_memory", "max": most}
    return refusal(ErrorCode.THROTTLED, "too many bytes of bodies are in flight", limit)
