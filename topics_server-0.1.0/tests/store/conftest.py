"""How far the sweeps go: a sample by default, everything with `pytest -m long`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from sim.files import SimFiles

from topics.store.files import OsFiles
from topics.store.memory import MemoryFiles, MemoryStore

from .ledger import Ledger
from .stores import World, small


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Take every `stride`-th point of a sweep."""
    return 1 if request.config.option.markexpr == "long" else 7


@pytest.fixture(params=["os", "sim", "memory files", "memory"])
def world(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[World]:
    if request.param == "os":
        made = World(small(OsFiles(tmp_path / "data")), lambda: small(OsFiles(tmp_path / "data")))
    elif request.param == "sim":
        sim = SimFiles()
        made = World(small(sim), lambda: small(sim))
    elif request.param == "memory files":
        memory = MemoryFiles()
        made = World(small(memory), lambda: small(memory))
    else:
        made = World(MemoryStore())
    made.store.recover(Ledger(made.store))
    yield made
    made.store.close(None)
