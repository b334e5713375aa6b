"""The pytest plugin: the fixture `memory_topics`, wherever `topics` is installed.

It imports nothing of the package until the fixture is used, because pytest loads it in every run.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from topics.testing import MemoryTopics


@pytest.fixture
def memory_topics() -> "Iterator[MemoryTopics]":
    """A fresh engine in memory, with a clock that the test moves; see `topics.testing`."""
    from topics.testing import MemoryTopics

    with MemoryTopics() as topics:
        yield topics
