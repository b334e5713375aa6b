"""The order in which jobs are claimed, where it is not that of their seqs alone (§10, 131, 133).

Made of the options of jobs (`job_table`), the records and the queue's jobs, as the backlog absorbs them; it is made anew
from them at any time, and knows neither records that were not absorbed nor delays that run.  What a queue needs depends
on its config: the order of priorities (`priority_order`), or one of groups, too (`group_order`).
"""

from collections.abc import Sequence
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from topics.protocol.state.group_order import GroupOrder
from topics.protocol.state.job import Job, JobPlace
from topics.protocol.state.job_groups import is_arranged
from topics.protocol.state.job_table import JobTable
from topics.protocol.state.priority_order import PriorityOrder
from topics.protocol.state.topic import Topic


class ClaimOrder(Protocol):
    """Jobs that were absorbed and may be claimed, in their order."""

    @property
    def is_ordered(self) -> bool:
        """Jobs of a group are done one after another."""

    @property
    def is_fair(self) -> bool:
        """Groups take turns."""

    @property
    def group_max(self) -> int:
        """How many jobs of a group may be in flight; 0: any number."""

    @property
    def has_groups(self) -> bool:
        """The group of a job matters to the order."""

    @property
    def is_capped(self) -> bool:
        """Jobs of a group may have to wait for others of it."""

    @property
    def blocked(self) -> int:
        """Jobs that are ready, and may not be claimed before others of their group are done."""

    def add(
        self,
        seqs: NDArray[np.int64],
        priority: NDArray[np.int8],
        group: NDArray[np.int64],
        ready_ms: NDArray[np.int64],
        late: NDArray[np.bool_],
    ) -> None:
        """Jobs that were never delivered take their places.  All of shape (n,).

        Args:
            seqs: Ascending.
            group: Numbers of their groups; 0: of none.
            ready_ms: From when on each may be claimed; 0: at once.
            late: Which may not be claimed yet; `end_delays` follows.
        """

    def end_delays(self, seqs: NDArray[np.int64], ready_ms: NDArray[np.int64]) -> None:
        """Jobs that were added as late may be claimed now.  Both of shape (n,)."""

    def begun(self, jobs: Sequence[Job]) -> None:
        """Jobs that were never delivered, or released, are leased."""

    def ended(self, jobs: Sequence[Job]) -> None:
        """Jobs that were leased are gone; `leave` follows."""

    def move(self, job: Job, before: JobPlace, place: JobPlace) -> None:
        """A job that was delivered, or released, is elsewhere now."""

    def leave(self, spans: NDArray[np.int64]) -> None:
        """Jobs are done, or were removed, and are none of the queue's any more.

        Args:
            spans: Of their seqs, both ends inclusive, ascending, shape (k, 2), k at least 1.
        """

    def leave_few(self, seqs: Sequence[int]) -> None:
        """The same of a few seqs."""

    def take(self, limit: int) -> list[int]:
        """Up to `limit` jobs that may be claimed, in the order of claims.

        The caller leases or exhausts each, or gives it back, and says so (`end_take`).
        """

    def give_back(self, seqs: Sequence[int]) -> None:
        """Jobs that were taken are not leased: the last of them, in the order in which they were taken."""

    def end_take(self) -> None:
        """What was taken is leased, exhausted, or given back."""


def order_of(topic: Topic, table: JobTable, jobs: dict[int, Job]) -> PriorityOrder | GroupOrder:
    """The order that the topic's config asks for.

    Args:
        jobs: Those that were delivered, or released, by seq, as the queue has them at any time.
    """
    kind = GroupOrder if is_arranged(topic.config) else PriorityOrder
    return kind(topic, table, jobs)
