"""Checkpointing: what a checkpoint seals, and what it leaves in memory (§5)."""

from protocol.harness import Harness
from topics.protocol.maintenance.sealing import JOB_ENTRIES_MAX
from topics.protocol.state.state import State


def test_a_checkpoint_holds_no_hot_record() -> None:
    """Its image names sealed runs only; ephemeral ones are told as lost. (§0.10)"""
    engine = Harness()
    engine.append(1, 2)
    engine.put("e", durability="ephemeral")
    engine.append(1, 2, 3, name="e", idempotency_key="k")
    found = engine.finish_checkpoint(engine.begin_checkpoint())
    images = {image.name: image for image in found.topics}

    assert [run.count for run in images["t"].runs] == [2]
    assert (images["e"].volatile, images["e"].keys) == ([(1, 3)], [])
    assert (images["e"].count, images["e"].head_seq) == (0, 3)


def test_many_small_topics_are_sealed_a_part_at_a_time() -> None:
    """A checkpoint of many topics plans no more than a part of them in one go."""
    engine = Harness()
    for i in range(JOB_ENTRIES_MAX + 10):
        engine.append(i, name=f"t{i}")

    plan = engine.begin_checkpoint()
    first = engine.checkpointing.plan_seal(plan)
    assert first is not None
    engine.sealing.install(first, engine.store.seal(first.entries), engine.now_ms, plan.images)
    rest = engine.checkpointing.plan_seal(plan)

    assert len(first.entries) == JOB_ENTRIES_MAX
    assert rest is not None
    assert len(rest.entries) == 10


def test_a_checkpoint_takes_nothing_that_came_after_it_began() -> None:
    """A run that was begun and closed while it sealed other topics is in the log behind it, and
    would be there twice. (§0.10)"""
    engine = Harness(segment_max_records=2)
    engine.append("before")
    plan = engine.begin_checkpoint()
    engine.events.clear()
    engine.append("while", "while")
    engine.append("open")

    job = engine.checkpointing.plan_seal(plan)
    assert job is not None
    assert job.ranges == ((1, 1),)
    engine.sealing.install(job, engine.store.seal(job.entries), engine.now_ms, plan.images)
    assert engine.checkpointing.plan_seal(plan) is None

    engine.sync()
    again = State(engine.limits, engine.store)
    again.restore(engine.finish_checkpoint(plan))
    for event in engine.events:
        again.apply(event)
    assert [(run.first_seq, run.count) for run in again.topics["t"].runs] == [
        (1, 1),
        (2, 2),
        (4, 1),
    ]
    (due,) = engine.seal()
    assert due.ranges == ((2, 3),)


def test_what_a_failed_checkpoint_froze_is_sealed_later() -> None:
    """Frozen runs that were not sealed are due as full ones are."""
    engine = Harness()
    engine.append(1, 2)
    plan = engine.begin_checkpoint()

    engine.checkpointing.abandon(plan)

    (job,) = engine.seal()
    assert len(job.entries) == 1


def test_a_topic_that_does_not_fit_is_sealed_in_several_parts() -> None:
    """Each into a segment of its own, with nothing left out. (§0.10)"""
    engine = Harness(segment_max_records=2, segment_max_bytes=4096)
    for n in range(20):
        engine.append("x" * 900, n)
    plan = engine.begin_checkpoint()
    jobs = 0
    while (job := engine.checkpointing.plan_seal(plan)) is not None:
        engine.sealing.install(job, engine.store.seal(job.entries), engine.now_ms, plan.images)
        jobs += 1

    found = engine.finish_checkpoint(plan)

    assert jobs > 1
    assert sum(run.count for run in found.topics[0].runs) == 40


def test_a_topic_that_went_is_not_sealed_for_a_checkpoint_that_failed() -> None:
    """Of those that are left the runs are due as full ones are."""
    engine = Harness()
    engine.append(1, name="gone")
    engine.append(1, name="left")
    plan = engine.begin_checkpoint()
    assert len(plan.images.unsealed) == 2
    engine.drop("gone")

    engine.checkpointing.abandon(plan)

    (job,) = engine.seal()
    assert [entry.topic_id for entry in job.entries] == [engine.topic("left").topic_id]
