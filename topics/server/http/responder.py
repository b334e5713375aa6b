"""The answers to one request: the envelope, the performance block, compression.

Owns the bytes around what an outcome says (§0.5, §0.9) and what of the request's head they depend
on.  Knows nothing of routes and commands.
"""

import asyncio
import gzip
import logging
import time
import zlib
from collections.abc import Callable, Sequence
from functools import lru_cache, partial
from typing import Final, cast

import msgspec

from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http import entity_tags
from topics.protocol.faces.http import negotiation as http_negotiation
from topics.protocol.faces.http.answers import status_of, text_of
from topics.protocol.faces.http.errors import error_body, error_headers
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import STABLE, Grant, Granted, Page, Stable
from topics.protocol.model.records import Buffer
from topics.server.http.interface import Answer, Head, Headers, Source, Streaming
from topics.server.observing.observer import Observer
from topics.server.service.claims import take_back
from topics.server.service.shell import Shell
from topics.server.service.submission import Apart

log = logging.getLogger("topics.http")

JSON: Final = (b"content-type", b"application/json")
GZIP: Final = (b"content-encoding", b"gzip")
BY_CODING: Final = (b"vary", b"accept-encoding")
EVENT_STREAM: Final = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-store"),
    (b"x-accel-buffering", b"no"),
)
POSITION: Final = b"x-topics-position"
"""How far the log had come when a write was answered, on a node of a cluster."""
LEADER: Final = b"x-topics-leader"
"""Which other node decided it."""
GZIP_MIN_BYTES: Final = 1024
GZIP_APART_BYTES: Final = 16 << 10
"""A larger answer is compressed on a thread: this one takes a fifth of a millisecond."""
GZIP_STEP_BYTES: Final = 64 << 10
"""Compressed in one call, which leaves the interpreter to others meanwhile."""


class Responder(msgspec.Struct):
    """Makes the answers to one request, and holds what they need of its head.  Implements
    `submission.Face`.

    Attributes:
        header: A header of the request by its name, in lower case.
        begun: When the request came, by `time.perf_counter`.
        route: The label of its route.
        caller: Whose request it is.
        also: Headers of every answer, for a page of an allowed origin.
        is_timed: It takes as long as it takes because of the server, and not because it waits.
    """

    runtime: Shell
    observer: Observer
    head: Head
    header: Callable[[bytes], bytes | None]
    begun: float
    route: str
    is_timed: bool = True
    caller: Caller = ANYONE
    also: Headers = ()

    def forget_secrets(self) -> None:
        """The answer is a stream, which may last for days: of its head nothing more is asked but what was
        asked for, and its key should not stay in memory."""
        self.head = msgspec.structs.replace(self.head, query=b"", headers=())

    @property
    def is_head(self) -> bool:
        """Its answer has no body."""
        return self.head.method == "HEAD"

    def refuse(self, refusal: Rejection, *, close: bool = False) -> Answer:
        self.observer.refused(self.head, refusal)
        body = error_body(refusal) + self.performance(Reply(refusal))
        headers = (JSON, *error_headers(refusal))
        return self.answer(STATUSES[refusal.code], headers, [body], close=close)

    def fail(self) -> Answer:
        """A bug: the request gets a 500, the log gets the traceback."""
        log.exception("internal error")
        return self.refuse(Rejection(ErrorCode.INTERNAL, "internal error"))

    # ------------------------------------------------------------------ a face of the service

    def placed(self, position: bytes) -> None:
        self.also = (*self.also, (POSITION, position))

    def elsewhere(self, url: str) -> None:
        """Another node is asked for the answer."""
        also = (each for each in self.also if each[0] != LEADER)
        self.also = (*also, (LEADER, url.encode()))

    def waits(self) -> None:
        self.is_timed = False

    def respond(
        self, reply: Reply, text: Sequence[Buffer], body: list[Buffer] | None = None
    ) -> Answer | Apart[Answer]:
        """The answer of an outcome; `text` is that of the records which it shows, and `body` is made
        of both."""
        outcome = reply.result
        assert not isinstance(outcome, Exception)
        if body is None:
            body = text_of(outcome, text)
            size = len(body[0]) if len(body) == 1 else sum(map(len, body))
            if size >= GZIP_APART_BYTES and self.accepts_gzip():
                return Apart(partial(self.respond, reply, text, body))
        if type(outcome) in STABLE:
            return self._stable(cast(Stable, outcome), body)
        body.append(self.performance(reply))
        answer = self.answer(status_of(outcome), (JSON,), body)
        if type(outcome) is Granted and outcome.jobs is not None:
            unsent = reply.unsent or partial(self._take_back_soon, outcome.jobs.grant)
            return msgspec.structs.replace(answer, unsent=unsent)
        return answer

    def _stable(self, page: Stable, body: list[Buffer]) -> Answer:
        """A page that caches may keep: the same bytes for as long as its tag is the same (§3.4)."""
        body.append(b"}\n")
        is_gzipped = sum(map(len, body)) >= GZIP_MIN_BYTES and self.accepts_gzip()
        sent = zipped(body) if is_gzipped else body
        etag = entity_tags.entity_tag(page.tag, is_gzipped=is_gzipped)
        length = (b"content-length", b"%d" % sum(map(len, sent)))
        coding = (GZIP,) if is_gzipped else ()
        self.observe(200)
        headers = (JSON, *self._of_caches(etag), *coding, length, *self.also)
        return Answer(200, headers, [] if self.is_head else sent)

    def unchanged(self, page: Stable) -> Answer | None:
        """304, where the client says that it has the page; its text is not looked at."""
        etag = entity_tags.known_tag(self.header(b"if-none-match"), page.tag)
        if etag is None:
            return None
        self.observe(304)
        return Answer(304, (*self._of_caches(etag), *self.also), [])

    def _of_caches(self, etag: bytes) -> Headers:
        """What a cache needs to know.  Any cache may keep what everybody may read; and each asks
        again before it uses what it keeps, since records are deleted."""
        kept = b"private, no-cache" if self.caller.is_key else b"no-cache"
        return ((b"etag", etag), (b"cache-control", kept), BY_CODING)

    def _take_back_soon(self, grant: Grant) -> None:
        # Not now: the engine may be in the middle of its answers.
        asyncio.get_running_loop().call_soon(take_back, self.runtime, grant)

    def performance(self, reply: Reply) -> bytes:
        """The performance block, the object's last brace and the end of the line (§0.9)."""
        total_ms = (time.perf_counter() - self.begun) * 1000
        more, outcome = b"", reply.result
        if not isinstance(outcome, Exception):
            if outcome.is_logged:
                sync_ms = reply.sync_ms if outcome.is_fsync else 0.0
                more = b',"wal_append_ms":%.3f,"fsync_ms":%.3f' % (reply.write_ms, sync_ms)
            if type(outcome) is Page:
                more += b',"records_scanned":%d' % outcome.scanned
        return b',"performance":{"server_total_ms":%.3f%b,"throttle_wait_ms":%.1f}}\n' % (
            total_ms,
            more,
            reply.throttle_ms,
        )

    def accepts_gzip(self) -> bool:
        """Whether the client takes a compressed answer."""
        offered = self.header(b"accept-encoding")
        return offered is not None and http_negotiation.accepts_gzip(offered)

    def zips_apart(self, payload: Sequence[Buffer]) -> bool:
        """Whether the answer is to be compressed, and too large for the event loop to do it."""
        return sum(map(len, payload)) >= GZIP_APART_BYTES and self.accepts_gzip()

    def fixed(self, headers: Headers, document: bytes) -> Answer:
        """An answer that is the same for every client, and compressed once."""
        is_zipped = self.accepts_gzip()
        return self.document(
            headers, zipped_once(document) if is_zipped else document, is_zipped=is_zipped
        )

    def document(self, headers: Headers, text: bytes, *, is_zipped: bool) -> Answer:
        """An answer of bytes that are there already, compressed or not."""
        if is_zipped:
            headers = (*headers, GZIP)
        headers = (*headers, BY_CODING, (b"content-length", b"%d" % len(text)), *self.also)
        self.observe(200)
        return Answer(200, headers, [] if self.is_head else [text])

    def streaming(self, feed: Source | None) -> Streaming:
        """An event stream; without a feed it is its head only (HEAD)."""
        return Streaming(200, (*EVENT_STREAM, *self.also), feed)

    def answer(
        self, status: int, headers: Headers, body: Sequence[Buffer], *, close: bool = False
    ) -> Answer:
        size = sum(map(len, body))
        if size >= GZIP_MIN_BYTES:
            # Also of an answer that is not compressed: a cache keeps it for who asked in this way.
            headers = (*headers, BY_CODING)
            if self.accepts_gzip():
                body = zipped(body)
                size = sum(map(len, body))
                headers = (*headers, GZIP)
        headers = (*headers, (b"content-length", b"%d" % size), *self.also)
        self.observe(status)
        return Answer(status, headers, [] if self.head.method == "HEAD" else body, close)

    def observe(self, status: int) -> None:
        """Note the answer that is made now."""
        self.observer.answered(
            self.head, self.header, self.route, status, self.begun, is_timed=self.is_timed
        )


def zipped(body: Sequence[Buffer]) -> list[Buffer]:
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
def zipped_once(document: bytes) -> bytes:
    return gzip.compress(document)
