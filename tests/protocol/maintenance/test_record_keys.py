"""Keys of records, and what a look at a part of a run finds (docs/kafka.md)."""

import numpy as np

from protocol.batches.builder import batch, records_of
from protocol.harness import Harness, tagged
from topics.protocol.batches.codecs import packed
from topics.protocol.maintenance import record_keys
from topics.protocol.maintenance.record_keys import NO_DIGESTS, Look, last_before, look
from topics.protocol.model.commands import AppendBatch, DeleteSeqs

BARE = {"data": 1, "key": "//4="}
NULL = {"data": None, "form": "null", "tag": "a"}


def produce(engine: Harness, *pairs: tuple[bytes | None, bytes | None], codec: int = 0) -> None:
    data = packed(codec, records_of([(key, value, [], 0) for key, value in pairs]))
    engine.ask(AppendBatch("t", batch(data, len(pairs), attributes=codec)))


def look_at(engine: Harness, known: Look | None = None, *, collects: bool = True) -> Look:
    """The look at all of the one run."""
    (run,) = engine.topic().runs
    digests = NO_DIGESTS if known is None else known.known
    return look(run.still(), run.count, 0, digests, collects=collects)


def rows_of(found: Look) -> tuple[list[int], list[int]]:
    return found.superseded.tolist(), found.tombstones.tolist()


def test_a_tag_a_key_that_is_none_and_no_key_at_all() -> None:
    """Text, in memory and sealed: of each key the newest is kept, and what has no key. (§2)"""
    engine = Harness()
    engine.append(tagged("a"), BARE, tagged("b"), 1, tagged("a"), BARE, NULL, tagged("b"))
    found = look_at(engine)
    assert rows_of(found) == ([0, 1, 2, 4], [6])
    assert found.times.tolist() == [engine.now_ms]
    assert len(found.known) == 3
    assert sorted(found.known.tolist()) == found.known.tolist()

    engine.seal_all()
    assert rows_of(look_at(engine)) == ([0, 1, 2, 4], [6])


def test_keys_of_record_batches() -> None:
    """Compressed or not, in memory and sealed; a key of no bytes is one; a tag over HTTP is the same key."""
    engine = Harness()
    engine.put()
    pairs = [(b"a", b"1"), (b"\xff", b"2"), (b"", b"3"), (None, b"4"), (b"\xff", None), (b"", b"5")]
    produce(engine, *pairs, (b"a", None), codec=4)
    produce(engine, (b"b", b"6"), (b"b", b"7"))
    for _ in range(2):
        found = look_at(engine)
        assert rows_of(found) == ([0, 1, 2, 7], [4, 6])
        assert rows_of(look_at(engine, found)) == ([0, 1, 2, 4, 5, 6, 7, 8], [])
        engine.seal_all()

    text = Harness()
    text.append(tagged("a"), BARE)
    assert rows_of(look_at(text, found)) == ([0], [])


def test_keys_of_what_was_cleaned_are_looked_up_and_not_remembered() -> None:
    """By the tags of a batch; it is read for keys that are none."""
    engine = Harness()
    engine.put()
    produce(engine, (b"a", None), (b"\xff", b"2"), (b"b", b"3"))
    engine.seal_all()
    newer = Harness()
    newer.append(tagged("b"), {"data": 1, "key": "/w=="})
    found = look_at(engine, look_at(newer), collects=False)
    assert rows_of(found) == ([1, 2], [])
    assert len(found.known) == 2

    tags = Harness()
    tags.put()
    produce(tags, (b"a", b"1"), (b"b", b"2"))
    tags.seal_all()
    assert rows_of(look_at(tags, look_at(newer), collects=False)) == ([1], [])


def test_what_is_deleted_or_below_a_floor_has_no_part() -> None:
    """Nor is a batch read of which nothing is left."""
    engine = Harness()
    engine.put()
    for value in (b"1", b"2", b"3"):
        produce(engine, (b"a", value))
    engine.delete(before_seq=2)
    (run,) = engine.topic().runs
    assert rows_of(look(run, 3, 0, NO_DIGESTS, collects=True)) == ([1], [])
    assert rows_of(look(run, 3, 2, NO_DIGESTS, collects=True)) == ([], [])
    nothing = look(run, 3, 3, NO_DIGESTS, collects=True)
    assert (rows_of(nothing), len(nothing.known)) == (([], []), 0)
    engine.ask(DeleteSeqs("t", engine.state()["epoch"], (2).to_bytes(8, "little")))
    produce(engine, (b"a", b"4"))
    assert rows_of(look(run, 4, 0, NO_DIGESTS, collects=True)) == ([2], [])
    produce(engine, (b"a", b"9"))
    epoch = engine.state()["epoch"]
    engine.ask(DeleteSeqs("t", epoch, (4).to_bytes(8, "little")))
    assert rows_of(look(run, 5, 0, NO_DIGESTS, collects=True)) == ([2], [])
    engine.ask(DeleteSeqs("t", epoch, (3).to_bytes(8, "little")))
    produce(engine, (b"b", b"5"))
    assert rows_of(look(run, 6, 0, NO_DIGESTS, collects=True)) == ([], [])


def test_a_run_is_looked_at_in_parts(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    """The newest first; a record batch is one part, however large."""
    monkeypatch.setattr(record_keys, "PART_ROWS", 2)
    engine = Harness()
    engine.append(*(tagged("ab"[i % 2]) for i in range(5)))
    (run,) = engine.topic().runs
    newest = look(run, 5, 0, NO_DIGESTS, collects=True)
    assert (newest.lo, *rows_of(newest)) == (3, [], [])
    middle = look(run, newest.lo, 0, newest.known, collects=True)
    assert (middle.lo, *rows_of(middle)) == (1, [1, 2], [])

    batches = Harness()
    batches.put()
    produce(batches, *[(b"a", b"1")] * 5)
    assert look_at(batches).lo == 0


def test_where_what_is_old_enough_ends() -> None:
    """By the time of the append, up to the head that is shown. (docs/kafka.md)"""
    engine = Harness(segment_max_records=2)
    for _ in range(5):
        engine.append(1)
        engine.now_ms += 10
    runs, first_ms = list(engine.topic().runs), engine.now_ms - 50
    assert last_before(runs, 5, first_ms) == (0, first_ms)
    assert last_before(runs, 5, first_ms + 1) == (1, first_ms + 10)
    assert last_before(runs, 5, first_ms + 21) == (3, first_ms + 30)
    assert last_before(runs, 3, first_ms + 21) == (3, None)
    assert last_before(runs, 5, engine.now_ms) == (5, None)
    assert last_before([], 0, 5) == (0, None)
    assert np.array_equal(runs[0].times, [first_ms, first_ms + 10])
