"""`df.write` and `df.writeStream`: tasks append or stage chunks, the driver marks what is done.

Owns the order that makes a replay harmless: every chunk is in before the marker says so, and a
version that the marker has is not written again.
"""

import dataclasses
import logging
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from msgspec.structs import replace
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from topics.client import Client
from topics.protocol.model.names import public_name
from topics.spark import staging
from topics.spark.chunks import Chunk, chunks
from topics.spark.encoding import columns_of, is_sourced
from topics.spark.errors import BadOption, explained
from topics.spark.options import WriteOptions
from topics.spark.sink import Sink, Written, client_of, epoch_of, require_window
from topics.spark.texts import Rules
from topics.spark.transactions import Known, Marker, find, put

BATCH_ID: Final = "streaming.sql.batchId"
QUERY_ID: Final = "sql.streaming.queryId"
IGNORE_NULLS: Final = "spark.sql.jsonGenerator.ignoreNullFields"
TIME_ZONE: Final = "spark.sql.session.timeZone"

log: Final = logging.getLogger(__name__)


def refuse_overwrite(overwrite: bool) -> None:
    """Raises BadOption: A topic is appended to, and never replaced by a write."""
    if overwrite:
        raise BadOption('a topic is appended to: use .mode("append"); `topics` deletes and purges')


@dataclass
class TaskResult(WriterCommitMessage):
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
        columns = dataclasses.replace(self._columns, rules=self._rules())
        return chunks(
            (row for batch in batches for row in columns.rows(batch)),
            most_records=self._options.chunk_records,
            most_bytes=self._options.chunk_bytes,
            is_sourced=self._is_sourced,
        )

    def _rules(self) -> Rules:
        """How values become JSON; tasks have the settings of their session."""
        context: Any = TaskContext.get()
        ignores = self._options.ignores_null_fields
        if ignores is None:
            ignores = context.getLocalProperty(IGNORE_NULLS) != "false"
        return Rules(ignores, context.getLocalProperty(TIME_ZONE) or "UTC")

    def _home(self, app: str, version: int, history: str) -> Path:
        assert self._options.staging_dir is not None
        topic = self._options.topic
        return staging.folder(self._options.staging_dir, app, version, topic, history)

    def _write_part(
        self,
        batches: Iterator[pa.RecordBatch],
        app: str,
        version: int,
        known: Known | None,
        history: str,
    ) -> TaskResult:
        """Append, or stage, one task's rows."""
        context: Any = TaskContext.get()
        part, attempt = context.partitionId(), context.taskAttemptId()
        if self._options.mode == "staged":
            home = self._home(app, version, history)
            name, _ = staging.spool(home, part, attempt, self._chunks(batches))
            return TaskResult(app, version, staged=name)
        with client_of(self._options) as client:
            sink = Sink(client, self._options, app, version, known)
            return TaskResult(app, version, written=sink.send(self._chunks(batches), part))

    def _finish(
        self, client: Client, messages: Sequence[TaskResult], known: Known | None, history: str
    ) -> Written:
        """Append what is staged; what was written of it, and was before."""
        written = Written()
        first = messages[0]
        if self._options.mode == "staged":
            home = self._home(first.app, first.version, history)
            sink = Sink(client, self._options, first.app, first.version, known)
            names = staging.decide(home, [m.staged for m in messages if m.staged is not None])
            for part, name in enumerate(names):
                written.add(sink.send(staging.spooled(home / name), part))
        else:
            for message in messages:
                written.add(message.written)
        if written.deduped:
            rows = sum(written.rows.values())
            log.info("%d of %d rows had been appended before", written.deduped, rows)
        if written.skipped:
            log.warning(
                'version %d of "%s" was written before to the topics of %d rows: these were not '
                "appended",
                first.version,
                first.app,
                written.skipped,
            )
        return written

    def _clear(self, app: str, version: int, history: str) -> None:
        """Remove what a version has staged: what becomes of it is marked, or does not matter."""
        if self._options.mode == "staged":
            staging.clear(self._home(app, version, history))

    def _markers(self, client: Client, app: str, version: int, written: Written) -> list[Marker]:
        """What says that a version is done: a marker of each topic that it wrote to."""
        epochs = dict(written.epochs)
        if self._options.topic is not None and self._options.topic not in epochs:
            # Without a row it is done, too.
            epochs[self._options.topic] = epoch_of(client, self._options.topic)
        return [
            Marker(
                app,
                version,
                version,
                {n: seq for n, seq in written.heads.items() if public_name(n) == topic},
                written.rows.get(topic, 0),
                topic,
                epoch,
            )
            for topic, epoch in sorted(epochs.items())
        ]


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
        self._history = ""
        self._is_done = False
        with client_of(options) as client:
            if self._is_transaction:
                self._begin(client)
            elif options.topic is not None:
                require_window(client, options.topic, options.window_ms, is_needed=False)

    def _begin(self, client: Client) -> None:
        """Learn what was done, and say that this version is begun: from then on it may be there in
        part."""
        options, topic = self._options, self._options.topic
        known = find(client, options.txn_topic, self._app)
        begun = known.whole
        if topic is not None:
            epoch = epoch_of(client, topic)
            self._is_done = known.standing(topic, epoch, self._version).is_done
            if self._is_done:
                return
            epoch = require_window(client, topic, options.window_ms, is_needed=True)
            begun = known.of(topic, epoch)
        if begun.begun < self._version:
            marker = replace(begun, begun=self._version, of_seq=0, at_ms=0)
            put(client, options.txn_topic, known, [marker])
            known = find(client, options.txn_topic, self._app)
        self._known = known
        if options.mode == "staged":
            self._history = epoch_of(client, options.txn_topic)

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        if self._is_done:
            return TaskResult(self._app, self._version, is_skipped=True)
        with explained():
            return self._write_part(iterator, self._app, self._version, self._known, self._history)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        found = [each for each in messages if isinstance(each, TaskResult) and not each.is_skipped]
        if self._is_done:
            log.warning(
                'version %d of "%s" was written to "%s" before: nothing was appended',
                self._version,
                self._app,
                self._options.topic,
            )
        if found:
            with explained(), client_of(self._options) as client:
                written = self._finish(client, found, self._known, self._history)
                if self._is_transaction:
                    self._mark(client, written)
                self._clear(self._app, self._version, self._history)

    def _mark(self, client: Client, written: Written) -> None:
        """Say that the version is done where it was written to."""
        made = self._markers(client, self._app, self._version, written)
        known = find(client, self._options.txn_topic, self._app)
        # That a batch with the column `topic` has begun matters no more; what an earlier version of
        # this program has done does.
        is_ended = known.is_only_begun and known.whole.begun == self._version
        drops_whole = self._options.topic is None and is_ended
        if made or drops_whole:
            put(client, self._options.txn_topic, known, made, drops_whole=drops_whole)

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What was appended stays: tried again under the same version, it is not appended twice."""
        if not self._is_transaction:
            self._clear(self._app, self._version, self._history)


class TopicsStreamWriter(_Writing, DataSourceStreamArrowWriter):
    """`df.writeStream.format("topics")`: each batch is a version of the query."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        """Raises BadOption: A column is missing, or `txnAppId` is given, which is the query's id."""
        super().__init__(options, schema)
        if options.app is not None:
            raise BadOption("a stream's txnAppId and txnVersion are its query's id and batch")

    def write(self, iterator: Iterator[pa.RecordBatch]) -> TaskResult:
        context: Any = TaskContext.get()
        version = int(context.getLocalProperty(BATCH_ID))
        app = str(context.getLocalProperty(QUERY_ID))
        with explained(), client_of(self._options) as client:
            known = find(client, self._options.txn_topic, app)
            if not known.placed:
                # All tasks of the first batch say so, and under one key.
                key = f"spark-txn:{app}"
                put(client, self._options.txn_topic, known, [Marker(app)], key=key)
                known = find(client, self._options.txn_topic, app)
            if self._is_done(client, known, version):
                return TaskResult(app, version, is_skipped=True)
            history = self._history(client)
            return self._write_part(iterator, app, version, known, history)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        found = [each for each in messages if isinstance(each, TaskResult) and not each.is_skipped]
        if not found:
            return
        app, txn_topic = found[0].app, self._options.txn_topic
        with explained(), client_of(self._options) as client:
            known = find(client, txn_topic, app)
            if self._is_done(client, known, batchId):
                return
            history = self._history(client)
            written = self._finish(client, found, known, history)
            made = self._markers(client, app, batchId, written)
            if self._options.topic is None:
                rows = sum(written.rows.values())
                made.append(Marker(app, batchId, batchId, dict(written.heads), rows))
            put(client, txn_topic, known, made, drops_whole=known.is_only_begun)
            self._clear(app, batchId, history)

    def _is_done(self, client: Client, known: Known, version: int) -> bool:
        """Whether a batch is done: a query has one sink, so with the column `topic` it is for all
        topics, also where the batch's rows are for others this time."""
        topic = self._options.topic
        if topic is None:
            return version <= known.whole.done
        return known.standing(topic, epoch_of(client, topic), version).is_done

    def _history(self, client: Client) -> str:
        is_staged = self._options.mode == "staged"
        return epoch_of(client, self._options.txn_topic) if is_staged else ""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What was appended stays: the batch is tried again, and it is not appended twice."""
