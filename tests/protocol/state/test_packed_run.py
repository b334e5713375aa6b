"""A run of Kafka's batches: what it says without opening them, and once they are open."""

import random
from collections.abc import Sequence

import numpy as np
import pytest

from topics.protocol.batches.codecs import packed
from topics.protocol.model.records import (
    DELETED,
    LIVE,
    PACKED,
    PackedBatch,
    SharedText,
    StoredText,
    Text,
)
from topics.protocol.model.tags import equals
from topics.protocol.state.packed_run import (
    OPENED_AT_ONCE,
    PACKED_BATCH_BYTES,
    PACKED_ROW_BYTES,
    RECORDS_MAX,
    PackedRun,
)

from ..batches.builder import NOW_MS, Record, batch, records_of, some_records


def batch_of(records: Sequence[Record], *, codec: int = 0, ts_ms: int = NOW_MS) -> PackedBatch:
    data = packed(codec, records_of(records))
    return PackedBatch(batch(data, len(records), attributes=codec), ts_ms, len(records), NOW_MS)


def numbered(count: int, *, first: int = 0, ts_ms: int = NOW_MS) -> PackedBatch:
    records: list[Record] = [
        (b"k%d" % (nth % 3), b"%d" % (first + nth), (), 0) for nth in range(count)
    ]
    return batch_of(records, ts_ms=ts_ms)


def run_of(*batches: PackedBatch) -> PackedRun:
    run = PackedRun(41, tag_bytes_max=256)
    for each in batches:
        run.append(each)
    return run


def shown(run: PackedRun) -> list[bytes]:
    text = b"".join(bytes(part) for part in run.read_blocking([(0, run.count)]))
    return text.split(b"},{")


def test_batches_are_kept_as_they_came() -> None:
    one, other = numbered(3), numbered(2, first=3, ts_ms=NOW_MS + 5)

    run = run_of(one, other)

    assert (run.form, run.count, run.dead) == (PACKED, 5, 0)
    assert run.text_bytes == len(one.text) + len(other.text)
    assert run.memory_bytes == run.text_bytes + 5 * PACKED_ROW_BYTES + 2 * PACKED_BATCH_BYTES
    for _ in range(2):
        assert run.times.tolist() == [NOW_MS] * 3 + [NOW_MS + 5] * 2
    assert [run.batch(each) for each in run.batches(0, 5)] == [one.text, other.text]
    assert [each.row for each in run.batches(2, 4)] == [0, 3]
    assert [each.row for each in run.batches(3, 5)] == [3]


def test_a_run_takes_what_follows_until_it_is_full() -> None:
    run = run_of(numbered(3))
    few = numbered(1)

    def takes(first_seq: int = 44, records_max: int = 4, full_bytes: int = 10_000) -> bool:
        return run.takes(few, first_seq, records_max, full_bytes)

    assert takes()
    assert not takes(first_seq=45)
    assert not takes(records_max=3)
    assert not takes(full_bytes=run.text_bytes)
    huge = PackedBatch(few.text, NOW_MS, RECORDS_MAX, NOW_MS)
    assert not run.takes(huge, 44, 1 << 20, 1 << 20)
    run.frozen = True
    assert not takes()


def test_rows_are_deleted_by_their_numbers_and_by_marks() -> None:
    run = run_of(numbered(20), numbered(20))
    assert run.flags.tolist() == [LIVE] * 40

    run.delete(np.array([1, 3]))
    run.delete_span(3, 6)
    run.delete_marked(np.arange(40) >= 38)

    assert run.deleted_rows().tolist() == [1, 3, 4, 5, 38, 39]
    assert run.flags[38] == DELETED
    assert run.dead == run.known_dead == 6


@pytest.mark.parametrize("seed", range(20))
def test_a_batch_counts_for_the_share_that_lives(seed: int) -> None:
    """All that are left of a batch count for their share of its bytes, rounded down, in whatever order
    the others went, and by whatever they went. (§1.2)"""
    dice = random.Random(seed)
    counts = [dice.randint(1, 6) for _ in range(4)]
    run = run_of(*(numbered(count) for count in counts))
    gone = 0

    def total() -> int:
        found, row = 0, 0
        for each in run.batches(0, run.count):
            rows = range(row, row + each.records)
            left = sum(r >= gone and run.flags[r] == LIVE for r in rows)
            found += each.size_bytes * left // each.records
            row += each.records
        return found

    before = total()
    assert before == run.text_bytes
    assert before == int(run.weights(np.arange(run.count)).sum())
    while live := [r for r in range(gone, run.count) if run.flags[r] == LIVE]:
        if dice.random() < 0.5:
            some = sorted(dice.sample(live, dice.randint(1, len(live))))
            weights = run.weights(np.array(some), gone)
            run.delete(np.array(some))
        else:
            some = live[: dice.randint(1, len(live))]
            weights = run.weights(np.array(some), gone)
            gone = some[-1] + 1
        assert (weights >= 0).all()
        assert before - int(weights.sum()) == total()
        before = total()
    assert before == 0
    assert not len(run.weights(np.empty(0, np.int64)))


def test_the_weights_of_an_append_are_those_of_its_rows() -> None:
    """What a batch that is larger than a cap loses of itself. (§2)"""
    one = numbered(7)
    run = run_of(one)

    for rows in range(8):
        assert one.weights(rows).tolist() == run.weights(np.arange(rows)).tolist()
    assert one.weight == one.weights(7).sum() == len(one.text)
    assert len(one) == 7


@pytest.mark.parametrize("codec", range(5))
def test_an_open_run_is_as_one_of_text(codec: int) -> None:
    run = run_of(
        batch_of([(b"a", b"1", (), 0), (None, b"two", (), 0)], codec=codec),
        batch_of([(b"b", b"[3]", [(b"h", b"x")], 4)], codec=codec, ts_ms=NOW_MS + 9),
    )

    assert shown(run) == [
        b'{"$seq":41,"$ts":1750000000000,"data":1',
        b'"$seq":42,"$ts":1750000000000,"$form":"text","data":"two"',
        b'"$seq":43,"$ts":1750000000009,"$time":1750000000004,"data":[3],"meta":{"h":"x"}}',
    ]
    assert run.tag_rows(equals("b")).tolist() == [2]
    [tag_id] = run.tag_ids(equals("a")).tolist()
    assert run.tags_of([tag_id]) == ["a"]
    assert run.columns.tag_id.tolist() == [tag_id, 0, int(run.tag_ids(equals("b"))[0])]
    assert not len(run.node_ids(["w"]))
    assert run.nodes_of([]) == []
    with pytest.raises(AssertionError):
        run.nodes_of([1])


def test_it_is_opened_as_it_grows() -> None:
    run = run_of(numbered(2))
    views = run.views([(0, 2)])
    assert views is not None
    first = bytes(views[0][0])

    run.append(numbered(2, first=2))

    texts = run.read([(0, 4)])
    assert texts is not None
    assert bytes(texts[0]).startswith(first)
    assert run.columns.offset.shape == (4,)


def test_many_records_are_opened_on_a_thread() -> None:
    """Until then there is nothing to read without waiting; the run may grow meanwhile."""
    run = run_of(numbered(OPENED_AT_ONCE + 1))
    assert not run.is_warm
    assert run.read([(0, 1)]) is None
    assert run.views([(0, 1)]) is None

    run.warm()
    assert run.is_warm
    run.append(numbered(3))
    assert run.is_warm  # but for a few
    assert run.read([(0, 68)]) is not None
    assert len(shown(run)) == OPENED_AT_ONCE + 4
    assert run.is_warm
    assert run.read([(0, 1)]) is not None


def test_what_a_thread_opened_too_late_is_left() -> None:
    run = run_of(numbered(OPENED_AT_ONCE + 1))
    run.warm()
    made = run._made
    assert len(shown(run)) == OPENED_AT_ONCE + 1
    run.append(numbered(2))

    run._made = made

    assert len(shown(run)) == OPENED_AT_ONCE + 3


def test_a_run_stands_still_for_who_reads() -> None:
    run = run_of(numbered(2))
    still = run.still()
    run.append(numbered(2))
    run.delete(np.array([0]))

    assert (still.count, run.count) == (2, 4)
    assert len(shown(still)) == 2
    assert len(shown(run)) == 4


def test_a_run_that_stands_still_is_opened_apart() -> None:
    """The thread that seals opens it while the run itself is open in part."""
    run = run_of(numbered(2))
    shown(run)
    run.append(batch_of([(None, b'"%b"' % (b"x" * 900), (), 0)] * 40))
    arenas = list(run._open._arenas)

    assert len(shown(run.still())) == 42

    assert run._open.count == 2
    assert run._open._arenas == arenas
    assert len(shown(run)) == 42
    bases = run._open._bases
    assert len(set(bases)) == len(bases)
    assert len(shown(run.still())) == 42


@pytest.mark.parametrize("is_open", [False, True])
def test_a_replay_cuts_a_run_where_a_batch_begins(is_open: bool) -> None:
    run = run_of(numbered(3), numbered(4, first=3))
    run.delete(np.array([1, 4]))
    whole = shown(run) if is_open else shown(run.still())

    rest = run.cut(3)

    assert (run.first_seq, run.count, run.dead, run.frozen) == (41, 3, 1, True)
    assert (rest.first_seq, rest.count, rest.dead, rest.frozen) == (44, 4, 1, False)
    assert rest.deleted_rows().tolist() == [1]
    assert len(shown(run) + shown(rest)) == len(whole)
    assert b'"$seq":44' in shown(rest)[0]
    assert run.memory_bytes + rest.memory_bytes == run_of(numbered(3), numbered(4)).memory_bytes


def texts(data: bytes) -> list[Text]:
    stored = StoredText(len(data), lambda lo, hi: None, lambda lo, hi: data[lo:hi])
    return [data, SharedText.of([data[:5], data[5:]]), stored]


@pytest.mark.parametrize("kind", range(3))
def test_a_batch_may_lie_in_pieces_or_in_a_file(kind: int) -> None:
    one = numbered(2)
    run = run_of(PackedBatch(texts(bytes(one.text))[kind], NOW_MS, 2, NOW_MS))  # type: ignore[arg-type]

    assert len(shown(run)) == 2
    assert run.text_bytes == len(one.text)


def test_records_of_any_kind_are_shown() -> None:
    sent = some_records(random.Random(3), 200)
    run = run_of(batch_of(sent))

    assert len(shown(run)) == 200


def test_tags_are_known_without_opening() -> None:
    """And are those that the opened run has. (§0.6)"""
    dice = random.Random(7)
    run = run_of(numbered(9), *(batch_of(some_records(dice, n), codec=4) for n in (3, 90, 1)))

    def shut_tags() -> list[str | None]:
        ids, tags_of = run.tags()
        return [tags_of([each])[0] if each else None for each in ids.tolist()]

    shut = shut_tags()

    opened = run.columns.tag_id.tolist()
    assert shut == [run.tags_of([each])[0] if each else None for each in opened]
    assert len({each for each in shut if each}) > 3
    assert shut_tags() == shut


def test_what_is_open_is_noted_counted_and_closed() -> None:
    """It can be made again at any time, and is the same. (§11)"""
    noted: list[PackedRun] = []
    run = PackedRun(41, tag_bytes_max=256, note=noted.append)
    for first in (0, 100):
        run.append(numbered(100, first=first))
    assert run.opened_bytes == 0
    run.times.sum()
    assert (noted, run.opened_bytes) == ([run], 200 * 8)

    run.warm()
    made_bytes = run.opened_bytes
    assert made_bytes > 200 * 41
    before, ids = shown(run), run.columns.tag_id.tolist()
    assert noted == [run] * 3
    assert run.opened_bytes > 200 * 41
    assert run.is_asked

    memory_bytes = run.memory_bytes
    assert run.close().count == 200

    assert (run.opened_bytes, run.memory_bytes) == (0, memory_bytes)
    assert not run.is_warm
    assert (shown(run), run.columns.tag_id.tolist()) == (before, ids)
    still = run.still()
    run.close()
    noted.clear()
    assert shown(still) == before
    assert noted == []


def test_what_a_thread_has_made_of_a_run_that_was_closed_meanwhile_is_no_part_of_it() -> None:
    run = run_of(numbered(100))
    assert shown(run)
    run.append(numbered(100, first=100))
    run.warm()
    run.close()
    assert not run.is_warm
    run.warm()
    assert run.is_warm
    assert len(shown(run)) == 200
