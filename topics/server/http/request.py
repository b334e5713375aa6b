"""One request whose head was accepted: its body becomes a command, a stream or the answer to a probe.

Knows nothing of how heads are judged and of how answers are sent.
"""

import secrets
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from topics.protocol.driver.group_commit import Deliver, Reply, Ticket
from topics.protocol.driver.streams import Streams
from topics.protocol.http import routes
from topics.protocol.http.answer_models import Cluster as ClusterAnswer
from topics.protocol.http.decoding import LARGE_BODY_BYTES
from topics.protocol.http.routes import BodyRule, Probe, Request, StreamKind
from topics.protocol.http.strictness import require_known_fields, require_known_parameters
from topics.protocol.http.trace_context import traced
from topics.protocol.model.access import Caller, gone
from topics.protocol.model.commands import Append, Claim, Command
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.records import Buffer
from topics.server.http.beats import Beats
from topics.server.http.heads import Judged
from topics.server.http.inflation import at_once, inflate, let_go, too_large
from topics.server.http.interface import Answer, Pending, Socket, Streaming
from topics.server.http.probes import Sources, answer_probe
from topics.server.http.responder import Responder
from topics.server.http.watch_feed import WatchFeed
from topics.server.http.work_feed import WorkFeed
from topics.server.observing.history import History
from topics.server.observing.scraping import Scraping
from topics.server.runtime.giving_way import GivingWay
from topics.server.service.shell import Phase, not_serving
from topics.server.service.slots import Slot
from topics.server.service.submission import Submission

_READY: Final = Phase.READY
_NO_BODY: Final = BodyRule.NONE
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
    _slot: Slot
    _scraping: Scraping
    _history: History
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
                require_known_parameters(route, routes.parse_query(self._query))
            if judged.parser is None:
                return self._answer(route.target)
            if route.body is _NO_BODY:
                return self._begin(self._parse(b""))
            body = pieces[0] if len(pieces) == 1 else None
            size = sum(map(len, pieces)) if body is None else len(body)
            if not judged.has_kind:
                kind = judged.header(b"content-type")
                routes.check_content_type(kind, empty=not size, rule=route.body)
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

    def _answer(self, target: routes.Parser | Probe | StreamKind) -> Answer | Pending | Streaming:
        """The answer of what is no command."""
        call = self._call
        if isinstance(target, Probe):
            sources = Sources(self._scraping, self._history, self._cluster())
            return answer_probe(call, target, self._judged.name, self._query, sources)
        assert isinstance(target, StreamKind)
        streaming = self._stream(target)
        self.close()  # a stream is no request in flight (§11)
        call.is_timed = False
        call.observe(streaming.status)
        call.forget_secrets()
        self._query = b""
        return streaming

    def _parse_apart(self, pieces: list[bytes]) -> Pending:
        """Parse a large body on a thread; the event loop does everything after that."""
        if self._call.runtime.phase is not _READY:
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

        submission = self._submission()
        submission.parse_apart(work)
        return submission

    def _parse(self, body: Buffer, pause: Callable[[], None] = lambda: None) -> Command:
        call, judged = self._call, self._judged
        parser = judged.parser
        assert parser is not None
        if not body and judged.route.body is BodyRule.JSON_OR_EMPTY:
            body = b"{}"
        limits = call.runtime.limits
        query = routes.parse_query(self._query) if self._query else _NO_QUERY
        request = Request(judged.name, query, call.header, body, limits, self._entropy, pause)
        command = self._read_strictly(parser, request) if judged.is_strict else parser(request)
        if self._traces and isinstance(command, Append):
            return traced(command, call.header(b"traceparent"), limits)
        return command

    def _read_strictly(self, target: routes.Parser, request: Request) -> Command:
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
        call = self._call
        return Submission(call, call.runtime, self._slot, self._decide).begin(command)

    def _submission(self) -> Submission[Answer]:
        call = self._call
        return Submission(call, call.runtime, self._slot, self._decide)

    def _decide(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        return self._call.runtime.submit(command, deliver)

    def _entropy(self) -> str:
        """What no client can guess, for a name."""
        return secrets.token_urlsafe(16)  # 128 bits

    def _cluster(self) -> ClusterAnswer:
        """What `GET /v0/cluster` says."""
        return ALONE

    def _stream(self, feed: StreamKind) -> Streaming:
        """A stream's head, and its frames unless only the head was asked for (HEAD)."""
        call = self._call
        if feed is StreamKind.SOCKET:
            raise Rejection(ErrorCode.INVALID_REQUEST, "expected a WebSocket handshake")
        if call.is_head and feed is StreamKind.WATCH:
            streams = Streams(call.runtime.engine)
            streams.require_session(self._judged.name, call.runtime.now_ms, call.caller)
            return call.streaming(None)
        query = routes.parse_query(self._query)
        if feed is StreamKind.WORK:
            return self._work(routes.parse_work(self._judged.name, query, call.runtime.limits))
        known = call.header(b"last-event-id")
        rewind = query.get("last_event_id") if known is None else known.decode("latin-1")
        watch = WatchFeed(call.runtime, self._judged.name, rewind, call.caller, self._beats)
        return call.streaming(watch)

    def _work(self, asked: Claim) -> Streaming:
        call = self._call
        if call.is_head:
            Streams(call.runtime.engine).require_queue(asked.topic, call.runtime.now_ms)
            return call.streaming(None)
        work = WorkFeed(call.runtime, asked, call.caller, self._slot.holder, self._beats)
        return call.streaming(work)

    def connect(self) -> Answer | Socket:
        call = self._call
        try:
            if self._judged.route.target is not StreamKind.SOCKET:
                raise Rejection(ErrorCode.NOT_FOUND, "no WebSocket here")
            feed = self._socket()
            call.is_timed = False
            call.observe(101)
            call.forget_secrets()
            return feed
        except Rejection as refusal:
            return call.refuse(refusal)

    def _socket(self) -> Socket:
        from topics.server.http.socket_feed import SocketFeed

        return SocketFeed(self._call.runtime, self._call.caller, self._slot.holder)

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
