"""How deep JSON may be nested: the same for the server, the clients and the tools.

msgspec follows no more nesting than the interpreter's limit of recursion leaves it.  Up to CPython 3.11 that is
what the callers have left of a thousand; later versions count apart for C, from 1,500 on.
"""

import os
import re
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import accumulate
from typing import Final, TypeVar

A = TypeVar("A")
T = TypeVar("T")

DEPTH_MAX: Final = 1000
"""Arrays and objects in each other in one value, e.g. a record's `data`; as many as Jackson, with which Spark
and much else reads JSON, follows by default."""
_ROOM: Final = DEPTH_MAX + 100
"""Levels that a decoder finds room for: a value, and what a body or an answer has around it."""
_lock = threading.Lock()


def deep(decode: Callable[[A], T]) -> Callable[[A], T]:
    """A decoder that follows `DEPTH_MAX` levels in each value, however little its callers have left.

    It raises RecursionError for what is nested much deeper.
    """

    def decode_deep(text: A) -> T:
        try:
            return decode(text)
        except RecursionError:
            pass
        with _room():
            return decode(text)

    return decode_deep


_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_STEPS: Final = [*(1 if char in b"[{" else -1 if char in b"]}" else 0 for char in range(256))]


def depth_of(text: bytes, enough: int = 0) -> int:
    """How many arrays and objects are in each other in a JSON text.

    Args:
        enough: Where it can be no deeper than that, this number may come in place of the depth.
    """
    if text.count(b"[") + text.count(b"{") <= enough:
        return enough
    outside = b"".join(_ESCAPE.sub(b"", text).split(b'"')[::2])
    steps = map(_STEPS.__getitem__, outside.translate(None, _NO_BRACKETS))
    return max(accumulate(steps), default=0)


@contextmanager
def _room() -> Iterator[None]:
    """Room on the stack for `_ROOM` levels more, in one thread at a time."""
    with _lock:
        before = sys.getrecursionlimit()
        sys.setrecursionlimit(before + _ROOM)
        try:
            yield
        finally:
            sys.setrecursionlimit(before)


def _forked() -> None:
    global _lock
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_forked)
