"""When jobs of a queue were started, for its `rate` (133)."""

from collections import deque

from topics.protocol.model.config import Rate, TopicConfig


class JobStarts:
    """Starts of the last `per_ms`, a millisecond at a time; none are kept where there is no rate.

    What another process started is not known, so a process begins with a window that is full.
    """

    def __init__(self) -> None:
        self._starts: deque[tuple[int, int]] = deque()
        self._count = 0
        self._began_ms = 0

    def begin(self, now_ms: int) -> None:
        """The process has just begun, or decides from now on."""
        self._starts.clear()
        self._count, self._began_ms = 0, now_ms

    def note(self, now_ms: int, jobs: int, config: TopicConfig) -> None:
        """Jobs were started."""
        if isinstance(config.rate, Rate):
            self._starts.append((now_ms, jobs))
            self._count += jobs

    def left(self, now_ms: int, rate: Rate) -> int:
        """How many may be started now."""
        if now_ms < self._began_ms + rate.per_ms:
            return 0
        starts = self._starts
        while starts and starts[0][0] <= now_ms - rate.per_ms:
            self._count -= starts.popleft()[1]
        return max(rate.max - self._count, 0)

    def next_ms(self, rate: Rate) -> int:
        """When more may be started, where none may be now."""
        if not self._starts:
            return self._began_ms + rate.per_ms
        return max(self._starts[0][0], self._began_ms) + rate.per_ms
