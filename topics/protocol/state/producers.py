"""Producers of Kafka's: what each of them wrote last into a topic, so that a batch that comes again is known (KIP-98).

A producer numbers its records in each topic from 0 on; a batch says its producer, the producer's epoch and the number of
its first record.  Kept are the last five batches of each, and they come out of the batches themselves, which are in the
log: a replay finds them as they were.  What a client does not know after a crash, whether its batch is there, its retry
of the same numbers answers.

A producer that wrote nothing for a day is forgotten, and of too many those that wrote least recently: a retry that is
older may then be stored twice, as in Kafka.  Each is a row of bytes, which is what a checkpoint holds of it.
"""

from collections.abc import Iterable
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from topics.protocol.batches.header import Header
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.events import ProducerImage

BATCHES: Final = 5
"""Of a producer that are known: as many as a client may have on their way."""
EXPIRE_MS: Final = 24 * 3600 * 1000
PRODUCERS_MAX: Final = 100_000
FORGET_MAX: Final = 1000
"""Producers that are forgotten in one go."""
_NUMBERS: Final = 1 << 31
"""Numbers of records begin anew behind 2³¹ − 1."""
_ENTRY: Final = Struct(">IIQ")
_ROW: Final = Struct(f">BBQBHBQ2s{BATCHES * _ENTRY.size}s")
"""The msgpack of a `ProducerImage`, its numbers not in their shortest form, so that rows have one size."""


class Fenced(Rejection):
    """A producer with a newer epoch wrote since."""


class OutOfOrder(Rejection):
    """Records are missing in front of a batch, or it is cut otherwise than those that it repeats."""


class TooOld(Rejection):
    """A batch that came before those that are known of its producer."""


class Written(NamedTuple):
    """A batch of a producer: the number of its first record, how many it has, and the seq of the first."""

    sequence: int
    records: int
    first_seq: int

    @property
    def last(self) -> int:
        return (self.sequence + self.records - 1) % _NUMBERS


class Producer(NamedTuple):
    """What a producer wrote last; `batches` are the oldest first."""

    epoch: int
    ts_ms: int
    batches: tuple[Written, ...]


class Producers:
    """The producers of all topics.

    Attributes:
        count: Pairs of a producer and a topic.
    """

    def __init__(self) -> None:
        self.by_topic: dict[int, dict[int, bytes]] = {}
        self.count = 0
        self._by_use: dict[tuple[int, int], None] = {}
        """Topic and producer, those that wrote least recently first."""

    def find(self, topic_id: int, producer_id: int, now_ms: int) -> Producer | None:
        """What a producer wrote into a topic; None where nothing is known of it."""
        row = self.by_topic.get(topic_id, {}).get(producer_id)
        if row is None:
            return None
        found = _producer(row)
        return found if now_ms - found.ts_ms < EXPIRE_MS else None

    def page(
        self, topic_id: int, begin: int, end: int, now_ms: int
    ) -> Iterable[tuple[int, Producer]]:
        """The producers [begin, end) of a topic, in the order in which they came, but for those that have expired."""
        rows = self.by_topic.get(topic_id, {})
        for producer_id, row in islice(rows.items(), begin, end):
            found = _producer(row)
            if now_ms - found.ts_ms < EXPIRE_MS:
                yield producer_id, found

    def count_of(self, topic_id: int) -> int:
        """The producers of a topic."""
        return len(self.by_topic.get(topic_id, ()))

    def repeated(self, topic_id: int, header: Header, now_ms: int) -> Written | None:
        """The batch that one repeats; None where it is the next of its producer.

        Raises:
            Fenced, OutOfOrder, TooOld: It is not to be written.
        """
        known = self.find(topic_id, header.producer_id, now_ms)
        if known is None:
            return None
        said = f"producer {header.producer_id} of epoch {header.producer_epoch}"
        if header.producer_epoch < known.epoch:
            raise Fenced(ErrorCode.INVALID_REQUEST, f"{said} is fenced off by epoch {known.epoch}")
        if header.producer_epoch > known.epoch:
            if header.sequence != 0:
                raise OutOfOrder(
                    ErrorCode.INVALID_REQUEST,
                    f"{said} begins with record {header.sequence}, and not with 0",
                )
            return None
        sent = Written(header.sequence, header.records, 0)
        for each in known.batches:
            if each[:2] == sent[:2]:
                return each
        following = (known.batches[-1].last + 1) % _NUMBERS
        if sent.sequence == following:
            return None
        if (known.batches[0].sequence - sent.last - 1) % _NUMBERS < _NUMBERS // 2:
            raise TooOld(
                ErrorCode.INVALID_REQUEST,
                f"{said} sent record {sent.sequence}, from before the last {BATCHES} batches",
            )
        raise OutOfOrder(
            ErrorCode.INVALID_REQUEST,
            f"{said} sent record {sent.sequence}, and {following} is the next",
        )

    def note(self, topic_id: int, header: Header, first_seq: int, ts_ms: int) -> None:
        """A batch was appended."""
        if header.producer_id < 0:
            return
        key = topic_id, header.producer_id
        rows = self.by_topic.setdefault(topic_id, {})
        row = rows.get(header.producer_id)
        before: tuple[Written, ...] = ()
        if row is None:
            self.count += 1
        elif (known := _producer(row)).epoch == header.producer_epoch:
            before = known.batches
        batches = (*before, Written(header.sequence, header.records, first_seq))[-BATCHES:]
        rows[header.producer_id] = _row(
            header.producer_id, Producer(header.producer_epoch, ts_ms, batches)
        )
        self._by_use.pop(key, None)
        self._by_use[key] = None
        if self.count > PRODUCERS_MAX:
            self._drop(next(iter(self._by_use)))

    def _drop(self, key: tuple[int, int]) -> None:
        topic_id, producer_id = key
        del self._by_use[key]
        del self.by_topic[topic_id][producer_id]
        if not self.by_topic[topic_id]:
            del self.by_topic[topic_id]
        self.count -= 1

    def remove(self, topic_id: int) -> None:
        """The topic is gone."""
        for producer_id in list(self.by_topic.get(topic_id, ())):
            self._drop((topic_id, producer_id))

    def forget_old(self, now_ms: int) -> None:
        """Forget some producers that wrote nothing for a day."""
        for key in list(islice(self._by_use, FORGET_MAX)):
            if now_ms - _producer(self.by_topic[key[0]][key[1]]).ts_ms < EXPIRE_MS:
                return
            self._drop(key)

    # ------------------------------------------------------------------ checkpoints

    def rows(self, topic_id: int) -> Iterable[bytes]:
        """The producers of a topic, each as the msgpack of its `ProducerImage`, in the order of use."""
        return self.by_topic.get(topic_id, {}).values()

    def images(self, topic_id: int) -> list[ProducerImage]:
        return [
            ProducerImage(fields[2], fields[4], fields[6], fields[8])
            for fields in map(_ROW.unpack, self.rows(topic_id))
        ]

    def restore(self, topic_id: int, images: Iterable[ProducerImage]) -> None:
        """The producers of a topic of a checkpoint."""
        for image in images:
            row = _packed(image.producer_id, image.epoch, image.ts_ms, image.batches)
            self.by_topic.setdefault(topic_id, {})[image.producer_id] = row
            self._by_use[topic_id, image.producer_id] = None
            self.count += 1

    def restored(self) -> None:
        """All topics of a checkpoint are here: of two, the one that wrote earlier is the older."""
        self._by_use = dict.fromkeys(
            sorted(self._by_use, key=lambda key: _producer(self.by_topic[key[0]][key[1]]).ts_ms)
        )


def _packed(producer_id: int, epoch: int, ts_ms: int, batches: bytes) -> bytes:
    marks = 0x94, 0xCF, 0xCD, 0xCF, bytes((0xC4, len(batches)))
    return _ROW.pack(
        marks[0], marks[1], producer_id, marks[2], epoch, marks[3], ts_ms, marks[4], batches
    )


def _row(producer_id: int, producer: Producer) -> bytes:
    batches = b"".join(_ENTRY.pack(*each) for each in producer.batches)
    return _packed(
        producer_id, producer.epoch, producer.ts_ms, batches.ljust(BATCHES * _ENTRY.size, b"\0")
    )


def _producer(row: bytes) -> Producer:
    fields = _ROW.unpack(row)
    batches = tuple(Written(*each) for each in _ENTRY.iter_unpack(fields[8]) if each[1])
    return Producer(fields[4], fields[6], batches)
