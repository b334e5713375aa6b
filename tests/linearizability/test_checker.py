"""The checker finds each kind of violation, and none in a sound history. (A checker that cannot fail
proves nothing.)"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from .checker import check_log, check_ordered, check_queue, check_urgent
from .history import (
    ALL,
    ENDLESS,
    Ack,
    Append,
    Claim,
    Delete,
    Filter,
    Grant,
    LogHistory,
    QueueHistory,
    Read,
)


def read(
    at: int, head: int, *records: tuple[int, str], from_seq: int = 0, which: Filter = ALL
) -> Read:
    """A read up to the head, sent at a time and answered five later."""
    return Read(at, at + 5, from_seq, records, head, head, filter=which)


def log() -> LogHistory:
    """A sound history: two clients that append, one that deletes, reads in between, and a batch
    without an answer."""
    return LogHistory(
        appends=[
            Append(0, 10, ("a", "b"), 1),
            Append(5, 30, ("c",), 3),
            Append(40, 50, ("d", "e"), 4),
            Append(60, ENDLESS, ("f", "g"), None),
            Append(61, ENDLESS, ("never",), None),
        ],
        reads=[
            read(12, 2, (1, "a"), (2, "b")),
            read(25, 3, (1, "a"), (2, "b"), (3, "c")),
            read(55, 5, (2, "b"), (3, "c"), (4, "d"), (5, "e")),
            read(90, 7, (3, "c"), (4, "d"), (5, "e"), (6, "f"), (7, "g")),
            read(96, 7, (7, "g"), from_seq=6),
        ],
        deletes=[
            Delete(51, 54, frozenset({1}), 1),
            Delete(57, 70, frozenset({1, 2}), 1),
            Delete(71, ENDLESS, frozenset({2}), None),
        ],
    )


def test_a_sound_log_has_no_violation() -> None:
    """Overlapping appends in either order, a delete that others repeat, an unanswered batch that
    was applied and one that was not: all of it is allowed."""
    assert check_log(log()) == []


def again(history: LogHistory, at: int, **changes: object) -> LogHistory:
    history.reads[at] = replace(history.reads[at], **changes)  # type: ignore[arg-type]
    return history


def appended(history: LogHistory, *, at: int, **changes: object) -> LogHistory:
    history.appends[at] = replace(history.appends[at], **changes)  # type: ignore[arg-type]
    return history


def deleted(history: LogHistory, *, at: int, **changes: object) -> LogHistory:
    history.deletes[at] = replace(history.deletes[at], **changes)  # type: ignore[arg-type]
    return history


LOG_ERRORS: dict[str, tuple[Callable[[LogHistory], LogHistory], str]] = {
    "a wrong byte": (
        lambda h: again(h, 1, records=((1, "a"), (2, "B"), (3, "c"))),
        "seq 2 has two contents",
    ),
    "an acknowledged record that is lost": (
        lambda h: again(h, 3, records=((4, "d"), (5, "e"), (6, "f"), (7, "g"))),
        "lacks seq 3: c",
    ),
    "an acknowledged end that is lost": (
        lambda h: again(h, 3, records=((3, "c"),), next_from=3, head=3),
        "has head 3 after 5 had been seen",
    ),
    "a head that falls": (
        lambda h: again(h, 4, records=(), next_from=6, head=5),
        "has head 5 after 7 had been seen",
    ),
    "a deleted record that comes back": (
        lambda h: again(h, 3, records=((1, "a"), *log().reads[3].records)),
        "has seq 1, which had been deleted",
    ),
    "a record that comes back after a read without it": (
        lambda h: again(
            deleted(h, at=1, returned=ENDLESS, deleted=None),
            4,
            from_seq=1,
            records=((2, "b"), *log().reads[3].records),
        ),
        "has seq 2, which had been deleted",
    ),
    "half of a batch": (
        lambda h: again(h, 0, records=((1, "a"),), next_from=1, head=1),
        "has head 1, which is within a batch",
    ),
    "a batch that is torn apart": (
        lambda h: appended(h, at=3, texts=("f", "x", "g")),
        "g is at 7, and its batch begins at 6",
    ),
    "one seq for two records": (
        lambda h: appended(h, at=1, first_seq=2),
        "seq 2 has two contents",
    ),
    "one record with two seqs": (
        lambda h: again(h, 4, records=((7, "g"), (8, "g")), next_from=8, head=8),
        "g was applied twice: at 7 and at 8",
    ),
    "a later append with a lower seq": (
        lambda h: appended(h, at=1, invoked=51, returned=53),
        "c got seq 3 after seq 5 had been answered",
    ),
    "a record that nobody sent": (
        lambda h: appended(h, at=3, texts=("x", "y")),
        "f at 6 was read before it was sent",
    ),
    "a record that is read before it is sent": (
        lambda h: appended(h, at=1, invoked=31, returned=35),
        "c at 3 was read before it was sent",
    ),
    "a read that is out of order": (
        lambda h: again(h, 1, records=((2, "b"), (1, "a"), (3, "c"))),
        "is out of order",
    ),
    "a read that goes beyond its end": (
        lambda h: again(h, 2, next_from=4, records=log().reads[2].records),
        "is out of order",
    ),
    "a loss that did not happen": (
        lambda h: again(h, 2, has_tombstone=True),
        "reports a loss",
    ),
    "a delete that counts what another counted": (
        lambda h: deleted(h, at=1, deleted=2),
        "a delete of 2 counted 2, not 1 to 1",
    ),
    "a delete that counts too few": (
        lambda h: deleted(h, at=0, deleted=0),
        "a delete of 1 counted 0, not 1 to 1",
    ),
    "a read of two moments": (
        # It has d, which was sent at 40, and still a, whose delete was answered by 38.
        lambda h: again(
            deleted(h, at=0, invoked=34, returned=38),
            2,
            invoked=33,
            records=((1, "a"), (2, "b"), (3, "c"), (4, "d"), (5, "e")),
        ),
        "is that of no moment",
    ),
    "a read that lacks what was answered before what it lacks for": (
        # It lacks b, whose delete was sent at 57, and c to e, which were answered by 50.
        lambda h: again(h, 1, returned=60, records=((1, "a"),), next_from=2, head=2),
        "is that of no moment",
    ),
}


@pytest.mark.parametrize("name", LOG_ERRORS)
def test_an_error_of_a_log_is_found(name: str) -> None:
    """One change of the sound history, and the violation that names it."""
    seed, expected = LOG_ERRORS[name]

    found = check_log(seed(log()))

    assert any(expected in violation for violation in found), found


S = Filter("s.*")


def shared() -> LogHistory:
    """A sound history of tags that batches share: reads with filters, and deletes by tag that took
    effect before a record of the tag came, or after it."""
    return LogHistory(
        appends=[
            Append(0, 10, ("a",), 1, "s.1", "n1"),
            Append(5, 12, ("b",), 2, "u.1", "n2"),
            Append(13, 20, ("c",), 3, "s.2", "n2"),
            Append(41, 45, ("d",), 4, "s.3", "n1"),
            Append(56, ENDLESS, ("unseen",), None, "s.4", "n1"),
            Append(85, 90, ("e",), 5, "s.5", "n1"),
        ],
        reads=[
            read(21, 3, (1, "a"), (3, "c"), which=S),
            read(21, 3, (2, "b"), (3, "c"), which=Filter(skip="n1")),
            read(35, 3, (1, "a"), (3, "c"), which=S),
            read(52, 4, (4, "d"), which=S),
            read(77, 4, which=S),
            read(78, 4, (2, "b")),
            read(91, 5, (5, "e"), which=S),
            Read(79, 92, 0, ((2, "b"), (5, "e")), 5, 5, filter=Filter(skip="n2x")),
        ],
        deletes=[
            Delete(30, 50, frozenset(), 2, S),
            Delete(53, 55, frozenset(), 0, S, before_seq=4),
            Delete(57, 75, frozenset(), 2, S),
            Delete(80, 82, frozenset({4}), 0),
        ],
    )


def test_a_sound_log_of_shared_tags_has_no_violation() -> None:
    """A delete that counts what nobody saw, and one that left what came while it went on."""
    assert check_log(shared()) == []


SHARED_ERRORS: dict[str, tuple[Callable[[LogHistory], LogHistory], str]] = {
    "a delete that takes an old record and leaves a newer one that was seen beside it": (
        lambda h: again(h, 2, invoked=46, returned=49, records=((1, "a"), (3, "c"), (4, "d")),
                        next_from=4, head=4),
        "has seq 1, which had been deleted",
    ),
    "a delete that leaves what was there": (
        lambda h: again(h, 3, records=((3, "c"), (4, "d"))),
        "left what was there before it was sent",
    ),
    "a filtered read of two moments": (
        # It has e, which was sent at 85, and still d, whose last delete was answered by 75.
        lambda h: again(h, 6, invoked=73, records=((4, "d"), (5, "e"))),
        "is that of no moment",
    ),
    "a filtered read that lacks what it wants": (
        lambda h: again(h, 0, records=((1, "a"),)),
        "lacks seq 3: c",
    ),
    "a filtered read that has what it does not want": (
        lambda h: again(h, 0, records=((1, "a"), (2, "b"), (3, "c"))),
        "has seq 2, which Filter(match='s.*', skip=None) leaves out",
    ),
    "a read that has a record of the node that it skips": (
        lambda h: again(h, 1, records=((1, "a"), (2, "b"), (3, "c"))),
        "has seq 1, which Filter(match=None, skip='n1') leaves out",
    ),
    "a delete by tag that counts too many": (
        lambda h: deleted(h, at=0, deleted=4),
        "counted 4, not 2 to 3",
    ),
    "a delete by tag that counts what another counted": (
        lambda h: deleted(h, at=1, deleted=1),
        "counted 1, not 0 to 0",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SHARED_ERRORS)
def test_an_error_of_shared_tags_is_found(name: str) -> None:
    """One change of the sound history, and the violation that names it."""
    seed, expected = SHARED_ERRORS[name]

    found = check_log(seed(shared()))

    assert any(expected in violation for violation in found), found


def queue() -> QueueHistory:
    """A sound history: a job done at once, one whose lease ended and that another worker did, and
    one whose ack had no answer."""
    return QueueHistory(
        appends=[Append(0, 10, ("a", "b", "c"), 1)],
        claims=[
            Claim(11, 15, (Grant(1, 100, 1, 1000, 1400), Grant(2, 101, 1, 1000, 1400))),
            Claim(30, 35, (Grant(2, 102, 2, 1401, 1801), Grant(3, 103, 1, 1401, 1801))),
        ],
        acks=[
            Ack(16, 20, 1, 100, True),
            Ack(36, 40, 2, 101, False),
            Ack(36, 40, 2, 102, True),
            Ack(41, ENDLESS, 3, 103, None),
        ],
    )


def test_a_sound_queue_has_no_violation() -> None:
    """A lease that ends is followed by another, and its late ack is refused."""
    assert check_queue(queue()) == []


def acked(history: QueueHistory, at: int, **changes: object) -> QueueHistory:
    history.acks[at] = replace(history.acks[at], **changes)  # type: ignore[arg-type]
    return history


def granted(history: QueueHistory, *grants: Grant) -> QueueHistory:
    history.claims[1] = replace(history.claims[1], grants=grants)
    return history


QUEUE_ERRORS: dict[str, tuple[Callable[[QueueHistory], QueueHistory], str]] = {
    "a job that is held twice": (
        lambda h: granted(h, Grant(2, 102, 2, 1399, 1799), Grant(3, 103, 1, 1401, 1801)),
        "job 2 was held under two leases: 101 and 102",
    ),
    "a delivery that is not counted": (
        lambda h: granted(h, Grant(2, 102, 1, 1401, 1801), Grant(3, 103, 1, 1401, 1801)),
        "job 2 was delivered 1 and 1 times",
    ),
    "a lease that is given twice": (
        lambda h: granted(h, Grant(2, 100, 2, 1401, 1801), Grant(3, 103, 1, 1401, 1801)),
        "lease 100 was given twice",
    ),
    "a job that is done twice": (
        lambda h: acked(h, 1, is_done=True),
        "job 2 was done 2 times",
    ),
    "a job that comes back": (
        lambda h: granted(h, Grant(1, 102, 2, 1401, 1801), Grant(3, 103, 1, 1401, 1801)),
        "job 1 was delivered after it was done",
    ),
    "a lease that is not superseded": (
        lambda h: acked(acked(h, 2, is_done=False), 1, is_done=True),
        "job 2 was done under lease 101, after 102 was given",
    ),
    "a job that is lost": (
        lambda h: acked(h, 3, is_done=False),
        "job 3 was appended, and is neither done nor claimable",
    ),
    "leases that run backwards": (
        lambda h: granted(h, Grant(2, 99, 0, 500, 900), Grant(3, 103, 1, 1401, 1801)),
        "lease 101 of job 2 was answered before 99 was asked",
    ),
}


@pytest.mark.parametrize("name", QUEUE_ERRORS)
def test_an_error_of_a_queue_is_found(name: str) -> None:
    """One change of the sound history, and the violation that names it."""
    seed, expected = QUEUE_ERRORS[name]

    found = check_queue(seed(queue()))

    assert any(expected in violation for violation in found), found


def ordered() -> QueueHistory:
    """A sound history of groups: `a` has jobs 1, 2 and 4, `b` 3; 1 was given again after its lease, 2 once that was done,
    and 4 while an ack of 2 had no answer."""
    return QueueHistory(
        appends=[
            Append(0, 10, ("1", "2"), 1, "a"),
            Append(11, 12, ("3",), 3, "b"),
            Append(13, 14, ("4",), 4, "a"),
            Append(13, ENDLESS, ("5",), None, "a"),
        ],
        claims=[
            Claim(20, 25, (Grant(1, 100, 1, 1000, 1400, "a"), Grant(3, 101, 1, 1000, 1400, "b"))),
            Claim(30, 35, (Grant(1, 102, 2, 1401, 1801, "a"),)),
            Claim(50, 55, (Grant(2, 103, 1, 1500, 1900, "a"),)),
            Claim(70, 75, (Grant(4, 104, 1, 1600, 2000, "a"),)),
        ],
        acks=[
            Ack(26, 28, 3, 101, True),
            Ack(36, 38, 1, 100, False),
            Ack(40, 45, 1, 102, True),
            Ack(60, ENDLESS, 2, 103, None),
            Ack(80, 85, 4, 104, True),
        ],
    )


def urgent() -> QueueHistory:
    """A sound history of priorities: 3, the most urgent, comes while a claim is under way that takes 1; 2 was held by
    a claim without an answer."""
    return QueueHistory(
        appends=[
            Append(0, 10, ("1",), 1),
            Append(11, 12, ("2",), 2, priority=3),
            Append(25, 35, ("3",), 3, priority=9),
            Append(26, ENDLESS, ("x",), None, priority=9),
            Append(36, 37, ("4",), 4),
        ],
        claims=[
            Claim(30, 40, (Grant(1, 101, 1, 1000, 1400),)),
            Claim(50, 60, (Grant(3, 102, 1, 1500, 1900, "", 9), Grant(4, 104, 1, 1500, 1900))),
            Claim(70, 75, (Grant(2, 103, 2, 1600, 2000, "", 3),)),
        ],
    )


def test_sound_orders_have_no_violation() -> None:
    """What is not known is not held against a queue."""
    assert check_ordered(ordered()) == check_ordered(QueueHistory()) == []
    assert check_urgent(urgent()) == check_urgent(QueueHistory()) == []


def claimed(history: QueueHistory, at: int, *grants: Grant, **changes: object) -> QueueHistory:
    changes = {**changes, "grants": grants}
    history.claims[at] = replace(history.claims[at], **changes)  # type: ignore[arg-type]
    return history


ORDER_ERRORS: dict[str, tuple[Callable[[QueueHistory], QueueHistory], str]] = {
    "two of a group at once": (
        lambda h: acked(h, 3, invoked=77),
        "jobs 2 and 4 of group a were in flight at once",
    ),
    "two of a group in one claim": (
        lambda h: claimed(h, 2, Grant(2, 103, 1, 1500, 1900, "a"), Grant(4, 104, 1, 1500, 1900, "a")),
        "jobs 2 and 4 of group a were in flight at once",
    ),
    "a job before one of its group that was never given": (
        lambda h: claimed(acked(h, 3, seq=9), 2),
        "job 4 of group a was given before 2 was done",
    ),
    "a job before one whose lease ran out": (
        lambda h: acked(acked(h, 2, is_done=False), 1, invoked=90),
        "job 2 of group a was given before 1 was done",
    ),
}  # fmt: skip
URGENCY_ERRORS: dict[str, tuple[Callable[[QueueHistory], QueueHistory], str]] = {
    "a less urgent job while another was there": (
        lambda h: claimed(h, 0, Grant(1, 101, 1, 1000, 1400), invoked=36),
        "job 1 of priority 0 was given, and 3 of 9 was there",
    ),
    "a less urgent job while one was there that was never held": (
        lambda h: claimed(h, 2, Grant(2, 103, 1, 1600, 2000, "", 3)),
        "job 1 of priority 0 was given, and 2 of 3 was there",
    ),
    "an answer in another order": (
        lambda h: claimed(h, 1, Grant(4, 104, 1, 1500, 1900), Grant(3, 102, 1, 1500, 1900, "", 9)),
        "a claim has jobs [4, 3], the less urgent first",
    ),
    "a priority that is lost": (
        lambda h: claimed(h, 1, Grant(3, 102, 1, 1500, 1900, "", 0)),
        "job 3 was given with priority 0, not 9",
    ),
}


@pytest.mark.parametrize("name", ORDER_ERRORS)
def test_an_error_of_groups_is_found(name: str) -> None:
    """One change of the sound history, and the violation that names it."""
    seed, expected = ORDER_ERRORS[name]
    found = check_ordered(seed(ordered()))
    assert any(expected in violation for violation in found), found


@pytest.mark.parametrize("name", URGENCY_ERRORS)
def test_an_error_of_priorities_is_found(name: str) -> None:
    """One change of the sound history, and the violation that names it."""
    seed, expected = URGENCY_ERRORS[name]
    found = check_urgent(seed(urgent()))
    assert any(expected in violation for violation in found), found
