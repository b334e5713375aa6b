"""`Work`: a worker for threads, that claims, keeps and settles jobs of a queue."""

import socket
import threading
import weakref
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeAlias, TypeVar

import httpx

from topics.client.calls import Outcome
from topics.client.errors import Conflict, NotFound, TopicsError
from topics.client.models import Claimed, Job
from topics.client.pushing import SILENCE_S
from topics.client.working import (
    Asked,
    Fate,
    Held,
    OnError,
    Worker,
    chunks,
    lease_lost,
    log_error,
)

if TYPE_CHECKING:
    from topics.client.sync import Client

D = TypeVar("D")
_Found: TypeAlias = "tuple[deque[HeldJob[D]], float | None]"
"""Jobs, and the pause before the next claim; None where the queue is drained."""


class HeldJob(Held[D]):
    """A job in hand; as a context it is acked at the end, and given back where that raises.

        for job in client.work("jobs"):
            with job:
                resize(job.data)

    An exception goes on out of the context; the job is to be had again after a delay that grows
    with `deliveries`, or at once where it was not the job's fault (`KeyboardInterrupt`).
    """

    def __init__(self, work: "Work[D]", job: Job[D]) -> None:
        super().__init__(work.queue, job)
        self._work = work

    def ack(self) -> bool:
        """It is done: delete it.  False where it was another's by then (`is_lost`).

        Raises:
            TopicsError: No answer; it comes again, unless the ack has arrived all the same.
        """
        self._work._settle([self], None)
        return self._fate is Fate.ACKED

    def nack(self, *, delay_ms: int | None = None) -> bool:
        """Give it back undone; without a delay of yours, with one that grows with `deliveries`."""
        if delay_ms is None:
            delay_ms = self._work._worker.delay_ms(self.deliveries)
        self._work._settle([self], delay_ms)
        return self._fate is Fate.NACKED

    def __enter__(self) -> Self:
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
            # What went wrong is told by the exception that goes on, and not by a server that
            # cannot be told of it: then the lease runs out.
            with suppress(TopicsError):
                self.nack(delay_ms=None if isinstance(error, Exception) else 0)


class Work(Generic[D]):
    """What `Client.work` gives: the jobs of a queue, one after the other, to whoever iterates.

    It claims when it is asked for a job, and extends what is in hand in the background.  `with`
    gives back at the end what was not dealt with.  Several threads may iterate at once: each claims
    for itself.
    """

    def __init__(self, client: "Client", worker: Worker[D]) -> None:
        self._client = client
        self._worker = worker
        self._lock = threading.Lock()
        self._turn = threading.Lock()
        """To wait for a job."""
        self._stopping = threading.Event()
        self._closing = threading.Event()
        self._keeper: threading.Thread | None = None
        self._idle: set[socket.socket] = set()
        """Streams on which a hand waits, and which hold no job that is worked on."""

    @property
    def queue(self) -> str:
        return self._worker.queue

    @property
    def node(self) -> str:
        """Who works."""
        return self._worker.node

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __del__(self) -> None:
        self._closing.set()

    def stop(self) -> None:
        """Claim no more; what is in hand is finished.  For signal handlers and other threads.

        A claim that is waiting for a job is answered first, within its `wait_ms`; a stream over TLS
        is let go with its next job or heartbeat.
        """
        self._stopping.set()
        for idle in list(self._idle):
            with suppress(OSError):
                idle.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Claim no more, and give back what is in hand: others may have it at once."""
        self.stop()
        with self._lock:
            held = list(self._worker.held.values())
        with suppress(TopicsError):
            self._settle(held, 0)
        self._closing.set()
        if self._keeper is not None and self._keeper is not threading.current_thread():
            self._keeper.join()

    def __iter__(self) -> Generator[HeldJob[D], None, None]:
        self._open()
        yield from self._pushed() if self._worker.pushes else self._claimed()

    def _claimed(self) -> Generator[HeldJob[D], None, None]:
        while (found := self._find()) is not None:
            jobs, pause_s = found
            try:
                while jobs and not self._stopping.is_set():
                    yield jobs.popleft()
            finally:
                self._give_back(jobs)
            if pause_s is None:
                return
            if pause_s and not self._stopping.is_set():
                self._client._sleep(pause_s)

    def _pushed(self) -> Generator[HeldJob[D], None, None]:
        stream = self._worker.pushing()
        while not (self._stopping.is_set() or self._worker.is_through):
            try:
                with self._client._open(stream.call, SILENCE_S) as response:
                    outcome: Outcome = response
                    if stream.opens(response):
                        pieces = response.iter_bytes()
                        while (piece := self._piece(response, pieces)) is not None:
                            for job in self._held(stream.take(piece)):
                                # What comes after the last one goes back with the connection.
                                if not self._is_wanted():
                                    return
                                yield job
                            if not stream.is_listening:
                                break
                    else:
                        response.read()
            except httpx.RequestError as error:
                outcome = error
            if not self._stopping.is_set():
                self._client._sleep(stream.ended(outcome))

    def _piece(self, response: httpx.Response, pieces: Iterator[bytes]) -> bytes | None:
        """The next piece of a stream; None at its end, and when the work is stopped."""
        network = response.extensions.get("network_stream")
        found = None if network is None else network.get_extra_info("socket")
        # A TLS socket cannot be shut down under a thread that reads from it.
        plain = found if type(found) is socket.socket else None
        if plain is not None:
            self._idle.add(plain)
        try:
            # In this order: either we see the stop, or it sees us.
            return None if self._stopping.is_set() else next(pieces, None)
        finally:
            if plain is not None:
                self._idle.discard(plain)

    def _is_wanted(self) -> bool:
        """Whether a job that was pushed is to be worked on; the last one is the other hands' end."""
        with self._lock:
            is_wanted = not self._stopping.is_set() and self._worker.counts_one()
            if self._worker.is_through:
                self.stop()
        return is_wanted

    def run(
        self,
        handler: Callable[[HeldJob[D]], object],
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[D]] = log_error,
    ) -> int:
        """Call `handler` with each job, in so many threads; how many jobs were done.

        What it returns from is acked, where it raises the job is given back, with a delay that
        grows, and the next one comes.  It may ack or nack itself, and is not contradicted.  Ends
        after `stop`, at `limit`, or when a queue is drained.

        Args:
            on_error: Told of each failure, and of jobs whose lease ran out; by default they are
                logged, under "topics.client".

        Raises:
            TopicsError: A claim or an ack did not succeed for as long as `retry` allows; what the
                other threads have in hand is finished first.
        """
        if concurrency == 1:
            return self._run(handler, on_error)
        with ThreadPoolExecutor(concurrency, thread_name_prefix=f"work-{self.queue}") as pool:
            runs = [pool.submit(self._run, handler, on_error) for _ in range(concurrency)]
            try:
                return sum(run.result() for run in runs)
            finally:
                self.stop()

    def _run(self, handler: Callable[[HeldJob[D]], object], on_error: OnError[HeldJob[D]]) -> int:
        done = 0
        jobs = iter(self)
        try:
            for job in jobs:
                done += self._handle(job, handler, on_error)
        except BaseException:
            self.stop()
            raise
        finally:
            jobs.close()
        return done

    def _handle(
        self,
        job: HeldJob[D],
        handler: Callable[[HeldJob[D]], object],
        on_error: OnError[HeldJob[D]],
    ) -> bool:
        try:
            handler(job)
        except Exception as error:
            job.nack()
            on_error(job, error)
        except BaseException:
            with suppress(TopicsError):
                job.nack(delay_ms=0)
            raise
        else:
            job.ack()
        if job.is_lost:
            on_error(job, lease_lost(job))
        return job._fate is Fate.ACKED

    # ------------------------------------------------------------------ claiming

    def _open(self) -> None:
        with self._lock:
            call = self._worker.opening()
        if call is not None:
            state = self._client._do(call)
            with self._lock:
                self._worker.opened(state)

    def _find(self) -> "_Found[D] | None":
        """Jobs, at once where there are some, else when it is our turn to wait for them; None where
        there is nothing more to do."""
        drains = self._worker.drains
        if drains or not self._turn.acquire(blocking=False):
            found = self._claim(waits=False)
            if drains or found is None or found[0]:
                return found
            self._turn.acquire()
        try:
            return self._claim(waits=True)
        finally:
            self._turn.release()

    def _claim(self, *, waits: bool) -> "_Found[D] | None":
        with self._lock:
            asked = None if self._stopping.is_set() else self._worker.claim(waits=waits)
        return None if asked is None else self._ask(asked)

    def _ask(self, asked: Asked[D]) -> "_Found[D]":
        try:
            answer: Claimed[Job[D]] = self._client._do(asked.call)
        except BaseException:
            with self._lock:
                self._worker.unanswered(asked)
            raise
        with self._lock:
            pause_s = self._worker.claimed(asked, answer)
        return deque(self._held(answer.jobs)), pause_s

    def _held(self, jobs: Iterable[Job[D]]) -> list[HeldJob[D]]:
        """Jobs in hand from now on, and kept."""
        with self._lock:
            held = self._worker.hold(HeldJob(self, job) for job in jobs)
            if held and self._keeper is None:
                self._keeper = self._start_keeper()
        return held

    def _give_back(self, jobs: Iterable[HeldJob[D]]) -> None:
        """Jobs that nobody has begun with."""
        with suppress(TopicsError):
            self._settle(list(jobs), 0)

    def _settle(self, jobs: Iterable[Held[D]], delay_ms: int | None) -> None:
        """Ack jobs, or nack them with a delay, unless something was said about them already."""
        worker = self._worker
        for some in chunks(list(jobs)):
            with self._lock:
                ours = worker.settling(some)
            if not ours:
                continue
            call: Any = worker.ack(ours) if delay_ms is None else worker.nack(ours, delay_ms)
            answer = None
            try:
                answer = self._client._do(call)
            finally:
                with self._lock:
                    worker.settled(ours, answer)

    # ------------------------------------------------------------------ leases

    def _start_keeper(self) -> threading.Thread:
        every_s = self._worker.extend_every_s
        # It holds no reference to us: a worker that was dropped lets its leases run out.
        args = (weakref.ref(self), self._closing, every_s)
        keeper = threading.Thread(target=_keep, args=args, name=f"keep-{self.queue}", daemon=True)
        keeper.start()
        return keeper

    def _extend(self) -> float:
        """Extend what is in hand, each in one attempt; seconds until the next time."""
        pause_s = self._worker.extend_every_s
        with self._lock:
            extensions = self._worker.extensions()
        for call, jobs in extensions:
            try:
                answer = call.result(self._client._send(call))
            except (NotFound, Conflict):
                # The queue is gone, and its leases with it.
                with self._lock:
                    self._worker.lost(jobs)
            except TopicsError:
                pause_s = self._worker.extend_again_s
            else:
                with self._lock:
                    self._worker.extended(jobs, answer)
        return pause_s


def _keep(found: "weakref.ref[Work[Any]]", closing: threading.Event, pause_s: float) -> None:
    while not closing.wait(pause_s):
        work = found()
        if work is None or work._client.is_closed:
            return
        pause_s = work._extend()
        del work
