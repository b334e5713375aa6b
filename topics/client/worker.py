"""`Work`: a worker for threads, which claims jobs of a queue, keeps their leases and settles them.

What is claimed next, and what became of a job, is decided by `WorkerState`; this module does the
I/O, in the threads of the program and one of its own that extends leases.  It is not generated from
`aioworker`: threads need locks, a blocked read is ended by closing its socket, and a thread, other
than a task, cannot be cancelled.
"""

import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeAlias, TypeVar

from topics.client import termination
from topics.client.answer import StreamedAnswer
from topics.client.call import Call, Outcome
from topics.client.errors import (
    BadAnswer,
    Conflict,
    InvalidRequest,
    NotFound,
    TopicFull,
    TopicsError,
)
from topics.client.faults import Fault
from topics.client.handlers import require_done, require_plain
from topics.client.held_job import (
    BaseHeldJob,
    JobState,
    OnError,
    is_failure,
    lease_lost,
    log_error,
    reason_of,
    time_limit_exceeded,
)
from topics.client.hooks import require_hook
from topics.client.job_stream import READ_TIMEOUT_S
from topics.client.models import Claimed, Job
from topics.client.session import Session
from topics.client.time_limit import TimeLimit
from topics.client.worker_state import Claim, WorkerState, chunks

D = TypeVar("D")
_Found: TypeAlias = "tuple[deque[HeldJob[D]], float | None]"
"""Jobs, and the pause before the next claim; None where the queue is drained."""


RESULT_REFUSED: Final = (InvalidRequest, TopicFull)
"""Refusals of an ack that may be of its result: too large, or no room for it."""


class HeldJob(BaseHeldJob[D]):
    """A job in hand.  As a context it is acked at the end, and nacked where the block raises.

        for job in client.work("jobs"):
            with job:
                resize(job.data)

    The exception goes on out of the context.  The job is handed out again after a delay that grows
    with `deliveries`; or at once, where it was not the job's fault (`KeyboardInterrupt`).
    """

    def __init__(self, keeper: "LeaseKeeper[D]", job: Job[D]) -> None:
        super().__init__(keeper.queue, job)
        self._keeper = keeper

    def ack(self, *, result: Any = None) -> bool:
        """Say that the job is done, which deletes it.  False where its lease had ended (`is_lost`).

        Args:
            result: What came of it, as JSON (`Client.ack`).

        Raises:
            TopicsError: No answer came; the job is handed out again, unless the ack arrived all the
                same.
        """
        self._keeper.ack([self], result)
        return self.state is JobState.ACKED

    def nack(
        self, *, delay_ms: int | None = None, reason: str | None = None, dead: bool = False
    ) -> bool:
        """Give the job back undone, to be handed out again after `delay_ms`; by default as the
        queue's `backoff` says, or after a delay that grows with `deliveries`.  False where its lease had ended.

        Args:
            reason: Why; it stays with the job.
            dead: It goes to the dead letters at once.
        """
        if delay_ms is None:
            delay_ms = 0 if dead else self._keeper.delay_ms(self.deliveries)
        self._keeper.nack([self], delay_ms, reason, dead=dead)
        return self.state is JobState.NACKED

    def __enter__(self) -> Self:
        try:
            self.require_fit()
        except BadAnswer as error:
            with suppress(TopicsError):
                self.nack(reason=reason_of(error))
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            self.ack()
        else:
            # The exception of the block goes on, and one of the nack would hide it.  Where the
            # nack does not arrive, the lease runs out.
            with suppress(TopicsError):
                if isinstance(error, Exception):
                    self.nack(reason=reason_of(error))
                else:
                    self.nack(delay_ms=0)


class LeaseKeeper(Generic[D]):
    """The jobs in hand of one worker: settles them, and extends their leases in the background.

    The thread that extends holds no reference to the keeper: when a program drops the worker and
    its jobs, their leases run out.

    Attributes:
        lock: Held around each use of the worker's state.
    """

    def __init__(self, session: Session, state: WorkerState[D]) -> None:
        self.lock = threading.Lock()
        self.queue = state.queue
        self._session = session
        self._state = state
        self._closing = threading.Event()
        self._thread: threading.Thread | None = None

    def __del__(self) -> None:
        self._closing.set()

    @property
    def is_orphaned(self) -> bool:
        """The client was closed: no lease can be extended any more."""
        return self._session.is_closed

    def close(self) -> None:
        """Give back all jobs in hand, and extend no more."""
        with self.lock:
            held = list(self._state.held.values())
        self.give_back(held)
        self._closing.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()

    def hold(self, jobs: Iterable[Job[D]]) -> list[HeldJob[D]]:
        """Take claimed jobs in hand; from now on their leases are extended."""
        with self.lock:
            held = self._state.hold(HeldJob(self, job) for job in jobs)
            if held and self._thread is None:
                self._thread = self._start()
        return held

    def give_back(self, jobs: Iterable[BaseHeldJob[D]]) -> None:
        """Nack jobs without a delay; where the server does not answer, their leases run out."""
        with suppress(TopicsError):
            self.nack(list(jobs), 0)

    def ack(self, jobs: Iterable[BaseHeldJob[D]], result: Any = None) -> None:
        """Ack jobs, with what came of them; those that are settled already are left out."""
        self._settle(jobs, lambda held: self._state.ack(held, result))

    def done(self, job: BaseHeldJob[D], returned: Any) -> None:
        """Ack a job whose handler has returned; without its result where the server refuses that."""
        result, state = self._state.result_of(returned), self._state
        bare = None if result is None else state.ack
        self._settle([job], lambda held: state.ack(held, result), bare)

    def nack(
        self,
        jobs: Iterable[BaseHeldJob[D]],
        delay_ms: int | None,
        reason: str | None = None,
        *,
        dead: bool = False,
    ) -> None:
        """Nack jobs, with None as the queue's `backoff` says; those that are settled already are left out."""
        self._settle(jobs, lambda held: self._state.nack(held, delay_ms, reason, dead=dead))

    def _settle(
        self,
        jobs: Iterable[BaseHeldJob[D]],
        call_of: Callable[[list[BaseHeldJob[D]]], Call[Any]],
        bare: Callable[[list[BaseHeldJob[D]]], Call[Any]] | None = None,
    ) -> None:
        """Send the call of jobs that are held, and where the server refuses it, the `bare` one."""
        state = self._state
        for some in chunks(list(jobs)):
            with self.lock:
                held = state.settling(some)
            if not held:
                continue
            answer = None
            try:
                answer = self._session.do(call_of(held))
            except RESULT_REFUSED as error:
                if bare is None:
                    raise
                state.result_refused(held, error)
                answer = self._session.do(bare(held))
            finally:
                with self.lock:
                    state.settled(held, answer)

    def delay_ms(self, deliveries: int) -> int | None:
        return self._state.delay_ms(deliveries)

    def extend(self) -> float:
        """Extend the leases of all jobs in hand, in one attempt; seconds until the next time."""
        pause_s = self._state.extend_every_s
        with self.lock:
            extensions = self._state.extensions()
        for call, jobs in extensions:
            try:
                answer = call.result(self._session.send(call))
            except (NotFound, Conflict):
                # The queue was deleted, and its leases with it.
                with self.lock:
                    self._state.lost(jobs)
            except TopicsError:
                pause_s = self._state.extend_again_s
            else:
                with self.lock:
                    self._state.extended(jobs, answer)
        return pause_s

    def _start(self) -> threading.Thread:
        args = (weakref.ref(self), self._closing, self._state.extend_every_s)
        name = f"keep-{self.queue}"
        thread = threading.Thread(target=_extend_leases, args=args, name=name, daemon=True)
        thread.start()
        return thread


def _extend_leases(
    found: "weakref.ref[LeaseKeeper[Any]]", closing: threading.Event, pause_s: float
) -> None:
    while not closing.wait(pause_s):
        keeper = found()
        if keeper is None or keeper.is_orphaned:
            return
        pause_s = keeper.extend()
        del keeper


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
        self._keeper = LeaseKeeper(session, state)
        self._lock = self._keeper.lock
        self._waiter = threading.Lock()
        """Held by the one thread that waits at the server for a job."""
        self._stopping = threading.Event()
        self._idle: set[socket.socket] = set()
        """Sockets of streams on which a thread waits with no job in hand."""

    @property
    def queue(self) -> str:
        return self._state.queue

    @property
    def node(self) -> str:
        """The name under which jobs are claimed."""
        return self._state.node

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
                            for job in self._keeper.hold(stream.take(piece)):
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
            with suppress(TopicsError):  # its lease ends, as it is not extended any more
                job.nack(reason=reason_of(error))
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
                done += self._handle(job, handling)
        except BaseException:
            self.stop()
            raise
        finally:
            jobs.close()
        return done

    def _handle(self, job: HeldJob[D], handling: "_Handling[D]") -> bool:
        limit, on_error = handling.limit, handling.on_error
        timed = None if limit is None else limit.begin(job)

        def is_in_time() -> bool:
            return limit is None or timed is None or limit.end(timed)

        try:
            job.require_fit()
            returned = handling.handler(job)
            require_done(handling.handler, returned)
        except BaseException as error:
            if not is_in_time() and isinstance(error, Exception):
                return False
            if not is_failure(error):
                with suppress(TopicsError):
                    job.nack(delay_ms=0)
                raise
            job.nack(reason=reason_of(error))
            on_error(job, error)
        else:
            if not is_in_time():
                return False
            self._keeper.done(job, returned)
        if job.is_lost:
            on_error(job, lease_lost(job))
        return job.state is JobState.ACKED

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
        return deque(self._keeper.hold(answer.jobs)), pause_s
