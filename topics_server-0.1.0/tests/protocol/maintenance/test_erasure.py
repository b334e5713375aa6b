"""Erasure: which segments hold text of deleted records, of whichever topics (§5)."""

from protocol.harness import Harness, tagged
from topics.protocol.maintenance.erasure import Holdings

from .runs import segments, shared


def holdings(engine: Harness, segment: int, *names: str) -> Holdings:
    """What a segment holds of topics."""
    topic_ids = [engine.topic(name).topic_id for name in names]
    contents = engine.store.contents(segment)
    engine.compaction.measure(segment, contents)
    return engine.schedule.erasure.holdings(segment, contents, topic_ids)


def test_the_segments_of_a_topic_are_checked_and_no_others() -> None:
    """A segment that is referred to as a whole holds nothing of a topic without runs in it. (§5)"""
    engine = Harness()
    for name in ("t", "u"):
        engine.append("x", name=name)
        engine.seal_all()
    (first, second) = sorted(segments(engine))

    erasure = engine.schedule.erasure
    assert erasure.segments_to_check([engine.topic("t").topic_id]) == [first]
    assert erasure.segments_to_check([engine.topic("u").topic_id]) == [second]


def test_a_run_that_nothing_refers_to_is_dead_text() -> None:
    """It may be of any topic, so its segment is checked for each. (§5)"""
    engine = shared()
    (segment,) = segments(engine)
    names = sorted(engine.engine.state.topics)
    engine.delete(names[0], before_seq=1 << 40)
    while engine.compaction.drop_runs(engine.now_ms):
        engine.sync()

    erasure = engine.schedule.erasure
    assert segment in erasure.segments_to_check([engine.topic(names[0]).topic_id])
    assert holdings(engine, segment, names[0]) == ([], True)
    inspections, has_dropped = holdings(engine, segment, names[1])
    assert [each.topic.name for each in inspections] == [names[1]]
    assert not has_dropped


def test_what_is_deleted_in_a_segment_is_counted_out() -> None:
    """An inspection says how many records and bytes are left. (§5)"""
    engine = Harness()
    engine.append(tagged("keep", "x"), tagged("gone", "y" * 100))
    engine.seal_all()
    engine.delete(match="gone")
    (segment,) = segments(engine)

    (inspection,) = holdings(engine, segment, "t").inspections
    records, text_bytes = inspection.live()
    assert records == 1
    assert text_bytes < inspection.run.text_bytes - 100
