"""The essay for who writes a host of the core: its example runs."""

import doctest
from pathlib import Path

from topics import protocol


def test_the_host_in_the_essay_works() -> None:
    """A host in twenty lines appends, publishes, answers and stops cleanly."""
    found = doctest.testmod(protocol)
    assert found.attempted > 10
    assert not found.failed


def test_the_essay_names_the_parts_that_there_are() -> None:
    """Each package or module of the core has its line, and so has the face beside it."""
    assert protocol.__doc__ is not None
    parts = protocol.__doc__.split("# The parts")[1].split("An `Engine` alone")[0].split("\n")
    named = {line.split()[0] for line in parts if line.strip()}
    folder = protocol.__path__[0]
    found = {
        path.stem for path in Path(folder).iterdir() if path.is_file() or any(path.glob("*.py"))
    }
    assert named == {name for name in found if not name.startswith("__")}
