"""Requests in, answers out: the order of refusals, and what is done with a body.

Knows neither ASGI nor HTTP framing: a driver gives it a head, then a body, and writes the answer
(`topics.server.exchange.interface`).  Requests are refused in one order, which `begin` and
`Admitted.finish` define; a refused request changes nothing.
"""

import logging
import secrets
import time
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import Final

import msgspec

from topics.protocol.driver.group_commit import Deliver, Reply, Ticket
from topics.protocol.driver.streams import Streams
from topics.protocol.http import metrics, routes
from topics.protocol.http.answer_models import Cluster as ClusterAnswer
from topics.protocol.http.decoding import LARGE_BODY_BYTES
from topics.protocol.http.origins import OriginRule, cors_fields, is_preflight, require_reader
from topics.protocol.http.routes import BodyRule, Probe, Request, Route, StreamKind
from topics.protocol.http.strictness import (
    APPLIED,
    prefers_strict,
    require_known_fields,
    require_known_parameters,
)
from topics.protocol.http.trace_context import traced
from topics.protocol.model.access import Caller, gone
from topics.protocol.model.commands import Append, Claim, Command, CreateWatch, Diff
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.permission import permitted
from topics.protocol.model.records import Buffer
from topics.server.access.failures import Failures
from topics.server.access.guard import Guard
from topics.server.access.key_ring import KeyRing
from topics.server.access.keys import Entry
from topics.server.exchange import fields, usage
from topics.server.exchange.beats import Beats
from topics.server.exchange.giving_way import GivingWay
from topics.server.exchange.history import History
from topics.server.exchange.holders import Holders
from topics.server.exchange.in_flight import InFlight
from topics.server.exchange.inflation import at_once, inflate, let_go, too_large
from topics.server.exchange.interface import Answer, Head, Headers, Pending, Socket, Streaming
from topics.server.exchange.late_answer import LateAnswer, not_serving
from topics.server.exchange.measures import LABELS, OTHER
from topics.server.exchange.observer import Observer
from topics.server.exchange.probes import Sources, answer_probe
from topics.server.exchange.responder import Responder
from topics.server.exchange.scraping import Scraping
from topics.server.exchange.shell import Phase, Shell
from topics.server.exchange.slots import Slot, Slots
from topics.server.exchange.watch_feed import WatchFeed
from topics.server.exchange.work_feed import WorkFeed

# Paths of requests read these: Python 3.11 finds an Enum's members through its metaclass, slowly.
_READY: Final = Phase.READY
_NO_BODY: Final = BodyRule.NONE

log = logging.getLogger("topics.exchange")

ALONE: Final = ClusterAnswer(enabled=False)
"""Of a server that is in no cluster."""

_EVENT_FEEDS: Final = (StreamKind.WATCH, StreamKind.WORK)
_NO_QUERY: Final[Mapping[str, str]] = MappingProxyType({})
APART_BYTES: Final = LARGE_BODY_BYTES
"""A larger body is parsed on a thread."""


class Judged(msgspec.Struct):
    """What follows from a head alone, for as long as the server runs.

    Attributes:
        max_body_bytes: Of its body, on the wire and again where that is inflated.
        also: Headers of every answer, for a page of an allowed origin.
        label: Of its route, where requests are counted.
        needs_serving: It is answered only when the log was replayed.
        is_counted: It is a request in flight of whoever sent it; probes are not.
        has_kind: It says what its body is, and that is JSON.  Where a body is optional, this is not
            known before the body is, unless the head says how long that is.
        is_gzipped: Its body is.
        is_strict: What nobody would read of the request is refused.
        is_sound: It was checked whole, and the head alone is no reason to refuse it.
        parser: Makes a command of it; None of a probe and a stream.
    """

    header: Callable[[bytes], bytes | None]
    route: Route
    name: str
    max_body_bytes: int
    also: Headers = ()
    label: str = OTHER
    needs_serving: bool = True
    is_counted: bool = True
    has_kind: bool = False
    is_gzipped: bool = False
    is_strict: bool = False
    is_sound: bool = False
    parser: routes.Parser | None = None

    def __post_init__(self) -> None:
        self.is_strict = prefers_strict(self.header(b"prefer"))
        if self.is_strict:
            self.also = (*self.also, *APPLIED)
        self.label = LABELS[id(self.route)]
        target = self.route.target
        self.is_counted = not isinstance(target, Probe)
        self.parser = None if isinstance(target, Probe | StreamKind) else target
        self.needs_serving = self.is_counted or target is Probe.LIMITS

    def check(self) -> None:
        """Refuse what the head alone decides: 406, then 413, then 415."""
        header, rule = self.header, self.route.body
        if self.route.target is StreamKind.WORK:
            require_reader(header)
        if self.route.target in _EVENT_FEEDS and not routes.accepts_event_stream(header(b"accept")):
            raise Rejection(ErrorCode.NOT_ACCEPTABLE, "this answers text/event-stream only")
        length = header(b"content-length")
        if length is not None and length.isdigit() and int(length) > self.max_body_bytes:
            raise too_large(self.max_body_bytes)
        if rule is _NO_BODY:
            return
        kind = header(b"content-type")
        may_be_empty = rule is BodyRule.JSON_OR_EMPTY and not (length or b"").strip(b"0")
        if kind is not None and not may_be_empty:
            routes.check_content_type(kind, empty=False, rule=rule)
            self.has_kind = True
        self.is_gzipped = routes.check_content_encoding(header(b"content-encoding"))


class TopicsExchange:
    """Implements `interface.Exchange` over a runtime.

    Args:
        origins: Which origins and hosts are allowed; None: all.
        observer: What notes every request; None: one that only counts.
        holders: Says who sent a request that has no key.
        guard: The keys; None where the server has none.
        trace_meta: Whether the records of an append name its trace in their meta.
    """

    def __init__(
        self,
        runtime: Shell,
        origins: OriginRule | None = None,
        observer: Observer | None = None,
        holders: Holders | None = None,
        *,
        guard: Guard | None = None,
        trace_meta: bool = False,
    ) -> None:
        self._runtime = runtime
        self._origins = origins
        self._observer = observer or Observer()
        self._guard = guard
        self.in_flight: InFlight[Admitted] = InFlight(runtime.limits.max_inflight_per_key)
        self._trace_meta = trace_meta
        self.slots = Slots(runtime.limits, holders or Holders())
        self._scraping = Scraping(runtime, self._source)
        self.history = History(runtime, self._observer.measures)
        self._observer.on_answer = self.history.note
        self._beats = Beats()
        self.more: list[Callable[[], Iterable[metrics.Family]]] = []
        """What else metrics are made of: the transport's."""

    def begin(self, head: Head) -> "Answer | Admitted":
        begun = time.perf_counter()
        memo = head.memo
        judged: Judged | None = None if memo is None else memo.judged
        header = fields.reader(head.headers) if judged is None else judged.header
        head = self.slots.holders.named(head, header)
        call = Responder(self._runtime, self._observer, head, header, begun, OTHER)
        admitted = None
        try:
            # The refusals, in their order.  Those that follow from the head alone are not looked for
            # again in a head that came before and met none of them; whatever may change while the
            # server runs is decided for each request.
            if judged is None:
                fields.require_single(head.headers)
                found = self._find(head, call)
                if isinstance(found, Answer):
                    return found
                judged = found
            call.also = judged.also
            if self._guard is not None:
                call.caller = self._guard.admit(judged.route, judged.name, head)
            if judged.needs_serving and self._runtime.phase is not _READY:
                raise not_serving(self._runtime)
            call.route = judged.label
            slot = Slot(self.slots, head, header, call.caller)
            if judged.is_counted and self.slots.bounds_requests:
                slot.begin_request()
            admitted = self._admit(call, judged, slot)
            if call.caller.is_key:
                self.in_flight.enter(call.caller, admitted)
            if not judged.is_sound:
                judged.check()
                judged.is_sound = True
                if memo is not None:
                    memo.judged = judged
            return admitted
        except Rejection as refusal:
            answer = call.refuse(refusal)
        except Exception:
            answer = call.fail()
        if admitted is not None:
            admitted.close()
        return answer

    def _admit(self, call: Responder, judged: Judged, slot: Slot) -> "Admitted":
        return Admitted(
            call,
            judged,
            call.head.query,
            self.in_flight,
            slot,
            self._scraping,
            self.history,
            self._trace_meta,
            judged.max_body_bytes,
            self._beats,
        )

    def _find(self, head: Head, call: Responder) -> "Answer | Judged":
        """The route, for a page that may ask; or the answer to a page that asks whether it may.

        Raises:
            Rejection: 403, 401, 404, 405.
        """
        if self._origins is not None:
            origin = self._origins.check(call.header, head.path)
            if origin is not None:
                call.also = cors_fields(origin)
                if is_preflight(head.method, call.header):
                    call.observe(204)
                    return Answer(204, cors_fields(origin, preflight=True), [])
        try:
            route, name = routes.find_route(head.method, head.path)
        except Rejection:
            if self._guard is not None:
                self._guard.require_key(head)  # 401 comes before 404
            raise
        max_body_bytes = route.max_body_bytes(self._runtime.limits)
        return Judged(call.header, route, name, max_body_bytes, call.also)

    def connect(self, head: Head) -> Answer | Socket:
        """Judge a WebSocket handshake, which is a GET except for its answer (§7.7)."""
        admitted = self.begin(head)
        if isinstance(admitted, Answer):
            return admitted
        try:
            return admitted.connect()
        finally:
            admitted.close()

    def _source(self, caller: Caller) -> metrics.Source:
        """What metrics are made of.  Before the phase is READY, and after it, another thread owns the
        state."""
        runtime, engine = self._runtime, self._runtime.engine
        is_ready = runtime.phase is _READY
        if is_ready:
            engine.let_pass(runtime.now_ms)
        watches, slots = engine.watches, self.slots
        return metrics.Source(
            engine.state if is_ready else None,
            watches,
            runtime.store.stats,
            active=engine.active,
            push_streams=engine.push_streams.open_count,
            shares=(
                watches.session_shares,
                watches.connection_shares,
                watches.byte_shares,
                slots.inflight,
                slots.polls,
            ),
            shown_max=runtime.limits.max_topic_metrics,
            more=(
                self._observer.measures.families(),
                usage.families(),
                (family for source in self.more for family in source()),
            ),
            caller=caller,
        )

    @property
    def keys(self) -> KeyRing | None:
        """The keys in force; None where the server has none."""
        return None if self._guard is None else self._guard.keys

    @property
    def failures(self) -> Failures | None:
        """The requests with unknown keys; None where the server has no keys."""
        return None if self._guard is None else self._guard.failures

    @property
    def has_keys_file(self) -> bool:
        return self._guard is not None and self._guard.has_file

    async def reload(self) -> None:
        """Read the keys file again, and end what keys that are gone have open."""
        if self._guard is None:
            log.info("SIGHUP: there is nothing to read again; settings stay")
        elif self._runtime.phase is not Phase.STOPPED:
            await self._guard.reload(self._runtime.read_in_thread, self._revoke)

    def put_keys(self, entries: list[Entry]) -> None:
        """Put other keys in force, where any are asked for, and end what keys that are gone have
        open."""
        if self._guard is not None:
            self._guard.replace(entries, self._revoke)

    def drain(self) -> None:
        """The server stops.  What waits here ends with the runtime."""

    def _revoke(self, caller: Caller) -> None:
        self._runtime.engine.revoke(caller)
        for admitted in self.in_flight.of(caller):
            admitted.revoke()


class Admitted(msgspec.Struct, eq=False):
    """Implements `interface.Admission`: a request that may send its body."""

    _call: Responder
    _judged: Judged
    _query: bytes
    _in_flight: "InFlight[Admitted]"
    _slot: Slot
    _scraping: Scraping
    _history: History
    _traces: bool
    max_body_bytes: int
    _beats: Beats
    _waiting: LateAnswer | None = None

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

        waiting = LateAnswer(self._call)
        waiting.after(work, lambda command: self._submit(command, waiting))
        return waiting

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
        return self._submit(command, LateAnswer(self._call))

    def _submit(self, command: Command, waiting: LateAnswer) -> Answer | LateAnswer:
        """The answer, or `waiting` where it comes later."""
        caller = self._call.caller
        if caller.is_key:
            command = permitted(command, caller)
            self._waiting = waiting
        if self._call.runtime.phase is not _READY:
            raise not_serving(self._call.runtime)
        if type(command) is not Append:
            command = self._hold(command, waiting)
        found = self._decide(command, waiting.on_reply)
        if type(found) is Ticket:
            waiting.ticket = found
            return waiting
        return waiting.payload_or_wait(found)

    def _hold(self, command: Command, waiting: LateAnswer) -> Command:
        """Note what the client holds of the server by this command."""
        if type(command) is CreateWatch:
            return command.by(self._slot.holder)
        if type(command) is Claim:
            waiting.claims(command)
        elif type(command) is not Diff:
            return command
        if command.wait_ms:
            self._slot.begin_poll()
            self._call.is_timed = False
        return command

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
        from topics.server.exchange.socket_feed import SocketFeed

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
        if self._call.caller.is_key:
            self._in_flight.leave(self._call.caller, self)
        self._slot.close()

    def revoke(self) -> None:
        """The key was removed: an answer that waits for news is one that says so."""
        if self._waiting is not None:
            self._waiting.revoke()
