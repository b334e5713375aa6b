"""Due times: the topics from which time may have taken something (§0.10, §0.8)."""

from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.state.expiry import DueTimes


def take_all(times: DueTimes[int], now_ms: int) -> list[int]:
    found = iter(lambda: times.take(now_ms), None)
    return [topic_id for topic_id in found if topic_id is not None]


def test_a_topic_is_due_at_its_time_and_once() -> None:
    """The one that waits longest first."""
    times = DueTimes[int]()
    times.set(1, 300)
    times.set(2, 200)
    assert not times.is_due(199)
    assert take_all(times, 199) == []

    assert take_all(times, 300) == [2, 1]
    assert 1 not in times
    assert take_all(times, 10_000) == []


def test_a_time_that_was_set_again_is_the_one_that_counts() -> None:
    """Earlier or later; the entry before it is passed over."""
    times = DueTimes[int]()
    times.set(1, 100)
    times.set(1, 500)
    times.set(2, 500)
    times.set(2, 0)
    assert take_all(times, 499) == [2]
    assert take_all(times, 500) == [1]


def test_a_topic_that_was_forgotten_is_never_due() -> None:
    """As after its deletion; another with its own time stays."""
    times = DueTimes[int]()
    times.set(1, 100)
    times.set(2, 100)
    times.forget(1)
    times.forget(3)
    assert take_all(times, 100) == [2]


@given(
    st.lists(st.tuples(st.integers(1, 5), st.none() | st.integers(0, 50))),
    st.integers(0, 50),
)
def test_what_is_due_is_what_a_dict_says(steps: list[tuple[int, int | None]], now_ms: int) -> None:
    """Whatever was set and forgotten before, in order of the times."""
    times, known = DueTimes[int](), dict[int, int]()
    for topic_id, due_ms in steps:
        if due_ms is None:
            times.forget(topic_id)
            known.pop(topic_id, None)
        else:
            times.set(topic_id, due_ms)
            known[topic_id] = due_ms

    due = take_all(times, now_ms)
    assert sorted(due) == sorted(t for t, at_ms in known.items() if at_ms <= now_ms)
    assert [known[t] for t in due] == sorted(known[t] for t in due)


def test_the_next_time_is_that_of_whoever_is_due_first() -> None:
    """A time that is later than one which was set before changes nothing."""
    times = DueTimes[str]()
    assert times.next_ms() is None
    times.not_after("g", 300)
    times.not_after("h", 200)
    times.not_after("g", 400)
    times.not_after("g", 100)
    assert times.next_ms() == 100
    times.forget("g")
    assert times.next_ms() == 200
    times.forget("h")
    assert times.next_ms() is None
