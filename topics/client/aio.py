"""`AsyncClient`: the API as awaited calls."""

import asyncio
from collections.abc import (
    AsyncGenerator,
    AsyncIterable,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Iterable,
)
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any, Generic, Literal, Self, TypeVar, Unpack, overload

import httpx

from topics.client import calls, walks, wire
from topics.client.aiopool import AsyncPool
from topics.client.aioproducer import AsyncProducer
from topics.client.aiowork import AsyncHeldJob, AsyncWork
from topics.client.calls import Call, Leases, Outcome
from topics.client.models import (
    Acked,
    Appended,
    AppendedMany,
    Claimed,
    Configured,
    Deleted,
    Diff,
    Extended,
    Guarantee,
    Health,
    Job,
    Nacked,
    Purged,
    Ready,
    Record,
    RecordHead,
    Router,
    RouterConfig,
    RouterDeleted,
    RouterSummary,
    Tombstone,
    TopicDeleted,
    TopicState,
    TopicSummary,
    Watched,
)
from topics.client.options import (
    AppendOptions,
    BatchOptions,
    Config,
    DiffOptions,
    Match,
    ProducerOptions,
    ReadOptions,
    WatchOptions,
    WorkOptions,
    require,
)
from topics.client.plugged import AsyncPlugged
from topics.client.retry import Attempts, Clock, Retry
from topics.client.watching import Topic, Watcher
from topics.client.working import OnError, Worker, log_error

D = TypeVar("D")
T = TypeVar("T")
J = TypeVar("J")
R = TypeVar("R")
A = TypeVar("A")


class AsyncClient:
    """`Client` for asyncio: the same calls and arguments, awaited.

        async with AsyncClient("http://127.0.0.1:4000") as client:
            await client.append("jobs", {"url": "s3://b/a.png"})
            async for item in client.read("jobs", follow=True):
                print(item)

    Args:
        transport: What carries the requests, for tests: `httpx.MockTransport(handler)`, or
            `httpx.ASGITransport(app)` to call an application without a socket.
        sleep: Pauses between attempts, for tests.
        url, api_key, timeout_s, retry, http2, compress, clock: As for `Client`.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        timeout_s: float = 30.0,
        retry: Retry = Retry(),  # noqa: B008  (frozen)
        http2: bool = False,
        compress: bool = False,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock = Clock(),  # noqa: B008  (frozen)
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._retry = retry
        self._clock = clock
        self._sleep = sleep
        target = wire.target(
            url, api_key=api_key, timeout_s=timeout_s, http2=http2, compress=compress
        )
        self._target = target
        self._carrier: wire.AsyncCarrier = (
            AsyncPool(target)
            if transport is None and target.is_plain
            else AsyncPlugged(target, transport)
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Let the connections go."""
        await self._carrier.aclose()

    @property
    def is_closed(self) -> bool:
        return self._carrier.is_closed

    # What takes options is no coroutine function but gives a coroutine: a mistake in its arguments is
    # raised by the call, as Python raises its own, and not when somebody awaits it.

    def put_topic(self, topic: str, **config: Unpack[Config]) -> Coroutine[Any, Any, Configured]:
        """As `Client.put_topic`."""
        return self._do(calls.put_topic(topic, config))

    def configure_topic(
        self, topic: str, **changes: Unpack[Config]
    ) -> Coroutine[Any, Any, Configured]:
        """As `Client.configure_topic`."""
        require(Config, changes, "configure_topic()")
        return self._configure(topic, changes)

    async def _configure(self, topic: str, changes: Config) -> Configured:
        config = (await self.topic(topic, touch=False)).config
        return await self._do(calls.put_topic(topic, calls.merged(config, changes)))

    async def topic(self, topic: str, *, touch: bool = True) -> TopicState:
        """As `Client.topic`."""
        return await self._do(calls.topic(topic, touch=touch))

    def topics(self, *, prefix: str = "", page_size: int = 1000) -> AsyncIterator[TopicSummary]:
        """As `Client.topics`, with `async for`."""
        return self._walk(walks.topics(prefix=prefix, page_size=page_size))

    async def delete_topic(self, topic: str, *, if_empty: bool = False) -> TopicDeleted:
        """As `Client.delete_topic`."""
        return await self._do(calls.delete_topic(topic, if_empty=if_empty))

    def append(
        self, topic: str, *values: Any, **options: Unpack[AppendOptions]
    ) -> Coroutine[Any, Any, Appended]:
        """As `Client.append`."""
        return self._do(calls.append(topic, values, options))

    def append_many(
        self,
        topic: str,
        values: Iterable[Any] | AsyncIterable[Any],
        **options: Unpack[BatchOptions],
    ) -> Coroutine[Any, Any, AppendedMany]:
        """As `Client.append_many`; the values may also come from an asynchronous iterable."""
        return self._append_all(walks.Batcher(topic, **options), values)

    async def _append_all(
        self, batcher: walks.Batcher, values: Iterable[Any] | AsyncIterable[Any]
    ) -> AppendedMany:
        async for value in _each(values):
            if call := batcher.add(value):
                batcher.took(await self._do(call))
        if call := batcher.flush():
            batcher.took(await self._do(call))
        return batcher.total

    def producer(self, topic: str, **options: Unpack[ProducerOptions]) -> AsyncProducer:
        """As `Client.producer`, with `async with` and `await producer.send(value)`."""
        return AsyncProducer(self, topic, **options)

    @overload
    def diff(
        self, topic: str, **options: Unpack[DiffOptions]
    ) -> Coroutine[Any, Any, Diff[Record[Any]]]: ...

    @overload
    def diff(
        self, topic: str, *, record_type: type[R], **options: Unpack[DiffOptions]
    ) -> Coroutine[Any, Any, Diff[R]]: ...

    def diff(
        self, topic: str, *, record_type: type[Any] = Record, **options: Unpack[DiffOptions]
    ) -> Coroutine[Any, Any, Diff[Any]]:
        """As `Client.diff`."""
        return self._do(calls.diff(topic, record_type, options))

    @overload
    def read(
        self, topic: str, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[Record[Any] | Tombstone]: ...

    @overload
    def read(
        self, topic: str, *, record_type: type[R], **options: Unpack[ReadOptions]
    ) -> AsyncIterator[R | Tombstone]: ...

    def read(
        self, topic: str, *, record_type: type[Any] = Record, **options: Unpack[ReadOptions]
    ) -> AsyncIterator[Any]:
        """As `Client.read`, with `async for`."""
        return self._walk(walks.Reader(topic, record_type, **options))

    @overload
    def watch(
        self,
        *topics: Topic,
        include_data: Literal[True] = True,
        **options: Unpack[WatchOptions],
    ) -> "AsyncWatch[Record[Any]]": ...

    @overload
    def watch(
        self, *topics: Topic, include_data: Literal[False], **options: Unpack[WatchOptions]
    ) -> "AsyncWatch[RecordHead]": ...

    @overload
    def watch(
        self,
        *topics: Topic,
        record_type: type[R],
        include_data: bool = True,
        **options: Unpack[WatchOptions],
    ) -> "AsyncWatch[R]": ...

    def watch(
        self,
        *topics: Topic,
        record_type: type[Any] = Record,
        include_data: bool = True,
        **options: Unpack[WatchOptions],
    ) -> "AsyncWatch[Any]":
        """As `Client.watch`, with `async for` and `async with`."""
        watcher = Watcher(
            topics,
            record_type,
            retry=self._retry,
            clock=self._clock,
            include_data=include_data,
            **options,
        )
        return AsyncWatch(self, watcher)

    async def delete(
        self, topic: str, *, before_seq: int | None = None, match: Match | None = None
    ) -> Deleted:
        """As `Client.delete`."""
        return await self._do(calls.delete(topic, before_seq=before_seq, match=match))

    async def purge(
        self,
        topic: str,
        *,
        seq: int | None = None,
        keep: int | None = None,
        filter: str | None = None,
    ) -> Purged:
        """As `Client.purge`."""
        return await self._do(calls.purge(topic, seq=seq, keep=keep, filter=filter))

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

    async def claim(
        self,
        queue: str,
        *,
        node: str,
        max: int = 1,
        lease_ms: int | None = None,
        wait_ms: int | None = None,
        job_type: type[Any] = Job,
    ) -> Claimed[Any]:
        """As `Client.claim`."""
        call = calls.claim(queue, job_type, node=node, max=max, lease_ms=lease_ms, wait_ms=wait_ms)
        return await self._do(call)

    async def ack(
        self, queue: str, jobs: Leases, *, node: str, lease_ids: list[str] | None = None
    ) -> Acked:
        """As `Client.ack`."""
        return await self._do(calls.ack(queue, jobs, node=node, lease_ids=lease_ids))

    async def nack(
        self,
        queue: str,
        jobs: Leases,
        *,
        node: str,
        delay_ms: int = 0,
        lease_ids: list[str] | None = None,
    ) -> Nacked:
        """As `Client.nack`."""
        call = calls.nack(queue, jobs, node=node, delay_ms=delay_ms, lease_ids=lease_ids)
        return await self._do(call)

    async def extend(
        self,
        queue: str,
        jobs: Leases,
        *,
        node: str,
        lease_ms: int,
        lease_ids: list[str] | None = None,
    ) -> Extended:
        """As `Client.extend`."""
        call = calls.extend(queue, jobs, node=node, lease_ms=lease_ms, lease_ids=lease_ids)
        return await self._do(call)

    @overload
    def work(self, queue: str, **options: Unpack[WorkOptions]) -> AsyncWork[Any]: ...

    @overload
    def work(
        self, queue: str, *, job_type: type[Job[D]], **options: Unpack[WorkOptions]
    ) -> AsyncWork[D]: ...

    @overload
    def work(
        self,
        queue: str,
        handler: Callable[[AsyncHeldJob[Any]], Awaitable[object]],
        *,
        concurrency: int = 1,
        on_error: OnError[AsyncHeldJob[Any]] = log_error,
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
        job_type: type[Job[D]],
        **options: Unpack[WorkOptions],
    ) -> Awaitable[int]: ...

    def work(
        self,
        queue: str,
        handler: Callable[[AsyncHeldJob[Any]], Awaitable[object]] | None = None,
        *,
        concurrency: int = 1,
        on_error: OnError[AsyncHeldJob[Any]] = log_error,
        job_type: type[Job[Any]] = Job,
        **options: Unpack[WorkOptions],
    ) -> "AsyncWork[Any] | Awaitable[int]":
        """As `Client.work`: `async for`, `async with`, a `handler` that is awaited, and `work` itself
        where there is one."""
        worker = Worker(queue, job_type, retry=self._retry, clock=self._clock, **options)
        work = AsyncWork(self, worker)
        if handler is None:
            return work
        return work._run_all(handler, concurrency, on_error)

    async def put_router(
        self,
        name: str,
        source: str,
        dest: str,
        *,
        filter: Match | None = None,
        preserve_node: bool = True,
        preserve_tag: bool = True,
        create_dest: bool = True,
        allow_cycle: bool = False,
        guarantee: Guarantee = "at_least_once",
    ) -> RouterConfig:
        """As `Client.put_router`."""
        call = calls.put_router(
            name,
            source,
            dest,
            filter=filter,
            preserve_node=preserve_node,
            preserve_tag=preserve_tag,
            create_dest=create_dest,
            allow_cycle=allow_cycle,
            guarantee=guarantee,
        )
        return await self._do(call)

    async def router(self, name: str) -> Router:
        """As `Client.router`."""
        return await self._do(calls.router(name))

    def routers(
        self,
        *,
        prefix: str = "",
        source: str | None = None,
        dest: str | None = None,
        page_size: int = 1000,
    ) -> AsyncIterator[RouterSummary]:
        """As `Client.routers`, with `async for`."""
        walk = walks.routers(prefix=prefix, source=source, dest=dest, page_size=page_size)
        return self._walk(walk)

    async def delete_router(self, name: str) -> RouterDeleted:
        """As `Client.delete_router`."""
        return await self._do(calls.delete_router(name))

    async def health(self) -> Health:
        """As `Client.health`."""
        return await self._do(calls.health())

    async def ready(self) -> Ready:
        """As `Client.ready`."""
        return await self._do(calls.ready())

    async def metrics(self) -> dict[str, Any]:
        """As `Client.metrics`."""
        return await self._do(calls.metrics())

    async def metrics_text(self) -> str:
        """As `Client.metrics_text`."""
        return await self._do(calls.metrics_text())

    async def limits(self) -> dict[str, Any]:
        """As `Client.limits`."""
        return await self._do(calls.limits())

    def _open(
        self, call: Call[Any], silence_s: float
    ) -> AbstractAsyncContextManager[httpx.Response]:
        return self._carrier.stream(call, wire.streaming(call, silence_s))

    async def _walk(self, walk: walks.Walk[A, T]) -> AsyncIterator[T]:
        while (call := walk.call()) is not None:
            for item in walk.take(await self._do(call)):
                yield item

    async def _do(self, call: Call[T]) -> T:
        attempts = Attempts(call, self._retry, self._clock)
        outcome = await self._send(call)
        while (pause_s := attempts.pause_s(outcome)) is not None:
            await self._sleep(pause_s)
            outcome = await self._send(call)
        return call.result(outcome)

    async def _send(self, call: Call[Any]) -> Outcome:
        sending = wire.sending(self._target, call)
        try:
            return await self._carrier.request(call, sending)
        except httpx.RequestError as error:
            return error


class AsyncWatch(Generic[R]):
    """What `AsyncClient.watch` gives: `Watch` for asyncio.

    A wait that is cancelled, say by `asyncio.timeout`, costs the connection and no item.
    """

    def __init__(self, client: AsyncClient, watcher: Watcher[R]) -> None:
        self._client = client
        self._watcher = watcher
        self._items = self._run()
        self._is_closed = False

    @property
    def cursor(self) -> str | None:
        """As `Watch.cursor`."""
        return self._watcher.cursor

    async def __aenter__(self) -> Self:
        await self._subscribe()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """As `Watch.close`."""
        self._is_closed = True
        await self._items.aclose()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Watched[R]:
        if self._is_closed:
            raise StopAsyncIteration
        try:
            return await anext(self._items)
        except StopAsyncIteration:
            raise
        except BaseException:
            self._items = self._run()
            raise

    async def _run(self) -> AsyncGenerator[Watched[R], None]:
        watcher = self._watcher
        while not watcher.is_over:
            await self._subscribe()
            for item in watcher.owed():
                yield item
            if watcher.is_over:
                return
            call, silence_s = watcher.stream()
            try:
                async with self._client._open(call, silence_s) as response:
                    outcome: Outcome = response
                    if watcher.opens(response):
                        async for piece in response.aiter_bytes():
                            for item in watcher.take(piece):
                                yield item
                            if not watcher.is_listening:
                                break
                    else:
                        await response.aread()
            except httpx.RequestError as error:
                outcome = error
            if not watcher.is_over:
                await self._pause(watcher.ended(call, outcome))

    async def _subscribe(self) -> None:
        while (call := self._watcher.call()) is not None:
            await self._pause(self._watcher.posted(call, await self._client._send(call)))

    async def _pause(self, pause_s: float) -> None:
        if pause_s:
            await self._client._sleep(pause_s)


async def _each(values: Iterable[T] | AsyncIterable[T]) -> AsyncIterator[T]:
    if isinstance(values, AsyncIterable):
        async for value in values:
            yield value
    else:
        for value in values:
            yield value
