"""`TopicsRateLimiterBackend`: rate limiters and barriers of dramatiq over counters of the client's.

Limiters make of a key `key@SECOND` and `key@events`; the client's counters change such keys together.
"""

from collections.abc import Callable

from dramatiq.rate_limits import RateLimiterBackend

from topics.client import Client
from topics.integrations.dramatiq.errors import connection_errors
from topics.integrations.wire import require_namespace


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
        self._counters = self.client.counters(namespace)

    def add(self, key: str, value: int, ttl: int) -> bool:
        """Set a key unless it is there; whether it was set.  `ttl` in milliseconds."""
        with connection_errors():
            return self._counters.add(key, value, ttl_ms=ttl)

    def incr(self, key: str, amount: int, maximum: int, ttl: int) -> bool:
        """Add to a key unless it came above the maximum."""
        with connection_errors():
            return self._counters.increment(key, amount, maximum=maximum, ttl_ms=ttl)

    def decr(self, key: str, amount: int, minimum: int, ttl: int) -> bool:
        """Subtract from a key unless it came below the minimum."""
        with connection_errors():
            return self._counters.decrement(key, amount, minimum=minimum, ttl_ms=ttl)

    def incr_and_sum(
        self, key: str, keys: Callable[[], list[str]], amount: int, maximum: int, ttl: int
    ) -> bool:
        """Add to a key unless the sum of `keys` came above the maximum.

        Raises:
            ValueError: The keys are not of one family: they differ before their last `@`.
        """
        summed = keys()
        with connection_errors():
            return self._counters.increment(key, amount, maximum=maximum, ttl_ms=ttl, sum_of=summed)

    def wait(self, key: str, timeout: int | None) -> bool:
        """Wait for `wait_notify`, at most `timeout` milliseconds; whether it was called."""
        with connection_errors():
            return self._counters.wait(key, None if timeout is None else timeout / 1000)

    def wait_notify(self, key: str, ttl: int) -> None:
        """Let all that wait for a key go on, and those that come within `ttl` milliseconds."""
        self.add(key, 1, ttl)
