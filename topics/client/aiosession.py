"""`AsyncSession`: sends calls to one server or cluster, and sends again those that are worth repeating.

Owns the connections, the retry policy and the clock of one client.  The client and its watches,
producers and workers share a session, and none of them reaches below it.  It does not know what a
call means.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, TypeVar

from topics.client.aiofailover import AsyncConnections, AsyncFailover
from topics.client.aiopool import AsyncPool
from topics.client.answer import AsyncStreamedAnswer
from topics.client.call import Call, Outcome
from topics.client.errors import TopicsError
from topics.client.faults import Fault
from topics.client.hooks import require_hook
from topics.client.paging import Pages
from topics.client.position import HEADER, LastPosition
from topics.client.retry import Attempts, Clock, OnRetry, Retry
from topics.client.target import PreparedRequest, Target, prepare_stream
from topics.client.tracing import call_span, trace_headers

if TYPE_CHECKING:
    import httpx

A = TypeVar("A")
T = TypeVar("T")


class AsyncSession:
    """One client's way to its server.

    Attributes:
        targets: The server, or nodes of one cluster.
        connections: What carries the requests.  It may be replaced by a wrapper around it, as the
            command line does to say that it waits.
        sleep: Pauses between attempts.
        on_retry: Called before each pause, with what went wrong and the length of the pause in seconds.
    """

    def __init__(
        self,
        targets: Sequence[Target],
        transport: "httpx.AsyncBaseTransport | None",
        *,
        retry: Retry,
        clock: Clock,
        sleep: Callable[[float], Awaitable[None]],
        on_retry: OnRetry | None = None,
    ) -> None:
        require_hook("on_retry", on_retry)
        self.retry = retry
        self.clock = clock
        self.sleep = sleep
        self.on_retry = on_retry
        nodes = [_connections(target, transport) for target in targets]
        self.connections: AsyncConnections = AsyncFailover(nodes) if nodes[1:] else nodes[0]
        self.targets = targets
        self._position = LastPosition()

    @property
    def target(self) -> Target:
        """The server; of a cluster, the node that was named first."""
        return self.targets[0]

    @property
    def is_closed(self) -> bool:
        return self.connections.is_closed

    async def aclose(self) -> None:
        await self.connections.aclose()

    async def do(self, call: Call[T]) -> T:
        """The value of a call, which is sent again for as long as the retry policy allows.

        Raises:
            TopicsError: The last attempt did not succeed.
        """
        with call_span(call, self.target) as span:
            attempts = Attempts(call, self.retry, self.clock)
            outcome = await self.send(call)
            while (pause_s := attempts.pause_s(outcome)) is not None:
                span.repeats(call, outcome)
                if self.on_retry is not None:
                    self.on_retry(call.error(outcome), pause_s)
                await self.sleep(pause_s)
                outcome = await self.send(call)
            span.answered(outcome)
            return span.returns(call.result(outcome))

    async def send(self, call: Call[Any]) -> Outcome:
        """What came of one attempt."""
        prepared = self._placed(self.target.prepare(call))
        try:
            outcome = await self.connections.request(call, prepared)
        except Fault as fault:
            return fault
        self._position.note(outcome)
        return outcome

    def _placed(self, prepared: PreparedRequest) -> PreparedRequest:
        """The request, with the position of what this client has written to a cluster, and its trace."""
        if self._position.text:
            prepared.headers[HEADER] = self._position.text
        prepared.headers.update(trace_headers())
        return prepared

    def open(
        self, call: Call[Any], read_timeout_s: float
    ) -> AbstractAsyncContextManager[AsyncStreamedAnswer]:
        """An answer that is read as it comes; leaving the context ends it.

        Args:
            read_timeout_s: How long the server may send nothing.

        Raises:
            Fault: No answer came, or it broke off; while it is read, too.
        """
        return self.connections.stream(call, self._placed(prepare_stream(call, read_timeout_s)))

    async def items(self, pages: Pages[A, T]) -> AsyncGenerator[T]:
        """The items of all pages, in order; the next page is asked for when it is needed."""
        while (call := pages.call()) is not None:
            try:
                page = await self.do(call)
            except TopicsError as error:
                pages.refused(error)
                continue
            for item in pages.take(page):
                yield item


def _connections(target: Target, transport: "httpx.AsyncBaseTransport | None") -> AsyncConnections:
    if transport is None and target.is_plain:
        return AsyncPool(target)
    # It brings httpx, which takes longer to import than all the rest of the client.
    from topics.client.aiopool_httpx import AsyncHttpxPool

    return AsyncHttpxPool(target, transport)
