"""Turns of those whose requests come over a link.

Owns one queue for each connection: what it wants done on the loop, the CPU time that it uses (as a
connection's meter has it), and what it holds of the memory for answers and of threads.  A client
over a link so shares the loop with those that are connected here, and a queue with little to do is
served as its requests come.  Knows nothing of requests.
"""

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVarTuple

from topics.server.transport.budget import Meter, Share
from topics.server.transport.shared import Shared

Given = TypeVarTuple("Given")
_Work: TypeAlias = tuple[Callable[..., None], tuple[Any, ...]]

KEPT_MAX: Final = 1024
"""Queues without a request that are kept: how much each used lately is worth knowing for a moment."""


class ConnectionQueue:
    """What one connection of a reader has to do here.

    Attributes:
        open: Its requests.
        apart: Of them, those whose answers are in the making on a thread.
        answers: What of the memory for answers it holds.
    """

    def __init__(self, shared: Shared, number: int) -> None:
        self._shared = shared
        self.number = number
        self._work: deque[_Work] = deque()
        self._waiting: deque[_Work] = deque()
        self._asks = False
        """One of those that wait is to have a turn."""
        self._is_queued = False
        self._is_working = False
        self._meter = Meter(shared.loop.time())
        self.open = 0
        self.apart: set[object] = set()
        self.answers = Share(shared.answers, shared.limits.connection_answers_bytes)

    def do(self, work: Callable[[*Given], None], *given: *Given) -> None:
        """Have this done, now where the queue has used little, else in its turn.  It must not raise;
        called as messages come, and not within the turn of another client."""
        self._work.append((work, given))
        if self._is_queued or self._is_working:
            return
        shared = self._shared
        if self._meter.is_heavy(shared.loop.time()) or not shared.turns.may_skip:
            self._queue()
        else:
            shared.turns.skipped(self._run(shared.limits.direct_turn_s), self._meter)

    def soon(self, work: Callable[[], None]) -> None:
        """Have this done in its turn.  Runs nothing before it returns."""
        self._work.append((work, ()))
        if not (self._is_queued or self._is_working):
            self._queue()

    def ask(self, work: Callable[[*Given], None], *given: *Given) -> None:
        """Have this done in its turn, once there is room for another answer (`is_full`): now, where this
        is its turn."""
        if self._is_working and not self._waiting and not self.is_full:
            work(*given)
            return
        self._waiting.append((work, given))
        self.go_on()

    def go_on(self) -> None:
        """There may be room for another answer.  Runs nothing before it returns."""
        if self._waiting and not self._asks and not self.is_full:
            self._asks = True
            self.soon(self._ask_next)

    def _ask_next(self) -> None:
        """Each of them may fill it."""
        self._asks = False
        if self._waiting and not self.is_full:
            work, given = self._waiting.popleft()
            work(*given)
        self.go_on()

    @property
    def is_full(self) -> bool:
        """See `http2.link.Link.is_full`: no further request goes to the exchange now."""
        limits = self._shared.limits
        if len(self.apart) >= limits.connection_threads:
            return True
        return self.answers.held_bytes > limits.connection_answers_bytes // 2

    def use(self, took_s: float) -> None:
        """Charge CPU time that was spent for it beside its turns."""
        self._meter.use(self._shared.loop.time(), took_s)

    def take_turn(self) -> None:
        self._is_queued = False
        self._run(self._shared.limits.turn_s)

    def _queue(self) -> None:
        self._is_queued = True
        is_light = not self._meter.is_heavy(self._shared.loop.time())
        self._shared.turns.add(self, self._meter, is_light=is_light)

    def _run(self, turn_s: float) -> float:
        shared, work = self._shared, self._work
        begun_s = shared.stopwatch.begin()
        self._is_working = True
        try:
            while work:
                call, given = work.popleft()
                call(*given)
                if shared.clock() >= begun_s + turn_s:
                    break
        finally:
            self._is_working = False
        used_s = shared.stopwatch.end(begun_s)
        self._meter.use(shared.loop.time(), used_s)
        if work:
            self._queue()
        return used_s


class ConnectionQueues:
    """The queues of one relay, by the numbers of its connections."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._queues: dict[int, ConnectionQueue] = {}
        self._idle: OrderedDict[int, ConnectionQueue] = OrderedDict()
        """Queues without a request; the queue used last is kept longest."""

    def enter(self, number: int) -> ConnectionQueue:
        """The queue of a connection that has another request."""
        queue = self._queues.get(number)
        if queue is None:
            queue = self._queues[number] = ConnectionQueue(self._shared, number)
        queue.open += 1
        self._idle.pop(number, None)
        return queue

    def leave(self, queue: ConnectionQueue) -> None:
        """A request is over."""
        queue.open -= 1
        if queue.open:
            return
        self._idle[queue.number] = queue
        if len(self._idle) > KEPT_MAX:
            number, _ = self._idle.popitem(last=False)
            del self._queues[number]
