"""What every run in memory has, whatever the form of its records."""

from typing import Self

from topics.protocol.model.events import RunRef
from topics.protocol.model.job_options import DecodedOptions


class UnsealedRun:
    """A run that no segment holds yet; it grows by batches.

    Args:
        first_seq: Seq of row 0.
        base_bytes: What the run counts for before its first record.

    Attributes:
        volatile: The records live in memory only (`ephemeral`): never logged, never sealed.
        frozen: It takes no more batches.
        count, text_bytes, dead: As `ports.Run` has them.
        memory_bytes: An estimate of what it holds, for the bound on hot memory.
    """

    def __init__(self, first_seq: int, *, volatile: bool = False, base_bytes: int = 0) -> None:
        self.first_seq = first_seq
        self.ref: RunRef | None = None
        self.volatile = volatile
        self.memory_bytes = base_bytes
        self.frozen = False
        self.count = 0
        self.dead = 0
        self.text_bytes = 0

    def job_options(self) -> DecodedOptions | None:
        """The queue has them, of the events."""
        return None

    def cut(self, row: int) -> Self:
        """Keep the rows below `row` and take no more batches; the others become the run returned.

        Only replay cuts runs: the process that wrote the log had ended them elsewhere.
        """
        raise AssertionError(row)
