"""Chunks to a server: appended under keys, known again after the keys are forgotten.

Owns one task's way to the server.  A refusal that names a time (429, 503) is obeyed, for as long as
`retryFor` says.
"""

from collections.abc import Iterable, Mapping
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
from topics.protocol.model.names import partition_name
from topics.spark.chunks import Chunk
from topics.spark.errors import SparkFailure, url_checked
from topics.spark.options import WriteOptions
from topics.spark.transactions import Known, stamps

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


def epoch_of(client: Client, topic: str) -> str:
    """The instance of a topic; empty where there is none."""
    try:
        return client.topic(topic, touch=False).epoch or ""
    except TopicNotFound:
        return ""


def require_window(client: Client, topic: str, window_ms: int, *, is_needed: bool) -> str:
    """Make a topic remember keys for at least a time; its other settings stay.  Returns its epoch.

    Raises:
        SparkFailure: The key may not change it, and a replay would depend on it.
    """
    epoch = ""
    try:
        try:
            state = client.topic(topic, touch=False)
            epoch = state.epoch or ""
            if state.config.idempotency_window_ms < window_ms:
                client.configure_topic(topic, idempotency_window_ms=window_ms)
        except TopicNotFound:
            client.put_topic(topic, idempotency_window_ms=window_ms)
            epoch = epoch_of(client, topic)
    except Forbidden:
        if is_needed:
            raise SparkFailure(
                f'topic "{topic}" must remember idempotency keys for {window_ms} ms, and the key '
                "may not set that: set its idempotency_window_ms, give the key the scope admin, or "
                "lower the option minIdempotencyWindow"
            ) from None
    return epoch


@dataclass(slots=True)
class Written:
    """What came of chunks.

    Attributes:
        rows: By topic.
        deduped: Rows that had been appended before.
        skipped: Rows to topics that have the version as a whole; no other field counts them.
        heads: Partition of a topic (`partition_name`) -> the greatest last seq of an append.
        epochs: Topic -> the instance that was appended to.
    """

    rows: dict[str, int] = field(default_factory=dict)
    deduped: int = 0
    skipped: int = 0
    heads: dict[str, int] = field(default_factory=dict)
    epochs: dict[str, str] = field(default_factory=dict)

    def add(self, other: "Written") -> None:
        for topic, rows in other.rows.items():
            self.rows[topic] = self.rows.get(topic, 0) + rows
        self.deduped += other.deduped
        self.skipped += other.skipped
        for topic, seq in other.heads.items():
            self.heads[topic] = max(seq, self.heads.get(topic, 0))
        self.epochs.update(other.epochs)


@dataclass(frozen=True, slots=True)
class _Target:
    """What a sink knows of a topic.

    Attributes:
        is_done: It has the version as a whole.
        present: The chunks (part, name) that it has, where their keys may be forgotten, and their rows.
    """

    epoch: str
    is_done: bool = False
    present: Mapping[tuple[int, str], int] = field(default_factory=dict)


class Sink:
    """Appends the chunks of one version of an application."""

    def __init__(
        self, client: Client, options: WriteOptions, app: str, version: int, known: Known | None
    ) -> None:
        """
        Args:
            known: What the application has written; None: the version is this try's own.
        """
        self._client = client
        self._options = options
        self._app, self._version = app, version
        self._known = known
        self._targets: dict[str, _Target] = {}

    def send(self, chunks: Iterable[Chunk], part: int) -> Written:
        """*Blocking.* Append what is not there yet.

        Raises:
            SparkFailure: The server refuses a chunk by its size, or must not forget keys so soon.
            TopicsError: It refused otherwise, or could not be reached, until the retries ended.
        """
        written = Written()
        for chunk in chunks:
            target = self._target(chunk.topic)
            if target.is_done:
                written.skipped += len(chunk.rows)
                continue
            written.epochs[chunk.topic] = target.epoch
            written.rows[chunk.topic] = written.rows.get(chunk.topic, 0) + len(chunk.rows)
            if self._append(chunk, part, target, written) < len(chunk.rows):
                # The query was changed since its first try: none of the rows is lost, some are twice.
                self._append(chunk.again(), part, target, written)
        return written

    def _target(self, topic: str) -> _Target:
        if topic not in self._targets:
            self._targets[topic] = self._looked_at(topic)
        return self._targets[topic]

    def _looked_at(self, topic: str) -> _Target:
        known, window_ms = self._known, self._options.window_ms
        epoch = require_window(self._client, topic, window_ms, is_needed=known is not None)
        if known is None:
            return _Target(epoch)
        standing = known.standing(topic, epoch, self._version)
        # Half of the window, because clocks differ and a batch takes its time.
        if standing.is_done or now_ms() - standing.since_ms <= window_ms // 2:
            return _Target(epoch, standing.is_done)
        found = stamps(self._client, topic, self._app, self._version, standing.since_ms)
        return _Target(epoch, present=found)

    def _append(self, chunk: Chunk, part: int, target: _Target, written: Written) -> int:
        """Append a chunk that is not there yet; how many rows are there under its name."""
        size = len(chunk.rows)
        there = target.present.get((part, chunk.name), 0)
        if there:
            written.deduped += size if there >= size else 0
            return there
        records = chunk.records(self._app, self._version, part)
        key = key_of(self._app, self._version, part, chunk.name)
        try:
            call = append_batch(chunk.topic, records, key, AppendWriteOptions())
            appended = self._client.session.do(call)
        except (BatchTooLarge, PayloadTooLarge) as error:
            raise SparkFailure(f"{error}; lower the option chunkRecords or chunkBytes") from None
        there = appended.count
        if appended.deduped:
            written.deduped += size if there >= size else 0
        ends = {partition_name(chunk.topic, p.partition): p.last_seq for p in appended.partitions}
        for name, last_seq in (ends or {chunk.topic: appended.last_seq}).items():
            written.heads[name] = max(written.heads.get(name, 0), last_seq)
        return there
