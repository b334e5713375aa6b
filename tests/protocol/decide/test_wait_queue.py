"""Wait queues: jobs go round the waiters one at a time, and each is looked at when it is due. (§10.2)"""

from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.decide.wait_queue import JobWaiter, WaitQueues, deal, shares_of

WANTS = st.lists(st.integers(0, 6), max_size=6)


@given(st.integers(0, 30), WANTS)
def test_jobs_are_dealt_one_at_a_time(n: int, wants: list[int]) -> None:
    """No waiter has two more than one that still wants; none gets more than it asked for. (§10.2)"""
    seqs = list(range(1, n + 1))

    shares = deal(seqs, wants)

    sizes = list(map(len, shares))
    assert shares_of(n, wants) == sizes
    assert sum(sizes) == min(n, sum(wants))
    assert sorted(seq for share in shares for seq in share) == seqs[: sum(sizes)]
    assert all(share == sorted(share) for share in shares)
    for size, want in zip(sizes, wants, strict=True):
        assert size <= want
        if size < want:
            assert max(sizes) <= size + 1


@given(WANTS.filter(lambda wants: any(wants)))
def test_the_first_to_come_is_the_first_to_get(wants: list[int]) -> None:
    """One job, many waiters: it is the first's who wants any. (§10.2)"""
    first = next(i for i, want in enumerate(wants) if want)
    assert [i for i, share in enumerate(deal([7], wants)) if share] == [first]


def test_a_wait_queue_goes_when_nobody_uses_it() -> None:
    """Its last claim was cancelled; but a window that is open closes by the clock. (§10.2)"""
    queues = WaitQueues()
    waiting = queues.open(1)
    waiting.closes_ms = 50
    queues.add_claim(waiting, "c", JobWaiter("w", 1, None, until_ms=100))
    queues.set_alarm(1, None)
    assert queues.alarm_ms() == 50

    queues.forget("c")
    queues.set_alarm(1, None)
    assert queues.find(1) is waiting

    waiting.closes_ms = None
    queues.set_alarm(1, None)
    assert (queues.find(1), queues.alarm_ms()) == (None, None)


def test_claims_end_in_the_order_of_their_times() -> None:
    """Whichever came first; one that was answered before is passed over. (§10.2)"""
    queues = WaitQueues()
    waiting = queues.open(1)
    for token, until_ms in (("late", 90), ("early", 10), ("answered", 20), ("middle", 20)):
        queues.add_claim(waiting, token, JobWaiter("w", 1, None, until_ms=until_ms))
    del waiting.waiters["answered"]

    assert list(waiting.take_ended(20)) == ["early", "middle"]
    assert list(waiting.waiters) == ["late"]
    assert waiting.next_end_ms() == 90


def test_an_alarm_rings_once_and_is_set_anew() -> None:
    """Entries of times that no longer hold are passed over. (§10.2)"""
    queues = WaitQueues()
    waiting = queues.open(1)
    queues.add_claim(waiting, "c", JobWaiter("w", 1, None, until_ms=100))
    queues.set_alarm(1, 40)
    queues.set_alarm(1, 70)  # later: the earlier alarm stays, and is set anew when it rings
    assert queues.alarm_ms() == 40
    assert queues.take_due(39) == []

    assert queues.take_due(40) == [(1, waiting)]

    queues.set_alarm(1, 70)
    assert queues.alarm_ms() == 70
    assert queues.take_due(40) == []


def test_a_claim_is_forgotten_in_whichever_queue_it_waits() -> None:
    """The client that is gone says no queue; the claims of others stay. (§10.2)"""
    queues = WaitQueues()
    for topic_id in (1, 2, 3):
        queues.add_claim(queues.open(topic_id), f"c{topic_id}", JobWaiter("w", 1, None, 100))

    queues.forget("c2")
    queues.forget("unknown")

    left = [list(waiting.waiters) for n in (1, 2, 3) if (waiting := queues.find(n)) is not None]
    assert left == [["c1"], [], ["c3"]]
