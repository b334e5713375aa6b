"""An engine in memory for the tests of programs that use `topics`: no socket, thread, file or wait.

It is the real engine, behind the real HTTP application, over a store in memory, with a clock that
only the test moves:

    from topics.testing import MemoryTopics

    with MemoryTopics() as topics:
        topics.client.append("jobs", {"n": 1})
        topics.advance(ms=60_000)
        assert topics.client.topic("jobs").count == 1

It needs the extra `server`.  With pytest, the fixture `memory_topics` is one of these, fresh for each test.
"""

import threading
from collections.abc import Callable, Generator
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Generic, Self, TypeVar
from urllib.parse import urlsplit

import httpx

from topics.client import AsyncClient, Client, Job
from topics.client.handlers import job_type_of
from topics.client.held_job import reason_of
from topics.client.retry import Clock, Retry
from topics.client.worker_state import FIRST_DELAY_MS
from topics.distribution import needs

with needs("server", of="topics.testing"):
    from topics.asgi.app import App
    from topics.protocol.driver.inline_host import InlineHost
    from topics.protocol.driver.reply import Deliver, Reply, Ticket
    from topics.protocol.model.commands import Command
    from topics.protocol.model.limits import Limits
    from topics.protocol.model.moment import Moment
    from topics.server.http.exchange import TopicsExchange
    from topics.server.http.interface import Answer, Head, Streaming
    from topics.server.service.shell import Phase, Process
    from topics.store.memory import MemoryStore

START_MS = 1_750_000_000_000
"""The clock's first reading: a day in June 2025."""

T = TypeVar("T")


class MemoryTopics:
    """A server in memory.

    Args:
        limits: Limits other than the defaults, e.g. `Limits(max_record_bytes=1000)`.
        start_ms: The clock's first reading, milliseconds since the epoch.

    Attributes:
        client: A `topics.Client` whose calls are answered at once.  A long poll that finds no record
            moves the clock by its `wait_ms` instead of waiting, once the handlers of `answer` have done
            all jobs that are ready.
        app: An ASGI application, e.g. for `httpx.ASGITransport(app=topics.app)`.  There a long poll
            waits until another task writes, or `advance` passes its deadline.
    """

    def __init__(self, limits: Limits | None = None, *, start_ms: int = START_MS) -> None:
        self._shell = _Shell(limits or Limits(), start_ms)
        exchange = TopicsExchange(self._shell)
        self.app = App(exchange)
        self._clock = Clock(now_s=lambda: self._shell.now_ms / 1000)
        self.client = Client(
            "http://memory",
            transport=_Transport(exchange, self._shell),
            retry=Retry(for_s=0),
            clock=self._clock,
            sleep=lambda pause_s: self.advance(ms=round(pause_s * 1000)),
        )

    def async_client(self) -> AsyncClient:
        """A new `topics.AsyncClient` over `app`."""
        return AsyncClient(
            "http://memory",
            transport=_AsyncTransport(app=self.app),
            retry=Retry(for_s=0),
            clock=self._clock,
        )

    def answer(self, queue: str, handler: Callable[[Job[Any]], object]) -> None:
        """Have jobs of a queue done by a handler whenever a call of `client` waits for something.

            topics.client.put_topic("sizes", type="queue")
            topics.answer("sizes", lambda job: {"pixels": len(job.data["image"])})
            assert topics.client.call("sizes", {"image": "abc"}) == {"pixels": 3}

        As in a worker, what the handler returns is the job's result, and a job whose handler raises is
        nacked with the exception as its reason, and done again later.
        """
        self._shell.workers.append(_Worker(self.client, queue, handler))

    @property
    def now_ms(self) -> int:
        """The clock's reading, milliseconds since the epoch."""
        return self._shell.now_ms

    def advance(self, *, ms: int) -> None:
        """Move the clock: records expire, idempotency windows close, long polls end, and each tick of a schedule
        happens when it is."""
        self._shell.advance(ms)

    def close(self) -> None:
        self.client.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class _Worker:
    """Does the jobs of one queue with a handler, one after the other."""

    def __init__(self, client: Client, queue: str, handler: Callable[[Job[Any]], object]) -> None:
        self._client = client
        self._queue = queue
        self._handler = handler
        self._job_type = job_type_of(handler)
        self._is_at_work = False

    def works(self) -> bool:
        """Do the jobs that are ready; False where there are none, or a handler itself waits."""
        if self._is_at_work:
            return False
        self._is_at_work = True
        try:
            kind = self._job_type
            claimed = self._client.claim(self._queue, node=_NODE, max=100, job_type=kind).jobs
            for job in claimed:
                self._handle(job)
        finally:
            self._is_at_work = False
        return bool(claimed)

    def _handle(self, job: Job[Any]) -> None:
        try:
            returned = self._handler(job)
        except Exception as error:
            rest_ms = FIRST_DELAY_MS << min(job.deliveries - 1, 8)
            self._client.nack(
                self._queue, job, node=_NODE, delay_ms=rest_ms, reason=reason_of(error)
            )
        else:
            self._client.ack(self._queue, job, node=_NODE, result=returned)


_NODE: Final = "answer"


class _Shell:
    """Implements `exchange.Shell`: each command is a turn of its own, written and synced at
    once."""

    def __init__(self, limits: Limits, start_ms: int) -> None:
        self.lock = threading.RLock()
        self.limits = limits
        self.store = MemoryStore()
        self.phase = Phase.READY
        self.host = InlineHost(limits, self.store, start_ms)
        self.driver = self.host.driver
        self.engine = self.driver.engine
        self._start_ms = start_ms
        self._later: list[Callable[[], object]] | None = None
        self.workers: list[_Worker] = []
        self.driver.recover()
        self.driver.start()

    @property
    def now_ms(self) -> int:
        return self.host.now_ms

    def submit(self, command: Command, deliver: Deliver) -> Reply | Ticket:
        now: list[Reply] = []
        is_here = True

        def receive(reply: Reply) -> None:
            if is_here:
                now.append(reply)
            else:
                deliver(reply)

        try:
            found = self.driver.submit(command, receive)
        finally:
            self._settle()
        is_here = False
        return now[0] if now else found

    @property
    def moment(self) -> Moment:
        return self.driver.moment

    def nudge(self) -> None:
        self.driver.nudge()
        self._settle()

    def _settle(self) -> None:
        self.host.settle()
        if not self.driver.commit.is_synced:
            self.driver.commit.want_sync()
        self.host.ring()

    def advance(self, ms: int) -> None:
        with self.lock:
            end_ms = self.now_ms + ms
            # In one leap, ticks on the way would be missed.
            while (at_ms := self.engine.schedule_commands.alarm_ms() or end_ms) < end_ms:
                self.host.advance(max(at_ms - self.now_ms, 0))
                self._settle()
            self.host.advance(end_ms - self.now_ms)
            self._settle()

    def next_ms(self) -> int:
        """The time at which the next waiting request ends, if nothing is written before."""
        return self.driver.alarm_ms() or self.now_ms

    @property
    def uptime_ms(self) -> int:
        return self.now_ms - self._start_ms

    def process(self) -> Process:
        compaction = self.driver.maintenance.schedule.key_compaction
        return Process(
            ready=True,
            recovery_progress=1.0,
            uptime_ms=self.uptime_ms,
            queue_depth=0,
            queue_depth_peak=0,
            submit_full_total=0,
            read_only=False,
            compaction_passes=compaction.passes,
            compaction_deleted=compaction.records_deleted,
        )

    def written(self) -> "_Read[bool]":
        return _Read(True)

    def synced(self) -> "_Read[bool]":
        return _Read(True)

    def later(self, delay_s: float, call: Callable[[], object]) -> None:
        """Nothing else has a turn here: the call is made before the first one returns."""
        if self._later is not None:
            self._later.append(call)
            return
        self._later = [call]
        try:
            while self._later:
                self._later.pop(0)()
        finally:
            self._later = None

    def read_in_thread(self, call: Callable[[], T]) -> "_Read[T]":
        return _Read(call())

    def decode_in_thread(self, call: Callable[[], T]) -> "_Read[T]":
        return _Read(call())

    def page_in_thread(self, call: Callable[[], T]) -> "_Read[T]":
        return _Read(call())

    def zip_in_thread(self, call: Callable[[], T]) -> "_Read[T]":
        return _Read(call())


@dataclass(frozen=True, slots=True)
class _Read(Generic[T]):
    """Implements `shell.ThreadCall`: the result of a call that a server would make in a thread."""

    value: T

    def add_done_callback(self, fn: Callable[[Any], object], /) -> None:
        fn(self)

    def cancel(self) -> bool:
        return False

    def result(self) -> T:
        return self.value

    def __await__(self) -> Generator[Any, None, T]:
        return self.value
        yield


class _Transport(httpx.BaseTransport):
    """Carries a client's requests to an exchange in the same call."""

    def __init__(self, exchange: TopicsExchange, shell: _Shell) -> None:
        self._exchange = exchange
        self._shell = shell

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        _refuse_stream(request)
        # Two threads may call: `Client.work` extends leases in one of its own.
        with self._shell.lock:
            return self._handle(request)

    def _handle(self, request: httpx.Request) -> httpx.Response:
        url = urlsplit(request.url.raw_path)
        headers = [(name.lower(), value) for name, value in request.headers.raw]
        found = self._exchange.begin(Head(request.method, url.path, url.query, headers))
        if not isinstance(found, Answer):
            found = self._whole(found.finish([request.read()]))
        return httpx.Response(
            found.status, headers=list(found.headers), content=b"".join(found.body)
        )

    def _whole(self, answer: object) -> Answer:
        if isinstance(answer, Answer):
            return answer
        assert not isinstance(answer, Streaming), "streams are refused before they begin"
        answers: list[Answer] = []
        answer.then(answers.append)  # type: ignore[attr-defined]
        while not answers:
            if any(worker.works() for worker in self._shell.workers):
                continue
            self._shell.advance(max(self._shell.next_ms() - self._shell.now_ms, 0))
        return answers[0]


class _AsyncTransport(httpx.ASGITransport):
    """Carries the requests of an `AsyncClient` to the application."""

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        _refuse_stream(request)
        return await super().handle_async_request(request)


def _refuse_stream(request: httpx.Request) -> None:
    """Refuse a request for a stream.

    It would wait for ever: a transport within the process returns an answer when it is complete.
    """
    if request.headers.get("accept") == "text/event-stream":
        raise httpx.UnsupportedProtocol("a stream never ends here: read() or diff() instead")
