"""`session()`: what is imported by its name, and what it sets before the JVM starts."""

import subprocess
import sys

import pytest

NAMED = "from topics.spark import session; print(callable(session))"


@pytest.mark.parametrize("before", ["", "import topics.spark.sessions; ", "import topics.spark; "])
def test_the_function_is_what_the_package_exports(before: str) -> None:
    """And no module of its name, whatever was imported before."""
    done = subprocess.run(
        [sys.executable, "-c", before + NAMED], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr
