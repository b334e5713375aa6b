"""How many seeds are run: a sample by default, everything with `pytest -m long`."""

import pytest


@pytest.fixture
def stride(request: pytest.FixtureRequest) -> int:
    """Take every `stride`-th seed."""
    return 1 if request.config.option.markexpr == "long" else 25
