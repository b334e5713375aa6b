"""Celery's own integration tests, of a named release, with topics as broker and as result backend.

They are in `build/celery` (`suites`), with an environment of their own.  What does not pass is listed in SUITE.md with
its reason.  Ten minutes: they run where `TOPICS_TESTS_CELERY=1` asks for them, and a Redis server is installed, in which
tasks of the suite note what they did.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from contract.server import Server, environment, until

from tests.ports import unused_port

from ..suites import run, source

ROOT: Final = Path(__file__).parents[3]
BUILD: Final = ROOT / "build" / "celery"
RELEASE: Final = "5.7.0"
NEEDS: Final = (
    *(f"celery=={RELEASE}", "redis", "pytest-celery==1.3.0", "pytest-rerunfailures==16.7"),
    *("pytest-subtests==0.15.0", "pytest-order==1.5.0", "pytest-click==1.1.0", "pytest-timeout"),
    *("freezegun", "cryptography", "pydantic", "django", "azure-storage-blob", "azure-identity"),
    "sqlalchemy",
)
LONGEST_S: Final = 3600.0
ROW: Final = re.compile(r"^\| `([^`]+)` \|", re.M)

pytestmark = [
    pytest.mark.skipif(
        "TOPICS_TESTS_CELERY" not in os.environ, reason="it installs Celery's tests"
    ),
    pytest.mark.skipif(shutil.which("redis-server") is None, reason="there is no redis-server"),
    pytest.mark.timeout(LONGEST_S),
]


def listed() -> set[str]:
    """Tests that do not pass, as SUITE.md has them."""
    text = (Path(__file__).parent / "SUITE.md").read_text()
    return set(ROW.findall(text.partition("## Do not pass")[2]))


@pytest.fixture(scope="module")
def python() -> Path:
    """An environment with the suite's needs and this checkout."""
    python, installed = BUILD / "venv" / "bin" / "python", BUILD / "installed"
    if not installed.exists() or installed.read_text() != " ".join(NEEDS):
        subprocess.run([sys.executable, "-m", "venv", "--clear", BUILD / "venv"], check=True)
        install = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "-e"]
        subprocess.run([*install, f"{ROOT}[celery]", *NEEDS], check=True, timeout=LONGEST_S)
        installed.write_text(" ".join(NEEDS))
    return python


@pytest.fixture(scope="module")
def suite(python: Path) -> Path:
    """The folder of the suite, without the package that it tests: that is the installed one."""
    shutil.rmtree(BUILD / f"celery-{RELEASE}", ignore_errors=True)
    folder = source("celery", RELEASE, BUILD, python)
    shutil.rmtree(folder / "celery")
    return folder


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    port, folder = unused_port(), tmp_path_factory.mktemp("redis")
    command = ["redis-server", "--port", str(port), "--save", "", "--dir", str(folder)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        yield port
        process.terminate()


def test_celery_runs_on_topics(suite: Path, python: Path, redis_port: int, tmp_path: Path) -> None:
    """Each test of the suite passes, or is one of those that SUITE.md lists."""
    with Server(tmp_path / "server") as server:
        url = f"topics://127.0.0.1:{server.port}"
        settings = {
            **environment(),
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            **{"TEST_BROKER": url, "TEST_BACKEND": url},
            **{"REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(redis_port)},
        }
        until("ready", server.is_ready)
        cases, said = run(
            *(suite, "t.integration", tmp_path / "report.xml", "--timeout", "120"),
            **{"python": python, "env": settings, "timeout": LONGEST_S},
        )

    failed = {case.name for case in cases if case.failed}
    passed = sum(case.skipped is None for case in cases) - len(failed)
    print(f"{passed} passed of {len(cases)}; {len(failed)} failed: {sorted(failed)}")
    assert failed <= listed(), (sorted(failed - listed()), said[-20_000:])
    assert passed > 200
