"""`Prefetch`: claims jobs of several queues ahead of their use, within the room of one keeper.

A thread waits at the server for each queue, so that a job is there as soon as the server has it.  Owns how the
queues share the room: each gets an equal part of what is left, in the order in which they asked.  Invariant: no more
jobs are claimed than fit.
"""

import threading
from collections import deque
from collections.abc import Callable
from typing import Final, Generic, TypeVar

from topics.client.errors import TopicNotFound, TopicsError
from topics.client.lease_keeper import HeldJob, LeaseKeeper

D = TypeVar("D")

WAIT_MS: Final = 1000
"""How long a claim waits at the server; an `Intake` stops within it."""
UNLIMITED: Final = 100
"""Jobs of one claim where the keeper has no capacity."""
REST_S: Final = 0.1
"""Between two claims of a queue without jobs, where it must not keep its room from other queues."""


class Intake(Generic[D]):
    """One queue of a `Prefetch`, which brings its jobs until it is stopped.

    Attributes:
        is_wanted: It was not stopped.
    """

    def __init__(
        self,
        prefetch: "Prefetch[D]",
        queue: str,
        deliver: Callable[[HeldJob[D]], object],
        on_error: Callable[[TopicsError], object],
        on_missing: Callable[[], object] | None,
    ) -> None:
        self.queue = queue
        self.is_wanted = True
        self._prefetch = prefetch
        self._deliver = deliver
        self._on_error = on_error
        self._on_missing = on_missing
        self._thread = threading.Thread(target=self._run, name=f"claim-{queue}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Claim no more; what a claim under way brings goes back."""
        self.is_wanted = False
        self._prefetch.remove(self)

    def join(self, timeout_s: float | None = None) -> None:
        """Wait for the answer of the claim under way."""
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while self.is_wanted:
                self._bring()
        except TopicsError as error:
            if self.is_wanted:
                self._on_error(error)
        except Exception:
            # The client may have been closed meanwhile, and its sockets with it.
            if not self._prefetch.keeper.is_orphaned:
                raise
        finally:
            self._prefetch.remove(self)

    def _bring(self) -> None:
        keeper, count = self._prefetch.keeper, self._prefetch.reserve(self)
        if not count:
            return
        jobs: list[HeldJob[D]] = []
        try:
            jobs = keeper.claim_reserved(self.queue, count, self._prefetch.wait_ms_of(self))
        except TopicNotFound:
            if self._on_missing is None:
                raise
            self._on_missing()
        finally:
            self._prefetch.brought(self, is_idle=not jobs)
        # The capacity may have become less meanwhile.
        fitting = len(jobs) + min(keeper.room, 0) if self.is_wanted else 0
        keeper.give_back(jobs[max(fitting, 0) :])
        brought = deque(jobs[: max(fitting, 0)])
        try:
            while brought:
                self._deliver(brought[0])
                brought.popleft()
        finally:
            keeper.give_back(brought)  # where the program does not take them


class Prefetch(Generic[D]):
    """Claims jobs of several queues, for programs that have a use for each as it comes.

        jobs = queue.SimpleQueue()
        with client.lease_keeper(capacity=10) as keeper, Prefetch(keeper) as prefetch:
            prefetch.add("mails", jobs.put, on_error=jobs.put)
            prefetch.add("bills", jobs.put, on_error=jobs.put)
            with jobs.get() as job:
                ...

    Where the room is enough for a job of each queue, and none of them has any, the claims wait at the server.  Where it is
    less, a queue without jobs is asked ten times a second, and keeps no room from the others.

    Args:
        keeper: Has the jobs in hand, and says how many fit (`capacity`).
        wait_ms: How long a claim waits at the server, at most 30,000.
    """

    def __init__(self, keeper: LeaseKeeper[D], *, wait_ms: int = WAIT_MS) -> None:
        self.keeper = keeper
        self._wait_ms = wait_ms
        self._intakes: set[Intake[D]] = set()
        self._line: deque[Intake[D]] = deque()
        """Queues that wait for room."""
        self._idle: set[Intake[D]] = set()
        """Queues whose last claim brought nothing."""

    def __enter__(self) -> "Prefetch[D]":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def add(
        self,
        queue: str,
        deliver: Callable[[HeldJob[D]], object],
        *,
        on_error: Callable[[TopicsError], object],
        on_missing: Callable[[], object] | None = None,
    ) -> Intake[D]:
        """Claim jobs of a queue from now on.

        Args:
            deliver: Called with each job, in the thread of its queue.
            on_error: Called with the error that ended the thread.
            on_missing: Called where the queue does not exist, and is to create it; by default that is an error.
        """
        with self.keeper.changed:
            intake = Intake(self, queue, deliver, on_error, on_missing)
            self._intakes.add(intake)
        return intake

    def remove(self, intake: Intake[D]) -> None:
        """An intake has stopped."""
        with self.keeper.changed:
            self._intakes.discard(intake)
            self._idle.discard(intake)
            self.keeper.changed.notify_all()

    def close(self) -> None:
        """Stop all intakes, and wait until they have given back what they brought."""
        with self.keeper.changed:
            intakes = list(self._intakes)
        for intake in intakes:
            intake.stop()
        for intake in intakes:
            intake.join()

    # ------------------------------------------------------------------ the room

    def reserve(self, intake: Intake[D]) -> int:
        """Wait until one more job fits; how many a claim may ask for, 0 where the intake was stopped."""
        with self.keeper.changed:
            if intake in self._idle and not self._may_wait(intake):
                self.keeper.changed.wait_for(lambda: not intake.is_wanted, REST_S)
            self._line.append(intake)
            self.keeper.changed.wait_for(lambda: not intake.is_wanted or self._is_next(intake))
            self._line.remove(intake)
            self.keeper.changed.notify_all()
            return self.keeper.reserve(self._share()) if intake.is_wanted else 0

    def brought(self, intake: Intake[D], *, is_idle: bool) -> None:
        """A claim was answered."""
        with self.keeper.changed:
            if intake.is_wanted:
                (self._idle.add if is_idle else self._idle.discard)(intake)
            self.keeper.changed.notify_all()

    def wait_ms_of(self, intake: Intake[D]) -> int:
        """How long a claim may wait at the server, and keep its room from other queues meanwhile."""
        with self.keeper.changed:
            return self._wait_ms if self._may_wait(intake) else 0

    def _may_wait(self, intake: Intake[D]) -> bool:
        """Whether there is one queue, or no queue has jobs and each has room for one."""
        queues, capacity = len(self._intakes), self.keeper.capacity
        if queues <= 1 or capacity is None:
            return True
        return len(self._idle) >= queues and capacity - len(self.keeper.held) >= queues

    def _is_next(self, intake: Intake[D]) -> bool:
        return self._line[0] is intake and self.keeper.room > 0

    def _share(self) -> int:
        if self.keeper.capacity is None:
            return UNLIMITED
        return max(self.keeper.room // max(len(self._intakes), 1), 1)
