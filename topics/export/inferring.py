"""The members of `data` of topics, from a sample that is spread over their seqs."""

from collections.abc import Iterator
from typing import Final

import pyarrow as pa

from topics.arrow.columns import schema
from topics.arrow.loss import Gap
from topics.arrow.scan import partition_names, resolve
from topics.arrow.source import TopicSource, Wanted
from topics.arrow.typed import infer
from topics.export.run import ExportJob

PIECES: Final = 10
PIECE_ROWS: Final = 1000


def inferred(source: TopicSource, job: ExportJob) -> pa.Schema:
    """The members that ten pieces of each topic have, of up to a thousand records each.

    Raises:
        ValueError: None of the records is an object.
        NoSuchTopic, NotReadable, Corrupt, OSError, TopicsError.
    """
    return infer(_sample(source, job), sample_rows=PIECES * PIECE_ROWS * len(job.topics))


def _sample(source: TopicSource, job: ExportJob) -> Iterator[pa.RecordBatch]:
    wanted = Wanted(schema(["data"]), batch_rows=PIECE_ROWS)
    for name in partition_names(source, job.topics):
        each = resolve(source, name, "earliest-retained", job.until)
        # From end to end: the first and the last records are in it.
        room = max(each.last_seq - each.first_seq + 1 - PIECE_ROWS, 0)
        pieces = min(PIECES, -(-room // PIECE_ROWS) + 1)
        for piece in range(pieces):
            first = each.first_seq + room * piece // max(pieces - 1, 1)
            last = min(first + PIECE_ROWS - 1, each.last_seq)
            for found in source.read(name, first, last, wanted):
                if not isinstance(found, Gap):
                    yield found
