"""Requests that take several steps: generators that yield what they wait for.

Most requests wait for nothing, or for one thing, so that a task of asyncio for each would cost more than the request.
"""

from collections.abc import Callable, Generator
from typing import Any, Generic, TypeAlias, TypeVar

T = TypeVar("T")
R = TypeVar("R")


class Later(Generic[T]):
    """A value that comes once.

    Args:
        holds: The requests behind have to wait for it: what this one does is not decided before.

    Attributes:
        is_there: It has come.
    """

    __slots__ = ("_then", "_value", "holds", "is_there")

    def __init__(self, *, holds: bool = True) -> None:
        self.holds = holds
        self.is_there = False
        self._value: Any = None
        self._then: Callable[[], None] | None = None

    def come(self, value: T) -> None:
        self._value, self.is_there = value, True
        then, self._then = self._then, None
        if then is not None:
            then()

    def value(self) -> T:
        return self._value  # type: ignore[no-any-return]

    def then(self, call: Callable[[], None]) -> None:
        self._then = call


Steps: TypeAlias = Generator[Later[Any], Any, R]


class Running(Generic[R]):
    """A generator on its way.

    Args:
        ended: Called once it has returned, or failed, with itself.

    Attributes:
        result: What it returned; None before.
        failure: What it raised.
        holds: The requests behind have to wait.
    """

    __slots__ = ("_ended", "_steps", "failure", "holds", "is_over", "result")

    def __init__(self, steps: Steps[R], ended: "Callable[[Running[R]], None]") -> None:
        self._steps = steps
        self._ended = ended
        self.result: R | None = None
        self.failure: Exception | None = None
        self.holds = False
        self.is_over = False

    def go_on(self, later: Later[Any] | None = None) -> None:
        """Take steps until one waits, or the last is done."""
        if self.is_over:
            return
        try:
            while True:
                later = self._steps.send(None if later is None else later.value())
                if not later.is_there:
                    break
        except StopIteration as end:
            self.result = end.value
        except Exception as error:
            self.failure = error
        else:
            waiting = later
            self.holds = waiting.holds
            waiting.then(lambda: self.go_on(waiting))
            return
        self.is_over, self.holds = True, False
        self._ended(self)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        if not self.is_over:
            self.is_over = True
            self._steps.close()
