"""What runs of record batches in memory hold because somebody reads them: columns and text, made of the batches.

It can be made again, so it is kept while it is asked for, and within a bound.  A run notes itself, on any thread, where
it makes something; all else is done on the thread of the engine.
"""

from collections import deque
from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

IDLE_MS: Final = 60_000
"""What was not asked for so long is let go."""


class Openable(Protocol):
    """A run, as far as this goes.

    Attributes:
        is_asked: It was read since this was last set to False.
    """

    is_asked: bool

    @property
    def opened_bytes(self) -> int:
        """What it holds of what it made."""


R = TypeVar("R", bound=Openable)


class _Held(NamedTuple):
    size_bytes: int
    asked_ms: int
    """When it was last found to have been asked."""


class OpenRuns(Generic[R]):
    """The runs that are open."""

    def __init__(self) -> None:
        self._noted: deque[R] = deque()
        self._held: dict[R, _Held] = {}
        """In the order in which they were asked last, about."""
        self._held_bytes = 0
        self._now_ms = 0

    def note(self, run: R) -> None:
        """A run makes something; may be called on any thread."""
        self._noted.append(run)

    @property
    def held_bytes(self) -> int:
        """What they hold."""
        self._count()
        return self._held_bytes

    def _count(self) -> None:
        while self._noted:
            self._set(self._noted.popleft())

    def _set(self, run: R) -> None:
        self.forget(run)
        size_bytes = run.opened_bytes
        self._held[run] = _Held(size_bytes, self._now_ms)
        self._held_bytes += size_bytes

    def forget(self, run: R) -> None:
        """It is not in memory any more, or not open."""
        held = self._held.pop(run, None)
        if held is not None:
            self._held_bytes -= held.size_bytes

    def owes(self, most_bytes: int) -> bool:
        """Whether too much is held; one run may always be open, or nobody could read it."""
        return self.held_bytes > most_bytes and len(self._held) > 1

    def excess(self, most_bytes: int, now_ms: int) -> Iterator[R]:
        """Runs that are to be closed, which are counted no more: those that nobody asks, and while too much is
        held, of the others those that were asked longest ago."""
        self._now_ms = now_ms
        self._count()
        for _ in range(2 * len(self._held)):
            if not self._held:
                return
            run, held = next(iter(self._held.items()))
            if not self.owes(most_bytes) and now_ms - held.asked_ms < IDLE_MS:
                return
            if run.is_asked:
                run.is_asked = False
                self._set(run)
            else:
                self.forget(run)
                yield run
