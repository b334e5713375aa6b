"""`TopicsBackend`: results of dramatiq in a table of the client's, by the key of their message.

A result expires with its own `ttl`.  A caller that blocks waits by a long poll, and does not look again and again.
"""

import time
from typing import Any, Final

import msgspec
from dramatiq.encoder import Encoder
from dramatiq.results import Missing, ResultBackend, ResultMissing, ResultTimeout
from dramatiq.results.backend import DEFAULT_TIMEOUT

from topics.client import Client, Record
from topics.integrations.dramatiq.errors import connection_errors
from topics.integrations.wire import from_data, require_namespace, to_data

FIRST_TTL_MS: Final = 86_400_000
"""How long a topic that is created keeps results; longer, where one is to be kept for longer."""


class TopicsBackend(ResultBackend):
    """Keeps results in a topic.

        broker.add_middleware(Results(backend=TopicsBackend(url="http://127.0.0.1:4000")))

    Args:
        url, api_key, client: As for `TopicsBroker`.
        namespace: The topic, and what keys of results begin with.
        encoder, use_namespace_prefix_keys: As for any result backend of dramatiq.
    """

    def __init__(
        self,
        *,
        url: str | None = None,
        api_key: str | None = None,
        namespace: str = "dramatiq-results",
        encoder: Encoder | None = None,
        use_namespace_prefix_keys: bool = False,
        client: Client | None = None,
    ) -> None:
        super().__init__(
            namespace=require_namespace(namespace),
            encoder=encoder,
            use_namespace_prefix_keys=use_namespace_prefix_keys,
        )
        self.client = client or Client(url, api_key=api_key)
        self._table = self.client.table(namespace, decode=msgspec.Raw, ttl_ms=FIRST_TTL_MS)

    def get_result(self, message: Any, *, block: bool = False, timeout: int | None = None) -> Any:
        """The result of a message.

        Args:
            block: Wait for it.
            timeout: For so long, in milliseconds; by default 10 seconds.

        Raises:
            ResultMissing: It is not there, and the call does not block.
            ResultTimeout: It was not there in time.
            ResultFailure: The actor raised an exception.
            ConnectionClosed: The server did not answer.
        """
        key = self.build_message_key(message)
        timeout_s = (DEFAULT_TIMEOUT if timeout is None else timeout) / 1000
        with connection_errors():
            found = self._wait(key, time.monotonic() + timeout_s) if block else self._get(key)
        if found is Missing:
            raise ResultTimeout(message) if block else ResultMissing(message)
        return self.unwrap_result(found)  # type: ignore[no-untyped-call]

    def _wait(self, key: str, end_s: float) -> Any:
        """A result that is there, or is stored in time; Missing where none is."""
        changes = self._table.changes([key])
        found = changes.next(0)
        while not found and (left_s := end_s - time.monotonic()) > 0:
            found = changes.next(int(left_s * 1000) + 1)
        return self._decoded(found[key]) if found else Missing

    def _get(self, message_key: str) -> Any:
        with connection_errors():
            found = self._table.get(message_key)
        return Missing if found is None else self._decoded(found)

    def _decoded(self, record: "Record[msgspec.Raw]") -> Any:
        return self.encoder.decode(from_data(record.data))

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        with connection_errors():
            self._table.put(message_key, to_data(self.encoder.encode(result)), ttl_ms=ttl)
