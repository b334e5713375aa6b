"""The engine `spark` of `topics export`: the seqs of a commit, shared out among Spark's tasks.

Each task reads its seqs and writes its files as the engine `direct` does, into the export's directory,
which all workers must share; this process collects what they wrote into one chunk, whose commit is
the export's.  So the files, the manifest and what a kill leaves are the same.
"""

import os
import pickle
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa

from topics.arrow import DataLoss
from topics.arrow.local import LocalSource
from topics.arrow.remote import RemoteSource
from topics.arrow.scan import Range
from topics.arrow.source import TopicSource
from topics.export.lake import Lake, OsLake, quietly
from topics.export.loading import Unusable
from topics.export.manifest import Lost
from topics.export.target import Chunk
from topics.export.writing import Form, Piece, ReadProgress, add_gap, chunk_of
from topics.protocol.model.errors import Corrupt
from topics.protocol.model.errors import Unusable as StoreUnusable
from topics.spark.errors import SparkFailure
from topics.spark.options import Place
from topics.spark.places import open_place
from topics.spark.planning import plan
from topics.spark.sessions import session

CONNECT_PARTS: Final = 8
"""Tasks of a commit where Spark is at the other end of a wire and does not say how many it runs."""


class _Ended(NamedTuple):
    """The exception that ended a piece: raised in a worker, Spark would make text of it."""

    kind: type[Exception]
    arguments: tuple[Any, ...]


def _ended(error: Exception) -> _Ended:
    match error:
        case Corrupt():
            return _Ended(Corrupt, (error.path, error.offset, error.what))
        case StoreUnusable():
            return _Ended(StoreUnusable, (error.path, error.what))
        case DataLoss():
            return _Ended(DataLoss, (error.gaps,))
    return _Ended(type(error), error.args)


def chunk(
    lake: Lake, form: Form, source: TopicSource, piece: Piece, progress: ReadProgress
) -> Chunk:
    """*Blocking.* As `topics.export.writing.chunk_of`.

    Raises:
        Unusable: There is no Spark, or no place that a worker could open.
        TooManyPartitions, DataLoss, Recreated, NoSuchTopic, NotReadable, Corrupt, OSError,
        TopicsError: As `chunk_of`; no file is left then.
    """
    try:
        spark = session("topics export")
    except SparkFailure as error:
        raise Unusable(str(error)) from None
    place, each = _place(source), piece.seqs
    borders = {each.topic: source.borders(each.topic, each.first_seq, each.last_seq)}
    parts = plan([each], _tasks(spark), borders)
    pieces = [replace(piece, seqs=item) for [item] in parts if isinstance(item, Range)]
    path = os.path.abspath(lake.path)

    def write(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for n in batch.column(0).to_pylist():
                made = _piece(path, form, place, pieces[n])
                yield pa.record_batch([pa.array([made], pa.binary())], names=["outcome"])

    frame = spark.range(0, len(pieces), 1, len(pieces)).mapInArrow(write, "outcome BINARY")
    outcomes = [pickle.loads(bytes(row.outcome)) for row in frame.collect()]
    made = [outcome for outcome in outcomes if isinstance(outcome, Chunk)]
    for outcome in outcomes:
        if isinstance(outcome, _Ended):
            for file in (file for piece in made for file in piece.files):
                quietly(lambda path=file.path: lake.unlink(path))  # type: ignore[misc]
            raise outcome.kind(*outcome.arguments)
    joined = _joined(each, made)
    progress(each.last_seq, sum(file.bytes for file in joined.files))
    return joined


def _place(source: TopicSource) -> Place:
    """What a worker opens.  Raises Unusable."""
    if isinstance(source, LocalSource):
        return Place(path=os.path.abspath(source.path))
    if isinstance(source, RemoteSource):
        url, key = source.address
        return Place(url=url, api_key=key)
    raise Unusable("--engine spark needs --path or --url, which its workers open")


def _tasks(spark: Any) -> int:
    try:
        return int(spark.sparkContext.defaultParallelism)
    except Exception:
        # Spark Connect has no context, and says so by an exception of its own.
        return CONNECT_PARTS


def _piece(path: str, form: Form, place: Place, piece: Piece) -> bytes:
    """In a worker: a piece as a chunk, or what ended it, pickled."""
    source = open_place(place)
    try:
        made: Chunk | _Ended = chunk_of(OsLake(path), form, source, piece)
    except Exception as error:
        made = _ended(error)
    finally:
        source.close()
    return pickle.dumps(made)


def _joined(each: Range, made: list[Chunk]) -> Chunk:
    """The chunks of pieces, as one; a gap that was cut is whole again."""
    lost: list[Lost] = []
    for gap in sorted((gap for piece in made for gap in piece.lost), key=lambda gap: gap.first):
        add_gap(lost, gap)
    files = sorted(
        (file for piece in made for file in piece.files),
        key=lambda file: (file.first, file.partition),
    )
    return Chunk(
        each.topic,
        each.epoch,
        each.first_seq,
        each.last_seq,
        rows=sum(piece.rows for piece in made),
        corrupt=sum(piece.corrupt for piece in made),
        rounded=sum(piece.rounded for piece in made),
        filtered=sum(piece.filtered for piece in made),
        lost=lost,
        files=files,
    )
