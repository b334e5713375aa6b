"""Scrapes of the metrics: made in slices, one document at a time.

Between two slices other clients have their turn, and there is a pause, so that scrapes without end
take a bounded part of the CPU.  Scrapes that come while a document is being made share the next one:
what they get is never older than their request.
"""

from collections.abc import Callable, Generator
from typing import Final

from topics.protocol.model.access import ANYONE, Caller
from topics.server.observing import metrics
from topics.server.service.shell import Phase, Shell

PAUSE_S: Final = 0.001

Deliver = Callable[[list[bytes]], None]
Kind = tuple[bool, Caller]
"""Whether JSON is asked for, and by whom where that decides what is told."""


class Scrape:
    """One scrape that waits."""

    __slots__ = ("deliver",)

    def __init__(self, deliver: Deliver) -> None:
        self.deliver: Deliver | None = deliver

    def cancel(self) -> None:
        self.deliver = None


class Scraping:
    """The documents of one exchange.

    Args:
        source: What they are made of for a caller, now; its `state` is None where another thread has
            it.
    """

    def __init__(self, shell: Shell, source: Callable[[Caller], metrics.Measured]) -> None:
        self._shell = shell
        self._source = source
        self._waiting: dict[Kind, list[Scrape]] = {}
        """In the order of asking."""
        self._work: Generator[None, None, list[bytes]] | None = None
        self._phase = Phase.STARTING
        """In which the work was begun: what owns the state changes with it."""
        self._kind: Kind = (False, ANYONE)
        self._served: list[Scrape] = []

    def ask(self, deliver: Deliver, caller: Caller = ANYONE, *, as_json: bool) -> Scrape:
        """Have the document's pieces delivered, perhaps before this returns.  Of JSON the last brace
        is left out."""
        scrape = Scrape(deliver)
        kind = as_json, caller if caller.prefixes else ANYONE
        self._waiting.setdefault(kind, []).append(scrape)
        if self._work is None:
            self._begin()
            self._step()
        return scrape

    def _begin(self) -> None:
        """Begin the document that was asked for first, for all who ask for it."""
        self._kind = next(iter(self._waiting))
        self._served = self._waiting.pop(self._kind)
        self._start()

    def _start(self) -> None:
        self._phase = self._shell.phase
        as_json, caller = self._kind
        source, process = self._source(caller), self._shell.process()
        self._work = metrics.rendering(source, process, as_json=as_json)

    def _step(self) -> None:
        if self._shell.phase is not self._phase:
            self._start()
        assert self._work is not None
        try:
            next(self._work)
        except StopIteration as done:
            self._work = None
            self._deliver(done.value)
        except Exception:
            self._work = None
            served, self._served = self._served, []
            for scrape in served:
                if scrape.deliver is not None:
                    scrape.deliver([])
            raise
        else:
            self._shell.later(PAUSE_S, self._step)

    def _deliver(self, pieces: list[bytes]) -> None:
        served, self._served = self._served, []
        if self._waiting:
            self._begin()
            self._shell.later(PAUSE_S, self._step)
        for scrape in served:
            if scrape.deliver is not None:
                scrape.deliver(pieces)
