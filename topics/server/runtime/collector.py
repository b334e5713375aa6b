"""Python's garbage collector, kept away from what lives as long as the process.

A collection of the oldest generation looks at every object that it knows, all topics among them, and
holds up the event loop meanwhile.  So it is off while the data is read, which makes millions of
objects and hardly a cycle, and what is there at the end of that it is never shown.  What topics are
made of later on is taken from it as they grow in number.

What is out of its sight is still freed when nothing refers to it; only a cycle that was alive at
that moment stays for ever.  A connection leaves one, so this is done as rarely as topics grow.
"""

import gc
from collections.abc import Callable
from typing import Any, Final

GROWN_TOPICS: Final = 1000
GROWN_PART: Final = 8
"""As many topics more, and one part in so many, are looked at before they are taken out of sight."""


COLLECT_AFTER: Final = (700, 10, 100)
"""Thresholds: a hundred collections of the middle generation before a full one, where Python has ten.
A full collection stops the process for about a microsecond an object, and a connection is forty
objects: ten of them ran while 10,000 connections came, the last for a third of a second.  What the
less frequent ones leave lying about is 700,000 objects at most."""


class Collector:
    """The collector of this process, from the start of one server to its end.

    Args:
        topics: How many there are.
    """

    def __init__(self, topics: Callable[[], int]) -> None:
        self._topics = topics
        self._known = 0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """The data is about to be read."""
        gc.set_threshold(*COLLECT_AFTER)
        gc.disable()

    def settle(self) -> None:
        """It is read."""
        self._freeze()
        gc.enable()
        gc.callbacks.append(self._collected)

    def close(self) -> None:
        """As it was before."""
        gc.set_threshold(*self._thresholds)
        gc.enable()
        if self._collected in gc.callbacks:
            gc.callbacks.remove(self._collected)
            gc.unfreeze()

    def _freeze(self) -> None:
        self._known = self._topics()
        gc.freeze()

    def _collected(self, phase: str, info: dict[str, Any]) -> None:
        if phase == "stop" and info["generation"] == 2:
            grown = self._topics() - self._known
            if grown >= max(GROWN_TOPICS, self._known // GROWN_PART):
                self._freeze()
