"""What is noted of every request: counts, times, lines in the log, spans.

Owns the one place that an answer passes on its way out, whoever carries it.  Nothing is held for a
request that waits.
"""

import time
from collections.abc import Callable
from typing import Final, Protocol

from topics.protocol.model.errors import Rejection
from topics.server.observing.measures import RequestMeasures
from topics.server.observing.request_log import RequestLog
from topics.server.observing.tracing import RequestSpans

ONE_S_NS: Final = 1_000_000_000


class Head(Protocol):
    """What is told of a request's head."""

    @property
    def method(self) -> str: ...
    @property
    def path(self) -> bytes: ...
    @property
    def client(self) -> str: ...


class Observer:
    """Args:
    slow_s: A request that took longer has a line in the log, seconds; None: none has.
    spans: Where spans go; None: nowhere.

    Attributes:
        on_answer: Called with each answer.
    """

    def __init__(self, slow_s: float | None = None, spans: RequestSpans | None = None) -> None:
        self.measures = RequestMeasures()
        self.on_answer: Callable[[], None] | None = None
        self._slow_s = slow_s
        self._lines = RequestLog(slow_s)
        self._spans = spans

    def answered(
        self,
        head: Head,
        header: Callable[[bytes], bytes | None],
        route: str,
        status: int,
        begun_s: float,
        *,
        is_timed: bool,
    ) -> None:
        """An answer is made.

        Args:
            route: The label of its row of the table.
            begun_s: `time.perf_counter()` at the head.
            is_timed: Whether it took as long as it took because of the server: not for a long poll
                and a stream.
        """
        took_s = time.perf_counter() - begun_s
        self.measures.answered(route, status, took_s if is_timed else None)
        if self.on_answer is not None:
            self.on_answer()
        if is_timed and self._slow_s is not None and took_s > self._slow_s:
            now_s = begun_s + took_s
            self._lines.answered(head.path, head.method, status, took_s, head.client, now_s)
        if self._spans is not None:
            ended_ns = time.time_ns()
            begun_ns = ended_ns - int(took_s * ONE_S_NS)
            about = (head.method, route, head.path, status, head.client)
            self._spans.answered(*about, header, begun_ns, ended_ns)

    def refused(self, head: Head, refusal: Rejection) -> None:
        """A request is refused; its answer is noted by itself."""
        self.measures.refused(refusal.code)
        self._lines.refused(refusal, head.path, head.client, time.perf_counter())
