"""One request whose head was accepted: its body becomes a command, a stream or the answer to a probe.

Knows nothing of how heads are judged and of how answers are sent.
"""

import secrets
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

import msgspec

from topics.protocol.driver.reply import Ticket
from topics.protocol.faces.http.cluster import Cluster as ClusterAnswer
from topics.protocol.faces.http.decoding import LARGE_BODY_BYTES
from topics.protocol.faces.http.negotiation import check_content_type
from topics.protocol.faces.http.query import parse_query
from topics.protocol.faces.http.queues import parse_work
from topics.protocol.faces.http.route import NO_BODY, BodyRule, Parser, Probe, Request, StreamKind
from topics.protocol.faces.http.strictness import (
    require_known_fields,
    require_known_parameters,
    socket_is_strict,
)
from topics.protocol.faces.http.trace_context import traced
from topics.protocol.model.access import Caller, gone
from topics.protocol.model.commands import Append, Command
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.records import Buffer
from topics.server.http.beats import Beats
from topics.server.http.connected import Connected
from topics.server.http.heads import Judged
from topics.server.http.inflation import at_once, inflate, let_go, too_large
from topics.server.http.interface import Answer, Pending, Socket, Source, Streaming
from topics.server.http.opening import StreamOpening
from topics.server.http.probes import Sources, answer_probe
from topics.server.http.responder import Responder
from topics.server.http.watch_feed import WatchFeed
from topics.server.http.work_feed import WorkFeed
from topics.server.observing.history import History
from topics.server.observing.scraping import Scraping
from topics.server.service.giving_way import GivingWay
from topics.server.service.jobs import PushedJobs
from topics.server.service.service import Service, WatchSession, WatchSocket
from topics.server.service.shell import READY, not_serving
from topics.server.service.slots import Slot
from topics.server.service.submission import Submission

S = TypeVar("S")

_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
ALONE: Final = ClusterAnswer(enabled=False)
"""Of a server that is in no cluster."""
APART_BYTES: Final = LARGE_BODY_BYTES
"""A larger body is parsed on a thread."""


class Admitted(msgspec.Struct, eq=False):
    """Implements `interface.Admission`: a request that may send its body."""

    _call: Responder
    _judged: Judged
    _query: bytes
    _service: Service
    _slot: Slot
    _scraping: Scraping
    _history: History
    _connected: Connected
    _traces: bool
    max_body_bytes: int
    _beats: Beats

    @property
    def caller(self) -> Caller:
        """The key that sent it; `ANYONE` where the server has none."""
        return self._call.caller

    def finish(self, pieces: list[bytes]) -> Answer | Pending | Streaming:
        call = self._call
        try:
            # The body may have taken its time.
            if call.caller.is_revoked:
                raise gone()
            judged = self._judged
            route = judged.route
            if judged.is_strict and self._query:
                require_known_parameters(route, parse_query(self._query))
            if judged.parser is None:
                return self._answer(route.target)
            if route.body is NO_BODY:
                return self._begin(self._parse(b""))
            body = pieces[0] if len(pieces) == 1 else None
            size = sum(map(len, pieces)) if body is None else len(body)
            if not judged.has_kind:
                kind = judged.header(b"content-type")
                check_content_type(kind, empty=not size, rule=route.body)
            if size > APART_BYTES:
                return self._parse_apart(pieces)
            if body is None:
                body = b"".join(pieces)
            if judged.is_gzipped and size:
                plain = at_once(body, self.max_body_bytes)
                if plain is None:
                    return self._parse_apart(pieces)
                body = plain
            return self._begin(self._parse(body))
        except Rejection as refusal:
            return call.refuse(refusal)
        except Exception:
            return call.fail()

    def _answer(self, target: Parser | Probe | StreamKind) -> Answer | Pending | Streaming:
        """The answer of what is no command."""
        call = self._call
        if isinstance(target, Probe):
            sources = Sources(self._scraping, self._history, self._connected, self._cluster())
            name, query = self._judged.name, self._query
            return answer_probe(call, target, name, query, sources, self._service, self._slot)
        assert isinstance(target, StreamKind)
        return self._stream(target)

    def _parse_apart(self, pieces: list[bytes]) -> Pending:
        """Parse a large body on a thread; the event loop does everything after that."""
        if self._call.runtime.phase is not READY:
            raise not_serving(self._call.runtime)

        def work() -> Command | Rejection:
            try:
                body = b"".join(pieces)
                let_go(pieces)
                if self._judged.is_gzipped:
                    body = inflate(body, self.max_body_bytes)
                return self._parse(body, GivingWay())
            except Rejection as refusal:
                # The traceback's frames refer to the body and to the refusal: a cycle of 64 MiB.
                refusal.__traceback__ = refusal.__context__ = None
                return refusal

        submission: Submission[Answer] = Submission(self._call, self._service, self._slot)
        submission.parse_apart(work)
        return submission

    def _parse(self, body: Buffer, pause: Callable[[], None] = lambda: None) -> Command:
        call, judged = self._call, self._judged
        parser = judged.parser
        assert parser is not None
        if not body and judged.route.body is BodyRule.JSON_OR_EMPTY:
            body = b"{}"
        limits = call.runtime.limits
        query = parse_query(self._query) if self._query else _NO_QUERY
        request = Request(
            judged.name, query, call.header, body, limits, self._entropy, pause, judged.item
        )
        command = self._read_strictly(parser, request) if judged.is_strict else parser(request)
        if self._traces and isinstance(command, Append):
            return traced(command, call.header(b"traceparent"), limits)
        return command

    def _read_strictly(self, target: Parser, request: Request) -> Command:
        """The command, if the request says nothing else.  A body is decoded by who bounds it first,
        unless it is small: a misspelled field is a better reason than one that is missing."""
        is_small = len(request.body) <= LARGE_BODY_BYTES
        if is_small:
            require_known_fields(self._judged.route, request.body)
        command = target(request)
        if not is_small:
            require_known_fields(self._judged.route, request.body, request.limits, request.pause)
        return command

    def _begin(self, command: Command) -> Answer | Pending:
        """Carry out a command that was parsed here."""
        return Submission(self._call, self._service, self._slot).begin(command)

    def _entropy(self) -> str:
        """What no client can guess, for a name."""
        return secrets.token_urlsafe(16)  # 128 bits

    def _cluster(self) -> ClusterAnswer:
        """What `GET /v0/cluster` says."""
        return ALONE

    # ------------------------------------------------------------------ streams

    def _stream(self, kind: StreamKind) -> Answer | Streaming | Pending:
        """A stream's head, and its frames unless only the head was asked for (HEAD)."""
        if kind is StreamKind.SOCKET:
            raise Rejection(ErrorCode.INVALID_REQUEST, "expected a WebSocket handshake")
        return self._watch() if kind is StreamKind.WATCH else self._work()

    def _watch(self) -> Answer | Streaming | Pending:
        call, wid = self._call, self._judged.name
        if call.is_head:
            asked = StreamOpening(call, self._begin_head)
            return self._opened(asked, self._service.require_session(wid, self._slot, asked.opened))
        known = call.header(b"last-event-id")
        query = parse_query(self._query)
        rewind = query.get("last_event_id") if known is None else known.decode("latin-1")
        opening = StreamOpening(call, self._begin_watch)
        found = self._service.session(wid, rewind, self._slot, opening.opened)
        return self._opened(opening, found)

    def _begin_watch(self, stream: WatchSession) -> Streaming:
        client = self._slot.connect("watch", stream.state)
        return self._begun(WatchFeed(self._call.runtime, stream, self._beats, client))

    def _work(self) -> Answer | Streaming | Pending:
        call, query = self._call, parse_query(self._query)
        asked = parse_work(self._judged.name, query, call.runtime.limits)
        if call.is_head:
            known = StreamOpening(call, self._begin_head)
            found = self._service.require_queue(asked.topic, self._slot, known.opened)
            return self._opened(known, found)
        opening = StreamOpening(call, partial(self._begin_work, asked.node))
        return self._opened(opening, self._service.jobs(asked, self._slot, opening.opened))

    def _begin_work(self, node: str, jobs: PushedJobs) -> Streaming:
        client = self._slot.connect("work", jobs.state, node)
        return self._begun(WorkFeed(self._call.runtime, jobs, self._beats, client))

    def _begin_head(self, _: None) -> Streaming:
        return self._begun(None)

    def _opened(
        self, opening: StreamOpening[S, Streaming], found: S | Ticket
    ) -> Answer | Streaming | Pending:
        """The answer, or the wait for it."""
        if isinstance(found, Ticket):
            opening.ticket = found
            return opening
        return opening.made(found)

    def _begun(self, feed: Source | None) -> Streaming:
        call = self._call
        self.close()  # a stream is no request in flight (§11)
        call.is_timed = False
        streaming = call.streaming(feed)
        call.observe(streaming.status)
        call.forget_secrets()
        self._query = b""
        return streaming

    def connect(self) -> Answer | Socket | StreamOpening[WatchSocket, Socket]:
        call = self._call
        try:
            if self._judged.route.target is not StreamKind.SOCKET:
                raise Rejection(ErrorCode.NOT_FOUND, "no WebSocket here")
            query = parse_query(self._query)
            is_strict = socket_is_strict(query, otherwise=self._judged.is_strict)
            if is_strict:
                require_known_parameters(self._judged.route, query)
            begin = partial(self._begin_socket, is_strict=is_strict)
            opening: StreamOpening[WatchSocket, Socket] = StreamOpening(call, begin)
            found = self._service.socket(self._slot, opening.opened)
            if isinstance(found, Ticket):
                opening.ticket = found
                return opening
            return opening.made(found)
        except Rejection as refusal:
            return call.refuse(refusal)

    def _begin_socket(self, stream: WatchSocket, *, is_strict: bool) -> Socket:
        from topics.server.http.socket_feed import SocketFeed

        call = self._call
        call.is_timed = False
        call.observe(101)
        call.forget_secrets()
        client = self._slot.connect("websocket", stream.state)
        return SocketFeed(self._service, stream, self._slot, client, is_strict=is_strict)

    def too_large(self) -> Answer:
        return self._call.refuse(too_large(self.max_body_bytes), close=True)

    def too_slow(self) -> Answer:
        refusal = Rejection(
            ErrorCode.INVALID_REQUEST,
            "the body did not come in time",
            {"reason": "body_timeout"},
        )
        return self._call.refuse(refusal, close=True)

    def close(self) -> None:
        self._slot.close()
