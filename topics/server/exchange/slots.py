"""Slots: what requests hold of the shares of those who send them (§11).

Owns the counts of requests in flight and of long polls.  Streams and watch sessions are counted where
they live, in the core.  Invariant: what a request holds is given back once, when it is closed or
becomes a stream, however it ends.
"""

from collections.abc import Callable

import msgspec

from topics.protocol.model.access import ANYONE, Caller
from topics.protocol.model.holder import NOBODY, Holder, holder_of
from topics.protocol.model.limits import Limits
from topics.protocol.model.shares import Shares
from topics.server.exchange.holders import Holders
from topics.server.exchange.interface import Head


class Slots:
    """The slots of one exchange.

    Args:
        holders: Says who sent a request.

    Attributes:
        inflight: Requests, streams not counted, by holder.
        bounds_requests: Anything bounds how many may be in flight.
        polls: Of them, those that may wait for records or jobs.
    """

    def __init__(self, limits: Limits, holders: Holders) -> None:
        self.holders = holders
        # Requests of a key are counted by `in_flight`, which can end them, too.
        self.inflight = Shares("max_inflight", 0, per_ip=limits.max_inflight_per_ip)
        self.bounds_requests = limits.max_inflight_per_ip > 0
        self.polls = Shares(
            "max_long_polls", limits.max_long_polls, per_ip=limits.max_long_polls_per_ip
        )


class Slot(msgspec.Struct, eq=False):
    """What one request holds; nothing at first.

    Attributes:
        head, header: Of the request, whose address and headers say who sent it where no key does.
    """

    _slots: Slots
    head: Head
    header: Callable[[bytes], bytes | None]
    caller: Caller = ANYONE
    _holder: Holder | None = None
    _has_request: bool = False
    _has_poll: bool = False

    @property
    def holder(self) -> Holder:
        """Who sent the request; of most it is never asked."""
        if self._holder is None:
            if self.caller.is_key:
                self._holder = holder_of(self.caller, NOBODY)
            else:
                self._holder = self._slots.holders.of(self.head.client, self.header)
        return self._holder

    def begin_request(self) -> None:
        """Raises Rejection: 429 for too many requests of this holder in flight."""
        inflight = self._slots.inflight
        if inflight.bounds(self.holder):
            inflight.require(self.holder)
            inflight.take(self.holder)
            self._has_request = True

    def begin_poll(self) -> None:
        """The request may wait for records or jobs.  Raises Rejection: 429."""
        if not self._has_poll:
            polls = self._slots.polls
            polls.require(self.holder)
            polls.take(self.holder)
            self._has_poll = True

    def close(self) -> None:
        """The request is over, or has become a stream, which is counted as one."""
        if self._has_request:
            self._has_request = False
            self._slots.inflight.give_back(self.holder)
        if self._has_poll:
            self._has_poll = False
            self._slots.polls.give_back(self.holder)
