"""Questions about tags: `match` of a delete or read, `filter` of a purge (§5).

Each is a point look-up or a bounded range over the distinct tags, in UTF-8 byte order, so that no
question ever scans records.  What a tag looks like inside does not matter to `Eq` and `Glob`; a
subject pattern sees dot-separated tokens.
"""

from typing import Any, Final

import msgspec

from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.names import quote


def _after(prefix: bytes) -> bytes | None:
    """The smallest byte string greater than all that begin with `prefix`; None if there is none."""
    kept = prefix.rstrip(b"\xff")
    return kept[:-1] + bytes([kept[-1] + 1]) if kept else None


class TagRange(msgspec.Struct, frozen=True, tag=True):
    """Tags in [lower, upper): `Eq` is a range of one, `Glob` all that begin with a prefix."""

    lower: bytes
    upper: bytes | None
    exact: bool = True

    def accepts(self, tag: bytes) -> bool:
        return self.lower <= tag and (self.upper is None or tag < self.upper)


class Subject(msgspec.Struct, frozen=True, tag=True):
    """A NATS subject pattern: `*` is one token, a final `>` one or more; the rest is literal."""

    lower: bytes
    upper: bytes | None
    tokens: tuple[bytes, ...]
    exact: bool = False

    def accepts(self, tag: bytes) -> bool:
        tokens = tag.split(b".")
        if self.tokens[-1] == b">":
            if len(tokens) < len(self.tokens):
                return False
        elif len(tokens) != len(self.tokens):
            return False
        return all(
            want in (b"*", b">") or want == got
            for want, got in zip(self.tokens, tokens, strict=False)
        )


Match = TagRange | Subject


def equals(tag: str) -> TagRange:
    raw = tag.encode()
    return TagRange(raw, raw + b"\0")


def begins_with(prefix: str) -> TagRange:
    raw = prefix.encode()
    return TagRange(raw, _after(raw))


MATCH_TYPES: Final[list[dict[str, Any]]] = [
    {"type": "string"},
    {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3},
]
"""What `parse_match` takes, as JSON schemas of which one fits."""


def parse_match(value: Any, path: str = "$.match") -> TagRange:
    """A `match`: `["tag","Eq",X]`, `["tag","Glob","X*"]`, or a bare string (§5).

    A bare string that ends in `*` is Glob, any other is Eq; only the last `*` is special.
    """
    match value:
        case str():
            return begins_with(value[:-1]) if value.endswith("*") else equals(value)
        case ["tag", "Eq", str(tag)]:
            return equals(tag)
        case ["tag", "Glob", str(pattern)] if pattern.endswith("*"):
            return begins_with(pattern[:-1])
        case ["tag", "Glob", str(pattern)]:
            what = f"Glob {quote(pattern)} does not end in *"
        case _:
            what = 'expected ["tag","Eq",X], ["tag","Glob","X*"] or a string'
    raise Rejection(ErrorCode.INVALID_REQUEST, f"{what} - at `{path}`")


_TOKEN: Final = r"(\*|[^.*>]+)"
SUBJECT_PATTERN: Final = rf"^(>|{_TOKEN}(\.{_TOKEN})*(\.>)?)$"
"""What `parse_subject` takes, as a regular expression of JSON schema."""


def parse_subject(pattern: str, path: str = "$.filter") -> Subject:
    """A subject `filter` of a purge; an empty token or a partial wildcard is refused."""
    tokens = pattern.split(".")
    for i, token in enumerate(tokens):
        if not token:
            what = "an empty token"
        elif token == ">" and i < len(tokens) - 1:
            what = '">" before the end'
        elif token not in ("*", ">") and ("*" in token or ">" in token):
            what = f"a partial wildcard {quote(token)}"
        else:
            continue
        raise Rejection(
            ErrorCode.INVALID_REQUEST, f"filter {quote(pattern)} has {what} - at `{path}`"
        )
    raw = tuple(token.encode() for token in tokens)
    literal = next((i for i, t in enumerate(raw) if t in (b"*", b">")), len(raw))
    if literal == len(raw):
        exact = pattern.encode()
        return Subject(exact, exact + b"\0", raw)
    prefix = b"".join(t + b"." for t in raw[:literal])
    return Subject(prefix, _after(prefix), raw)
