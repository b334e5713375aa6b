"""Whether a history is that of one log, or one queue, on which each call took effect at one moment.

The general question needs a search over orders.  Here an append returns the seqs that it got, which
are the order, so it is enough to compare times: the cost is that of sorting, and of walking what
the reads returned.  Each function returns sentences, one a violation, none for a sound history.

A moment is only known to lie between the sending of a call and its answer.  So a rule compares two
calls only if one was answered before the other was sent.
"""

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

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
    records = Records(history, placed)
    reaches = [reach_of(delete, records) for delete in history.deletes]
    for reach in reaches:
        yield from reach.violations()
    known = Reads(history, truth, placed, records, reaches)
    for read in history.reads:
        yield from known.violations(read)
    yield from _credits(reaches)


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


class Records:
    """What is known of the records of a log.

    Attributes:
        kinds: (tag, node) by seq, of those whose batch is known.
        sent: By seq, when its batch was sent: it was not there before.
        there: By seq, the time by which it was there.
        last_shown: By seq, when the last read was sent that showed it.
        unplaced: Batches without an answer that no read showed: they may have been there for a while.
    """

    def __init__(self, history: LogHistory, placed: list[tuple[Append, int]]) -> None:
        self.kinds: dict[int, tuple[str, str]] = {}
        self.sent: dict[int, int] = {}
        self.there: dict[int, int] = {}
        self.last_shown: dict[int, int] = {}
        known = {append.texts for append, _ in placed}
        self.unplaced = [append for append in history.appends if append.texts not in known]
        self._of_kind: dict[tuple[str, str], list[int]] = defaultdict(list)
        self._chosen: dict[Filter, list[int]] = {}
        for append, first in placed:
            kind = append.tag, append.node
            for seq in range(first, first + len(append.texts)):
                self.kinds[seq] = kind
                self._of_kind[kind].append(seq)
                self.sent[seq], self.there[seq] = append.invoked, append.returned
        for read in history.reads:
            for seq, _ in read.records:
                self.there[seq] = min(self.there.get(seq, ENDLESS), read.returned)
                self.last_shown[seq] = max(self.last_shown.get(seq, 0), read.invoked)

    def chosen(self, which: Filter, first_seq: int, last_seq: int) -> Sequence[int]:
        """The seqs in [first_seq, last_seq] that a filter wants, ascending; without one, those too of
        which nothing is known."""
        if which == ALL:
            return range(first_seq, last_seq + 1)
        found = self._chosen.get(which)
        if found is None:
            kinds = [kind for kind in self._of_kind if which.wants(*kind)]
            found = sorted(seq for kind in kinds for seq in self._of_kind[kind])
            self._chosen[which] = found
        return found[bisect_left(found, first_seq) : bisect_right(found, last_seq)]

    def is_wanted(self, which: Filter, seq: int) -> bool:
        return seq not in self.kinds or which.wants(*self.kinds[seq])


@dataclass(frozen=True, slots=True)
class Reach:
    """What a delete took, as far as that is known.

    Attributes:
        may: Seqs that it may have found.
        must: Seqs that were there before it was sent, so that they are gone behind its moment.
        until: Its moment was no later: what it would have taken was there by then, and stayed.
        unseen: How many more it may have found, that nobody saw.
    """

    delete: Delete
    may: frozenset[int]
    must: frozenset[int]
    until: int
    unseen: int = 0

    def violations(self) -> Iterator[str]:
        if self.until < self.delete.invoked:
            yield f"a delete of {self.delete.filter} left what was there before it was sent"


def reach_of(delete: Delete, records: Records) -> Reach:
    if delete.filter is None:
        return Reach(delete, delete.seqs, delete.seqs, delete.returned)
    chosen = records.chosen(delete.filter, 1, delete.before_seq - 1)
    may = frozenset(seq for seq in chosen if records.sent[seq] < delete.returned)
    must = frozenset(seq for seq in may if records.there[seq] < delete.invoked)
    stayed = [
        records.there[seq] for seq in may if records.last_shown.get(seq, 0) >= delete.returned
    ]
    unseen = sum(
        len(append.texts)
        for append in records.unplaced
        if delete.filter.wants(append.tag, append.node) and append.invoked < delete.returned
    )
    return Reach(delete, may, must, min([delete.returned, *stayed]), unseen)


class Reads:
    """What is known of a log, to hold its reads against."""

    def __init__(
        self,
        history: LogHistory,
        truth: dict[int, str],
        placed: list[tuple[Append, int]],
        records: Records,
        reaches: list[Reach],
    ) -> None:
        self._truth = truth
        self._records = records
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
        self._may_be_gone, self._is_gone = _departures(history, records, reaches)

    def violations(self, read: Read) -> Iterator[str]:
        """Each read is the log as it was at one moment between its sending and its answer."""
        name = f"the read from {read.from_seq} to {read.next_from}"
        seqs = [seq for seq, _ in read.records]
        missing = set(_asked(self._records, read)).difference(seqs)
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
            if not self._records.is_wanted(read.filter, seq):
                yield f"has seq {seq}, which {read.filter} leaves out"
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


def _ascend(numbers: Sequence[int], *, strictly: bool = True) -> bool:
    least = 1 if strictly else 0
    return all(one + least <= following for one, following in pairwise(numbers))


def _asked(records: Records, read: Read) -> Sequence[int]:
    """The seqs that a read passed and its filter wants."""
    return records.chosen(read.filter, read.from_seq + 1, read.next_from)


def _departures(
    history: LogHistory, records: Records, reaches: list[Reach]
) -> tuple[dict[int, int], dict[int, int]]:
    """By seq: the time from which it may be deleted, and the time from which it is.

    It is deleted behind the last moment of a delete that had to take it, or when a read was answered
    that lacks it.
    """
    may_be: dict[int, int] = {}
    is_gone: dict[int, int] = {}
    for reach in reaches:
        for seq in reach.may:
            may_be[seq] = min(may_be.get(seq, ENDLESS), reach.delete.invoked)
        for seq in reach.must:
            is_gone[seq] = min(is_gone.get(seq, ENDLESS), reach.until)
    for read in history.reads:
        seqs = {seq for seq, _ in read.records}
        for seq in _asked(records, read):
            if seq not in seqs:
                is_gone[seq] = min(is_gone.get(seq, ENDLESS), read.returned)
    return may_be, is_gone


def _credits(reaches: list[Reach]) -> Iterator[str]:
    """A record is counted by one delete: no fewer than only this one may have found, and no more than
    no earlier one has."""
    first: dict[int, Delete] = {}
    second: dict[int, int] = {}
    gone: dict[int, int] = {}
    for reach in sorted(reaches, key=lambda reach: reach.delete.invoked):
        for seq in reach.may:
            if first.setdefault(seq, reach.delete) is not reach.delete:
                second.setdefault(seq, reach.delete.invoked)
        for seq in reach.must:
            gone[seq] = min(gone.get(seq, ENDLESS), reach.delete.returned)
    for reach in reaches:
        delete = reach.delete
        if delete.deleted is None:
            continue
        least = sum(
            first[seq] is delete and second.get(seq, ENDLESS) > delete.returned
            for seq in reach.must
        )
        most = sum(gone.get(seq, ENDLESS) >= delete.invoked for seq in reach.may) + reach.unseen
        if not least <= delete.deleted <= most:
            what = len(reach.may) if delete.filter is None else delete.filter
            yield f"a delete of {what} counted {delete.deleted}, not {least} to {most}"


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


# -- the order of claims -------------------------------------------------------------------------


def check_ordered(history: QueueHistory) -> list[str]:
    """Violations in a queue of order "group", besides those of any queue: of a group one job is in flight, and its
    jobs are done in the order of their seqs."""
    return list(_order_violations(history))


def _order_violations(history: QueueHistory) -> Iterator[str]:
    ended: dict[int, int] = {}
    acks: dict[int, int] = {}
    for ack in history.acks:
        if ack.is_done is not False:
            ended[ack.seq] = min(ended.get(ack.seq, ENDLESS), ack.invoked)
            acks[ack.lease] = ack.invoked
    groups: dict[str, list[tuple[Grant, Claim]]] = defaultdict(list)
    members: dict[str, set[int]] = defaultdict(set)
    for claim in history.claims:
        for grant in claim.grants:
            groups[grant.group].append((grant, claim))
            members[grant.group].add(grant.seq)
    for append in history.appends:
        if append.first_seq is not None:
            last_seq = append.first_seq + len(append.texts) - 1
            members[append.tag].update(range(append.first_seq, last_seq + 1))
    for group, given in groups.items():
        given.sort(key=lambda one: one[0].lease)
        yield from _in_flight(group, given, acks)
        yield from _in_line(group, given, sorted(members[group]), ended)


def _in_flight(group: str, given: list[tuple[Grant, Claim]], acks: dict[int, int]) -> Iterator[str]:
    """Who was given a job of a group held the only one."""
    for at, (grant, claim) in enumerate(given):
        # Leases last equally long, so those that may still hold lie next to it.
        for other, _ in reversed(given[:at]):
            if other.until_ms < grant.since_ms:
                break
            is_held = acks.get(other.lease, ENDLESS) >= claim.returned
            if other.seq != grant.seq and is_held:
                yield f"jobs {other.seq} and {grant.seq} of group {group} were in flight at once"


def _in_line(
    group: str, given: list[tuple[Grant, Claim]], seqs: list[int], ended: dict[int, int]
) -> Iterator[str]:
    """Every job of a group that came before one that was given was done, or might have been."""
    latest = list(accumulate((ended.get(seq, ENDLESS) for seq in seqs), max))
    for grant, claim in given:
        before = bisect_left(seqs, grant.seq)
        if before and latest[before - 1] >= claim.returned:
            first = next(seq for seq in seqs if ended.get(seq, ENDLESS) >= claim.returned)
            yield f"job {grant.seq} of group {group} was given before {first} was done"


def check_urgent(history: QueueHistory) -> list[str]:
    """Violations in a queue whose jobs have priorities, besides those of any queue: no claim gets a job while a more
    urgent one is there, that was appended before it and given to nobody before or while it was asked."""
    return list(_urgency_violations(history))


def _urgency_violations(history: QueueHistory) -> Iterator[str]:
    first_given: dict[int, int] = {}
    told: dict[int, int] = {}
    for claim in history.claims:
        if not _ascend([-grant.priority for grant in claim.grants], strictly=False):
            yield f"a claim has jobs {[grant.seq for grant in claim.grants]}, the less urgent first"
        for grant in claim.grants:
            told[grant.seq] = grant.priority
            if grant.deliveries == 1:
                first_given[grant.seq] = claim.invoked
    # (until when it was surely there for anybody, since when, its seq), by priority
    free: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for append in history.appends:
        if append.first_seq is None:
            continue
        for seq in range(append.first_seq, append.first_seq + len(append.texts)):
            if told.get(seq, append.priority) != append.priority:
                yield f"job {seq} was given with priority {told[seq]}, not {append.priority}"
            elif seq in first_given:
                free[append.priority].append((first_given[seq], append.returned, seq))
    spans = {priority: Spans(found) for priority, found in free.items()}
    for claim in history.claims:
        if not claim.grants:
            continue
        least = min(claim.grants, key=lambda grant: grant.priority)
        for priority, found in spans.items():
            if priority > least.priority and (other := found.over(claim)) is not None:
                yield (
                    f"job {least.seq} of priority {least.priority} was given, and {other} of {priority}"
                    " was there"
                )


class Spans:
    """Times in which jobs were surely there for anybody."""

    def __init__(self, found: list[tuple[int, int, int]]) -> None:
        ordered = sorted(found)
        self._ends = [end for end, _, _ in ordered]
        # From each on: the one that began first.
        behind = accumulate(((since, seq) for _, since, seq in reversed(ordered)), min)
        self._first = list(behind)[::-1]

    def over(self, claim: Claim) -> int | None:
        """A job that was there from before a claim was sent until after it was answered."""
        at = bisect_right(self._ends, claim.returned)
        if at < len(self._first) and self._first[at][0] < claim.invoked:
            return self._first[at][1]
        return None
