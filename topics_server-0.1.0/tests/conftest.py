"""What holds for every test."""

import os

import pytest
from hypothesis import settings

# Nobody's own profiles take part.
os.environ["XDG_CONFIG_HOME"] = "/nonexistent"
for name in ("TOPICS_URL", "TOPICS_API_KEY", "TOPICS_PROFILE"):
    os.environ.pop(name, None)

# A property is no benchmark: a busy machine makes an example slow, and the property still holds.
settings.register_profile("topics", deadline=None)
settings.load_profile("topics")

# Hundreds of tests start a server or a command.  Where the environment forbids to keep bytecode,
# each of those would compile the whole package, which takes as long as half of its start.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


@pytest.fixture
def is_full(request: pytest.FixtureRequest) -> bool:
    """Whether the sweeps run in full size, `pytest -m long`, and not as a sample."""
    return bool(request.config.option.markexpr == "long")
