"""How far the sweeps go: a sample by default, everything with `pytest -m long`."""

import pytest


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Take every `stride`-th point of a sweep."""
    return 1 if request.config.option.markexpr == "long" else 3
