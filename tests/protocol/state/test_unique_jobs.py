"""Unique keys: which job has a key, and which job lost it (130)."""

from topics.protocol.state.unique_jobs import UniqueJobs

A, B = b"a" * 16, b"b" * 16


def test_a_key_is_free_when_its_job_is_done() -> None:
    keys = UniqueJobs()
    keys.note(A, 1, 0)
    assert (keys.find(A, 0), keys.find(B, 0)) == (1, None)
    keys.free(A, 1)
    assert keys.find(A, 0) is None


def test_a_key_that_is_held_outlives_its_job() -> None:
    """Also in a checkpoint; and when the time is over it takes no memory."""
    keys = UniqueJobs()
    keys.note(A, 1, 500)
    keys.free(A, 1)
    found = UniqueJobs()
    found.restore(keys.image())
    assert (found.find(A, 499), found.find(A, 500)) == (1, None)
    found.forget(499)
    assert found.image()
    found.forget(500)
    assert not found.image()


def test_another_hold_takes_the_place_of_the_first() -> None:
    """The end of the first ends nothing."""
    keys = UniqueJobs()
    keys.note(A, 1, 500)
    keys.note(A, 2, 900)
    keys.free(A, 2)
    keys.forget(600)
    assert keys.find(A, 600) == 2
    keys.note(A, 3, 0)
    keys.free(A, 3)
    assert keys.find(A, 600) is None


def test_a_job_that_lost_its_key_does_not_get_it_back() -> None:
    """Neither from the end of the later one, nor after a start, whose segments still say the key."""
    keys = UniqueJobs()
    keys.end_recall()
    keys.note(A, 1, 0)
    keys.note(A, 2, 0)
    assert keys.keyless == {1}
    keys.free(A, 1)
    assert (keys.find(A, 0), keys.keyless) == (2, set())

    again = UniqueJobs([1])
    again.recall(A, 1)
    assert again.find(A, 0) is None

    later = UniqueJobs()
    later.note(A, 2, 0)
    later.free(A, 2)
    later.recall(A, 1)
    later.recall(B, 3)
    later.end_recall()
    assert (later.find(A, 0), later.find(B, 0), later.keyless) == (None, 3, {1})
