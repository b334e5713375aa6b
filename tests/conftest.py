"""What holds for every test."""

import gc
import os

import pytest
from hypothesis import settings

if os.environ.get("TOPICS_TESTS_COVERAGE"):
    import tests.measured  # noqa: F401 - it measures from before the first import of what it measures

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


SLOWEST: tuple[str, ...] = (
    *(
        "tests/clients/",
        "tests/docs/",
        "tests/browser/",
        "tests/server/cluster/",
        "tests/server/readers/",
    ),
    *("tests/sim/", "tests/contract/", "tests/cluster/", "tests/linearizability/", "tests/export/"),
    *("tests/server/", "tests/arrow/", "tests/faults/", "tests/client/", "tests/cli/", "bench/"),
)
"""Where tests take longest, in order: they begin first, so that no process is alone with them at the end."""


SPARK = ("tests/spark/", "tests/docs/", "bench/test_spark.py")
"""Where `make test-spark` looks."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("spark") is not None and not item.nodeid.startswith(SPARK):
            raise pytest.UsageError(f"make test-spark does not look for {item.nodeid}")
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return  # one process: whatever is first, nothing is alone at the end

    def place(item: pytest.Item) -> int:
        found = (at for at, where in enumerate(SLOWEST) if item.nodeid.startswith(where))
        return next(found, len(SLOWEST))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """Thousands of tests are there to stay: no collection of garbage looks at them again."""
    gc.collect()
    gc.freeze()
