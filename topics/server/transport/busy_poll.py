"""Busy polling: a client that is alone and asks again at once is waited for awake.

Owns the moments between an answer and the next request on its connection.  A process that sleeps
there is woken late, on a core that has gone to sleep too, whose caches have gone cold: to a lone
client that costs more than many a request. So where the last request came soon after the answer
before it, the loop polls its sockets for a while after the next answer and does not sleep, as
Linux does for the queues of network devices (`net.core.busy_poll`), and KVM for a halted CPU
(`halt_poll_ns`).  Knows nothing of requests.

Invariants: it polls only where the loop would sleep, and runs nothing; a wrong guess costs
`window_s` once, and none follows before a request came in time again; it does not poll between
requests of several connections, nor while threads need the interpreter, which each pass of the loop
takes from them.
"""

from collections.abc import Callable


class BusyPoll:
    """At most one connection is waited for.

    Args:
        call_soon: Of the event loop.
        clock: Seconds, as `time.perf_counter`.
        window_s: How long a request is waited for; 0: never.

    Attributes:
        may_poll: Whether nothing else needs the CPU that it takes.
    """

    def __init__(
        self,
        call_soon: Callable[[Callable[[], None]], object],
        clock: Callable[[], float],
        window_s: float,
    ) -> None:
        self._call_soon = call_soon
        self._clock = clock
        self._window_s = window_s
        self.may_poll: Callable[[], bool] = lambda: True
        self._who: object = None
        """The connection of the last request."""
        self._answered_s = 0.0
        self._until_s = 0.0
        self._is_prompt = False
        """That request came within the window."""
        self._is_polling = False

    def asked(self, who: object) -> None:
        """A request of a connection begins."""
        self._until_s = 0.0
        if self._who is who:
            self._is_prompt = self._clock() - self._answered_s < self._window_s
        else:
            self._who = who
            self._is_prompt = False

    def answered(self, who: object) -> None:
        """The answer to it is written."""
        if self._who is not who:
            return
        self._answered_s = now_s = self._clock()
        if self._is_prompt:
            self._until_s = now_s + self._window_s
            if not self._is_polling:
                self._is_polling = True
                self._call_soon(self._poll)

    def gone(self, who: object) -> None:
        """A connection has ended."""
        if self._who is who:
            self._who = None
            self._until_s = 0.0

    def _poll(self) -> None:
        """Have another pass of the loop, which does not sleep before it."""
        if self._clock() < self._until_s and self.may_poll():
            self._call_soon(self._poll)
        else:
            self._is_polling = False
