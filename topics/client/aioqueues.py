"""The calls of a client that are about queues: claims and what follows, and workers."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, TypeVar, Unpack, overload

from topics.client import endpoints
from topics.client.aiolease_keeper import AsyncHeldJob, AsyncLeaseKeeper
from topics.client.aiosession import AsyncSession
from topics.client.aioworker import AsyncWork
from topics.client.decoding import kind_of
from topics.client.endpoints import Leases
from topics.client.held_job import OnError, log_error
from topics.client.lease_state import LEASE_MS, KeeperPolicy, LeaseState
from topics.client.models import Acked, Claimed, Extended, Job, Nacked
from topics.client.options import KeeperOptions, WorkOptions
from topics.client.worker_state import WorkerState

D = TypeVar("D")
J = TypeVar("J")


class AsyncQueueCalls:
    """The part of `AsyncClient` for queues.

    Attributes:
        session: Sends the calls.
    """

    session: AsyncSession

    @overload
    async def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
    ) -> Claimed[Job[Any]]: ...

    @overload
    async def claim(
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
    async def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        decode: type[D],
    ) -> Claimed[Job[D]]: ...

    async def claim(
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

            claimed = await client.claim("jobs", node="w1", max=16, wait_ms=30_000)
            ...
            await client.ack("jobs", claimed.jobs, node="w1")

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
        return await self.session.do(call)

    async def ack(
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

            await client.ack("jobs", claimed.jobs, node="w1")          # as they were claimed
            await client.ack("jobs", [480101], node="w1", lease_ids=["lease_7f3a9c"])

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
        return await self.session.do(call)

    async def nack(
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
        return await self.session.do(call)

    async def extend(
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
        return await self.session.do(call)

    @overload
    def lease_keeper(
        self,
        *,
        node: str | None = None,
        lease_ms: int = LEASE_MS,
        **options: Unpack[KeeperOptions],
    ) -> AsyncLeaseKeeper[Any]: ...

    @overload
    def lease_keeper(
        self,
        *,
        node: str | None = None,
        lease_ms: int = LEASE_MS,
        job_type: type[Job[D]],
        **options: Unpack[KeeperOptions],
    ) -> AsyncLeaseKeeper[D]: ...

    @overload
    def lease_keeper(
        self,
        *,
        node: str | None = None,
        lease_ms: int = LEASE_MS,
        decode: type[D],
        **options: Unpack[KeeperOptions],
    ) -> AsyncLeaseKeeper[D]: ...

    def lease_keeper(
        self,
        *,
        node: str | None = None,
        lease_ms: int = LEASE_MS,
        job_type: type[Job[Any]] = Job,
        decode: type[Any] | None = None,
        **options: Unpack[KeeperOptions],
    ) -> AsyncLeaseKeeper[Any]:
        """A keeper of leases, for programs that claim jobs in another way than `work` does.

            async with client.lease_keeper(capacity=100) as keeper:
                jobs = await keeper.claim("mails", max=20, wait_ms=5000)
                ...
                await keeper.ack(jobs)

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
        return AsyncLeaseKeeper(self.session, leases, kind_of(job_type, decode), policy)

    @overload
    def work(self, queue: str, **options: Unpack[WorkOptions]) -> AsyncWork[Any]: ...

    @overload
    def work(
        self, queue: str, *, job_type: type[Job[D]], **options: Unpack[WorkOptions]
    ) -> AsyncWork[D]: ...

    @overload
    def work(
        self, queue: str, *, decode: type[D], **options: Unpack[WorkOptions]
    ) -> AsyncWork[D]: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[AsyncHeldJob[Any]], Awaitable[object]],
        *,
        concurrency: int = 1,
        on_error: OnError[AsyncHeldJob[Any]] = log_error,
        time_limit_s: float | None = None,
        **options: Unpack[WorkOptions],
    ) -> Awaitable[int]: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
        *,
        concurrency: int = 1,
        on_error: OnError[AsyncHeldJob[D]] = log_error,
        time_limit_s: float | None = None,
        job_type: type[Job[D]],
        **options: Unpack[WorkOptions],
    ) -> Awaitable[int]: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
        *,
        concurrency: int = 1,
        on_error: OnError[AsyncHeldJob[D]] = log_error,
        time_limit_s: float | None = None,
        decode: type[D],
        **options: Unpack[WorkOptions],
    ) -> Awaitable[int]: ...

    def work(
        self,
        queue: str,
        handler: Callable[[AsyncHeldJob[Any]], Awaitable[object]] | None = None,
        *,
        concurrency: int = 1,
        on_error: OnError[AsyncHeldJob[Any]] = log_error,
        time_limit_s: float | None = None,
        job_type: type[Job[Any]] = Job,
        decode: type[Any] | None = None,
        **options: Unpack[WorkOptions],
    ) -> AsyncWork[Any] | Awaitable[int]:
        """Work on a queue: claim its jobs, extend their leases, and ack or nack each.

            await client.work("jobs", resize, concurrency=4)       # until it is interrupted

            async with client.work("jobs", node="w1") as work:     # or one after the other
                async for job in work:
                    async with job:
                        await resize(job.data)

        With a `handler` it runs `AsyncWork.run`, and returns how many jobs were done.  Without one
        it returns an `AsyncWork` to iterate over, or to run and to stop.  Leases are extended in the
        background.  Every ack and nack carries the job's lease id, so that a worker that comes too
        late changes nothing.

        Options: `WorkOptions`; `concurrency`, `on_error` and `time_limit_s` as for `AsyncWork.run`;
        `decode=T` decodes `data` into T, and is short for `job_type=Job[T]`; without both the
        annotation of the handler says T.
        """
        session, kind = self.session, kind_of(job_type, decode)
        state = WorkerState(queue, kind, retry=session.retry, clock=session.clock, **options)
        work = AsyncWork(session, state)
        if handler is None:
            return work
        return _run(work, handler, concurrency, on_error, time_limit_s)


async def _run(
    work: AsyncWork[D],
    handler: Callable[[AsyncHeldJob[D]], Awaitable[object]],
    concurrency: int,
    on_error: OnError[AsyncHeldJob[D]],
    time_limit_s: float | None,
) -> int:
    async with work:
        return await work.run(
            handler, concurrency=concurrency, on_error=on_error, time_limit_s=time_limit_s
        )
