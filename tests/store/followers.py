"""Other processes that follow the log, as a test has them."""

from collections.abc import Callable


def _nothing() -> None: ...


class Followers:
    """Implements `ports.LogFollowers`: what is not given does nothing, and has read everything."""

    def __init__(
        self,
        *,
        shown: Callable[[], object] = _nothing,
        dropping: Callable[[], object] = _nothing,
        has_read: Callable[[], bool] = lambda: True,
        cleared: Callable[[bool], object] = lambda wholly: None,
    ) -> None:
        self._shown, self._dropping = shown, dropping
        self._has_read, self._cleared = has_read, cleared

    def shown(self) -> None:
        self._shown()

    def dropping(self) -> None:
        self._dropping()

    def reading(self) -> Callable[[], bool]:
        return self._has_read

    def cleared(self, wholly: bool) -> None:
        self._cleared(wholly)
