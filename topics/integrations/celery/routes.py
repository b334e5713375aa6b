"""`Routes`: the bindings of all exchanges, in one compacted log that every process follows.

A queue that belongs to one consumer (exclusive, or deleted with it and not durable) is not kept at
the server at all: its consumer reads the log of the exchange from where it was when it was bound.
So a process that is killed leaves nothing behind.  That an exchange has such readers is a binding,
too, of the queue "".
"""

import re
import threading
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

from topics.client import Client, Record, TopicNotFound

LOG_CONFIG: Final[Any] = {"ttl_ms": 300_000, "cap_records": 100_000, "durability": "memory"}
"""Of the log of an exchange: as long as a remote control command may be read late."""

TAG_CHARS_MAX: Final = 60
"""Of a routing key, in the tag of its record: any 60 characters are within the server's 256 bytes.  The server
leaves out what cannot match, and the reader compares whole keys."""
_WORDS: Final = {"*": r"\.[^.]*", "#": r"(\.[^.]*)*"}
"""What stands for one word of a routing key, and for any number of them, each with the dot before it."""


def matches(kind: str, bound: str, routing_key: str) -> bool:
    """Whether an exchange of a kind sends what has a routing key to what is bound with a key."""
    if kind == "topic":
        return _pattern(bound).fullmatch(f".{routing_key}") is not None
    return kind == "fanout" or bound == routing_key


@lru_cache(maxsize=1000)
def _pattern(bound: str) -> re.Pattern[str]:
    words = (_WORDS.get(word) or rf"\.{re.escape(word)}" for word in bound.split("."))
    return re.compile("".join(words))


class Routes:
    """Bindings, as of the last look; `find` looks first, so that no binding is missed."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client, self._topic = client, topic
        self._lock = threading.Lock()
        self._bound: dict[str, dict[tuple[str, str], bool]] = {}
        self._cursor, self._epoch = 0, ""

    def find(self, exchange: str, routing_key: str, kind: str) -> set[str]:
        """Queues that get a message; "" stands for the log of the exchange."""
        return {
            queue
            for queue, bound in self.bindings(exchange)
            if not queue or matches(kind, bound, routing_key)
        }

    def bindings(self, exchange: str) -> list[tuple[str, str]]:
        """Queues of an exchange and the keys that they are bound with."""
        with self._lock:
            self._refresh()
            return list(self._bound.get(exchange, ()))

    @property
    def exchanges(self) -> list[str]:
        """Exchanges that have ever had a binding."""
        with self._lock:
            self._refresh()
            return list(self._bound)

    def bind(self, exchange: str, queue: str, routing_key: str) -> None:
        """Add a binding; one that is there stays."""
        if (queue, routing_key) not in self.bindings(exchange):
            self._write(exchange, queue, routing_key, is_bound=True)

    def unbind(self, exchange: str, queue: str, routing_key: str) -> None:
        """Remove a binding."""
        if (queue, routing_key) in self.bindings(exchange):
            self._write(exchange, queue, routing_key, is_bound=False)

    def unbind_queue(self, queue: str) -> None:
        """Remove all bindings of a queue."""
        for exchange in self.exchanges:
            for bound, routing_key in self.bindings(exchange):
                if bound == queue:
                    self.unbind(exchange, queue, routing_key)

    def _write(self, exchange: str, queue: str, routing_key: str, *, is_bound: bool) -> None:
        names = "\0".join((exchange, queue, routing_key))
        data = {"exchange": exchange, "queue": queue, "routing_key": routing_key, "bound": is_bound}
        tag = blake2b(names.encode(), digest_size=16).hexdigest()
        self._client.append(self._topic, data, tag=tag, config={"compact": True})

    def _refresh(self) -> None:
        is_behind = True
        while is_behind:
            try:
                page = self._client.diff(
                    self._topic,
                    from_seq=self._cursor,
                    epoch=self._epoch or None,
                    record_type=Record[dict[str, Any]],
                )
            except TopicNotFound:
                self._bound, self._cursor, self._epoch = {}, 0, ""
                return
            if page.tombstone and page.tombstone.reason == "recreated":
                self._bound = {}
            for record in page.records:
                self._apply(**record.data)
            self._cursor, self._epoch = page.next_from_seq, page.epoch or ""
            is_behind = not page.caught_up

    def _apply(self, *, exchange: str, queue: str, routing_key: str, bound: bool) -> None:
        table = self._bound.setdefault(exchange, {})
        if bound:
            table[queue, routing_key] = True
        else:
            table.pop((queue, routing_key), None)
