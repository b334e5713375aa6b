"""The essay for who writes a host of a node: its example runs."""

import doctest
from pathlib import Path

from topics.protocol.cluster import rule as cluster


def test_the_node_in_the_essay_works() -> None:
    """It joins, leads, and answers a turn."""
    found = doctest.testmod(cluster)
    assert found.attempted > 10
    assert not found.failed


def test_the_essay_names_the_parts_that_there_are() -> None:
    """Each module has its line."""
    assert cluster.__doc__ is not None
    parts = cluster.__doc__.split("# The rule")[0].split("\n")
    named = {line.split()[0] for line in parts if line.startswith("    ")}
    assert named == {path.stem for path in Path(cluster.__path__[0]).glob("[a-z]*.py")}
