"""Changes of counters, what comes of them, and the counters that a process remembers; without I/O.

A change is a record of a log, and the log's order decides what came of it: every process that replays the changes of
a key up to a seq has the same counters, with the server's clock for what has expired.  So no change needs a lock, and
none is lost where two come at once.  A record also says what the counters were at some seq before (`base`), so that a
replay begins there and not at the log's beginning.

Keys that are changed together are one family, the text before their last `@`: `logins`, `logins@17` and `logins@18`.
The tag of a record is the family, and a replay reads records of one tag.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Literal

import msgspec

BASE_AGE_MAX_S: Final = 600.0
"""How old the counters may be that a replay begins with; records live for days."""
BASES_MAX: Final = 4096
"""Families whose counters a process remembers."""

Values = dict[str, tuple[int, int]]
"""The value of each key, and when it expires, in milliseconds since the epoch."""


class Base(msgspec.Struct, frozen=True):
    """The counters of a family after the record `seq`; where it is not of the family, after those before."""

    seq: int
    counters: Values


class Change(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a record asks for.

    Attributes:
        limit: The most that the value may be, or for "decr" the least.
        sum_of: Keys whose values, and the amount, may together be at most `limit`.
    """

    base: Base
    op: Literal["add", "incr", "decr"]
    key: str
    amount: int
    ttl_ms: int
    limit: int = 0
    sum_of: list[str] | None = None

    def apply(self, counters: Values, now_ms: int) -> bool:
        """Change the counters; whether the change was granted."""
        for key in [key for key, (_, expires_ms) in counters.items() if expires_ms <= now_ms]:
            del counters[key]
        value = counters[self.key][0] if self.key in counters else 0
        if self.op == "decr":
            value -= self.amount
            granted = value >= self.limit
        elif self.op == "incr":
            value += self.amount
            added = sum(counters[key][0] for key in self.sum_of or () if key in counters)
            granted = value <= self.limit and (not self.sum_of or added + self.amount <= self.limit)
        else:
            granted = self.key not in counters
            value = self.amount
        if granted:
            counters[self.key] = (value, now_ms + self.ttl_ms)
        return granted


def family_of(key: str) -> str:
    """The part of a key before its last `@`."""
    return key.rpartition("@")[0] or key


class Bases:
    """The newest counters of families that this process has replayed; for any number of threads."""

    def __init__(self, now_s: Callable[[], float] = time.monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, Base]] = OrderedDict()

    def get(self, family: str) -> Base | None:
        """The counters of a family; None where they are unknown, or too old."""
        with self._lock:
            at_s, base = self._known.get(family, (0.0, None))
        return base if base is not None and self._now_s() - at_s < BASE_AGE_MAX_S else None

    def remember(self, family: str, base: Base) -> None:
        """Note newer counters of a family."""
        with self._lock:
            known = self._known.get(family)
            if known is None or known[1].seq <= base.seq:
                self._known[family] = (self._now_s(), base)
            self._known.move_to_end(family)
            while len(self._known) > BASES_MAX:
                self._known.popitem(last=False)

    def forget(self, family: str) -> None:
        """Note that the log of a family does not go on from what is known of it."""
        with self._lock:
            self._known.pop(family, None)
