"""What concurrent clients did, and when: the calls of one run, for the checker.

Owns the vocabulary.  A call has the time at which it was sent and the time at which its answer had
arrived, both of one monotonic clock, in nanoseconds.  A write whose answer never came has `ENDLESS`
as its return: it may have been applied at any time after it was sent, or not at all.  A read whose
answer never came says nothing and is left out.
"""

from dataclasses import dataclass, field
from typing import Final

ENDLESS: Final = 1 << 62
"""When an answer that never came would have come: after everything else."""


@dataclass(frozen=True, slots=True)
class Filter:
    """Which records a call is about: those of a tag, or of all tags that begin so (`x*`), but for those
    of a node."""

    match: str | None = None
    skip: str | None = None

    def wants(self, tag: str, node: str) -> bool:
        if self.skip is not None and node == self.skip:
            return False
        if self.match is None or self.match == tag:
            return True
        return self.match.endswith("*") and tag.startswith(self.match[:-1])


ALL: Final = Filter()


@dataclass(frozen=True, slots=True)
class Append:
    """A batch of records of one tag and one node; no two records of a run have the same text.

    Attributes:
        first_seq: The seq of `texts[0]`; the others follow it.  None without an answer.
        priority: Of its jobs, in a queue.
    """

    invoked: int
    returned: int
    texts: tuple[str, ...]
    first_seq: int | None
    tag: str = ""
    node: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Read:
    """A read of what follows `from_seq` and passes a filter: the records, by seq, up to `next_from`."""

    invoked: int
    returned: int
    from_seq: int
    records: tuple[tuple[int, str], ...]
    next_from: int
    head: int
    has_tombstone: bool = False
    filter: Filter = ALL


@dataclass(frozen=True, slots=True)
class Delete:
    """A delete of records that its client had seen, or of all that pass a filter at its moment, below
    `before_seq`; `deleted` is None without an answer."""

    invoked: int
    returned: int
    seqs: frozenset[int]
    deleted: int | None
    filter: Filter | None = None
    before_seq: int = ENDLESS


@dataclass(frozen=True, slots=True)
class Grant:
    """A lease that a claim returned; its times are those of the server, in milliseconds.

    Attributes:
        group: That of the job, which is its tag.
    """

    seq: int
    lease: int
    deliveries: int
    since_ms: int
    until_ms: int
    group: str = ""
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Claim:
    """A claim, and the leases that it got, in the order of its answer."""

    invoked: int
    returned: int
    grants: tuple[Grant, ...]


@dataclass(frozen=True, slots=True)
class Ack:
    """An ack of one job under one lease; `is_done` is None without an answer."""

    invoked: int
    returned: int
    seq: int
    lease: int
    is_done: bool | None


@dataclass(slots=True)
class LogHistory:
    """The calls on one log."""

    appends: list[Append] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)
    deletes: list[Delete] = field(default_factory=list)


@dataclass(slots=True)
class QueueHistory:
    """The calls on one queue."""

    appends: list[Append] = field(default_factory=list)
    claims: list[Claim] = field(default_factory=list)
    acks: list[Ack] = field(default_factory=list)
