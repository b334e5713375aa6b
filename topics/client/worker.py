"""`Work`: a worker for threads, which claims jobs of a queue, keeps their leases and settles them.

What is claimed next, and what became of a job, is decided by `WorkerState`; this module does the
I/O, in the threads of the program and one of its own that extends leases.  It is not generated from
`aioworker`: threads need locks, a blocked read is ended by closing its socket, and a thread, other
than a task, cannot be cancelled.
"""

import socket
import threading
from collections import deque
from collections.abc import Callable, Generator, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Generic, Self, TypeAlias, TypeVar

from topics.client import termination
from topics.client.answer import StreamedAnswer
from topics.client.call import Outcome
from topics.client.errors import (
    TopicsError,
)
from topics.client.faults import Fault
from topics.client.handlers import require_done, require_plain
from topics.client.held_job import (
    JobState,
    OnError,
    is_failure,
    lease_lost,
    log_error,
    time_limit_exceeded,
)
from topics.client.hooks import require_hook
from topics.client.job_stream import READ_TIMEOUT_S
from topics.client.lease_keeper import HeldJob, LeaseKeeper
from topics.client.models import Claimed, Job
from topics.client.session import Session
from topics.client.time_limit import TimeLimit
from topics.client.tracing import mark_failed, process_span
from topics.client.worker_state import RESULT_REFUSED, Claim, WorkerState
from topics.visible import visible

D = TypeVar("D")
_Found: TypeAlias = "tuple[deque[HeldJob[D]], float | None]"
"""Jobs, and the pause before the next claim; None where the queue is drained."""


@dataclass(frozen=True, slots=True)
class _Handling(Generic[D]):
    """What one run does with each job."""

    handler: Callable[[HeldJob[D]], object]
    on_error: OnError[HeldJob[D]]
    limit: TimeLimit | None


class Work(Generic[D]):
    """What `Client.work` returns: an iterator over the jobs of a queue.

    It claims when it is asked for a job, and extends the leases of the jobs in hand in the
    background.  `with` gives back at the end the jobs that were not settled.  Several threads may
    iterate at once; each of them claims for itself.
    """

    def __init__(self, session: Session, state: WorkerState[D]) -> None:
        self._session = session
        self._state = state
        self._keeper = LeaseKeeper(session, state.leases, state.job_type, state.policy)
        self._lock = self._keeper.changed
        self._waiter = threading.Lock()
        """Held by the one thread that waits at the server for a job."""
        self._stopping = threading.Event()
        self._idle: set[socket.socket] = set()
        """Sockets of streams on which a thread waits with no job in hand."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.queue} by {visible(self.node)}>"

    @property
    def queue(self) -> str:
        return self._state.queue

    @property
    def node(self) -> str:
        """The name under which jobs are claimed."""
        return self._state.leases.node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def stop(self) -> None:
        """Claim no more; jobs in hand are finished.  For signal handlers and other threads.

        A claim that waits for a job is answered first, within its `wait_ms`; a stream over TLS ends
        with its next job or heartbeat.
        """
        self._stopping.set()
        for idle in list(self._idle):
            with suppress(OSError):
                idle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Claim no more, and give back the jobs in hand: other workers may have them at once."""
        self.stop()
        self._keeper.close()

    def __iter__(self) -> Generator[HeldJob[D], None, None]:
        with termination.heard():
            self._open()
            yield from self._pushed() if self._state.pushes else self._claimed()

    def _claimed(self) -> Generator[HeldJob[D], None, None]:
        while (found := self._find()) is not None:
            jobs, pause_s = found
            try:
                while jobs and not self._stopping.is_set():
                    yield jobs.popleft()
            finally:
                self._keeper.give_back(jobs)
            if pause_s is None:
                return
            if pause_s and not self._stopping.is_set():
                self._session.sleep(pause_s)

    def _pushed(self) -> Generator[HeldJob[D], None, None]:
        stream = self._state.job_stream()
        while not (self._stopping.is_set() or self._state.is_through):
            try:
                with self._session.open(stream.call, READ_TIMEOUT_S) as response:
                    outcome: Outcome = response
                    if stream.opens(response):
                        pieces = response.iter_bytes()
                        while (piece := self._piece(response, pieces)) is not None:
                            for job in self._keeper.hold(self.queue, stream.take(piece)):
                                # The jobs after the last one go back when the connection closes.
                                if not self._is_wanted():
                                    return
                                yield job
                            if not stream.is_listening:
                                break
                    else:
                        response.read()
            except Fault as error:
                outcome = error
            if not self._stopping.is_set():
                self._session.sleep(stream.ended(outcome))

    def _piece(self, response: StreamedAnswer, pieces: Iterator[bytes]) -> bytes | None:
        """The next piece of a stream; None at its end, and when the work is stopped."""
        network = response.extensions.get("network_stream")
        found = None if network is None else network.get_extra_info("socket")
        # A TLS socket cannot be shut down while another thread reads from it.
        plain = found if type(found) is socket.socket else None
        if plain is not None:
            self._idle.add(plain)
        try:
            # `stop` sets the event first and then shuts the sockets down; here the socket is
            # added first.  So either this thread sees the event, or `stop` sees the socket.
            return None if self._stopping.is_set() else next(pieces, None)
        finally:
            if plain is not None:
                self._idle.discard(plain)

    def _is_wanted(self) -> bool:
        """Whether a pushed job is to be worked on; with the last one, the other threads stop."""
        with self._lock:
            is_wanted = not self._stopping.is_set() and self._state.count_pushed()
            if self._state.is_through:
                self.stop()
        return is_wanted

    def run(
        self,
        handler: Callable[[HeldJob[D]], object],
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[D]] = log_error,
        time_limit_s: float | None = None,
    ) -> int:
        """Call `handler` with each job, in `concurrency` threads; returns how many jobs were done.

        A job is acked where the handler returns.  Where it raises, the job is nacked, with a delay
        that grows, and the next one is handled.  A handler may ack or nack the job itself; that
        stands.  What it returns, unless it is None, is the job's result (`keep_results`).  Where its
        parameter is annotated `HeldJob[T]`, data are decoded into T, unless the worker was given a type.

        Ends after `stop`, at `limit`, or when a queue is drained; at ^C and, unless the program
        handles it, at SIGTERM, with its jobs given back (`termination`).

        Args:
            on_error: Called for each failure, and for each job whose lease ended; by default these
                are logged, under "topics.client".
            time_limit_s: A job that takes longer is nacked with that as the reason, and `on_error` is
                given `TimeLimitExceeded`, in a thread of the worker.  The handler's thread cannot be
                ended: it runs on beside the next delivery, and what it returns then does not count.

        Raises:
            TypeError: The annotation of the handler cannot be read; or a call of it does no work, as it is
                `async def` or has a `yield`.
            TopicsError: A claim or an ack did not succeed for as long as `retry` allows; the jobs
                that other threads have in hand are finished first.
        """
        require_plain(handler)
        require_hook("on_error", on_error)
        self._state.take_type_of(handler)
        handling = _Handling(handler, on_error, self._limit(time_limit_s, on_error))
        try:
            return self._run_all(handling, concurrency)
        finally:
            if handling.limit is not None:
                handling.limit.close()

    def _limit(self, time_limit_s: float | None, on_error: OnError[HeldJob[D]]) -> TimeLimit | None:
        if time_limit_s is None:
            return None

        def over(job: HeldJob[D]) -> None:
            error = time_limit_exceeded(job, time_limit_s)
            with suppress(TopicsError), self._keeper.leaving([job]):
                job.nack(reason=error)
            on_error(job, error)

        return TimeLimit(time_limit_s, over)

    def _run_all(self, handling: "_Handling[D]", concurrency: int) -> int:
        if concurrency == 1:
            return self._run(handling)
        # With logging behind it, it is a part of what a command without threads would load.
        from concurrent.futures import ThreadPoolExecutor

        name = f"work-{self.queue}"
        with termination.heard(), ThreadPoolExecutor(concurrency, thread_name_prefix=name) as pool:
            try:  # from the first thread on: ^C may come while the others are started
                runs = [pool.submit(self._run, handling) for _ in range(concurrency)]
                return sum(run.result() for run in runs)
            finally:
                self.stop()

    def _run(self, handling: "_Handling[D]") -> int:
        done = 0
        jobs = iter(self)
        try:
            for job in jobs:
                with self._keeper.leaving([job]):
                    done += self._handle(job, handling)
        except BaseException:
            self.stop()
            raise
        finally:
            jobs.close()
        return done

    def _handle(self, job: HeldJob[D], handling: "_Handling[D]") -> bool:
        with process_span(self.queue, job) as span:
            return self._process(job, handling, span)

    def _process(self, job: HeldJob[D], handling: "_Handling[D]", span: Any) -> bool:
        limit, on_error = handling.limit, handling.on_error
        timed = None if limit is None else limit.begin(job)

        def is_in_time() -> bool:
            return limit is None or timed is None or limit.end(timed)

        try:
            job.require_fit()
            returned = handling.handler(job)
            require_done(handling.handler, returned)
        except BaseException as error:
            mark_failed(span, error)
            if not is_in_time() and isinstance(error, Exception):
                return False
            if not is_failure(error):
                with suppress(TopicsError):
                    job.nack(delay_ms=0)
                raise
            job.nack(reason=error)
            on_error(job, error)
        else:
            if not is_in_time():
                assert limit is not None
                mark_failed(span, time_limit_exceeded(job, limit.limit_s))
                return False
            self._done(job, returned)
        if job.is_lost:
            on_error(job, lease_lost(job))
        return job.state is JobState.ACKED

    def _done(self, job: HeldJob[D], returned: Any) -> None:
        """Ack a job whose handler has returned; without its result where the server refuses that."""
        result = self._state.result_of(returned)
        try:
            self._keeper.ack([job], result=result)
        except RESULT_REFUSED as error:
            if result is None:
                raise
            self._state.result_refused([job], error)
            self._keeper.ack([job])

    # ------------------------------------------------------------------ claiming

    def _open(self) -> None:
        with self._lock:
            call = self._state.lease_call()
        if call is not None:
            answer = self._session.do(call)
            with self._lock:
                self._state.lease_answered(answer)

    def _find(self) -> "_Found[D] | None":
        """Jobs, at once where some are ready, else when it is this thread's turn to wait for them;
        None where there is nothing more to do."""
        drains = self._state.drains
        if drains or not self._waiter.acquire(blocking=False):
            found = self._claim(waits=False)
            if drains or found is None or found[0]:
                return found
            self._waiter.acquire()
        try:
            return self._claim(waits=True)
        finally:
            self._waiter.release()

    def _claim(self, *, waits: bool) -> "_Found[D] | None":
        with self._lock:
            claim = None if self._stopping.is_set() else self._state.claim(waits=waits)
        return None if claim is None else self._ask(claim)

    def _ask(self, claim: Claim[D]) -> "_Found[D]":
        try:
            answer: Claimed[Job[D]] = self._session.do(claim.call)
        except BaseException:
            with self._lock:
                self._state.unanswered(claim)
            raise
        with self._lock:
            pause_s = self._state.claimed(claim, answer)
        return deque(self._keeper.hold(self.queue, answer.jobs)), pause_s
