"""The sentences of the document: each route has its own, and every page that they name is there."""

import re
from pathlib import Path

import pytest

from topics.protocol.faces.http.openapi.descriptions import ANSWERS, BODIES, DESCRIPTIONS
from topics.protocol.faces.http.openapi.operations import OPERATIONS

from .test_document import DOCUMENT, nodes

ROOT = Path(__file__).parents[5]


def test_every_route_has_its_words() -> None:
    """No route is without, and no words are left over from one that went."""
    assert DESCRIPTIONS.keys() == ANSWERS.keys() == OPERATIONS.keys()
    assert BODIES.keys() == {line for line, each in OPERATIONS.items() if each.body is not None}


@pytest.mark.parametrize("words", [DESCRIPTIONS, ANSWERS, BODIES], ids=["routes", "good", "asked"])
def test_words_are_sentences(words: dict[str, str]) -> None:
    """Each begins with a capital and ends with a full stop."""
    for said in words.values():
        assert re.fullmatch(r"[A-Z`].*\.", said), said


def test_pages_that_are_named_are_there() -> None:
    """A path in the text leads to a page of the documentation."""
    named = {page for said in DESCRIPTIONS.values() for page in re.findall(r"docs/\w+\.md", said)}

    assert named
    assert [page for page in named if not (ROOT / page).is_file()] == []


def test_every_parameter_has_its_words() -> None:
    """Wherever it stands."""
    found = [node for node in nodes(DOCUMENT["paths"]) if "in" in node and "name" in node]

    assert len(found) > 40
    assert all(re.fullmatch(r"[A-Z`].*\.", each["description"]) for each in found)
