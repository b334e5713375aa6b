"""`AsyncProducer`: single records, sent in batches by a task of its own."""

import asyncio
import logging
from collections.abc import Generator
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from topics.client.calls import encode_record
from topics.client.errors import TopicsError
from topics.client.options import ProducerOptions
from topics.client.producing import Batch, Outbox, again

if TYPE_CHECKING:
    from topics.client.aio import AsyncClient

_LOG: Final = logging.getLogger("topics.client")


class AsyncSent:
    """A record on its way, as `AsyncProducer.send` gives it; awaited, it is its sequence number.

        sent = await producer.send(value)
        seq = await sent

    Whoever waits may be cancelled; the record goes all the same.
    """

    __slots__ = ("_batch", "_index")

    def __init__(self, batch: Batch, index: int) -> None:
        self._batch = batch
        self._index = index

    @property
    def is_done(self) -> bool:
        """It was acknowledged, or never will be."""
        return self._batch.is_done

    def __await__(self) -> Generator[Any, None, int]:
        yield from _settled(self._batch).__await__()
        return self._batch.seq(self._index)


async def _settled(batch: Batch) -> None:
    if batch.is_done:
        return
    if batch.waiter is None:
        batch.waiter = asyncio.get_running_loop().create_future()
    # Shielded: it is that of all records of the batch.
    await asyncio.shield(batch.waiter)


class AsyncProducer:
    """What `AsyncClient.producer` gives: takes single records, and sends them in batches and in
    order.

    Any number of tasks of one event loop may send.  A task of its own sends one batch after the
    other.
    """

    def __init__(
        self, client: "AsyncClient", topic: str, **options: Unpack[ProducerOptions]
    ) -> None:
        self._client = client
        self._outbox = Outbox(topic, client._clock.now_s, **options)
        self._default = self._outbox.default
        self._task: asyncio.Task[None] | None = None
        self._is_closing = False
        self._has_raised = False
        self._turn = asyncio.Lock()
        """To wait for room: who came first goes first."""
        self._work = asyncio.Event()
        """There may be more to do."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if error is None:
            await self.aclose()
        else:
            with suppress(TopicsError):
                await self.aclose()

    async def send(self, value: Any, *, tag: str | None = None, meta: Any = None) -> AsyncSent:
        """As `Producer.send`; waits where `buffer_bytes` are waiting.  Cancelled while it waits, it
        has taken nothing."""
        record = encode_record(value, tag=tag, meta=meta, default=self._default)
        if self._is_closing:
            raise RuntimeError("the producer is closed")
        if self._turn.locked() or not self._outbox.has_room(len(record)):
            async with self._turn:
                await self._room(len(record))
                sent, _ = self._add(record)
            return sent
        sent, is_last = self._add(record)
        if is_last:
            # A loop that only sends would leave no turn to the task that does.
            await asyncio.sleep(0)
        return sent

    def _add(self, record: bytes) -> tuple[AsyncSent, bool]:
        batch, wakes = self._outbox.add(record)
        if wakes:
            self._wake()
        return AsyncSent(batch, len(batch.records) - 1), wakes

    async def _room(self, size_bytes: int) -> None:
        while not self._outbox.has_room(size_bytes):
            self._outbox.close_batch()
            self._wake()
            first = self._outbox.first
            assert first is not None
            await _settled(first)
            if self._is_closing:
                raise RuntimeError("the producer is closed")

    async def flush(self) -> None:
        """As `Producer.flush`."""
        last = self._outbox.last
        self._outbox.close_batch()
        self._work.set()
        if last is not None:
            await _settled(last)
        self._raise()

    async def aclose(self) -> None:
        """As `Producer.close`."""
        self._is_closing = True
        self._work.set()
        if self._task is not None:
            # Shielded: whoever waits for the end may be cancelled, and what was taken goes on.
            await asyncio.shield(asyncio.wait([self._task]))
        if not self._has_raised:
            self._raise()

    def _raise(self) -> None:
        if self._outbox.error is not None:
            self._has_raised = True
            raise again(self._outbox.error)

    def _wake(self) -> None:
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"produce-{self._outbox.topic}")
        self._work.set()

    # ------------------------------------------------------------------ the task

    async def _run(self) -> None:
        try:
            while await self._wait_until_due():
                call, batch = self._outbox.take()
                self._outbox.took(batch, await self._client._do(call))
                self._tell(batch)
        except (TopicsError, RuntimeError) as error:
            # The second is of a client that was closed before its producer, whose `close` tells it.
            self._fail(error)
        except BaseException as error:
            if self._outbox.unsettled and isinstance(error, asyncio.CancelledError):
                what = "%d records of a producer that was not closed when its event loop ended"
                _LOG.error(what, self._outbox.unsettled)
            self._fail(error)
            raise

    async def _wait_until_due(self) -> bool:
        """Wait until a batch is to go; False where there is no more."""
        while True:
            due_s = self._outbox.due_s()
            if due_s is None and self._is_closing:
                return False
            if due_s is not None and (not due_s or self._is_closing):
                return True
            self._work.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(due_s):
                    await self._work.wait()

    def _fail(self, error: BaseException) -> None:
        for batch in self._outbox.fail(error):
            self._tell(batch)

    def _tell(self, batch: Batch) -> None:
        if batch.waiter is not None and not batch.waiter.done():
            batch.waiter.set_result(None)
