"""`TopicsBackend`: results of dramatiq as records of a log, tagged with the key of their message.

A result expires with its own `ttl`, which its `meta` says; the log keeps its records for as long as the
longest of them.  A caller that blocks waits by a long poll, and does not look again and again.
"""

import time
from typing import Any, Final

import msgspec
from dramatiq.encoder import Encoder
from dramatiq.results import Missing, ResultBackend, ResultMissing, ResultTimeout
from dramatiq.results.backend import DEFAULT_TIMEOUT

from topics.client import Client, Record, RecordNotFound, TopicNotFound
from topics.integrations.dramatiq.errors import connection_errors
from topics.integrations.dramatiq.log import Log
from topics.integrations.wire import from_data, require_namespace, tag_for, to_data

WAIT_MS_MAX: Final = 30_000
"""The longest long poll that a server grants (§3)."""

_Kept = Record[msgspec.Raw]


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
        self._log = Log(self.client, namespace)

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
        found = self._get(key)
        if found is Missing and block:
            with connection_errors():
                found = self._wait(key, time.monotonic() + timeout_s)
        if found is Missing:
            raise ResultTimeout(message) if block else ResultMissing(message)
        return self.unwrap_result(found)  # type: ignore[no-untyped-call]

    def _get(self, message_key: str) -> Any:
        with connection_errors():
            try:
                record = self.client.latest(self.namespace, tag_for(message_key), record_type=_Kept)
            except (RecordNotFound, TopicNotFound):
                return Missing
        return self._result_of(record)

    def _wait(self, key: str, end_s: float) -> Any:
        """A result that is stored from now on, or was since `get_result` looked; Missing in time."""
        self._log.keep(1)
        cursor = self.client.topic(self.namespace, touch=False).head_seq
        found = self._get(key)  # from here on none is missed: the log is read after its head
        while found is Missing and (left_s := end_s - time.monotonic()) > 0:
            page = self.client.diff(
                self.namespace,
                from_seq=cursor,
                match=tag_for(key),
                wait_ms=min(int(left_s * 1000) + 1, WAIT_MS_MAX),
                record_type=_Kept,
            )
            cursor = page.next_from_seq
            if page.records:
                found = self._result_of(page.records[-1])
        return found

    def _store(self, message_key: str, result: Any, ttl: int) -> None:
        with connection_errors():
            self._log.keep(ttl)
            data = to_data(self.encoder.encode(result))
            self._log.append(data, tag_for(message_key), ttl_ms=ttl)

    def _result_of(self, record: "Record[msgspec.Raw]") -> Any:
        ttl_ms = (record.meta or {}).get("ttl_ms", 0)
        if record.ts_ms + ttl_ms <= time.time() * 1000:
            return Missing
        return self.encoder.decode(from_data(record.data))
