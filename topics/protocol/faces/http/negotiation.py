"""What a head says of its body and of the answer it takes: media types, codings, weights (§0.3)."""

import re
from collections.abc import Mapping, Sequence
from typing import Final

from topics.protocol.faces.http.route import BodyRule
from topics.protocol.model.errors import ErrorCode, Rejection


def check_content_type(value: bytes | None, *, empty: bool, rule: BodyRule) -> None:
    """415 unless the body is declared as JSON (§0.3); UTF-8 is the only charset.

    Args:
        value: The Content-Type; None where the head has none.
        empty: The body has no bytes.
    """
    if empty and (value is None or rule is BodyRule.JSON_OR_EMPTY):
        return
    kind, *params = (value or b"").split(b";")
    charsets = [
        p.split(b"=", 1)[1] for p in map(bytes.strip, params) if p.lower().startswith(b"charset=")
    ]
    good = kind.strip().lower() == b"application/json" and all(
        c.strip(b'" ').lower() in (b"utf-8", b"utf8") for c in charsets
    )
    if rule is not BodyRule.NONE and not good:
        raise Rejection(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "expected Content-Type: application/json")


def check_content_encoding(value: bytes | None) -> bool:
    """Whether the body is gzipped; 415 for any coding but gzip and identity."""
    coding = (value or b"").strip().lower()
    if coding in (b"", b"identity"):
        return False
    if coding in (b"gzip", b"x-gzip"):
        return True
    raise Rejection(ErrorCode.UNSUPPORTED_MEDIA_TYPE, "expected Content-Encoding: gzip, or none")


def accepts_gzip(value: bytes | None) -> bool:
    """Whether `Accept-Encoding` offers gzip with a weight above 0."""
    weights = _weights(value)
    for coding in (b"gzip", b"x-gzip", b"*"):
        if coding in weights:
            return weights[coding] > 0
    return False


def accepts_event_stream(accept: bytes | None) -> bool:
    """Whether an `Accept` lets an event stream through; none at all does."""
    if accept is None or not accept.strip():
        return True
    return _weight_of(_weights(accept), b"text", b"event-stream") > 0


def names_event_stream(accept: bytes | None) -> bool:
    """Whether an `Accept` asks for an event stream by its name."""
    return _weights(accept).get(b"text/event-stream", 0.0) > 0


def prefers_json(accept: bytes | None) -> bool:
    """Whether an `Accept` asks for JSON where text is the default (§8.3)."""
    weights = _weights(accept)
    json = _weight_of(weights, b"application", b"json")
    text = _weight_of(weights, b"text", b"plain")
    return json > text or (json == text > 0 and b"application/json" in weights)


def _weight_of(weights: Mapping[bytes, float], kind: bytes, subtype: bytes) -> float:
    """What the most specific item that fits says of a media type (RFC 9110 §12.5.1)."""
    for item in (kind + b"/" + subtype, kind + b"/*", b"*/*"):
        if item in weights:
            return weights[item]
    return 0.0


def _weights(value: bytes | None) -> dict[bytes, float]:
    """The items of a header that negotiates, with their weights; the greatest of one that comes
    twice, as it may with other parameters."""
    weights: dict[bytes, float] = {}
    for item in (value or b"").lower().split(b","):
        name, *params = map(bytes.strip, item.split(b";"))
        if name:
            weights[name] = max(weights.get(name, 0.0), _weight(params))
    return weights


def _weight(params: Sequence[bytes]) -> float:
    for param in params:
        name, _, value = param.partition(b"=")
        if name.strip() == b"q" and (found := _WEIGHT.fullmatch(value.strip())):
            return float(found[0])
    return 1.0


_WEIGHT: Final = re.compile(rb"[01](\.\d*)?|\.\d+")
