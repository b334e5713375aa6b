"""What a client may have meant by a word that is not known: a field, a parameter, a value, a path.

Owns the measure of nearness, and what one search may cost: words of clients are cut to `WORD_MAX`.
"""

import re
import typing
from collections.abc import Iterable, Mapping
from difflib import SequenceMatcher, get_close_matches
from functools import cache
from types import UnionType
from typing import Any, Final, Literal, Union

import msgspec

WORD_MAX: Final = 48
"""Characters of a client's word that are compared."""
_POINTERS: Final[Mapping[bytes, str]] = {
    b"/docs": "/v0/docs",
    b"/health": "/v0/health",
    b"/metrics": "/v0/metrics",
    b"/openapi.json": "/v0/openapi.json",
    b"/ready": "/v0/ready",
    b"/topics": "/v0/topics",
    b"/v0": "/v0/docs",
    b"/v0/": "/v0/docs",
    b"/ws": "/v0/ws",
}
"""Paths that people type, and what they are looking for."""


def nearest(word: str, known: Iterable[str], least: float = 0.6) -> str | None:
    """The known word that is most like this one; None where none is like it.

    Args:
        least: How like, from 0 to 1 (`difflib.SequenceMatcher.ratio`).
    """
    found = get_close_matches(word[:WORD_MAX], known, 1, least)
    return found[0] if found else None


def listed(words: Iterable[str]) -> str:
    """Words as a sentence has them: `a, b or c`."""
    *most, last = words
    return f"{', '.join(most)} or {last}" if most else last


def nearest_path(path: bytes, patterns: Iterable[tuple[bytes, ...]]) -> str | None:
    """The path that a client may have meant; its names are kept.

    Args:
        path: As requested, without the query.
        patterns: Segments of each path there is; `:` stands for a name.
    """
    if path in _POINTERS:
        return _POINTERS[path]
    asked = path.decode("latin-1").split("/")[1:]
    best, found = 0.85, None
    for pattern in patterns:
        known = [part.decode() for part in pattern]
        names = {i for i, part in enumerate(known) if part == ":"}
        if abs(len(known) - len(asked)) > 1 or max(names, default=0) >= len(asked):
            continue
        if not all(asked[i] for i in names):
            continue  # a name that is missing is no name: `/v0/topics/` means the list
        # Names are nobody's mistake, and may be long.
        bare = "/".join(":" if i in names else part[:WORD_MAX] for i, part in enumerate(asked))
        matcher = SequenceMatcher(None, "/".join(known), bare, autojunk=False)
        if matcher.quick_ratio() > best and (ratio := matcher.ratio()) > best:
            best = ratio
            found = "/" + "/".join(asked[i] if i in names else known[i] for i in range(len(known)))
    return found


_PART: Final = re.compile(r"\[\.\.\.\]|[^.\[]+")
"""A field, or the step into what a list or a dict holds."""


def allowed_values(kind: Any, path: str) -> list[str]:
    """The values of the enum at a path of a body's type; empty where none is there.

    Args:
        path: As msgspec spells it: `$.config.durability`, `$.topics[...].match`.
    """
    for part in _PART.findall(path.removeprefix("$")):
        if part.startswith("["):
            kind = _element(kind)
        else:
            struct = next((each for each in _choices(kind) if _is_struct(each)), None)
            kind = None if struct is None else field_types(struct).get(part)
    found: dict[str, None] = {}
    for each in _choices(kind):
        if typing.get_origin(each) is Literal:
            found.update((str(value), None) for value in typing.get_args(each))
    return sorted(found)


@cache
def field_types(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """The type of each field of a struct, its metadata left out."""
    return typing.get_type_hints(kind)


def struct_in(hint: Any) -> Any:
    """The first struct in a type; None where there is none."""
    if _is_struct(hint):
        return hint
    return next(filter(None, map(struct_in, typing.get_args(hint))), None)


def _element(kind: Any) -> Any:
    """What a list or a dict holds."""
    for each in _choices(kind):
        if typing.get_origin(each) in (list, dict):
            return typing.get_args(each)[-1]
    return None


def _choices(kind: Any) -> tuple[Any, ...]:
    """The types of a union, or the type."""
    return typing.get_args(kind) if typing.get_origin(kind) in (Union, UnionType) else (kind,)


def _is_struct(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, msgspec.Struct)
