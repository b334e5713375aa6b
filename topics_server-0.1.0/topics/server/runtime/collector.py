"""Python's garbage collector, without the objects that live as long as the process.

A collection of the oldest generation visits every tracked object, all topics among them, and blocks
the event loop meanwhile.  So the collector is off while the data is read, which makes millions of
objects and hardly a cycle, and the objects that are there afterwards are frozen (`gc.freeze`).
Topics that are created later are frozen as their number grows.

A frozen object is still freed when nothing refers to it; only a cycle that was alive at that moment
is never freed.  A connection leaves such a cycle, so freezing is as rare as the growth of topics.
"""

import gc
from collections.abc import Callable
from typing import Any, Final

GROWN_TOPICS: Final = 1000
GROWN_PART: Final = 8
"""New topics are frozen once there are so many, and one for every `GROWN_PART` known ones."""


COLLECT_AFTER: Final = (700, 10, 100)
"""Thresholds: a hundred collections of the middle generation before a full one, where Python has ten.
A full collection stops the process for about a microsecond an object, and a connection is forty
objects: ten of them ran while 10,000 connections came, the last for a third of a second.  Between
two of them at most 700,000 objects of garbage are left."""


class Collector:
    """The collector of this process, from the start of one server to its end.

    Args:
        topics: Returns how many topics there are.
    """

    def __init__(self, topics: Callable[[], int]) -> None:
        self._topics = topics
        self._known = 0
        self._thresholds = gc.get_threshold()

    def start(self) -> None:
        """Switch the collector off: modules are about to be loaded, and the data to be read."""
        gc.set_threshold(*COLLECT_AFTER)
        gc.disable()

    def settle(self) -> None:
        """Freeze the data, which is read, and switch the collector on."""
        self._freeze()
        gc.enable()
        gc.callbacks.append(self._collected)

    def close(self) -> None:
        """Restore the collector's settings."""
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
