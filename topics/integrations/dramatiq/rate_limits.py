"""`TopicsRateLimiterBackend`: counters that many processes change, each change atomic.

A change is a record of a log, and the log's order decides what came of it: every process that replays
the changes of a key up to a seq has the same counters, with the server's clock for what has expired.  So
no change needs a lock, and none is lost where two come at once.  A record also says what the counters were
at some seq before (`base`), so that a replay begins there and not at the log's beginning.

Keys that are changed together are one family: a limiter's key, and `key@SECOND` or `key@events` which limiters
of dramatiq make of it.  The tag of a record is the family, and a replay reads records of one tag.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final, Literal

import msgspec
from dramatiq.rate_limits import RateLimiterBackend

from topics.client import Client, Record, RecordNotFound, Tombstone, tag_for
from topics.integrations.dramatiq.errors import connection_errors
from topics.integrations.wire import require_namespace

DAY_MS: Final = 86_400_000
BASE_AGE_MAX_S: Final = 600.0
"""How old the counters may be that a replay begins with; records live for days."""
BASES_MAX: Final = 4096
"""Families whose counters a process remembers."""
WAIT_MS_MAX: Final = 30_000
"""The longest long poll that a server grants (§3)."""

Counters = dict[str, tuple[int, int]]
"""The value of each key, and when it expires, in milliseconds since the epoch."""


class Base(msgspec.Struct, frozen=True):
    """The counters of a family after the record `seq`; where it is not of the family, after those before."""

    seq: int
    counters: Counters


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

    def apply(self, counters: Counters, now_ms: int) -> bool:
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


_Changed = Record[Change]


class TopicsRateLimiterBackend(RateLimiterBackend):
    """Keeps counters in a topic: for rate limiters, barriers, and `GroupCallbacks`.

        backend = TopicsRateLimiterBackend(url="http://127.0.0.1:4000")
        mutex = ConcurrentRateLimiter(backend, "one-at-a-time", limit=1)

    Each change is two calls, an append and a read.  Every method raises `ConnectionClosed` where the server
    does not answer.

    Args:
        url, api_key, client: As for `TopicsBroker`.
        namespace: The topic.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        namespace: str = "dramatiq-rate-limits",
        client: Client | None = None,
    ) -> None:
        self.namespace = require_namespace(namespace)
        self.client = client or Client(url, api_key=api_key)
        self._table = self.client.table(namespace, decode=Change, compact=False, ttl_ms=DAY_MS)
        self._lock = threading.Lock()
        self._bases: OrderedDict[str, tuple[float, Base]] = OrderedDict()

    def add(self, key: str, value: int, ttl: int) -> bool:
        """Set a key unless it is there; whether it was set.  `ttl` in milliseconds."""
        return self._change(lambda base: Change(base, "add", key, value, ttl))

    def incr(self, key: str, amount: int, maximum: int, ttl: int) -> bool:
        """Add to a key unless it came above the maximum."""
        return self._change(lambda base: Change(base, "incr", key, amount, ttl, maximum))

    def decr(self, key: str, amount: int, minimum: int, ttl: int) -> bool:
        """Subtract from a key unless it came below the minimum."""
        return self._change(lambda base: Change(base, "decr", key, amount, ttl, minimum))

    def incr_and_sum(
        self, key: str, keys: Callable[[], list[str]], amount: int, maximum: int, ttl: int
    ) -> bool:
        """Add to a key unless the sum of `keys` came above the maximum.

        Raises:
            ValueError: The keys are not of one family: they differ before their last `@`.
        """
        summed = keys()
        if {family_of(each) for each in [key, *summed]} != {family_of(key)}:
            raise ValueError("keys that are summed have the same text before their last @")
        return self._change(lambda base: Change(base, "incr", key, amount, ttl, maximum, summed))

    def wait(self, key: str, timeout: int | None) -> bool:
        """Wait for `wait_notify`, at most `timeout` milliseconds; whether it was called."""
        end_s = float("inf") if timeout is None else time.monotonic() + timeout / 1000
        with connection_errors():
            self._table.keep(DAY_MS)
            base = self._base(family_of(key))
            counters = dict(base.counters)
            cursor = base.seq
            while not _has(counters, key):
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    return False
                page = self.client.diff(
                    self.namespace,
                    from_seq=cursor,
                    match=tag_for(family_of(key)),
                    wait_ms=int(min(left_s * 1000 + 1, WAIT_MS_MAX)),
                    record_type=_Changed,
                )
                cursor = page.next_from_seq
                for record in page.records:
                    record.data.apply(counters, record.ts_ms)
        return True

    def wait_notify(self, key: str, ttl: int) -> None:
        """Let all that wait for a key go on, and those that come within `ttl` milliseconds."""
        self.add(key, 1, ttl)

    # ------------------------------------------------------------------ replays

    def _change(self, change_of: Callable[[Base], Change]) -> bool:
        with connection_errors():
            change = change_of(Base(0, {}))
            family = family_of(change.key)
            self._table.keep(2 * change.ttl_ms + DAY_MS)
            base = self._base(family)
            seq = self._table.put(family, change_of(base))
            return self._replay(family, base, seq)

    def _base(self, family: str) -> Base:
        """Counters of a family that this process remembers, else the newest of the log."""
        with self._lock:
            at_s, base = self._bases.get(family, (0.0, None))
        if base is not None and time.monotonic() - at_s < BASE_AGE_MAX_S:
            return base
        state = self.client.topic(self.namespace, touch=False)
        try:
            newest = self.client.latest(self.namespace, tag_for(family), record_type=_Changed)
        except RecordNotFound:
            return Base(state.head_seq, {})  # the head was read first: no change is before it
        ttl_ms = state.config.ttl_ms
        if ttl_ms and time.time() * 1000 - newest.ts_ms > ttl_ms - DAY_MS // 2:
            # Whatever was counted then has expired, and the records before it may be gone.
            return Base(newest.seq, {})
        self._replay(family, newest.data.base, newest.seq)
        with self._lock:
            return self._bases[family][1]

    def _replay(self, family: str, base: Base, last_seq: int) -> bool:
        """Apply the changes after a base, up to a seq; whether the change at that seq was granted."""
        counters = dict(base.counters)
        for record in self._changes(family, base.seq):
            granted = record.data.apply(counters, record.ts_ms)
            if record.seq == last_seq:
                self._remember(family, Base(last_seq, counters))
                return granted
        self._forget(family)
        raise RuntimeError(f"record {last_seq} of {self.namespace} is lost")

    def _changes(self, family: str, after_seq: int) -> Iterable["Record[Change]"]:
        tag = tag_for(family)
        for item in self.client.read(
            self.namespace, from_seq=after_seq, match=tag, record_type=_Changed
        ):
            if isinstance(item, Tombstone):
                self._forget(family)
                raise RuntimeError(f"records of {self.namespace} are lost: {item}")
            yield item

    def _remember(self, family: str, base: Base) -> None:
        with self._lock:
            known = self._bases.get(family)
            if known is None or known[1].seq <= base.seq:
                self._bases[family] = (time.monotonic(), base)
            self._bases.move_to_end(family)
            while len(self._bases) > BASES_MAX:
                self._bases.popitem(last=False)

    def _forget(self, family: str) -> None:
        with self._lock:
            self._bases.pop(family, None)


def family_of(key: str) -> str:
    """The part of a key before its last `@`."""
    return key.rpartition("@")[0] or key


def _has(counters: Counters, key: str) -> bool:
    return key in counters and counters[key][1] > time.time() * 1000
