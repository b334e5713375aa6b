"""A small engine: lists of marks with sequence numbers, and leases; as deterministic as the real one.

An append is spelled as `SeqsReserved`: its topic, its seq, and as `now_ms` the mark of the client's
command.  A lease is a `JobsLeased`.  So the frames are real ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from topics.protocol.model.events import Event, JobsLeased, SeqsReserved

from .invariants import Violation


@dataclass
class Ledger:
    """What is true.

    Attributes:
        topics: For each topic, the marks of its records; the first has seq 1.
        leases: Every lease that was ever given.
        next_lease: Of a leader, not part of what is true.
    """

    topics: dict[int, list[int]] = field(default_factory=dict)
    leases: list[int] = field(default_factory=list)
    next_lease: int = 0
    marks: set[int] = field(default_factory=set)

    def copy(self) -> "Ledger":
        topics = {topic: list(marks) for topic, marks in self.topics.items()}
        return Ledger(topics, list(self.leases), self.next_lease, set(self.marks))

    def shows(self) -> tuple[dict[int, list[int]], list[int]]:
        return self.topics, self.leases

    def add(self, topic: int, mark: int) -> Event:
        """Decide and apply: the mark takes the topic's next seq."""
        event = SeqsReserved(mark, topic, len(self.topics.get(topic, ())) + 1)
        self.apply([event])
        return event

    def lease(self, topic: int, mark: int) -> Event:
        """Decide and apply: a claim."""
        lease, self.next_lease = self.next_lease, self.next_lease + 1
        event = JobsLeased(mark, topic, "", 0, [1], [lease], [1])
        self.apply([event])
        return event

    def apply(self, events: Sequence[Event]) -> None:
        for event in events:
            self.marks.add(event.now_ms)
            match event:
                case SeqsReserved(mark, topic, seq):
                    marks = self.topics.setdefault(topic, [])
                    if seq != len(marks) + 1:
                        raise Violation("no seq twice", f"{seq} of {topic} after {len(marks)}")
                    marks.append(mark)
                case JobsLeased(_, _, _, _, _, [lease], _):
                    if lease in self.leases:
                        raise Violation("no lease twice", f"{lease:#x}")
                    self.leases.append(lease)
