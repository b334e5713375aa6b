"""The sentences of the document: each route has its own, and every page that they name is there."""

import re
from pathlib import Path

import pytest

from topics.protocol.faces.http.openapi.operations import OPERATIONS
from topics.protocol.faces.http.routes import ROUTES

from .test_document import DOCUMENT, nodes

ROOT = Path(__file__).parents[5]


def test_every_route_has_its_words() -> None:
    """No route is without; one that reads a body says what the body is."""
    assert OPERATIONS.keys() == {route.line for route in ROUTES}
    assert all(bool(each.takes) is (each.body is not None) for each in OPERATIONS.values())


@pytest.mark.parametrize("words", ["description", "gives", "takes"])
def test_words_are_sentences(words: str) -> None:
    """Each begins with a capital and ends with a full stop."""
    for operation in OPERATIONS.values():
        said = getattr(operation, words)
        assert not said or re.fullmatch(r"[A-Z`].*\.", said), said


def test_pages_that_are_named_are_there() -> None:
    """A path in the text leads to a page of the documentation."""
    said = " ".join(each.description for each in OPERATIONS.values())
    named = set(re.findall(r"docs/\w+\.md", said))

    assert named
    assert [page for page in named if not (ROOT / page).is_file()] == []


def test_every_parameter_has_its_words() -> None:
    """Wherever it stands."""
    found = [node for node in nodes(DOCUMENT["paths"]) if "in" in node and "name" in node]

    assert len(found) > 40
    assert all(re.fullmatch(r"[A-Z`].*\.", each["description"]) for each in found)
