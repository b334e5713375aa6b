# Generated from aiowatch.py by topics/client/_generate.py; do not edit, run `make generate`.
"""`Watch`: the records of topics as they come, over one connection.

What is asked for next, and what a frame means, is decided by `WatchState`; this module does the
I/O.
"""

from collections.abc import Generator
from types import TracebackType
from typing import Generic, Self, TypeVar

from topics.client.call import Outcome
from topics.client.faults import Fault
from topics.client.models import Watched
from topics.client.session import Session
from topics.client.showing import named_line
from topics.client.watch_state import WatchState

R = TypeVar("R")


class Watch(Generic[R]):
    """What `Client.watch` returns: an iterator that outlives its connections; for one thread.

    It connects when the first item is asked for.  `with` subscribes at once, so that a `tail`
    begins there, and closes the connection at the end.  After an error, the next item that is asked
    for goes on where the watch was.
    """

    def __init__(self, session: Session, state: WatchState[R]) -> None:
        self._session = session
        self._state = state
        self._items = self._run()
        self._is_closed = False
        self._is_asked = False

    def __repr__(self) -> str:
        return named_line(type(self).__name__, self._state.names, is_closed=self._is_closed)

    @property
    def cursor(self) -> str | None:
        """Where to go on after the item that was returned last: keep it, and give it as `cursor` to
        the next watch.  None before the first answer."""
        return self._state.cursor

    def __enter__(self) -> Self:
        self._subscribe()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; there are no more items.

        Where the program waits for an item meanwhile, that wait closes the connection: when it is
        cancelled, or when the server sends something, a heartbeat at the latest.
        """
        self._is_closed = True
        if not self._is_asked:
            self._items.close()

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> Watched[R]:
        if self._is_closed:
            raise StopIteration
        self._is_asked = True
        try:
            return next(self._items)
        except StopIteration:
            raise
        except BaseException:
            # A generator that raised has ended; a new one goes on from the same state.
            self._items = self._run()
            raise
        finally:
            self._is_asked = False
            if self._is_closed:
                self._items.close()

    def _run(self) -> Generator[Watched[R]]:
        state = self._state
        while not (state.is_over or self._is_closed):
            self._subscribe()
            for item in state.pending_items():
                yield item
            if state.is_over or self._is_closed:
                return
            call, read_timeout_s = state.stream()
            try:
                with self._session.open(call, read_timeout_s) as response:
                    outcome: Outcome = response
                    if state.opens(response):
                        for piece in response.iter_bytes():
                            if self._is_closed:
                                return
                            for item in state.take(piece):
                                yield item
                            if not state.is_listening:
                                break
                    else:
                        response.read()
            except Fault as error:
                outcome = error
            if not (state.is_over or self._is_closed):
                self._pause(state.ended(call, outcome))

    def _subscribe(self) -> None:
        while not self._is_closed and (call := self._state.call()) is not None:
            outcome = self._session.send(call)
            self._pause(self._state.posted(call, outcome))

    def _pause(self, pause_s: float) -> None:
        if pause_s:
            self._session.sleep(pause_s)
