"""The stores implement the port that the rest of the program is written against."""

import inspect
from typing import Any

import pytest

from topics.protocol.model import ports
from topics.store.memory import MemoryStore
from topics.store.runs import SealedRun
from topics.store.store import DiskStore


def _members(protocol: type) -> dict[str, Any]:
    return {name: value for name, value in vars(protocol).items() if name[0] != "_"}


@pytest.mark.parametrize(
    ("protocol", "made"),
    [(ports.Store, DiskStore), (ports.Store, MemoryStore), (ports.Run, SealedRun)],
)
def test_every_call_takes_what_the_port_says(protocol: type, made: type) -> None:
    """Names and parameters agree, so that one store can replace another."""
    for name, value in _members(protocol).items():
        if not inspect.isfunction(value):
            continue
        wanted = inspect.signature(value).parameters
        found = inspect.signature(getattr(made, name)).parameters
        assert list(wanted) == list(found), name
        assert [p.kind for p in wanted.values()] == [p.kind for p in found.values()], name


_STORES: tuple[type[ports.Store], ...] = (DiskStore, MemoryStore)
_RUNS: tuple[type[ports.Run], ...] = (SealedRun,)
