"""Tests of a framework itself, out of its source distribution: got, run, and what became of each.

None of them is in this repository, and getting them needs a registry.
"""

import subprocess
import sys
import tarfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from xml.etree import ElementTree

import pytest


def source(project: str, version: str, folder: Path, python: Path | str = sys.executable) -> Path:
    """The unpacked source distribution of a project, in a folder that may have it packed already; skips where no
    registry has it."""
    archive = folder / f"{project}-{version}.tar.gz"
    if not archive.exists():
        line = [python, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
        line += ["--no-deps", "--no-binary", ":all:", "-d", folder, f"{project}=={version}"]
        got = subprocess.run(list(map(str, line)), capture_output=True, text=True, check=False)
        if got.returncode:
            pytest.skip(f"{project}'s source distribution cannot be had: {got.stderr[-300:]}")
    with tarfile.open(archive) as opened:
        opened.extractall(folder, filter="data")
    return folder / f"{project}-{version}"


@dataclass(frozen=True)
class Case:
    """What became of a test.

    Attributes:
        name: `test_worker::test_that`, behind the package that the tests are in.
        skipped: Why it was skipped; None where it ran.
    """

    name: str
    failed: bool
    skipped: str | None

    @classmethod
    def of(cls, found: ElementTree.Element, package: str) -> Self:
        module = (found.get("classname") or "").removeprefix(f"{package}.")
        skipped = found.find("skipped")
        return cls(
            f"{module}::{found.get('name')}",
            failed=found.find("failure") is not None or found.find("error") is not None,
            skipped=None if skipped is None else skipped.get("message") or "",
        )


def run(
    folder: Path,
    package: str,
    report: Path,
    *options: str,
    python: Path | str = sys.executable,
    **more: Any,
) -> tuple[list[Case], str]:
    """Run the tests of a package under a folder, but with none of this repository's settings.

    Args:
        report: A file to write.
        options: Of pytest.
        more: Of `subprocess.run`.

    Returns:
        What became of each, and what pytest printed.
    """
    line = [python, "-m", "pytest", "-q", "-p", "no:topics", f"--junitxml={report}", *options]
    where = package.replace(".", "/")
    ran = subprocess.run(
        [*map(str, line), where],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        **more,
    )
    assert ran.returncode in (0, 1), ran.stdout[-20_000:]
    cases = ElementTree.parse(report).getroot().iter("testcase")
    return [Case.of(found, package) for found in cases], ran.stdout
