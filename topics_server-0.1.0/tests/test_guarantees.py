"""docs/guarantees.md names for each promise a test that is there."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGE = (ROOT / "docs" / "guarantees.md").read_text()
NAMED = sorted(set(re.findall(r"`(tests/[\w/]+\.py(?:::\w+)?)`", PAGE)))


def named_in(path: Path) -> set[str]:
    """The names of the tests in a file."""
    tree = ast.parse(path.read_text())
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
    return {name for name in found if name.startswith("test_")}


@pytest.mark.parametrize("named", NAMED)
def test_every_test_that_is_named_is_there(named: str) -> None:
    """A test that is renamed or removed takes its name out of the page."""
    path, _, name = named.partition("::")

    assert named_in(ROOT / path)
    assert not name or name in named_in(ROOT / path)


def test_every_promise_has_a_test() -> None:
    """Each row of the tables but their heads names one, or says that it is that of the row above."""
    rows = [line for line in PAGE.splitlines() if line.startswith("| ")]
    promises = [row for row in rows if not row.startswith("| promise |")]

    assert len(promises) > 20
    for row in promises:
        shown_by = row.split(" | ")[1]
        assert "`tests/" in shown_by or shown_by == "the same", row
