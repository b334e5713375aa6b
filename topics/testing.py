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

from topics.client import AsyncClient, Client, HeldJob, TopicNotFound
from topics.client.handlers import job_type_of, require_plain
from topics.client.held_job import log_error
from topics.client.retry import Clock, Retry
from topics.distribution import needs

with needs("server", of="topics.testing"):
    from topics.asgi.app import App
    from topics.protocol.decide.leases import Leases
    from topics.protocol.driver.inline_host import InlineHost
    from topics.protocol.driver.reply import Deliver, Reply, Ticket
    from topics.protocol.model.commands import Command
    from topics.protocol.model.limits import Limits
    from topics.protocol.model.moment import Moment, earlier
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
        self._exchange = TopicsExchange(self._shell)
        self.app = App(self._exchange)
        self._clock = Clock(now_s=lambda: self._shell.now_ms / 1000)
        self.client = self._client(lambda pause_s: self.advance(ms=round(pause_s * 1000)))

    def _client(self, sleep: Callable[[float], None]) -> Client:
        return Client(
            "http://memory",
            transport=_Transport(self._exchange, self._shell),
            retry=Retry(for_s=0),
            clock=self._clock,
            sleep=sleep,
        )

    def async_client(self) -> AsyncClient:
        """A new `topics.AsyncClient` over `app`."""
        return AsyncClient(
            "http://memory",
            transport=_AsyncTransport(app=self.app),
            retry=Retry(for_s=0),
            clock=self._clock,
        )

    def answer(self, queue: str, handler: Callable[[Any], object]) -> None:
        """Have jobs of a queue done by a handler whenever a call of `client` waits for something.

            topics.client.put_topic("sizes", type="queue")
            topics.answer("sizes", lambda job: {"pixels": len(job.data["image"])})
            assert topics.client.call("sizes", {"image": "abc"}) == {"pixels": 3}

        A worker of `client` does them: the handler is given a `HeldJob`, what it returns is the job's
        result, and a job whose handler raises is nacked, and done again when the clock gets there.

        Raises:
            TypeError: As `Work.run`.
        """
        self._shell.workers.append(_Worker(self._client, queue, handler))

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
    """Does the jobs of one queue with a handler, one after the other, as `Client.work` does them.

    Args:
        client_of: Makes a client of how it sleeps.
    """

    def __init__(
        self,
        client_of: Callable[[Callable[[float], None]], Client],
        queue: str,
        handler: Callable[[Any], object],
    ) -> None:
        require_plain(handler)
        job_type_of(handler)
        self.queue = queue
        self._client_of = client_of
        self._handler = handler
        self.is_at_work = False

    def works(self) -> bool:
        """Do the jobs that are ready; False where there are none, or a handler itself waits."""
        if self.is_at_work:
            return False
        self.is_at_work = True
        try:
            return self._work() > 0
        except TopicNotFound:
            return False  # the queue does not exist yet
        finally:
            self.is_at_work = False

    def _work(self) -> int:
        """Do what is ready; returns how many jobs were done, or failed."""
        failed = 0

        def on_error(job: HeldJob[Any], error: Exception) -> None:
            nonlocal failed
            failed += 1
            log_error(job, error)

        # Where the queue has a pace, the caller moves the clock on, and comes back.
        with (
            self._client_of(lambda _pause_s: work.stop()) as client,
            client.work(self.queue, node=_NODE, drain=True) as work,
        ):
            done = work.run(self._handler, on_error=on_error)
        return done + failed


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
        """The time at which the next waiting request ends, or a handler of `answer` may have a job, if
        nothing is written before."""
        at_ms = self.driver.alarm_ms() or self.now_ms
        return min((at_ms, *filter(None, map(self._ready_ms, self.workers))))

    def _ready_ms(self, worker: _Worker) -> int | None:
        """When a queue may have a job that it has not now; None where it gets none by itself."""
        state = self.engine.state
        topic = state.topics.get(worker.queue)
        queue = None if topic is None else state.queues.by_id.get(topic.topic_id)
        if topic is None or queue is None or worker.is_at_work:
            return None
        at_ms = earlier(queue.next_ms(), Leases.pace_ms(topic, queue, self.now_ms))
        return None if at_ms is None else max(at_ms, self.now_ms + 1)

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
            if any(worker.works() for worker in self._shell.workers) or answers:
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
