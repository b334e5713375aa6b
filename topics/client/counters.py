# Generated from aiocounters.py by topics/client/_generate.py; do not edit, run `make generate`.
"""`Counters`: counters that many processes change, each change atomic; `Client.counters` makes them.

Each change is two calls, an append and a read; `counter_state` says what comes of it.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import msgspec

from topics.client import endpoints, paging
from topics.client.counter_state import Base, Bases, Change, Values, family_of
from topics.client.endpoints import WAIT_MS_MAX
from topics.client.errors import RecordNotFound
from topics.client.models import Record, Tombstone
from topics.client.names import tag_for
from topics.client.options import Config, DiffOptions
from topics.client.session import Session
from topics.client.table import Table, now_ms

DAY_MS: Final = 86_400_000
_START: Final = Base(0, {})
_Changed = Record[Change]


class Counters:
    """Counters of a topic, for limits, locks and barriers over any number of machines.

        logins = client.counters("logins")
        if logins.increment("ada", maximum=5, ttl_ms=60_000):     # at most five a minute
            ...

    A key is there for the `ttl_ms` of its last change that was granted, by the server's clock.

    Raises:
        RuntimeError: By any change: records of the topic were lost, or it was deleted and made again.  The next change
            begins with what is there.
    """

    def __init__(self, session: Session, topic: str, now_ms: Callable[[], float] = now_ms) -> None:
        self.topic = topic
        self._session = session
        self._now_ms = now_ms
        config: Config = {"compact": False, "ttl_ms": DAY_MS}
        self._table: Table[Change] = Table(session, topic, _Changed, config)
        self._bases = Bases()

    def add(self, key: str, value: int = 1, *, ttl_ms: int) -> bool:
        """Set a key unless it is there; whether it was set."""
        return self._change(Change(_START, "add", key, value, ttl_ms))

    def increment(
        self,
        key: str,
        amount: int = 1,
        *,
        maximum: int,
        ttl_ms: int,
        sum_of: Sequence[str] = (),
    ) -> bool:
        """Add to a key unless it came above the maximum; whether it was added.

        Args:
            sum_of: Keys whose values, and the amount, may together be at most the maximum, too.

        Raises:
            ValueError: The keys are not of one family: they differ before their last `@`.
        """
        if {family_of(each) for each in (key, *sum_of)} != {family_of(key)}:
            raise ValueError("keys that are summed have the same text before their last @")
        summed = list(sum_of) or None
        return self._change(Change(_START, "incr", key, amount, ttl_ms, maximum, summed))

    def decrement(self, key: str, amount: int = 1, *, minimum: int = 0, ttl_ms: int) -> bool:
        """Subtract from a key unless it came below the minimum; whether it was subtracted."""
        return self._change(Change(_START, "decr", key, amount, ttl_ms, minimum))

    def wait(self, key: str, timeout_s: float | None = None) -> bool:
        """Wait until a key is there; whether it was within the timeout."""
        end_s = float("inf") if timeout_s is None else time.monotonic() + timeout_s
        self._table.keep(DAY_MS)
        base = self._base(family_of(key))
        counters = dict(base.counters)
        cursor = base.seq
        while not self._has(counters, key):
            left_s = end_s - time.monotonic()
            if left_s <= 0:
                return False
            options: DiffOptions = {
                "from_seq": cursor,
                "match": ("tag", "Eq", tag_for(family_of(key))),
                "wait_ms": int(min(left_s * 1000 + 1, WAIT_MS_MAX)),
            }
            page = self._session.do(endpoints.diff(self.topic, _Changed, options))
            cursor = page.next_from_seq
            for record in page.records:
                record.data.apply(counters, record.ts_ms)
        return True

    def _has(self, counters: Values, key: str) -> bool:
        return key in counters and counters[key][1] > self._now_ms()

    # ------------------------------------------------------------------ replays

    def _change(self, change: Change) -> bool:
        family = family_of(change.key)
        self._table.keep(2 * change.ttl_ms + DAY_MS)
        base = self._base(family)
        seq = self._table.put(family, msgspec.structs.replace(change, base=base))
        granted, _ = self._replay(family, base, seq)
        return granted

    def _base(self, family: str) -> Base:
        """Counters of a family that this process remembers, else the newest of the log."""
        known = self._bases.get(family)
        if known is not None:
            return known
        state = self._session.do(endpoints.topic(self.topic, touch=False))
        try:
            call = endpoints.latest(self.topic, _Changed, tag=tag_for(family))
            (newest,) = (self._session.do(call)).records
        except RecordNotFound:
            return Base(state.head_seq, {})  # the head was read first: no change is before it
        ttl_ms = state.config.ttl_ms
        if ttl_ms and self._now_ms() - newest.ts_ms > ttl_ms - DAY_MS // 2:
            # Whatever was counted then has expired, and the records before it may be gone.
            return Base(newest.seq, {})
        _, base = self._replay(family, newest.data.base, newest.seq)
        return base

    def _replay(self, family: str, base: Base, last_seq: int) -> tuple[bool, Base]:
        """Apply the changes after a base, up to a seq; whether the change at that seq was granted, and the base then."""
        counters = dict(base.counters)
        for record in self._changes(family, base.seq):
            granted = record.data.apply(counters, record.ts_ms)
            if record.seq == last_seq:
                known = Base(last_seq, counters)
                self._bases.remember(family, known)
                return granted, known
        self._bases.forget(family)
        raise RuntimeError(f"record {last_seq} of {self.topic} is lost")

    def _changes(self, family: str, after_seq: int) -> "Iterator[Record[Change]]":
        match = ("tag", "Eq", tag_for(family))
        pages = paging.RecordPages(self.topic, _Changed, from_seq=after_seq, match=match)
        for item in self._session.items(pages):
            if isinstance(item, Tombstone):
                self._bases.forget(family)
                raise RuntimeError(f"records of {self.topic} are lost: {item}")
            yield item
