"""What Spark needs on this machine, and whether it is there: `topics spark doctor`."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec

from topics.distribution import install
from topics.spark.errors import SparkFailure
from topics.spark.java import find_java
from topics.spark.workers import trouble, worker_python

PACKAGES = {"pyspark": ((4, 2), (4, 4)), "pyarrow": ((18,), None), "pandas": ((2, 2), (3,))}
"""Package -> the first version that will do, and the first that will not."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the doctor's.

    Attributes:
        text: What was found; where it is not well, with the cure.
    """

    is_well: bool
    text: str


def examine() -> Iterator[Finding]:
    """Every finding, in the order in which a session would stumble."""
    yield _java()
    for package in PACKAGES:
        yield _package(package)
    yield _entry()
    yield _workers()


def _java() -> Finding:
    try:
        java = find_java()
    except SparkFailure as missing:
        return Finding(False, str(missing))
    return Finding(True, f"Java {java.version}: {java.name}")


def _package(name: str, look: Callable[[str], str] = version) -> Finding:
    least, limit = PACKAGES[name]
    wanted = f">={_dotted(least)}" + (f",<{_dotted(limit)}" if limit else "")
    cure = f"{install('spark')} ({name}{wanted})"
    try:
        found = look(name)
    except PackageNotFoundError:
        return Finding(False, f"{name} is not installed: {cure}")
    numbers = tuple(int(part) for part in found.split(".")[:2] if part.isdigit())
    if numbers < least or (limit is not None and numbers >= limit):
        return Finding(False, f"{name} {found} will not do: {cure}")
    return Finding(True, f"{name} {found}")


def _dotted(numbers: tuple[int, ...]) -> str:
    return ".".join(map(str, numbers))


def _entry() -> Finding:
    if find_spec("pyspark_topics") is None:
        return Finding(False, f"Spark finds no module pyspark_topics: {install('spark')}")
    return Finding(True, 'spark.read.format("topics") needs no further step')


def _workers() -> Finding:
    import os
    import sys

    # session() names this process's Python where nothing else is named.
    python = worker_python({"PYSPARK_PYTHON": sys.executable, **os.environ})
    wrong = trouble(python)
    return Finding(wrong is None, f"workers' Python: {wrong or python}")
