"""`AsyncProducer`: takes single records, and sends them in batches from a task of its own.

The batches are kept by an `Accumulator`, which only the event loop's one thread calls; this module
sends its calls.
"""

import asyncio
import logging
from collections.abc import Generator
from contextlib import ExitStack, suppress
from contextvars import Context
from types import TracebackType
from typing import Any, Final, Self, Unpack

from topics.client import termination
from topics.client.accumulator import Accumulator, Batch, copy_of
from topics.client.aiosession import AsyncSession
from topics.client.encoding import encode_record
from topics.client.errors import TopicsError, Unreachable
from topics.client.job_options import JobOptions
from topics.client.options import ProducerOptions, require
from topics.client.showing import named_line
from topics.client.tracing import present_span

_LOG: Final = logging.getLogger("topics.client")


class AsyncSent:
    """A record on its way, as `AsyncProducer.send` returns it; awaited, it is its sequence number.

        sent = await producer.send(value)
        seq = await sent

    A task that awaits it may be cancelled; the record is sent all the same.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """The record was acknowledged, or failed."""
        return self._batch.is_done

    def __await__(self) -> Generator[Any, None, int]:
        yield from _settled(self._batch).__await__()
        return self._batch.seq(self._index)


async def _settled(batch: Batch) -> None:
    if batch.is_done:
        return
    if batch.waiter is None:
        batch.waiter = asyncio.get_running_loop().create_future()
    # Shielded: all records of the batch share the future, and one waiter may be cancelled.
    await asyncio.shield(batch.waiter)


class AsyncProducer:
    """What `AsyncClient.producer` returns: takes single records, and sends them in batches and in
    order.

    Any number of tasks of one event loop may send.  A task of its own sends one batch after the
    other.
    """

    def __init__(
        self, session: AsyncSession, topic: str, **options: Unpack[ProducerOptions]
    ) -> None:
        self._session = session
        self._accumulator = Accumulator(topic, session.clock.now_s, **options)
        self._default = self._accumulator.default
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._has_raised = False
        self._heard = ExitStack()
        """SIGTERM, while the producer is a context."""
        self._turn = asyncio.Lock()
        """Held by the task that waits for room; the others queue behind it, in order."""
        self._more = asyncio.Event()
        """Wakes the sending task: there may be a batch to send."""

    def __repr__(self) -> str:
        names = [self._accumulator.topic]
        return named_line(type(self).__name__, names, is_closed=self._is_closing)

    async def __aenter__(self) -> Self:
        self._heard.enter_context(termination.heard_by_task())
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._heard:
            if error is None:
                await self.aclose()
            else:
                with suppress(TopicsError):
                    await self.aclose()

    async def send(
        self,
        value: Any,
        *,
        tag: str | None = None,
        meta: Any = None,
        partition: int | None = None,
        **job: Unpack[JobOptions],
    ) -> AsyncSent:
        """As `Producer.send`; waits while `buffer_bytes` are not acknowledged.  Where that wait is
        cancelled, the record is not taken."""
        if job:
            require(JobOptions, job, "send()")
        record = encode_record(
            value, tag=tag, meta=meta, partition=partition, default=self._default, **job
        )
        if self._is_closing:
            raise RuntimeError("the producer is closed")
        if self._turn.locked() or not self._accumulator.has_room(len(record)):
            async with self._turn:
                await self._room(len(record))
                sent, _ = self._add(record)
            return sent
        sent, is_last = self._add(record)
        if is_last:
            # A program that only calls `send` would never let the sending task run.
            await asyncio.sleep(0)
        return sent

    def _add(self, record: bytes) -> tuple[AsyncSent, bool]:
        batch, wakes = self._accumulator.add(record, present_span())
        if wakes:
            self._wake()
        return AsyncSent(batch, len(batch.records) - 1), wakes

    async def _room(self, size_bytes: int) -> None:
        while not self._accumulator.has_room(size_bytes):
            self._accumulator.close_batch()
            self._wake()
            first = self._accumulator.first
            assert first is not None
            await _settled(first)
            if self._is_closing:
                raise RuntimeError("the producer is closed")

    async def flush(self) -> None:
        """As `Producer.flush`."""
        last = self._accumulator.last
        self._accumulator.close_batch()
        self._more.set()
        if last is not None:
            await _settled(last)
        self._raise()

    async def aclose(self) -> None:
        """As `Producer.close`."""
        self._is_closing = True
        self._more.set()
        if self._task is not None:
            # Shielded: where this wait is cancelled, the records that were taken are sent on.
            await asyncio.shield(asyncio.wait([self._task]))
        if not self._has_raised:
            self._raise()

    def _raise(self) -> None:
        if self._accumulator.error is not None:
            self._has_raised = True
            raise copy_of(self._accumulator.error)

    def _wake(self) -> None:
        if self._task is None:
            # Of no context: the one of the first record, with its span, is not that of the others.
            self._task = asyncio.create_task(
                self._run(), name=f"produce-{self._accumulator.topic}", context=Context()
            )
        self._more.set()

    # ------------------------------------------------------------------ the task

    async def _run(self) -> None:
        try:
            while await self._wait_until_due():
                call, batch = self._accumulator.take()
                self._accumulator.appended(batch, await self._session.do(call))
                self._release(batch)
        except (TopicsError, RuntimeError) as error:
            # RuntimeError: the client was closed before its producer; `aclose` raises it.
            self._fail(error)
        except asyncio.CancelledError:
            if self._accumulator.unsettled:
                what = "%d records of a producer that was not closed when its event loop ended"
                _LOG.error(what, self._accumulator.unsettled)
            # A task that waits for a record was not cancelled itself.
            why = "the task that sends was cancelled before an answer came"
            self._fail(Unreachable("unreachable", 0, why))
            raise
        except BaseException as error:
            self._fail(error)
            raise

    async def _wait_until_due(self) -> bool:
        """Wait until a batch is to be sent; False where the producer is closed and has none."""
        while True:
            due_s = self._accumulator.due_s()
            if due_s is None and self._is_closing:
                return False
            if due_s is not None and (not due_s or self._is_closing):
                return True
            self._more.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(due_s):
                    await self._more.wait()

    def _fail(self, error: BaseException) -> None:
        for batch in self._accumulator.fail(error):
            self._release(batch)

    def _release(self, batch: Batch) -> None:
        """Wake the tasks that wait for a batch."""
        if batch.waiter is not None and not batch.waiter.done():
            batch.waiter.set_result(None)
