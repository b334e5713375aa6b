"""`df.write` and `df.writeStream`: tasks append or stage chunks, the driver marks what is done.

Owns the order that makes a replay harmless: every chunk is in before the marker says so, and a
version that the marker has is not written again.
"""

import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from topics.client import Client
from topics.spark import staging
from topics.spark.chunks import Chunk, chunks
from topics.spark.encoding import columns_of, is_sourced
from topics.spark.errors import BadOption, explained
from topics.spark.options import WriteOptions
from topics.spark.sink import Sink, Written, client_of, require_window
from topics.spark.transactions import NONE, Known, Marker, find, put

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"

log: Final = logging.getLogger(__name__)


def refuse_overwrite(overwrite: bool) -> None:
    """Raises BadOption: A topic is appended to, and never replaced by a write."""
    if overwrite:
        raise BadOption('a topic is appended to: use .mode("append"); `topics` deletes and purges')


@dataclass
class Message(WriterCommitMessage):
    """What a task tells the driver.

    Attributes:
        is_skipped: The version was written before.
        staged: The file with its chunks, of a staged write.
    """

    app: str
    version: int
    is_skipped: bool = False
    written: Written = field(default_factory=Written)
    staged: str | None = None


class _Writing:
    """What both writers do; pickled into every task."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self._options = options
        self._columns = columns_of(schema, options)
        self._is_sourced = is_sourced(schema)

    def _chunks(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Chunk]:
        return chunks(
            (row for batch in batches for row in self._columns.rows(batch)),
            most_records=self._options.chunk_records,
            most_bytes=self._options.chunk_bytes,
            is_sourced=self._is_sourced,
        )

    def _home(self, app: str, version: int) -> Path:
        assert self._options.staging_dir is not None
        return staging.folder(self._options.staging_dir, app, version)

    def _write_part(
        self, batches: Iterator[pa.RecordBatch], app: str, version: int, since_ms: int | None
    ) -> Message:
        """Append, or stage, one task's rows."""
        context: Any = TaskContext.get()
        part, attempt = context.partitionId(), context.taskAttemptId()
        if self._options.mode == "staged":
            name, rows = staging.spool(
                self._home(app, version), part, attempt, self._chunks(batches)
            )
            return Message(app, version, written=Written(rows), staged=name)
        with client_of(self._options) as client:
            sink = Sink(client, self._options, app, version, since_ms)
            return Message(app, version, written=sink.send(self._chunks(batches), part))

    def _finish(
        self, client: Client, messages: Sequence[Message], known: Known | None, *, is_marked: bool
    ) -> Written:
        """Append what is staged, then say that the version is done."""
        written = Written()
        first = messages[0]
        if self._options.mode == "staged":
            home = self._home(first.app, first.version)
            since_ms = known.at_ms if known is not None else None
            sink = Sink(client, self._options, first.app, first.version, since_ms)
            names = staging.decide(home, [m.staged for m in messages if m.staged is not None])
            for part, name in enumerate(names):
                written.add(sink.send(staging.spooled(home / name), part))
        else:
            for message in messages:
                written.add(message.written)
        if is_marked:
            marker = Marker(first.app, first.version, first.version, written.heads, written.rows)
            put(client, self._options.txn_topic, marker)
        if self._options.mode == "staged":
            staging.clear(self._home(first.app, first.version))
        if written.deduped:
            log.info("%d of %d rows had been appended before", written.deduped, written.rows)
        return written


class TopicsWriter(_Writing, DataSourceArrowWriter):
    """`df.write.format("topics").mode("append")`."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Runs in the driver, before the tasks.

        Raises:
            BadOption: A column is missing, or has no place in a record.
            TopicsError: The server refuses the key, or could not be reached.
        """
        super().__init__(options, schema)
        self._is_transaction = options.app is not None
        self._app = options.app or uuid.uuid4().hex
        self._version = options.version or 0
        self._known: Known | None = None
        self._is_done = False
        with client_of(options) as client:
            if self._is_transaction:
                self._begin(client)
            if options.topic is not None and not self._is_done:
                require_window(
                    client, options.topic, options.window_ms, is_needed=self._is_transaction
                )

    def _begin(self, client: Client) -> None:
        """Learn what was done, and say that this version is begun: from then on it may be there in
        part."""
        topic = self._options.txn_topic
        known = find(client, topic, self._app)
        self._is_done = known is not None and self._version <= known.marker.done
        if not self._is_done and (known is None or known.marker.begun < self._version):
            done = NONE if known is None else known.marker.done
            put(client, topic, Marker(self._app, done, self._version))
            known = find(client, topic, self._app)
        self._known = known

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        if self._is_done:
            return Message(self._app, self._version, is_skipped=True)
        with explained():
            since_ms = self._known.at_ms if self._known is not None else None
            return self._write_part(iterator, self._app, self._version, since_ms)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = [each for each in messages if isinstance(each, Message) and not each.is_skipped]
        if self._is_done:
            log.warning(
                'version %d of "%s" was written before: nothing was appended',
                self._version,
                self._app,
            )
        if found:
            with explained(), client_of(self._options) as client:
                self._finish(client, found, self._known, is_marked=self._is_transaction)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was appended stays: tried again under the same version, it is not appended twice."""
        if self._options.mode == "staged" and not self._is_transaction:
            staging.clear(self._home(self._app, self._version))


class TopicsStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("topics")`: each batch is a version of the query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Raises BadOption: A column is missing, or `txnAppId` is given, which is the query's id."""
        super().__init__(options, schema)
        if options.app is not None:
            raise BadOption("a stream's txnAppId and txnVersion are its query's id and batch")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Message:
        context: Any = TaskContext.get()
        version = int(context.getLocalProperty(BATCH_ID))
        app = str(context.getLocalProperty(QUERY_ID))
        with explained(), client_of(self._options) as client:
            known = find(client, self._options.txn_topic, app)
            if known is None:
                # All tasks of the first batch say so, and under one key.
                put(client, self._options.txn_topic, Marker(app))
                known = find(client, self._options.txn_topic, app)
            if known is not None and version <= known.marker.done:
                return Message(app, version, is_skipped=True)
            return self._write_part(iterator, app, version, known.at_ms if known else None)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        found = [each for each in messages if isinstance(each, Message) and not each.is_skipped]
        if not found:
            return
        with explained(), client_of(self._options) as client:
            known = find(client, self._options.txn_topic, found[0].app)
            if known is not None and batchId <= known.marker.done:
                return
            self._finish(client, found, known, is_marked=True)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was appended stays: the batch is tried again, and it is not appended twice."""
