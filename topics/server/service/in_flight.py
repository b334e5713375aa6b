"""Requests of each key that are not answered yet (§11).

Owns who they are, so that a key has no more of them than it may, and so that those which wait can be
ended when the key is removed.  A server without keys counts none.
"""

from collections.abc import Mapping
from typing import Generic, TypeVar

from topics.protocol.model.access import Caller
from topics.protocol.model.limits import throttled

R = TypeVar("R")


class InFlight(Generic[R]):
    """By caller.

    Args:
        limit: Of one key; 0: none.

    Attributes:
        elsewhere: How many of each key are in flight in the other processes of this server, by the
            key's name, as far as it is known.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self.elsewhere: Mapping[str, int] = {}
        self._requests: dict[Caller, dict[R, None]] = {}

    def enter(self, caller: Caller, request: R) -> None:
        """Count a request until it leaves.  Raises Rejection: 429."""
        if not caller.is_key:
            return
        requests = self._requests.setdefault(caller, {})
        count = len(requests) + self.elsewhere.get(caller.name, 0)
        if self._limit and count >= self._limit:
            if not requests:
                del self._requests[caller]
            raise throttled("max_inflight_per_key", self._limit)
        requests[request] = None

    def leave(self, caller: Caller, request: R) -> None:
        """It is over; it may have left before."""
        requests = self._requests.get(caller)
        if requests is not None:
            requests.pop(request, None)
            if not requests:
                del self._requests[caller]

    def counts(self) -> dict[str, int]:
        """How many are in flight here, by the key's name."""
        return {caller.name: len(requests) for caller, requests in self._requests.items()}

    def of(self, caller: Caller) -> list[R]:
        return list(self._requests.get(caller, ()))
