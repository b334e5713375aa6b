"""A broker, a result backend and a rate limiter backend for dramatiq.

    import dramatiq
    from topics.integrations.dramatiq import TopicsBroker

    dramatiq.set_broker(TopicsBroker(url="http://127.0.0.1:4000"))

- `broker`: `TopicsBroker`, which appends messages as jobs of queues.
- `consumer`: what a worker reads messages from: claims, the leases of messages in hand, acks.
- `results`, `rate_limits`: `TopicsBackend` and `TopicsRateLimiterBackend`, each over a log (`log`).
- `errors`: errors of the client as errors of dramatiq; `..wire`: messages as records, names of topics.

All of it uses the public client and the public API of dramatiq.  The extra is `dramatiq`.
"""

from topics.distribution import needs

with needs("dramatiq", of="topics.integrations.dramatiq"):
    import dramatiq as _dramatiq  # noqa: F401

from topics.integrations.dramatiq.broker import TopicsBroker
from topics.integrations.dramatiq.rate_limits import TopicsRateLimiterBackend
from topics.integrations.dramatiq.results import TopicsBackend

__all__ = ["TopicsBackend", "TopicsBroker", "TopicsRateLimiterBackend"]
