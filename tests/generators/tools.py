"""Generators of clients, and what their clients are compiled with: pinned, from registries only.

Each is installed once, below `build/generators`; one that cannot be had is `Missing`.
"""

import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Final

CACHE: Final = Path(__file__).parents[2] / "build" / "generators"
INSTALL_S: Final = 900

OPENAPI_GENERATOR: Final = "7.25.0"
NPM: Final = (
    *("openapi-typescript@7.13.0", "openapi-fetch@0.17.0", "@hey-api/openapi-ts@0.99.0"),
    *("orval@8.38.0", "axios@1.21.1", "typescript@5.9.3", "@types/node@20.19.43"),
)
PYPI: Final = (
    *("openapi-python-client==0.29.1", "datamodel-code-generator==0.89.0", "pydantic==2.14.4"),
    *("httpx==0.28.1", "attrs==26.1.0", "urllib3==2.8.0", "python-dateutil==4.0.0"),
)
GO: Final = {
    "oapi-codegen": "github.com/oapi-codegen/oapi-codegen/v2/cmd/oapi-codegen@v2.8.2",
    "ogen": "github.com/ogen-go/ogen/cmd/ogen@v1.24.0",
}
"""Commands, by name."""
GO_MODULES: Final = (
    *("github.com/oapi-codegen/runtime v1.9.0", "github.com/ogen-go/ogen v1.24.0"),
    "gopkg.in/validator.v2 v2.0.1",
)
"""What their clients need."""


class Missing(Exception):
    """A tool cannot be had on this machine."""


def run(line: Sequence[object], folder: Path, **more: str) -> str:
    """What a command prints, in a folder; AssertionError with all of that if it fails."""
    done = subprocess.run(
        [str(word) for word in line],
        cwd=folder,
        env={**os.environ, **more},
        capture_output=True,
        text=True,
        timeout=INSTALL_S,
        check=False,
    )
    assert done.returncode == 0, f"{line[0]}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout


def _command(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Missing(f"no {name}")
    return found


def _install(line: Sequence[object], made: Path, **more: str) -> Path:
    """Run what makes a file, unless that is there; Missing if it cannot."""
    if not made.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        try:
            run(line, CACHE, **more)
        except (AssertionError, subprocess.TimeoutExpired) as error:
            raise Missing(str(error)) from None
    return made


@cache
def openapi_generator() -> Path:
    """The jar, by Maven."""
    _command("java")
    what = f"org.openapitools:openapi-generator-cli:{OPENAPI_GENERATOR}"
    goal = ["dependency:copy", f"-Dartifact={what}", f"-DoutputDirectory={CACHE}"]
    jar = CACHE / f"openapi-generator-cli-{OPENAPI_GENERATOR}.jar"
    return _install([_command("mvn"), "-q", "-B", *goal], jar)


@cache
def java_libraries(pom: Path) -> str:
    """The class path that a generated client asks for."""
    _command("javac")
    found = CACHE / "java.classpath"
    goal = [f"-Dmdep.outputFile={found}", "-Dmdep.includeScope=compile"]
    line = [_command("mvn"), "-q", "-B", "-f", pom, "dependency:build-classpath", *goal]
    return _install(line, found).read_text().strip()


@cache
def node_modules() -> Path:
    """A folder with every package of npm."""
    line = [_command("npm"), "install", "--silent", "--no-audit", "--no-fund", "--save-exact", *NPM]
    CACHE.mkdir(parents=True, exist_ok=True)
    made = CACHE / "node_modules"
    _install([*line, "--prefix", CACHE], made / ".package-lock.json")
    return made


@cache
def python() -> Path:
    """The folder of the commands of an environment with every package of PyPI."""
    made = CACHE / "python" / "bin"
    _install([sys.executable, "-m", "venv", CACHE / "python"], made / "python")
    pip = [made / "python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _install([*pip, *PYPI], made / "datamodel-codegen")
    return made


@cache
def go(name: str) -> Path:
    """A generator in Go."""
    return _install([_command("go"), "install", GO[name]], CACHE / name, GOBIN=str(CACHE))
