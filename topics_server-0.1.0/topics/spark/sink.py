"""Chunks to a server: appended under keys, known again after the keys are forgotten.

Owns one task's way to the server.  A refusal that names a time (429, 503) is obeyed, for as long as
`retryFor` says.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from topics.arrow.source import now_ms
from topics.client import (
    BatchTooLarge,
    Client,
    Forbidden,
    PayloadTooLarge,
    Retry,
    TopicNotFound,
)
from topics.client.endpoints import append_batch
from topics.client.options import WriteOptions as AppendWriteOptions
from topics.spark.chunks import Chunk
from topics.spark.errors import SparkFailure, url_checked
from topics.spark.options import WriteOptions
from topics.spark.transactions import stamps

KEY_CHARS_MAX: Final = 256
"""§0.8."""


def client_of(options: WriteOptions) -> Client:
    retry = Retry(for_s=options.retry_for_s)
    with url_checked():
        return Client(options.place.url, api_key=options.place.api_key, retry=retry)


def key_of(app: str, version: int, part: int, name: str) -> str:
    """The idempotency key of a chunk."""
    key = f"spark:{app}:{version}:{part}:{name}"
    if len(key) > KEY_CHARS_MAX:
        key = f"spark:{blake2b(key.encode(), digest_size=32).hexdigest()}"
    return key


def require_window(client: Client, topic: str, window_ms: int, *, is_needed: bool) -> None:
    """Make a topic remember keys for at least a time; its other settings stay.

    Raises:
        SparkFailure: The key may not change it, and a replay would depend on it.
    """
    try:
        try:
            config = client.topic(topic, touch=False).config
            if config.idempotency_window_ms < window_ms:
                client.configure_topic(topic, idempotency_window_ms=window_ms)
        except TopicNotFound:
            client.put_topic(topic, idempotency_window_ms=window_ms)
    except Forbidden:
        if is_needed:
            raise SparkFailure(
                f'topic "{topic}" must remember idempotency keys for {window_ms} ms, and the key '
                "may not set that: set its idempotency_window_ms, give the key the scope admin, or "
                "lower the option minIdempotencyWindow"
            ) from None


@dataclass(slots=True)
class Written:
    """What came of chunks.

    Attributes:
        heads: Topic -> the greatest last seq of an append.
        deduped: Rows that had been appended before.
    """

    rows: int = 0
    deduped: int = 0
    heads: dict[str, int] = field(default_factory=dict)

    def add(self, other: "Written") -> None:
        self.rows += other.rows
        self.deduped += other.deduped
        for topic, seq in other.heads.items():
            self.heads[topic] = max(seq, self.heads.get(topic, 0))


class Sink:
    """Appends the chunks of one version of an application."""

    def __init__(
        self, client: Client, options: WriteOptions, app: str, version: int, since_ms: int | None
    ) -> None:
        """
        Args:
            since_ms: When this version may first have been tried, the server's time; None: the
                version is this try's own.
        """
        self._client = client
        self._options = options
        self._app, self._version = app, version
        # Half of the window, because clocks differ and a batch takes its time.
        is_late = since_ms is not None and now_ms() - since_ms > options.window_ms // 2
        self._scan_ms = since_ms if is_late else None
        self._is_transaction = since_ms is not None
        self._present: dict[str, set[tuple[int, str]]] = {}

    def send(self, chunks: Iterable[Chunk], part: int) -> Written:
        """*Blocking.* Append what is not there yet.

        Raises:
            SparkFailure: The server refuses a chunk by its size, or must not forget keys so soon.
            TopicsError: It refused otherwise, or could not be reached, until the retries ended.
        """
        written = Written()
        for chunk in chunks:
            if self._is_present(chunk, part):
                written.rows += len(chunk.rows)
                written.deduped += len(chunk.rows)
            else:
                self._append(chunk, part, written)
        return written

    def _is_present(self, chunk: Chunk, part: int) -> bool:
        if chunk.topic not in self._present:
            require_window(
                self._client, chunk.topic, self._options.window_ms, is_needed=self._is_transaction
            )
            self._present[chunk.topic] = (
                set()
                if self._scan_ms is None
                else stamps(self._client, chunk.topic, self._app, self._version, self._scan_ms)
            )
        return (part, chunk.name) in self._present[chunk.topic]

    def _append(self, chunk: Chunk, part: int, written: Written) -> None:
        records = chunk.records(self._app, self._version, part)
        key = key_of(self._app, self._version, part, chunk.name)
        try:
            call = append_batch(chunk.topic, records, key, AppendWriteOptions())
            appended = self._client.session.do(call)
        except (BatchTooLarge, PayloadTooLarge) as error:
            raise SparkFailure(f"{error}; lower the option chunkRecords or chunkBytes") from None
        written.rows += len(records)
        if appended.deduped:
            written.deduped += len(records)
        head = written.heads.get(chunk.topic, 0)
        written.heads[chunk.topic] = max(head, appended.last_seq)
