"""The blocking modules of the client are what `make generate` writes."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

import topics.client
from topics.client import AsyncClient, AsyncWatch, Client, Watch, _generate
from topics.client.aioqueues import AsyncQueueCalls
from topics.client.aiorouters import AsyncRouterCalls
from topics.client.aioschedules import AsyncScheduleCalls
from topics.client.queues import QueueCalls
from topics.client.routers import RouterCalls
from topics.client.schedules import ScheduleCalls

HERE = Path(_generate.__file__).parent


@pytest.mark.parametrize("source", _generate.MODULES)
def test_a_generated_module_is_up_to_date(source: str) -> None:
    """Where this fails, `make generate` mends it: an edit of either module alone does not stand."""
    assert (HERE / _generate.target_of(source)).read_text() == _generate.generate(source)


@pytest.mark.parametrize("source", _generate.MODULES)
def test_no_asynchronous_word_is_left(source: str) -> None:
    """Neither in code nor in prose: a phrase that the rules do not reach is for the table."""
    text = (HERE / _generate.target_of(source)).read_text().partition("\n")[2]

    for word in ("async", "await", "Async", "aio", "Coroutine", "event loop", "task"):
        assert word not in text, word


def test_a_phrase_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A phrase that was reworded in the source must be in the table as it is now."""
    monkeypatch.setitem(_generate.MODULES, "aiowatch.py", {"no such phrase": ""})

    with pytest.raises(ValueError, match=r"aiowatch\.py does not contain 'no such phrase'"):
        _generate.generate("aiowatch.py")


@pytest.mark.parametrize(
    ("kind", "other"),
    [
        (AsyncClient, Client),
        (AsyncQueueCalls, QueueCalls),
        (AsyncRouterCalls, RouterCalls),
        (AsyncScheduleCalls, ScheduleCalls),
        (AsyncWatch, Watch),
    ],
    ids=lambda kind: kind.__name__,
)
def test_both_classes_have_the_same_calls(kind: type[Any], other: type[Any]) -> None:
    """Names, arguments and defaults; only what only one of them can be differs."""
    names = {name for name in vars(kind) if not name.startswith("_")} - {"aclose"}
    assert names == {name for name in vars(other) if not name.startswith("_")} - {"close"}
    for name in names:
        if inspect.isfunction(found := getattr(kind, name)):
            mine, its = (inspect.signature(f).parameters for f in (found, getattr(other, name)))
            assert [(p.name, p.kind) for p in mine.values()] == [
                (p.name, p.kind) for p in its.values()
            ], name


def test_no_module_reaches_into_another_object() -> None:
    """A name with an underscore belongs to the object that has it: `session` is what producers,
    workers and watches stand on."""
    reached = [
        f"{path.name}:{node.lineno} {ast.unparse(node)}"
        for path in sorted(Path(topics.client.__file__).parent.glob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute)
        and node.attr.startswith("_")
        and not node.attr.startswith("__")
        and not (isinstance(node.value, ast.Name) and node.value.id in ("self", "cls"))
    ]

    assert reached == []
