"""What follows from the head of a request alone.

Owns the refusals that a head decides by itself, and what of them holds for the next request with the
same head.  What may change while the server runs is decided for each request.
"""

from collections.abc import Callable
from typing import Final

import msgspec

from topics.protocol.faces.http.negotiation import (
    accepts_event_stream,
    check_content_encoding,
    check_content_type,
)
from topics.protocol.faces.http.origins import require_reader
from topics.protocol.faces.http.route import NO_BODY, BodyRule, Parser, Probe, Route, StreamKind
from topics.protocol.faces.http.strictness import APPLIED, prefers_strict
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.http.inflation import too_large
from topics.server.http.interface import Headers
from topics.server.observing.measures import LABELS, OTHER

_EVENT_FEEDS: Final = (StreamKind.WATCH, StreamKind.WORK)


class Judged(msgspec.Struct):
    """What follows from a head alone, for as long as the server runs.

    Attributes:
        max_body_bytes: Of its body, on the wire and again where that is inflated.
        also: Headers of every answer, for a page of an allowed origin.
        item: What a second name in its path says.
        label: Of its route, where requests are counted.
        needs_serving: It is answered only when the log was replayed.
        is_counted: It is a request in flight of whoever sent it; probes are not.
        has_kind: It says what its body is, and that is JSON.  Where a body is optional, this is not
            known before the body is, unless the head says how long that is.
        is_gzipped: Its body is.
        is_strict: What nobody would read of the request is refused.  Made with the server's default, which the
            head may overrule.
        is_sound: It was checked whole, and the head alone is no reason to refuse it.
        parser: Makes a command of it; None of a probe and a stream.
    """

    header: Callable[[bytes], bytes | None]
    route: Route
    name: str
    max_body_bytes: int
    also: Headers = ()
    item: str = ""
    label: str = OTHER
    needs_serving: bool = True
    is_counted: bool = True
    has_kind: bool = False
    is_gzipped: bool = False
    is_strict: bool = False
    is_sound: bool = False
    parser: Parser | None = None

    def __post_init__(self) -> None:
        asks_strict = prefers_strict(self.header(b"prefer"))
        if asks_strict is not None:
            self.is_strict = asks_strict
        if asks_strict:
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
        if self.route.target in _EVENT_FEEDS and not accepts_event_stream(header(b"accept")):
            raise Rejection(ErrorCode.NOT_ACCEPTABLE, "this answers text/event-stream only")
        length = header(b"content-length")
        if length is not None and length.isdigit() and int(length) > self.max_body_bytes:
            raise too_large(self.max_body_bytes)
        if rule is NO_BODY:
            return
        kind = header(b"content-type")
        may_be_empty = rule is BodyRule.JSON_OR_EMPTY and not (length or b"").strip(b"0")
        if kind is not None and not may_be_empty:
            check_content_type(kind, empty=False, rule=rule)
            self.has_kind = True
        self.is_gzipped = check_content_encoding(header(b"content-encoding"))
