"""Whether a history is that of one log, or one queue, on which each call took effect at one moment.

The general question needs a search over orders.  Here an append returns the seqs that it got, which
are the order, so it is enough to compare times: the cost is that of sorting, and of walking what
the reads returned.  Each function returns sentences, one a violation, none for a sound history.

A moment is only known to lie between the sending of a call and its answer.  So a rule compares two
calls only if one was answered before the other was sent.
"""

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from .history import ENDLESS, Ack, Append, Delete, Grant, LogHistory, QueueHistory, Read


class Ratchet:
    """The greatest of some numbers that were known at a time."""

    def __init__(self, known: Iterable[tuple[int, int]]) -> None:
        """`known`: (time, number); the number is known from that time on."""
        ordered = sorted(known)
        self._times = [time for time, _ in ordered]
        self._most = list(accumulate((number for _, number in ordered), max))

    def before(self, time: int) -> int:
        """The greatest number that was known before a time; 0 if there was none."""
        found = bisect_left(self._times, time)
        return self._most[found - 1] if found else 0


# -- logs ----------------------------------------------------------------------------------------


def check_log(history: LogHistory) -> list[str]:
    """Violations in a log whose records leave it only by deletes."""
    return list(_log_violations(history))


def _log_violations(history: LogHistory) -> Iterator[str]:
    truth: dict[int, str] = {}
    yield from _contents(history, truth)
    places = {text: seq for seq, text in truth.items()}
    placed = [(append, seq) for append in history.appends if (seq := _place(append, places))]
    yield from _batches(placed, places)
    yield from _order(placed)
    known = Reads(history, truth, placed)
    for read in history.reads:
        yield from known.violations(read)
    yield from _credits(history.deletes)


def _contents(history: LogHistory, truth: dict[int, str]) -> Iterator[str]:
    """One seq has one text, one text one seq, and every text was sent before it was read."""
    sent = {text: append.invoked for append in history.appends for text in append.texts}
    seqs: dict[str, int] = {}
    told = [
        (seq, text, append.returned)
        for append in history.appends
        if append.first_seq is not None
        for seq, text in enumerate(append.texts, append.first_seq)
    ]
    seen = [(seq, text, read.returned) for read in history.reads for seq, text in read.records]
    for seq, text, returned in told + seen:
        if truth.setdefault(seq, text) != text:
            yield f"seq {seq} has two contents: {truth[seq]} and {text}"
        elif seqs.setdefault(text, seq) != seq:
            yield f"{text} was applied twice: at {seqs[text]} and at {seq}"
        elif sent.get(text, ENDLESS) > returned:
            yield f"{text} at {seq} was read before it was sent"


def _place(append: Append, places: dict[str, int]) -> int:
    """The first seq of a batch, from its answer or from what was read of it; 0: never seen."""
    if append.first_seq is not None:
        return append.first_seq
    return next((places[text] - i for i, text in enumerate(append.texts) if text in places), 0)


def _batches(placed: list[tuple[Append, int]], places: dict[str, int]) -> Iterator[str]:
    """A batch has consecutive seqs in its order."""
    for append, first in placed:
        for seq, text in enumerate(append.texts, first):
            if places.get(text, seq) != seq:
                yield f"{text} is at {places[text]}, and its batch begins at {first}"


def _order(placed: list[tuple[Append, int]]) -> Iterator[str]:
    """An append that was sent after another's answer has higher seqs."""
    answered = Ratchet(
        (append.returned, first + len(append.texts) - 1)
        for append, first in placed
        if append.returned < ENDLESS
    )
    for append, first in placed:
        most = answered.before(append.invoked)
        if first <= most:
            yield f"{append.texts[0]} got seq {first} after seq {most} had been answered"


class Reads:
    """What is known of a log, to hold its reads against."""

    def __init__(
        self, history: LogHistory, truth: dict[int, str], placed: list[tuple[Append, int]]
    ) -> None:
        self._truth = truth
        lasts = [(append, first + len(append.texts) - 1) for append, first in placed]
        self._heads = Ratchet(
            [
                *((append.returned, last) for append, last in lasts),
                *((read.returned, read.head) for read in history.reads),
            ]
        )
        self._ends = {0, *(last for _, last in lasts)}
        self._sent = Ratchet((last, append.invoked) for append, last in lasts)
        # The least number is the greatest of the negative ones, from the end backwards.
        self._answered = Ratchet((-first, -append.returned) for append, first in placed)
        self._may_be_gone, self._is_gone = _departures(history)

    def violations(self, read: Read) -> Iterator[str]:
        """Each read is the log as it was at one moment between its sending and its answer."""
        name = f"the read from {read.from_seq} to {read.next_from}"
        seqs = [seq for seq, _ in read.records]
        missing = set(range(read.from_seq + 1, read.next_from + 1)).difference(seqs)
        wrong = list(self._wrong(read, seqs, missing))
        yield from (f"{name} {what}" for what in wrong)
        if not wrong and not self._has_moment(read, seqs, missing):
            yield f"{name} is that of no moment: it has what is new, and what was gone before that"

    def _wrong(self, read: Read, seqs: list[int], missing: set[int]) -> Iterator[str]:
        if read.has_tombstone:
            yield "reports a loss, and nothing may be lost"
        if read.head < (least := self._heads.before(read.invoked)):
            yield f"has head {read.head} after {least} had been seen"
        if read.head not in self._ends:
            yield f"has head {read.head}, which is within a batch"
        if not _ascend([read.from_seq, *seqs, read.next_from + 1, read.head + 2]):
            yield f"is out of order: {seqs[:20]}, head {read.head}"
        for seq in seqs:
            if self._is_gone.get(seq, ENDLESS) < read.invoked:
                yield f"has seq {seq}, which had been deleted"
        for seq in missing:
            if self._may_be_gone.get(seq, ENDLESS) >= read.returned:
                yield f"lacks seq {seq}: {self._truth.get(seq, 'never seen')}"

    def _has_moment(self, read: Read, seqs: list[int], missing: set[int]) -> bool:
        """Whether one moment has every append up to the head and none beyond, no delete of what was
        returned, and one of each record that is missing."""
        since = [read.invoked, self._sent.before(read.head + 1)]
        since += [self._may_be_gone[seq] for seq in missing]
        until = [read.returned, -(self._answered.before(-read.head) or -ENDLESS)]
        until += [self._is_gone.get(seq, ENDLESS) for seq in seqs]
        return max(since) <= min(until)


def _ascend(numbers: Sequence[int]) -> bool:
    return all(one < following for one, following in pairwise(numbers))


def _departures(history: LogHistory) -> tuple[dict[int, int], dict[int, int]]:
    """By seq: the time from which it may be deleted, and the time from which it is.

    It is deleted when a delete of it was answered, or when a read was answered that lacks it.
    """
    may_be: dict[int, int] = {}
    is_gone: dict[int, int] = {}
    for delete in history.deletes:
        for seq in delete.seqs:
            may_be[seq] = min(may_be.get(seq, ENDLESS), delete.invoked)
            is_gone[seq] = min(is_gone.get(seq, ENDLESS), delete.returned)
    for read in history.reads:
        seqs = {seq for seq, _ in read.records}
        for seq in range(read.from_seq + 1, read.next_from + 1):
            if seq not in seqs:
                is_gone[seq] = min(is_gone.get(seq, ENDLESS), read.returned)
    return may_be, is_gone


def _credits(deletes: list[Delete]) -> Iterator[str]:
    """A record is counted by one delete: no fewer than only this one names, and no more than no
    earlier one names."""
    naming: dict[int, list[Delete]] = defaultdict(list)
    for delete in deletes:
        for seq in delete.seqs:
            naming[seq].append(delete)
    for delete in deletes:
        if delete.deleted is None:
            continue
        least = most = 0
        for seq in delete.seqs:
            others = [other for other in naming[seq] if other is not delete]
            least += all(other.invoked > delete.returned for other in others)
            most += not any(other.returned < delete.invoked for other in others)
        if not least <= delete.deleted <= most:
            yield f"a delete of {len(delete.seqs)} counted {delete.deleted}, not {least} to {most}"


# -- queues --------------------------------------------------------------------------------------


def check_queue(history: QueueHistory) -> list[str]:
    """Violations in a queue with durable leases, no dead letters and no nacks, that was drained at
    the end."""
    return list(_queue_violations(history))


def _queue_violations(history: QueueHistory) -> Iterator[str]:
    grants: dict[int, list[tuple[Grant, int, int]]] = defaultdict(list)
    leases: set[int] = set()
    for claim in history.claims:
        for grant in claim.grants:
            if grant.lease in leases:
                yield f"lease {grant.lease} was given twice"
            leases.add(grant.lease)
            grants[grant.seq].append((grant, claim.invoked, claim.returned))
    acks: dict[int, list[Ack]] = defaultdict(list)
    for ack in history.acks:
        acks[ack.seq].append(ack)
    for seq, found in grants.items():
        yield from _leases(seq, sorted(found, key=lambda one: one[0].lease))
        yield from _endings(seq, found, acks[seq])
    appended = {
        seq
        for append in history.appends
        if append.first_seq is not None
        for seq in range(append.first_seq, append.first_seq + len(append.texts))
    }
    ended = {ack.seq for ack in history.acks if ack.is_done is not False}
    for seq in sorted(appended - ended):
        yield f"job {seq} was appended, and is neither done nor claimable"


def _leases(seq: int, found: list[tuple[Grant, int, int]]) -> Iterator[str]:
    """The leases of a job follow one another, and each is a delivery more."""
    for (one, one_invoked, _), (following, _, returned) in pairwise(found):
        if one.until_ms >= following.since_ms:
            yield f"job {seq} was held under two leases: {one.lease} and {following.lease}"
        if one.deliveries >= following.deliveries:
            yield f"job {seq} was delivered {one.deliveries} and {following.deliveries} times"
        if returned < one_invoked:
            yield f"lease {following.lease} of job {seq} was answered before {one.lease} was asked"


def _endings(seq: int, found: list[tuple[Grant, int, int]], acks: list[Ack]) -> Iterator[str]:
    """A job is done once, under its newest lease, and is not delivered again."""
    done = [ack for ack in acks if ack.is_done]
    if len(done) > 1:
        yield f"job {seq} was done {len(done)} times"
    for ack in done:
        if any(invoked > ack.returned for _, invoked, _ in found):
            yield f"job {seq} was delivered after it was done"
        newer = [g for g, _, returned in found if g.lease > ack.lease and returned < ack.invoked]
        if newer:
            yield f"job {seq} was done under lease {ack.lease}, after {newer[0].lease} was given"
