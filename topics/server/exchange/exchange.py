"""Requests in, answers out: the order of refusals, the envelope, compression, the performance block.

Knows neither ASGI nor HTTP framing: a driver gives it a head, then a body, and writes the answer
(`topics.server.exchange.interface`).  Requests are refused in one order, which `begin` and
`_Admitted.finish` define; a refused request changes nothing.
"""

import asyncio
import gzip
import logging
import secrets
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache, partial
from typing import Any, Final, TypeVar

from topics.protocol.driver.group_commit import Reply, Ticket
from topics.protocol.http import answer_models as models
from topics.protocol.http import answers, metrics, routes
from topics.protocol.http.answers import Piece, open_object
from topics.protocol.http.origins import OriginRule, is_preflight, require_reader, told
from topics.protocol.http.routes import BodyRule, Probe, Request, Route, StreamKind
from topics.protocol.http.statuses import STATUSES
from topics.protocol.http.trace_context import traced
from topics.protocol.model.access import ANYONE, Caller, gone
from topics.protocol.model.commands import Append, Claim, Command, CreateWatch, Diff
from topics.protocol.model.errors import Corrupt, ErrorCode, Rejection
from topics.protocol.model.outcomes import Grant, Granted, Jobs, Outcome, Page, Records
from topics.protocol.model.permission import permitted
from topics.protocol.model.records import Buffer
from topics.server.access.guard import Guard
from topics.server.exchange import usage
from topics.server.exchange.holders import Holders
from topics.server.exchange.in_flight import InFlight
from topics.server.exchange.inflation import at_once, inflate, too_large
from topics.server.exchange.interface import (
    Answer,
    Feed,
    Head,
    Headers,
    Pending,
    Socket,
    Streaming,
)
from topics.server.exchange.measures import LABELS, OTHER
from topics.server.exchange.observer import Observer
from topics.server.exchange.payload import is_large, one_by_one, spliced
from topics.server.exchange.payload import payload as payload_of
from topics.server.exchange.scraping import Scrape, Scraping
from topics.server.exchange.shell import Phase, Shell, ThreadCall
from topics.server.exchange.slots import Slot, Slots
from topics.server.exchange.socket_feed import SocketFeed
from topics.server.exchange.watch_feed import WatchFeed
from topics.server.exchange.work_feed import WorkFeed
from topics.server.page import page
from topics.version import VERSION

log = logging.getLogger("topics.exchange")

T = TypeVar("T")

JSON: Final = (b"content-type", b"application/json")
EVENT_STREAM: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
_EVENT_FEEDS: Final = (StreamKind.WATCH, StreamKind.WORK)
_LISTS: Final = frozenset((b"accept", b"accept-encoding", b"authorization", b"x-forwarded-for"))
"""Headers that may come on several lines, which are one list (RFC 9110 §5.3).  Two keys are one
list, too, and so they are none (§0.2)."""
GZIP_MIN_BYTES: Final = 1024
GZIP_APART_BYTES: Final = 16 << 10
"""A larger answer is compressed on a thread: this one takes a fifth of a millisecond."""
GZIP_STEP_BYTES: Final = 64 << 10
"""Compressed in one call, which leaves the interpreter to others meanwhile."""
PROBE_MAX: Final = 1000
"""The most jobs that a repeated claim takes to get past unreadable ones."""
APART_BYTES: Final = 1 << 20
"""A larger body is parsed on a thread."""


def _entropy() -> str:
    """128 bits, base64url."""
    return secrets.token_urlsafe(16)


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
        self._in_flight: InFlight[_Admitted] = InFlight(runtime.limits.max_inflight_per_key)
        self._trace_meta = trace_meta
        self.slots = Slots(runtime.limits, holders or Holders())
        self._scraping = Scraping(runtime, self._source)

    def begin(self, head: Head) -> "Answer | _Admitted":
        begun = time.perf_counter()
        header = _reader(head.headers)
        call = _Responder(self._runtime, self._observer, head, header, begun)
        admitted = None
        try:
            if self._origins is not None:
                origin = self._origins.check(header, head.path)
                if origin is not None:
                    call.also = told(origin)
                    if is_preflight(head.method, header):
                        call.observe(204)
                        return Answer(204, told(origin, preflight=True), [])
            try:
                route, name = routes.find_route(head.method, head.path)
            except Rejection:
                if self._guard is not None:
                    self._guard.require_key(head, header)  # 401 comes before 404
                raise
            if self._guard is not None:
                call.caller = self._guard.admit(route, name, head, header)
            if not isinstance(route.target, Probe) or route.target is Probe.LIMITS:
                self._require_serving()
            call.route = LABELS[id(route)]
            slot = self.slots.of(head, header, call.caller)
            if not isinstance(route.target, Probe):
                slot.begin_request()
            in_flight, scraping, traces = self._in_flight, self._scraping, self._trace_meta
            admitted = _Admitted(
                call, route, name, head.query, in_flight, slot, scraping, traces=traces
            )
            admitted.check_head()
            return admitted
        except Rejection as refusal:
            answer = call.refuse(refusal)
        except Exception:
            answer = call.fail()
        if admitted is not None:
            admitted.close()
        return answer

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
        is_ready = runtime.phase is Phase.READY
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
            more=(*self._observer.measures.families(), *usage.families()),
            caller=caller,
        )

    @property
    def has_keys_file(self) -> bool:
        return self._guard is not None and self._guard.has_file

    async def reload(self) -> None:
        """Read the keys file again, and end what keys that are gone have open."""
        if self._guard is None:
            log.info("SIGHUP: there is nothing to read again; settings stay")
        elif self._runtime.phase is not Phase.STOPPED:
            await self._guard.reload(self._runtime.read_in_thread, self._revoke)

    def _revoke(self, caller: Caller) -> None:
        self._runtime.engine.revoke(caller)
        for admitted in self._in_flight.of(caller):
            admitted.revoke()

    def _require_serving(self) -> None:
        match self._runtime.phase:
            case Phase.READY:
                return
            case Phase.STARTING | Phase.FAILED:
                progress = {"replay_progress": self._runtime.store.progress}
                raise Rejection(ErrorCode.NOT_READY, "the log is being replayed", progress)
            case _:
                raise shutting_down()


def shutting_down() -> Rejection:
    return Rejection(ErrorCode.SHUTTING_DOWN, "the server is stopping")


class _Responder:
    """Makes the answers to one request, and holds what they need of its head."""

    __slots__ = (
        *("also", "begun", "caller", "head", "header", "is_head", "is_timed", "observer"),
        *("route", "runtime"),
    )

    def __init__(
        self,
        runtime: Shell,
        observer: Observer,
        head: Head,
        header: Callable[[bytes], bytes | None],
        begun: float,
    ) -> None:
        self.runtime = runtime
        self.observer = observer
        self.head = head
        self.header = header
        self.begun = begun
        self.is_head = head.method == "HEAD"
        self.caller = ANYONE
        self.also: Headers = ()
        """Headers of every answer, for a page of an allowed origin."""
        self.route = OTHER
        self.is_timed = True

    def refuse(self, refusal: Rejection, *, close: bool = False) -> Answer:
        self.observer.refused(self.head, refusal)
        body = routes.error_body(refusal) + self.performance(Reply(refusal))
        headers = (JSON, *routes.error_headers(refusal))
        return self.answer(STATUSES[refusal.code], headers, [body], close=close)

    def fail(self) -> Answer:
        """A bug: the request gets a 500, the log gets the traceback."""
        log.exception("internal error")
        return self.refuse(Rejection(ErrorCode.INTERNAL, "internal error"))

    def respond(self, reply: Reply, payload: Sequence[Buffer]) -> Answer:
        """The answer of an outcome whose records were read."""
        outcome = reply.result
        assert isinstance(outcome, Outcome)
        body = [*payload, self.performance(reply)]
        answer = self.answer(answers.status_of(outcome), (JSON,), body)
        if isinstance(outcome, Granted) and outcome.jobs is not None:
            return replace(answer, unsent=partial(self._take_back_soon, outcome.jobs.grant))
        return answer

    def _take_back_soon(self, grant: Grant) -> None:
        """The worker does not get its jobs: they are ready again (§10.2)."""

        def take_back() -> None:
            runtime = self.runtime
            runtime.engine.queue_commands.set_aside(grant, {}, grant.seqs, runtime.moment)
            runtime.nudge()

        # Not now: the engine may be in the middle of its answers.
        asyncio.get_running_loop().call_soon(take_back)

    def performance(self, reply: Reply) -> bytes:
        """The performance block and the object's last brace (§0.9)."""
        total_ms = (time.perf_counter() - self.begun) * 1000
        more = b""
        if isinstance(reply.result, Outcome):
            if reply.result.is_logged:
                sync_ms = reply.sync_ms if reply.result.is_fsync else 0.0
                more = b',"wal_append_ms":%.3f,"fsync_ms":%.3f' % (reply.write_ms, sync_ms)
            if isinstance(reply.result, Page):
                more += b',"records_scanned":%d' % reply.result.scanned
        return b',"performance":{"server_total_ms":%.3f%b,"throttle_wait_ms":%.1f}}' % (
            total_ms,
            more,
            reply.throttle_ms,
        )

    def zips_apart(self, payload: Sequence[Buffer]) -> bool:
        """Whether the answer is to be compressed, and too large for the event loop to do it."""
        if sum(map(len, payload)) < GZIP_APART_BYTES:
            return False
        return routes.accepts_gzip(self.header(b"accept-encoding"))

    def fixed(self, headers: Headers, document: bytes) -> Answer:
        """An answer that is the same for every client, and compressed once."""
        if routes.accepts_gzip(self.header(b"accept-encoding")):
            zipped = (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding")
            headers, document = (*headers, *zipped), _zipped_once(document)
        headers = (*headers, (b"content-length", b"%d" % len(document)), *self.also)
        self.observe(200)
        return Answer(200, headers, [] if self.is_head else [document])

    def streaming(self, feed: Feed | None) -> Streaming:
        """An event stream; without a feed it is its head only (HEAD)."""
        return Streaming(200, (*EVENT_STREAM, *self.also), feed)

    def answer(
        self, status: int, headers: Headers, body: Sequence[Buffer], *, close: bool = False
    ) -> Answer:
        size = sum(map(len, body))
        zipped = size >= GZIP_MIN_BYTES and routes.accepts_gzip(self.header(b"accept-encoding"))
        if zipped:
            body = _zipped(body)
            size = sum(map(len, body))
            headers = (*headers, (b"content-encoding", b"gzip"), (b"vary", b"accept-encoding"))
        headers = (*headers, (b"content-length", b"%d" % size), *self.also)
        self.observe(status)
        return Answer(status, headers, [] if self.is_head else body, close)

    def observe(self, status: int) -> None:
        """Note the answer that is made now."""
        self.observer.answered(
            self.head, self.header, self.route, status, self.begun, is_timed=self.is_timed
        )


def _zipped(body: Sequence[Buffer]) -> list[Buffer]:
    """The body in gzip's format, in pieces: one join of 8 MiB would hold up the event loop."""
    made = zlib.compressobj(level=1, wbits=zlib.MAX_WBITS | 16)
    out: list[Buffer] = []
    for buffer in body:
        view = memoryview(buffer)
        for at in range(0, len(view), GZIP_STEP_BYTES):
            if piece := made.compress(view[at : at + GZIP_STEP_BYTES]):
                out.append(piece)
    out.append(made.flush())
    return out


@lru_cache(maxsize=8)
def _zipped_once(document: bytes) -> bytes:
    return gzip.compress(document)


class _Admitted:
    """Implements `interface.Admission`: a request that may send its body."""

    def __init__(
        self,
        call: _Responder,
        route: Route,
        name: str,
        query: bytes,
        in_flight: "InFlight[_Admitted]",
        slot: Slot,
        scraping: Scraping,
        *,
        traces: bool,
    ) -> None:
        self._call = call
        self._in_flight = in_flight
        self._waiting: _LateAnswer | None = None
        self._scraping = scraping
        self._slot = slot
        self._route = route
        self._name = name
        self._query = query
        self._traces = traces
        self._gzipped = False
        self.max_body_bytes = call.runtime.limits.max_body_bytes

    def check_head(self) -> None:
        """Refuse what the head alone decides: 429 for its key, then 406, then 413, then 415."""
        header, rule = self._call.header, self._route.body
        if self._call.caller.is_key:
            self._in_flight.enter(self._call.caller, self)
        if self._route.target is StreamKind.WORK:
            require_reader(header)
        if self._route.target in _EVENT_FEEDS and not routes.accepts_event_stream(
            header(b"accept")
        ):
            raise Rejection(ErrorCode.NOT_ACCEPTABLE, "this answers text/event-stream only")
        length = header(b"content-length")
        if length is not None and length.isdigit() and int(length) > self.max_body_bytes:
            raise too_large(self.max_body_bytes)
        if rule is BodyRule.NONE:
            return
        kind = header(b"content-type")
        if kind is not None:
            routes.check_content_type(kind, empty=False, rule=rule)
        self._gzipped = routes.check_content_encoding(header(b"content-encoding"))

    def finish(self, pieces: list[bytes]) -> Answer | Pending | Streaming:
        call = self._call
        try:
            # The body may have taken its time.
            if call.caller.is_revoked:
                raise gone()
            if isinstance(self._route.target, Probe):
                return _probe(call, self._route.target, self._scraping)
            if isinstance(self._route.target, StreamKind):
                streaming = self._stream(self._route.target)
                self.close()  # a stream is no request in flight (§11)
                call.is_timed = False
                call.observe(streaming.status)
                return streaming
            if self._route.body is BodyRule.NONE:
                return self._submit(self._parse(b""), _LateAnswer(call))
            size = sum(map(len, pieces))
            kind = call.header(b"content-type")
            routes.check_content_type(kind, empty=not size, rule=self._route.body)
            if size > APART_BYTES:
                return self._parse_apart(pieces)
            body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
            if self._gzipped and size:
                plain = at_once(body, self.max_body_bytes)
                if plain is None:
                    return self._parse_apart(pieces)
                body = plain
            return self._submit(self._parse(body), _LateAnswer(call))
        except Rejection as refusal:
            return call.refuse(refusal)
        except Exception:
            return call.fail()

    def _parse_apart(self, pieces: list[bytes]) -> Pending:
        """Parse a large body on a thread; the event loop does everything after that."""
        self._require_ready()

        def work() -> Command | Rejection:
            try:
                body = b"".join(pieces)
                pieces.clear()
                if self._gzipped:
                    body = inflate(body, self.max_body_bytes)
                return self._parse(body)
            except Rejection as refusal:
                # The traceback's frames refer to the body and to the refusal: a cycle of 64 MiB.
                refusal.__traceback__ = refusal.__context__ = None
                return refusal

        waiting = _LateAnswer(self._call)
        waiting.after(work, lambda command: self._submit(command, waiting))
        return waiting

    def _parse(self, body: Buffer) -> Command:
        call, target = self._call, self._route.target
        assert not isinstance(target, Probe | StreamKind)
        if not body and self._is_bare():
            body = b"{}"
        limits = call.runtime.limits
        query = routes.parse_query(self._query)
        command = target(Request(self._name, query, call.header, body, limits, _entropy))
        if self._traces and isinstance(command, Append):
            return traced(command, call.header(b"traceparent"), limits)
        return command

    def _submit(self, command: Command, waiting: "_LateAnswer") -> "Answer | _LateAnswer":
        """The answer, or `waiting` where it comes later."""
        caller = self._call.caller
        if caller.is_key:
            command = permitted(command, caller)
            self._waiting = waiting
        self._require_ready()
        if isinstance(command, Claim):
            waiting.claims(command)
        if isinstance(command, CreateWatch):
            command = command.by(self._slot.holder)
        elif isinstance(command, Diff | Claim) and command.wait_ms:
            self._slot.begin_poll()
            self._call.is_timed = False
        found = self._call.runtime.submit(command, waiting.on_reply)
        if isinstance(found, Ticket):
            waiting.ticket = found
            return waiting
        return waiting.payload_or_wait(found)

    def _require_ready(self) -> None:
        if self._call.runtime.phase is not Phase.READY:
            raise shutting_down()

    def _is_bare(self) -> bool:
        """Whether an empty body stands for `{}` here."""
        return (
            self._route.body is BodyRule.JSON_OR_EMPTY
            and self._call.header(b"content-type") is None
        )

    def _stream(self, feed: StreamKind) -> Streaming:
        """A stream's head, and its frames unless only the head was asked for (HEAD)."""
        call = self._call
        if feed is StreamKind.SOCKET:
            raise Rejection(ErrorCode.INVALID_REQUEST, "expected a WebSocket handshake")
        if call.is_head and feed is StreamKind.WATCH:
            call.runtime.engine.watch_commands.require_session(
                self._name, call.runtime.now_ms, call.caller
            )
            return call.streaming(None)
        query = routes.parse_query(self._query)
        if feed is StreamKind.WORK:
            return self._work(routes.parse_work(self._name, query, call.runtime.limits))
        known = call.header(b"last-event-id")
        rewind = query.get("last_event_id") if known is None else known.decode("latin-1")
        return call.streaming(WatchFeed(call.runtime, self._name, rewind, call.caller))

    def _work(self, asked: Claim) -> Streaming:
        call = self._call
        if call.is_head:
            call.runtime.engine.queue_commands.require_queue(asked.topic, call.runtime.now_ms)
            return call.streaming(None)
        return call.streaming(WorkFeed(call.runtime, asked, call.caller, self._slot.holder))

    def connect(self) -> Answer | Socket:
        call = self._call
        try:
            if self._route.target is not StreamKind.SOCKET:
                raise Rejection(ErrorCode.NOT_FOUND, "no WebSocket here")
            feed = SocketFeed(call.runtime, call.caller, self._slot.holder)
            call.is_timed = False
            call.observe(101)
            return feed
        except Rejection as refusal:
            return call.refuse(refusal)

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


class _LateAnswer:
    """Implements `interface.Pending`: an answer that waits for a thread, the log, a poll or a disk."""

    __slots__ = (
        *("_answer", "_call", "_claim", "_claimed_ms", "_deliver", "_is_cancelled", "_rounds"),
        *("_work", "ticket"),
    )

    def __init__(self, call: _Responder) -> None:
        self._call = call
        self._answer: Answer | None = None
        self._deliver: Callable[[Answer], None] | None = None
        self._is_cancelled = False
        self._claim: Claim | None = None
        self._claimed_ms = 0
        self._rounds = 0
        self._work: ThreadCall[Any] | None = None
        self.ticket: Ticket | None = None

    def then(self, deliver: Callable[[Answer], None]) -> None:
        if self._answer is None:
            self._deliver = deliver
        else:
            deliver(self._answer)

    @property
    def waits_for_news(self) -> bool:
        return self.ticket is not None and self.ticket.waits_for_news

    def cancel(self) -> None:
        self._is_cancelled = True
        self._deliver = None
        if self.ticket is not None:
            self.ticket.cancel()
        if self._work is not None:
            self._work.cancel()

    def revoke(self) -> None:
        """Its key was removed.  What the log is to say is answered all the same: it was done."""
        if self._answer is None and not self._is_cancelled and self.waits_for_news:
            assert self.ticket is not None
            self._is_cancelled = True
            self.ticket.cancel()
            self._done(self._call.refuse(gone()))

    def after(
        self,
        work: Callable[[], Command | Rejection],
        go_on: "Callable[[Command], Answer | _LateAnswer]",
    ) -> None:
        """Parse a command on a thread, then go on with it unless the client is gone."""

        def on_done(done: ThreadCall[Command | Rejection]) -> None:
            if self._is_cancelled:
                return
            try:
                found = done.result()
                now = self._call.refuse(found) if isinstance(found, Rejection) else go_on(found)
            except Rejection as refusal:
                now = self._call.refuse(refusal)
            except Exception:
                now = self._call.fail()
            if isinstance(now, Answer):
                self._done(now)

        self._work = self._call.runtime.decode_in_thread(work)
        self._work.add_done_callback(on_done)

    def on_reply(self, reply: Reply) -> None:
        try:
            now = self.payload_or_wait(reply)
        except Exception:
            now = self._call.fail()
        if isinstance(now, Answer):
            self._done(now)

    def payload_or_wait(self, reply: Reply) -> "Answer | _LateAnswer":
        """The answer, if its records are in memory or warm; else `self`, and it comes later."""
        if isinstance(reply.result, Rejection):
            return self._call.refuse(reply.result)
        if isinstance(reply.result, Exception):
            raise reply.result
        outcome = reply.result
        if isinstance(outcome, Granted) and outcome.jobs is not None:
            return self._jobs_or_wait(reply, outcome, outcome.jobs)
        pieces = answers.pieces_of(outcome)
        payload = payload_of(pieces, blocking=False)
        if isinstance(payload, list):
            return self._respond_or_zip(reply, payload)
        if payload is not None:
            return self._call.refuse(payload)
        whole = [piece.still() if isinstance(piece, Records) else piece for piece in pieces]
        fetch = partial(self._fetch, reply, whole)
        self._when_made(self._in_thread(pieces)(fetch), self._done)
        return self

    def _when_made(self, work: ThreadCall[T], go_on: Callable[[T], None]) -> None:
        """Go on with what a thread has made, unless the client is gone; a thread that has not begun
        by then does not."""

        def on_done(done: ThreadCall[T]) -> None:
            if not self._is_cancelled:
                go_on(done.result())

        self._work = work
        work.add_done_callback(on_done)

    def _in_thread(self, pieces: Sequence[Piece]) -> Callable[[Callable[[], T]], ThreadCall[T]]:
        runtime = self._call.runtime
        return runtime.page_in_thread if is_large(pieces) else runtime.read_in_thread

    def _respond_or_zip(self, reply: Reply, payload: list[Buffer]) -> "Answer | _LateAnswer":
        """The answer; or `self`, where a thread compresses it first."""
        if not self._call.zips_apart(payload):
            return self._call.respond(reply, payload)
        respond = partial(self._respond, reply, payload)
        self._when_made(self._call.runtime.zip_in_thread(respond), self._done)
        return self

    def _respond(self, reply: Reply, payload: list[Buffer]) -> Answer:
        try:
            return self._call.respond(reply, payload)
        except Exception:
            return self._call.fail()

    def _fetch(self, reply: Reply, pieces: Sequence[Piece]) -> Answer:
        try:
            payload = payload_of(pieces, blocking=True)
            assert payload is not None
            if isinstance(payload, list):
                return self._call.respond(reply, payload)
            return self._call.refuse(payload)
        except Exception:
            return self._call.fail()

    # A claim skips jobs that cannot be read.  Where none of its jobs can be read, it claims again,
    # and more jobs than the client asked for, to get past a long run of damage quickly; the surplus
    # goes back to the queue.

    def claims(self, command: Claim) -> None:
        """The answer will be the jobs of this claim."""
        self._claim = command
        self._claimed_ms = self._call.runtime.now_ms

    def _jobs_or_wait(self, reply: Reply, granted: Granted, jobs: Jobs) -> "Answer | _LateAnswer":
        try:
            texts = None if self._rounds else spliced(answers.pieces_of(granted), blocking=False)
        except (Corrupt, OSError):
            texts = None
        if texts is not None:
            return self._respond_or_zip(reply, texts)
        jobs = jobs.still()
        fetch = partial(self._fetch_jobs, granted.of(jobs), jobs)
        in_thread = self._in_thread([Records(jobs.extents)])
        self._when_made(in_thread(fetch), partial(self._jobs_fetched, reply, jobs))
        return self

    def _fetch_jobs(self, granted: Granted, jobs: Jobs) -> "list[Buffer] | _Found | Exception":
        """The whole payload; or each job by itself, where a part cannot be read."""
        try:
            if not self._rounds:
                try:
                    texts = spliced(answers.pieces_of(granted), blocking=True)
                    assert texts is not None
                    return texts
                except (Corrupt, OSError):
                    pass
            each = one_by_one(answers.job_records(jobs))
            return _Found(list(zip(jobs.grant.seqs, each, strict=True)))
        except Exception as error:
            return error

    def _jobs_fetched(
        self, reply: Reply, jobs: Jobs, found: "list[Buffer] | _Found | Exception"
    ) -> None:
        try:
            if isinstance(found, Exception):
                raise found
            now: Answer | _LateAnswer
            if isinstance(found, list):
                now = self._respond_or_zip(reply, found)
            else:
                now = self._salvaged(reply, jobs, found)
        except Rejection as refusal:
            now = self._call.refuse(refusal)
        except Exception:
            now = self._call.fail()
        if isinstance(now, Answer):
            self._done(now)

    def _salvaged(self, reply: Reply, jobs: Jobs, found: "_Found") -> "Answer | _LateAnswer":
        """The answer with the jobs that can be read; where none can, another claim's."""
        claim, runtime = self._claim, self._call.runtime
        assert claim is not None
        damaged = {seq: text for seq, text in found.jobs if isinstance(text, Exception)}
        sound = [(seq, text) for seq, text in found.jobs if not isinstance(text, Exception)]
        surplus = {seq for seq, _ in sound[claim.limit :]}
        left = runtime.engine.queue_commands.set_aside(jobs.grant, damaged, surplus, runtime.moment)
        runtime.nudge()
        if left is None:
            return self._claim_again(claim)
        texts = [text for _, text in sound[: claim.limit]]
        return self._respond_or_zip(replace(reply, result=left), answers.claim_around(left, texts))

    def _claim_again(self, claim: Claim) -> "Answer | _LateAnswer":
        runtime = self._call.runtime
        if self._is_cancelled:
            return self
        if runtime.phase is not Phase.READY:
            raise shutting_down()
        self._rounds += 1
        limit = min(claim.limit << min(3 * self._rounds, 30), PROBE_MAX)
        left_ms = max(claim.wait_ms - (runtime.now_ms - self._claimed_ms), 0)
        limit = max(limit, claim.limit)
        again = Claim(claim.topic, claim.node, limit, claim.lease_ms, left_ms)
        found = runtime.submit(again, self.on_reply)
        if isinstance(found, Ticket):
            self.ticket = found
            return self
        return self.payload_or_wait(found)

    def _done(self, answer: Answer) -> None:
        self._answer = answer
        deliver, self._deliver = self._deliver, None
        if deliver is not None:
            deliver(answer)


@dataclass(frozen=True, slots=True)
class _Found:
    """Each job of a grant by seq: its text, or why it cannot be read."""

    jobs: list[tuple[int, Buffer | Exception]]


def _reader(headers: Headers) -> Callable[[bytes], bytes | None]:
    known: dict[bytes, bytes] = {}
    for name, value in headers:
        if name not in known:
            known[name] = value
        elif name in _LISTS:
            known[name] += b", " + value
    return known.get


def _probe(call: _Responder, probe: Probe, scraping: Scraping) -> Answer | Pending:
    """The page, probes and metrics (§8): answered in every phase."""
    runtime = call.runtime
    match probe:
        case Probe.PAGE:
            return call.fixed(page.HEADERS, page.DOCUMENT)
        case Probe.HEALTH:
            health = models.Health(status="ok", version=VERSION, uptime_ms=runtime.uptime_ms)
            return _plain(call, open_object(health))
        case Probe.READY:
            return _ready(call)
        case Probe.LIMITS:
            return _plain(call, open_object(models.LimitsInForce(**asdict(runtime.limits))))
        case Probe.OPENAPI:
            # The document has a format of its own, without a performance block.  Most servers are
            # never asked for it, so it is not loaded at every start.
            from topics.protocol.http.openapi import document as openapi

            return call.fixed((JSON,), openapi.document())
        case Probe.METRICS:
            return _Metrics(call, scraping)


class _Metrics:
    """Implements `interface.Pending`: a scrape, which is answered in slices (§8.3)."""

    waits_for_news = False

    def __init__(self, call: _Responder, scraping: Scraping) -> None:
        self._call = call
        self._scraping = scraping
        self._scrape: Scrape | None = None
        self._deliver: Callable[[Answer], None] | None = None

    def then(self, deliver: Callable[[Answer], None]) -> None:
        self._deliver = deliver
        as_json = routes.prefers_json(self._call.header(b"accept"))
        found, caller = partial(self._found, as_json), self._call.caller
        self._scrape = self._scraping.ask(found, caller, as_json=as_json)

    def cancel(self) -> None:
        self._deliver = None
        if self._scrape is not None:
            self._scrape.cancel()

    def _found(self, as_json: bool, pieces: list[bytes]) -> None:
        call = self._call
        kind = JSON if as_json else (b"content-type", metrics.CONTENT_TYPE)
        body = [*pieces, call.performance(Reply(Outcome()))] if as_json else pieces
        if not pieces:
            self._done(call.refuse(Rejection(ErrorCode.INTERNAL, "internal error")))
        elif call.zips_apart(body):
            zipping = call.runtime.zip_in_thread(lambda: call.answer(200, (kind,), body))
            zipping.add_done_callback(lambda done: self._done(done.result()))
        else:
            self._done(call.answer(200, (kind,), body))

    def _done(self, answer: Answer) -> None:
        if self._deliver is not None:
            self._deliver(answer)


def _plain(call: _Responder, text: bytes) -> Answer:
    """An answer without a command; the last brace of `text` is left out."""
    return call.answer(200, (JSON,), [text, call.performance(Reply(Outcome()))])


def _ready(call: _Responder) -> Answer:
    runtime = call.runtime
    match runtime.phase:
        case Phase.READY if runtime.engine.read_only:
            raise Rejection(ErrorCode.NOT_READY, "the log is read-only", {"reason": "read_only"})
        case Phase.READY:
            topics = len(runtime.engine.state.topics)
            ready = models.Ready(status="ready", wal_replay_complete=True, topics=topics)
            return _plain(call, open_object(ready))
        case Phase.STARTING | Phase.FAILED:
            progress = {"replay_progress": runtime.store.progress}
            raise Rejection(ErrorCode.NOT_READY, "the log is being replayed", progress)
        case _:
            raise shutting_down()
