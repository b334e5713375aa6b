"""What a fetch shows (Kafka's Fetch and ListOffsets): where its bytes are, and not the bytes themselves.

A face has the bytes read, on a thread where they are many or in a file (`service/batches.py`).
"""

from collections.abc import Sequence
from enum import Enum
from typing import TypeAlias

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import DamagedRun
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.ports import BatchPlace, PackedSource, Run, Span


class Missing(Enum):
    """Why a part of a fetch has no records."""

    TOPIC = "topic"
    """No topic of that name, or no such partition of it."""
    INSTANCE = "instance"
    """The topic was deleted since, and perhaps made again."""
    OFFSET = "offset"
    """The place is below where the log begins, or behind its head."""


class StoredBatches(msgspec.Struct, frozen=True):
    """Batches [first, end) of a packed run, of which every record is live."""

    run: PackedSource
    first: int
    end: int


class CutBatch(msgspec.Struct, frozen=True):
    """A batch of a packed run, of which some records are live: those of `kept`, shape (place.records,)."""

    run: PackedSource
    place: BatchPlace
    kept: NDArray[np.bool_]


class TextBatch(msgspec.Struct, frozen=True):
    """Records of a run of text, which are to become a batch."""

    run: Run
    spans: Sequence[Span]


class NoRecords(msgspec.Struct, frozen=True):
    """A batch of no records: no seq of (after_seq, last_seq] is live."""

    after_seq: int
    last_seq: int


Piece: TypeAlias = StoredBatches | CutBatch | TextBatch | NoRecords


class FetchedPart(msgspec.Struct, frozen=True):
    """What one part of a fetch shows.

    Attributes:
        pieces: In order.
        head_seq: The last seq that is shown: the high watermark.
        start_seq: Where the log begins.
        size_bytes: Of the pieces, as stored.
        ready_bytes: What there is for the part, as far as its bounds allow: all that they allow, where a next batch
            did not fit.
        damage: What stands behind the pieces cannot be read, and why.
    """

    topic: str
    pieces: Sequence[Piece] = ()
    head_seq: int = 0
    start_seq: int = 1
    size_bytes: int = 0
    ready_bytes: int = 0
    missing: Missing | None = None
    damage: DamagedRun | None = None


class Fetched(Outcome, frozen=True):
    """One part for each part that was asked for, in order.

    Attributes:
        is_busy: It would have waited, and too many wait.
    """

    parts: Sequence[FetchedPart]
    is_busy: bool = False


class Place(msgspec.Struct, frozen=True):
    """Where a topic begins and ends, and where in it a time is looked for.

    Attributes:
        rows: (run, lo, hi) of the shown rows, ascending, where a time was asked for; those below `from_seq`
            are gone.
    """

    topic: str
    head_seq: int = 0
    start_seq: int = 1
    rows: Sequence[tuple[Run, int, int]] = ()
    from_seq: int = 1
    missing: Missing | None = None


class PlacesFound(Outcome, frozen=True):
    """One place for each that was asked for, in order."""

    places: Sequence[Place]


class TopicFacts(msgspec.Struct, frozen=True):
    """What metadata tells of a topic, or a partition of that name, and how many bytes its records have."""

    name: str
    epoch: str
    config: TopicConfig
    size_bytes: int


class TopicsDescribed(Outcome, frozen=True):
    """The topics that there are, of those that were asked for.

    Attributes:
        history: Names the data, whatever process serves them.
        next_after: Where a list goes on; None: it is whole.
    """

    topics: Sequence[TopicFacts]
    history: str
    next_after: str | None = None


class ProducerFacts(msgspec.Struct, frozen=True):
    """What a producer wrote last into a topic; `last` is the number of its last record."""

    producer_id: int
    epoch: int
    last: int
    ts_ms: int


class ProducersDescribed(Outcome, frozen=True):
    """Some producers of a topic.

    Attributes:
        next_skip: Where the list goes on; None: it is whole.
    """

    producers: Sequence[ProducerFacts]
    next_skip: int | None = None
