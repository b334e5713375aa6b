"""`session()`: what is imported by its name, and what it sets before the JVM starts."""

import stat
import subprocess
import sys
from pathlib import Path

import pytest

NAMED = "from topics.spark import session; print(callable(session))"


@pytest.mark.parametrize("before", ["", "import topics.spark.sessions; ", "import topics.spark; "])
def test_the_function_is_what_the_package_exports(before: str) -> None:
    """And no module of its name, whatever was imported before."""
    done = subprocess.run(
        [sys.executable, "-c", before + NAMED], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("True\n", 0), done.stderr


SOCKETS = "from topics.spark.sessions import socket_settings; print(*socket_settings().values())"


def test_sockets_are_this_users_alone() -> None:
    """In a directory that nobody else enters; nothing of it stays."""
    program = SOCKETS + "; import os; print(oct(os.stat(socket_settings().popitem()[1]).st_mode))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    settings, mode = done.stdout.splitlines()
    is_on, home = settings.split()
    assert is_on == "true"
    assert stat.S_IMODE(int(mode, 8)) == 0o700
    assert not Path(home).exists()


def test_a_directory_with_a_long_name_has_no_sockets(tmp_path: Path) -> None:
    """A socket's name may have little more than a hundred bytes; TCP has no such bound."""
    long = tmp_path / ("x" * 60)
    long.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", SOCKETS],
        env={"TMPDIR": str(long)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "\n"
    assert list(long.iterdir()) == []
