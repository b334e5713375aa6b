# Generated from aioqueues.py by topics/client/_generate.py; do not edit, run `make generate`.
"""The calls of a client that are about queues: claims and what follows, and workers."""

from collections.abc import Callable, Mapping
from typing import Any, TypeVar, Unpack, overload

from topics.client import endpoints
from topics.client.decoding import kind_of
from topics.client.endpoints import Leases
from topics.client.held_job import OnError, log_error
from topics.client.lease_keeper import HeldJob, LeaseKeeper
from topics.client.lease_state import LEASE_MS, KeeperPolicy, LeaseState
from topics.client.models import Acked, Claimed, Extended, Job, Nacked
from topics.client.options import KeeperOptions, WorkOptions
from topics.client.session import Session
from topics.client.worker import Work
from topics.client.worker_state import WorkerState

D = TypeVar("D")
J = TypeVar("J")


class QueueCalls:
    """The part of `Client` for queues.

    Attributes:
        session: Sends the calls.
    """

    session: Session

    @overload
    def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
    ) -> Claimed[Job[Any]]: ...

    @overload
    def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        job_type: type[J],
    ) -> Claimed[J]: ...

    @overload
    def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        decode: type[D],
    ) -> Claimed[Job[D]]: ...

    def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        job_type: type[Any] = Job,
        decode: type[Any] | None = None,
    ) -> Claimed[Any]:
        """Lease up to `max` jobs of a queue; `work` does this and all that follows in a loop.

            claimed = client.claim("jobs", node="w1", max=16, wait_ms=30_000)
            ...
            client.ack("jobs", claimed.jobs, node="w1")

        A job that is neither acked nor extended before its deadline is leased to another worker.
        A claim whose connection broke is repeated; the jobs that the lost answer may have leased
        are handed out again when that lease ends.

        Args:
            node: The name of the worker; its acks must have the same.
            max: The most jobs to lease; the server grants 1000 by default.
            lease_ms: Length of the leases, within [100, 86,400,000]; by default the queue's.
            wait_ms: Where nothing is ready, wait for a first job, at most 30,000.
            decode: Decodes `data` into that type; short for `job_type=Job[T]`.

        Raises:
            TopicNotFound: The queue does not exist.
            Conflict: The topic is not a queue.
        """
        call = endpoints.claim(
            queue,
            kind_of(job_type, decode),
            node=node,
            max=max,
            lease_ms=lease_ms,
            wait_ms=wait_ms,
        )
        return self.session.do(call)

    def ack(
        self,
        queue: str,
        jobs: Leases,
        *,
        node: str,
        lease_ids: list[str] | None = None,
        result: Any = None,
        results: Mapping[int, Any] | None = None,
    ) -> Acked:
        """Say that jobs are done, which deletes them.

            client.ack("jobs", claimed.jobs, node="w1")          # as they were claimed
            client.ack("jobs", [480101], node="w1", lease_ids=["lease_7f3a9c"])

        Jobs as they were claimed carry their lease ids: a job that is leased to another worker by
        now is `skipped`, and stays that worker's.  Bare seqs count while `node` holds their leases.

        Args:
            result: What came of all of them, as JSON; `job` and `jobs` show it, for as long as the queue has
                it (`result_ttl_ms`, `keep_done`).
            results: The same of each, by seq.
        """
        call = endpoints.ack(
            queue, jobs, node=node, lease_ids=lease_ids, result=result, results=results
        )
        return self.session.do(call)

    def nack(
        self,
        queue: str,
        jobs: Leases,
        *,
        node: str,
        delay_ms: int | None = None,
        lease_ids: list[str] | None = None,
        reason: str | None = None,
        dead: bool = False,
    ) -> Nacked:
        """Give jobs back undone, to be claimed again after `delay_ms` (at most a day); without it after
        the queue's `backoff`, or at once.

        `jobs` and `lease_ids` as for `ack`.  Without lease ids the call is not repeated where its
        answer was lost: the same node may have claimed the jobs again meanwhile.

        Args:
            reason: Why; the last five of a job are kept, of each the first KiB.
            dead: They go to the queue's dead letters at once.

        Raises:
            Conflict: `dead`, and the queue has no `dead_letter`.
        """
        call = endpoints.nack(
            queue,
            jobs,
            node=node,
            delay_ms=delay_ms,
            lease_ids=lease_ids,
            reason=reason,
            dead=dead,
        )
        return self.session.do(call)

    def extend(
        self,
        queue: str,
        jobs: Leases,
        *,
        node: str,
        lease_ms: int,
        lease_ids: list[str] | None = None,
        progress: Any = None,
    ) -> Extended:
        """Let the leases of jobs end `lease_ms` from now; `jobs` and `lease_ids` as for `ack`.

        Args:
            progress: How far they are, at most 1,024 bytes of JSON; `job` and `jobs` show it.
        """
        call = endpoints.extend(
            queue, jobs, node=node, lease_ms=lease_ms, lease_ids=lease_ids, progress=progress
        )
        return self.session.do(call)

    @overload
    def lease_keeper(
        self,
        *,
        node: str | None = None,
        lease_ms: int = LEASE_MS,
        **options: Unpack[KeeperOptions],
    ) -> LeaseKeeper[Any]: ...

    @overload
    def lease_keeper(
        self,
        *,
        node: str | None = None,
        lease_ms: int = LEASE_MS,
        job_type: type[Job[D]],
        **options: Unpack[KeeperOptions],
    ) -> LeaseKeeper[D]: ...

    @overload
    def lease_keeper(
        self,
        *,
        node: str | None = None,
        lease_ms: int = LEASE_MS,
        decode: type[D],
        **options: Unpack[KeeperOptions],
    ) -> LeaseKeeper[D]: ...

    def lease_keeper(
        self,
        *,
        node: str | None = None,
        lease_ms: int = LEASE_MS,
        job_type: type[Job[Any]] = Job,
        decode: type[Any] | None = None,
        **options: Unpack[KeeperOptions],
    ) -> LeaseKeeper[Any]:
        """A keeper of leases, for programs that claim jobs in another way than `work` does.

            with client.lease_keeper(capacity=100) as keeper:
                jobs = keeper.claim("mails", max=20, wait_ms=5000)
                ...
                keeper.ack(jobs)

        It holds jobs of any number of queues, extends their leases in the background until they are
        settled, and acks or nacks many in one call.

        Args:
            node: Name of the worker; by default this machine and process.
            lease_ms: How soon another worker may have the jobs of one that died, within [100, 86,400,000].
            decode: Decodes `data` into that type; short for `job_type=Job[T]`.

        Options: `KeeperOptions`.
        """
        leases: LeaseState[Any] = LeaseState(node, lease_ms)
        policy: KeeperPolicy[Any] = KeeperPolicy(**options)
        return LeaseKeeper(self.session, leases, kind_of(job_type, decode), policy)

    @overload
    def work(self, queue: str, **options: Unpack[WorkOptions]) -> Work[Any]: ...

    @overload
    def work(
        self, queue: str, *, job_type: type[Job[D]], **options: Unpack[WorkOptions]
    ) -> Work[D]: ...

    @overload
    def work(self, queue: str, *, decode: type[D], **options: Unpack[WorkOptions]) -> Work[D]: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[HeldJob[Any]], object],
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[Any]] = log_error,
        time_limit_s: float | None = None,
        **options: Unpack[WorkOptions],
    ) -> int: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[HeldJob[D]], object],
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[D]] = log_error,
        time_limit_s: float | None = None,
        job_type: type[Job[D]],
        **options: Unpack[WorkOptions],
    ) -> int: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[HeldJob[D]], object],
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[D]] = log_error,
        time_limit_s: float | None = None,
        decode: type[D],
        **options: Unpack[WorkOptions],
    ) -> int: ...

    def work(
        self,
        queue: str,
        handler: Callable[[HeldJob[Any]], object] | None = None,
        *,
        concurrency: int = 1,
        on_error: OnError[HeldJob[Any]] = log_error,
        time_limit_s: float | None = None,
        job_type: type[Job[Any]] = Job,
        decode: type[Any] | None = None,
        **options: Unpack[WorkOptions],
    ) -> Work[Any] | int:
        """Work on a queue: claim its jobs, extend their leases, and ack or nack each.

            client.work("jobs", resize, concurrency=4)       # until it is interrupted

            with client.work("jobs", node="w1") as work:     # or one after the other
                for job in work:
                    with job:
                        resize(job.data)

        With a `handler` it runs `Work.run`, and returns how many jobs were done.  Without one
        it returns a `Work` to iterate over, or to run and to stop.  Leases are extended in the
        background.  Every ack and nack carries the job's lease id, so that a worker that comes too
        late changes nothing.

        Options: `WorkOptions`; `concurrency`, `on_error` and `time_limit_s` as for `Work.run`;
        `decode=T` decodes `data` into T, and is short for `job_type=Job[T]`; without both the
        annotation of the handler says T.
        """
        session, kind = self.session, kind_of(job_type, decode)
        state = WorkerState(queue, kind, retry=session.retry, clock=session.clock, **options)
        work = Work(session, state)
        if handler is None:
            return work
        return _run(work, handler, concurrency, on_error, time_limit_s)


def _run(
    work: Work[D],
    handler: Callable[[HeldJob[D]], object],
    concurrency: int,
    on_error: OnError[HeldJob[D]],
    time_limit_s: float | None,
) -> int:
    with work:
        return work.run(
            handler, concurrency=concurrency, on_error=on_error, time_limit_s=time_limit_s
        )
