"""What an append asks of a job beside its record (§10)."""

from typing import TypedDict

from topics.client.models import Unique


class JobOptions(TypedDict, total=False):
    """Options of jobs, the records of a queue (§10).

    Attributes:
        delay_ms: The job may not be claimed for so long.
        not_before: Instead of `delay_ms`: it may not be claimed before, milliseconds since the epoch.
        priority: Within [-128, 127] (0); jobs of a higher one are claimed first.
        expires_ms: It ends unless it is claimed so soon after it may be.
        group: With which jobs it takes turns; by default those with its tag.
        unique: A key, or a `Unique`: while a job has it, an append of the key makes no second one.
    """

    delay_ms: int | None
    not_before: int | None
    priority: int | None
    expires_ms: int | None
    group: str | None
    unique: str | Unique | None
