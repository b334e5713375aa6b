"""The queues of all topics: numbers of leases, ends by time, and what a recovery keeps (§10)."""

import numpy as np
import pytest

from topics.protocol.model.config import TopicConfig
from topics.protocol.model.events import JobsLeased, JobsReleased
from topics.protocol.model.limits import Limits
from topics.protocol.state.queues import Queues
from topics.protocol.state.topic import Topic

from .jobs import everywhere

NONE_LOST = np.empty((0, 2), np.uint64)


def topic(topic_id: int = 1, **config: object) -> Topic:
    return Topic(topic_id, f"q{topic_id}", TopicConfig(type="queue", **config), "e")  # type: ignore[arg-type]


def leased(topic_id: int, *leases: int, until_ms: int = 500, deliveries: int = 1) -> JobsLeased:
    seqs = list(range(1, len(leases) + 1))
    return JobsLeased(0, topic_id, "w", until_ms, seqs, list(leases), [deliveries] * len(seqs))


def test_no_number_of_a_lease_is_given_twice() -> None:
    """It grows with each claim of any queue, whatever order the numbers come in. (§10.3)"""
    queues = Queues(Limits())
    for topic_id in (1, 2):
        queues.add(topic(topic_id))
    assert queues.next_lease == 1

    queues.lease(leased(1, 7, 5))
    assert queues.next_lease == 8
    queues.lease(leased(2, 3))
    assert queues.next_lease == 8


def test_a_restored_queue_gives_no_number_again() -> None:
    """Leases of a checkpoint count, and those whose jobs are lost too. (§10.3)"""
    queues = Queues(Limits())

    queues.restore(topic(), everywhere().image(lasting=True), np.array([[2, 2]], np.uint64))

    assert queues.next_lease == 202
    assert 2 not in queues[1].jobs
    assert 3 in queues[1].jobs


def test_a_topic_that_is_no_queue_has_none() -> None:
    """Asked for at every append: None, and no error; a deleted one has none either. (§10.1)"""
    queues = Queues(Limits())
    queues.add(topic(1))
    queues.add(topic(2))

    queues.remove(1)
    queues.remove(3)

    assert (queues.get(1), queues.get(2)) == (None, queues[2])
    assert (list(queues), len(queues), 1 in queues) == ([2], 1, False)


ENDS = {"max_deliveries": 2, "dead_letter": "d"}


def test_a_queue_tells_once_that_a_job_may_end_sooner() -> None:
    """After the claim that is its last one, and again after a release; not after other claims.
    (§10.6)"""
    queues = Queues(Limits(dead_letter_after_ms=1000))
    queues.add(topic(**ENDS))
    queues.take_ending()

    queues.lease(leased(1, 1))
    assert list(queues.take_ending()) == []
    queues.lease(leased(1, 2, deliveries=2))
    assert list(queues.take_ending()) == [1]
    assert list(queues.take_ending()) == []
    queues.release(JobsReleased(400, 1, 400, [1], [2]))
    assert list(queues.take_ending()) == [1]
    assert queues[1].next_end_ms() == 1400


def test_a_deleted_queue_tells_nothing() -> None:
    """Whatever it had to tell. (§10.6)"""
    queues = Queues(Limits(dead_letter_after_ms=1000))
    queues.add(topic(**ENDS))

    queues.remove(1)

    assert list(queues.take_ending()) == []


@pytest.mark.parametrize(
    ("config", "after_ms", "ends"),
    [
        (ENDS, 1000, True),
        (ENDS, 0, False),
        ({"max_deliveries": 2}, 1000, False),
        ({"max_deliveries": 0, "dead_letter": "d"}, 1000, False),
    ],
)
def test_jobs_end_by_time_where_there_is_a_topic_for_them(
    config: dict[str, object], after_ms: int, ends: bool
) -> None:
    """With a bound on deliveries, a dead-letter topic and a time: without one of them never.
    (§10.6)"""
    queues = Queues(Limits(dead_letter_after_ms=after_ms))
    queues.add(topic(**config))

    queues.lease(leased(1, 1, deliveries=2))

    assert (queues[1].next_end_ms() is not None) is ends


@pytest.mark.parametrize(
    ("clean", "leases_durable", "held"),
    [(True, False, 1), (True, True, 1), (False, True, 1), (False, False, 0)],
)
def test_leases_outlive_a_crash_only_where_each_is_logged(
    clean: bool, leases_durable: bool, held: int
) -> None:
    """And a clean stop always; how many were dead-lettered, and what was delivered how often, is kept in any
    case. (§0.10)"""
    made = topic(leases_durable=leases_durable)
    queues = Queues(Limits())
    queues.restore(topic(), everywhere().image(lasting=True), NONE_LOST)
    if not clean:
        # Of a crash only what is live is believed: the topic holds no records here.
        queues[1].fresh_from = 1

    queues.recover(made, 600, clean=clean)

    assert queues[1].in_flight == held
    assert {job.deliveries for job in queues[1].jobs.values()} == {1, 2}
    assert queues[1].dead_lettered == 5
