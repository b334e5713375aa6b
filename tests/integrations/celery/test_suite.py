"""Celery's own integration tests, of a named release, with topics as broker and as result backend.

They come from the source distribution on PyPI into `build/celery`, with an environment of their own; nothing of them is
in this repository.  What does not pass is listed in SUITE.md with its reason.  Ten minutes, and from
registries: runs where `TOPICS_TESTS_CELERY=1` asks for it, and a Redis server is installed, in
which tasks of the suite note what they did.
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final
from xml.etree import ElementTree

import pytest
from contract.hosts import unused_port
from contract.server import Server, environment, until

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


def run(*command: object, **options: object) -> None:
    subprocess.run([str(word) for word in command], check=True, timeout=LONGEST_S, **options)


@pytest.fixture(scope="module")
def python() -> Path:
    """An environment with the suite's needs and this checkout."""
    python, installed = BUILD / "venv" / "bin" / "python", BUILD / "installed"
    if not installed.exists() or installed.read_text() != " ".join(NEEDS):
        run(sys.executable, "-m", "venv", "--clear", BUILD / "venv")
        pip = (python, "-m", "pip", "--quiet", "--disable-pip-version-check")
        run(*pip, "install", "-e", f"{ROOT}[celery]", *NEEDS)
        run(
            *pip, "download", "--no-deps", "--no-binary", ":all:", "-d", BUILD, f"celery=={RELEASE}"
        )
        installed.write_text(" ".join(NEEDS))
    return python


@pytest.fixture(scope="module")
def suite(python: Path) -> Path:
    """The folder of the suite, without the package that it tests: that is the installed one."""
    folder = BUILD / f"celery-{RELEASE}"
    shutil.rmtree(folder, ignore_errors=True)
    with tarfile.open(BUILD / f"celery-{RELEASE}.tar.gz") as archive:
        archive.extractall(BUILD, filter="data")
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
    report = tmp_path / "report.xml"
    with Server(tmp_path / "server") as server:
        url = f"topics://127.0.0.1:{server.port}"
        settings = {
            **environment(),
            "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
            **{"TEST_BROKER": url, "TEST_BACKEND": url},
            **{"REDIS_HOST": "127.0.0.1", "REDIS_PORT": str(redis_port)},
        }
        command = [python, "-m", "pytest", "-p", "no:topics", "-q", "--timeout", "120"]
        until("ready", server.is_ready)
        ended = subprocess.run(
            [*command, f"--junitxml={report}", "t/integration"],
            cwd=suite,
            env=settings,
            timeout=LONGEST_S,
            check=False,
        )

    assert ended.returncode in (0, 1)
    ran = ElementTree.parse(report).getroot().iter("testcase")
    cases = {f"{one.get('classname')}::{one.get('name')}": one for one in ran}
    failed = {
        name.removeprefix("t.integration.")
        for name, one in cases.items()
        if one.find("failure") is not None or one.find("error") is not None
    }
    passed = sum(len(one) == 0 or one.find("skipped") is None for one in cases.values())
    print(f"{passed - len(failed)} passed of {len(cases)}")
    assert failed <= listed(), sorted(failed - listed())
    assert passed > 200
