"""What a newcomer does: a clone, `make serve`, and every block of every page, in the order of the page.

Nothing of this checkout is used but its commits.  The packages are those that `make serve` installs, and
those that a page says to install, so it needs a package index, and runs where `TOPICS_TESTS_NEWCOMER=1`
asks for it (`make newcomer`).  The server's port is a free one in place of 4000.
"""

import os
import signal
import subprocess
from pathlib import Path
from typing import Final

import pytest
from docs.pages import PAGES, blocks
from docs.test_pages import follow, tour

from tests.ports import unused_port

ROOT: Final = Path(__file__).parent.parent
INSTALL_S: Final = 1800
"""How long packages may take to install."""

pytestmark = [
    pytest.mark.skipif(
        "TOPICS_TESTS_NEWCOMER" not in os.environ, reason="make newcomer; it installs packages"
    ),
    pytest.mark.timeout(2 * INSTALL_S),
]


NO_NEWCOMERS = ("VIRTUAL_ENV", "PYTHONPATH", "MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES")
"""What the environment has of these is of who runs the tests."""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A clone in which `make serve` was typed once, and ended with ^C when it served."""
    found = tmp_path_factory.mktemp("newcomer") / "topics"
    subprocess.run(["git", "clone", "--quiet", str(ROOT), str(found)], check=True)
    kept = {k: v for k, v in os.environ.items() if k not in NO_NEWCOMERS}
    kept = {k: v for k, v in kept.items() if not k.startswith("TOPICS_")}
    port = unused_port()
    serving = subprocess.Popen(
        ["make", "serve"], cwd=found, env={**kept, "TOPICS_PORT": str(port)}, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
    )  # fmt: skip
    assert serving.stdout is not None
    said = []
    try:
        for line in serving.stdout:
            said.append(line)
            if f"127.0.0.1:{port}" in line:
                break
    finally:
        os.killpg(serving.pid, signal.SIGINT)
        rest, _ = serving.communicate(timeout=INSTALL_S)
    assert f"127.0.0.1:{port}" in said[-1], "".join(said) + rest
    assert "installing" in said[0]  # which takes a minute
    return found


def test_nothing_else_was_changed(clone: Path) -> None:
    """The clone has its environment, which is the server's only, and its data; git sees neither.
    (README: Start)"""
    status = ["git", "status", "--porcelain"]
    seen = subprocess.run(status, cwd=clone, capture_output=True, text=True, check=True).stdout
    lies = {path.name for path in clone.iterdir()}

    assert seen == ""
    assert {".venv", "topics-data"} <= lies
    assert not list((clone / ".venv").rglob("site-packages/pytest"))  # for those who test


@pytest.fixture(scope="module")
def toured(clone: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tour(tmp_path_factory.mktemp("tour"), clone / ".venv" / "bin", clone)


@pytest.mark.parametrize("page", [p for p in PAGES if list(blocks(p))], ids=lambda page: page.name)
def test_a_page_in_a_clone(clone: Path, toured: Path, tmp_path: Path, page: Path) -> None:
    """A newcomer who types what a page has, after the tour, gets what it shows."""
    follow(page, tmp_path, toured, clone / ".venv" / "bin", clone)
