"""What the process of a worker keeps from one task of a stream to the next: the directory it read.

Spark uses the processes of its workers again, and a stream of small batches runs a task in one of them
every few moments.  To open a directory costs what its checkpoint holds: 2 ms for a few topics, 100 ms
for 5,000.  So a task leaves the directory open, and the next one follows its log.

Owns one open source of a process.  A place behind a URL is not kept: every call asks the server anyway.

Invariant: a task reads what it would read if it opened the place itself.
"""

import gc
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from pyspark import TaskContext

from topics.arrow import NoSuchTopic
from topics.arrow.scan import Range
from topics.arrow.source import TopicSource
from topics.protocol.model.errors import StoreError
from topics.spark.options import Place
from topics.spark.places import open_place
from topics.spark.planning import Item

_kept: Final[dict[Place, TopicSource]] = {}
"""At most one: what it maps stays on the disk, also when the server has deleted it.  Spark ends a
process that has had nothing to do for a minute."""


@contextmanager
def opened(place: Place, items: Iterable[Item]) -> Iterator[TopicSource]:
    """*Blocking.* The topics of a place as they are by now, for a task that reads these items.

    Raises:
        As `open_place`.
    """
    # Taken out, so that a task in another thread of the process opens its own.
    source = _kept.pop(place, None)
    if source is not None and not _shows(source, items):
        source.close()
        source = None
    is_new = source is None
    if source is None:
        source = open_place(place)
    try:
        yield source
    except BaseException:
        source.close()
        raise
    if place.path is None or not _is_worker():
        source.close()
    else:
        _keep(place, source)
    if is_new and _is_worker() and (place in _kept or not gc.get_freeze_count()):
        _spare_collections()


def _shows(source: TopicSource, items: Iterable[Item]) -> bool:
    """Whether a source that was open has come as far as the driver, whose own is another one."""
    try:
        source.refresh()
        ranges = [item for item in items if isinstance(item, Range)]
        found = [(source.bounds(each.topic), each) for each in ranges]
    except (NoSuchTopic, StoreError, OSError):
        # What is wrong with the place is said by a source that opens it.
        return False
    return all(at.epoch == each.epoch and at.head_seq >= each.last_seq for at, each in found)


def _keep(place: Place, source: TopicSource) -> None:
    while _kept:
        _kept.popitem()[1].close()
    _kept[place] = source


def _spare_collections() -> None:
    """Take all that lives by now out of what a garbage collection looks at.

    PySpark's worker collects after every task, over every module there is: 40 ms of CPU, while the
    driver writes the end of the batch on the same cores.  What is in cycles and becomes garbage later
    is found when this is called the next time.
    """
    gc.unfreeze()
    gc.collect()
    gc.freeze()


def _is_worker() -> bool:
    """Whether this is a task of Spark's, and not a reader in a process of its own."""
    return TaskContext.get() is not None
