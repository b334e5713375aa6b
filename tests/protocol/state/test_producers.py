"""Producers of Kafka's: a batch that comes again is known, and one that comes out of order is refused."""

from typing import Any

import msgspec
import pytest

from topics.protocol.batches.header import Header
from topics.protocol.model.events import ProducerImage
from topics.protocol.state import producers as module
from topics.protocol.state.producers import (
    BATCHES,
    EXPIRE_MS,
    Fenced,
    OutOfOrder,
    Producers,
    TooOld,
    Written,
)

NOW = 1_750_000_000_000
LAST = (1 << 31) - 1


def head(sequence: int, records: int = 1, *, producer: int = 7, epoch: int = 0) -> Header:
    return Header(0, 0, 0, 2, 0, 0, records - 1, NOW, NOW, producer, epoch, sequence, records)


def wrote(*heads: Header, known: Producers | None = None) -> Producers:
    producers = known or Producers()
    seq = 1
    for each in heads:
        assert producers.repeated(1, each, NOW) is None
        producers.note(1, each, seq, NOW)
        seq += each.records
    return producers


def test_a_producer_that_is_not_known_may_begin_anywhere() -> None:
    producers = Producers()

    assert producers.repeated(1, head(40), NOW) is None
    assert wrote(head(40), head(41)).find(1, 7, NOW) is not None


@pytest.mark.parametrize("nth", range(BATCHES))
def test_a_batch_that_comes_again_is_known(nth: int) -> None:
    """The last five are, and the retry gets the seqs that the first one got."""
    producers = wrote(*(head(2 * at, 2) for at in range(BATCHES)))

    assert producers.repeated(1, head(2 * nth, 2), NOW) == Written(2 * nth, 2, 1 + 2 * nth)
    assert producers.repeated(2, head(2 * nth, 2), NOW) is None


def test_a_batch_older_than_those_is_too_old() -> None:
    producers = wrote(*(head(at) for at in range(BATCHES + 2)))

    for sequence in (0, 1):
        with pytest.raises(TooOld, match="before the last 5"):
            producers.repeated(1, head(sequence), NOW)


@pytest.mark.parametrize("sent", [head(3), head(9), head(0, 3), head(1, 1), head(LAST)])
def test_a_batch_out_of_order_is_refused(sent: Header) -> None:
    """A gap, and one that is cut otherwise than what it repeats."""
    producers = wrote(head(0, 2))

    with pytest.raises((OutOfOrder, TooOld)):
        producers.repeated(1, sent, NOW)
    assert producers.repeated(1, head(2), NOW) is None


def test_an_older_epoch_is_fenced_off_and_a_newer_one_begins_anew() -> None:
    producers = wrote(head(0), head(1), head(0, epoch=1))

    with pytest.raises(Fenced, match="fenced off by epoch 1"):
        producers.repeated(1, head(2), NOW)
    with pytest.raises(OutOfOrder, match="begins with record 5"):
        producers.repeated(1, head(5, epoch=2), NOW)
    assert producers.repeated(1, head(0, epoch=1), NOW) == Written(0, 1, 3)
    assert producers.repeated(1, head(1, epoch=1), NOW) is None


def test_numbers_begin_anew_behind_the_last_one() -> None:
    producers = wrote(head(LAST - 1, 3), head(1))

    assert producers.repeated(1, head(LAST - 1, 3), NOW) == Written(LAST - 1, 3, 1)
    assert producers.repeated(1, head(2), NOW) is None
    assert producers.repeated(1, head(1), NOW) == Written(1, 1, 4)
    with pytest.raises(TooOld):
        producers.repeated(1, head(LAST - 5), NOW)


def test_a_batch_without_a_producer_is_not_noted() -> None:
    producers = Producers()
    producers.note(1, head(-1, producer=-1, epoch=-1), 1, NOW)

    assert (producers.count, producers.by_topic) == (0, {})


def test_a_producer_that_wrote_nothing_for_a_day_is_forgotten() -> None:
    producers = wrote(head(0))
    producers.note(2, head(0), 1, NOW + 5)

    assert producers.find(1, 7, NOW + EXPIRE_MS - 1) is not None
    assert producers.find(1, 7, NOW + EXPIRE_MS) is None
    producers.forget_old(NOW + EXPIRE_MS - 1)
    assert producers.count == 2
    producers.forget_old(NOW + EXPIRE_MS + 4)
    assert (producers.count, list(producers.by_topic)) == (1, [2])
    producers.forget_old(NOW + 2 * EXPIRE_MS)
    assert producers.count == 0


def test_of_too_many_those_that_wrote_least_recently_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PRODUCERS_MAX", 2)
    producers = Producers()
    for producer in (1, 2, 1, 3):
        producers.note(1, head(0, producer=producer), 1, NOW)

    assert list(producers.by_topic[1]) == [1, 3]
    assert producers.count == 2


def test_a_topic_that_is_gone_takes_its_producers_along() -> None:
    producers = wrote(head(0))
    producers.note(2, head(0), 1, NOW)

    producers.remove(1)
    producers.remove(9)

    assert (producers.count, list(producers.by_topic)) == (1, [2])


def test_a_checkpoint_has_them_as_rows_of_one_size() -> None:
    producers = wrote(*(head(at) for at in range(BATCHES + 2)))
    producers.note(1, head(0, producer=(1 << 62) - 1, epoch=32_767), 90, NOW + 1)
    producers.note(3, head(0, 9), 1, NOW - 1)
    [one, other] = producers.rows(1)
    assert len(one) == len(other)

    def images(topic_id: int) -> list[ProducerImage]:
        return [msgspec.msgpack.decode(row, type=ProducerImage) for row in producers.rows(topic_id)]

    restored = Producers()
    for topic_id in (1, 3):
        assert images(topic_id) == producers.images(topic_id)
        restored.restore(topic_id, images(topic_id))
    restored.restored()

    assert restored.by_topic == producers.by_topic
    assert restored.count == producers.count == 3
    assert list(restored._by_use) == [(3, 7), (1, 7), (1, (1 << 62) - 1)]
    found: Any = restored.find(1, 7, NOW)
    assert [each.sequence for each in found.batches] == [2, 3, 4, 5, 6]
