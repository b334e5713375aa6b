"""`Log`: a topic of records that are looked up by their tag, and kept for as long as the longest was asked to be.

Owns the topic's `ttl_ms`, which it raises where a record is to be kept for longer, and never lowers.
"""

from typing import Any, Final

from topics.client import Client, Config, NewRecord, TopicNotFound

FIRST_TTL_MS: Final = 86_400_000
"""How long a log that is created keeps its records; more, where more is asked for."""
FOREVER_MS: Final = 2**63


class Log:
    """A topic, created when it is first used.

    Attributes:
        ttl_ms: How long it keeps records, as far as this process knows; 0 before the first `keep`.
    """

    def __init__(self, client: Client, topic: str) -> None:
        self.client = client
        self.topic = topic
        self.ttl_ms = 0

    def keep(self, ttl_ms: int) -> None:
        """Have the topic keep records for so long, or longer."""
        while self.ttl_ms < ttl_ms:
            try:
                state = self.client.topic(self.topic, touch=False)
            except TopicNotFound:
                # An append creates a topic or changes nothing; a `PUT` could undo the config of another process.
                first: Config = {"ttl_ms": max(ttl_ms, FIRST_TTL_MS), "durability": "disk"}
                self.client.append(self.topic, None, config=first)
                continue
            kept_ms = state.config.ttl_ms or FOREVER_MS
            if kept_ms < ttl_ms:
                self.client.configure_topic(self.topic, ttl_ms=ttl_ms)
            else:
                self.ttl_ms = kept_ms

    def append(self, data: Any, tag: str, **meta: Any) -> int:
        """Append a record, exactly once; its seq."""
        return self.client.append(self.topic, NewRecord(data, tag=tag, meta=meta or None)).first_seq
