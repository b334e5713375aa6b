"""What of a topic is shown of what is written: the server's rule, batch by batch."""

import pytest
from protocol.harness import Harness

from topics.arrow.durable_heads import DurableHeads


@pytest.fixture
def engine() -> Harness:
    """Its topic is durable with its first reservation."""
    engine = Harness()
    engine.put()
    return engine


def heads_of(engine: Harness) -> DurableHeads:
    """All that the engine has is durable."""
    heads = DurableHeads(engine.engine.state)
    for event in engine.events:
        heads._touched.add(event.topic_id)
    heads.end_batch(1, is_durable=True)
    return heads


def test_a_mark_waits_for_its_batch(engine: Harness) -> None:
    """What a batch reserves and writes counts when a sync covers it, and none before."""
    engine.put(durability="fsync")
    heads, topic = heads_of(engine), engine.topic()
    shown = []
    for batch in (2, 3, 4):
        engine.append(batch)
        heads._touched.add(topic.topic_id)
        heads.end_batch(batch, is_durable=False)
        shown.append(heads.shown(topic))
    for through in (1, 2, 4):
        heads.settle(through)
        shown.append(heads.shown(topic))

    assert shown == [0, 0, 0, 0, 1, 3]


def test_a_topic_that_is_gone_has_no_mark(engine: Harness) -> None:
    """It was created and deleted in one batch."""
    heads = heads_of(engine)
    engine.append(1, name="brief")
    brief = engine.topic("brief")
    heads._touched.add(brief.topic_id)
    engine.drop("brief")
    heads.end_batch(2, is_durable=True)

    assert heads.has(engine.topic())
    assert not heads.has(brief)
