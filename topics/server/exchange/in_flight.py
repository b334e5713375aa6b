"""Requests of each key that are not answered yet (§11).

Owns who they are, so that a key has no more of them than it may, and so that those which wait can be
ended when the key is removed.  A server without keys counts none.
"""

from typing import Generic, TypeVar

from topics.protocol.model.access import Caller
from topics.protocol.model.limits import throttled

R = TypeVar("R")


class InFlight(Generic[R]):
    """By caller.

    Args:
        limit: Of one key; 0: none.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._requests: dict[Caller, dict[R, None]] = {}

    def enter(self, caller: Caller, request: R) -> None:
        """Count a request until it leaves.  Raises Rejection: 429."""
        if not caller.is_key:
            return
        requests = self._requests.setdefault(caller, {})
        if self._limit and len(requests) >= self._limit:
            raise throttled("max_inflight_per_key", self._limit)
        requests[request] = None

    def leave(self, caller: Caller, request: R) -> None:
        """It is over; it may have left before."""
        requests = self._requests.get(caller)
        if requests is not None:
            requests.pop(request, None)
            if not requests:
                del self._requests[caller]

    def of(self, caller: Caller) -> list[R]:
        return list(self._requests.get(caller, ()))
