"""The Python that Spark starts for its workers, and whether it can read topics.

Unless it is told, Spark starts the `python3` of the PATH, which in a virtual environment is often
another one than the driver's.
"""

import os
import subprocess
import sys
from collections.abc import Mapping

_PROBE = "import sys, pyarrow, topics.spark.batch; print(*sys.version_info[:2], sep='.')"


def worker_python(environ: Mapping[str, str] = os.environ) -> str:
    """The program that Spark will start."""
    return environ.get("PYSPARK_PYTHON") or "python3"


def trouble(python: str) -> str | None:
    """What is wrong with a worker's Python, with the cure; None: nothing."""
    cure = f"set PYSPARK_PYTHON={sys.executable}, or use topics.spark.session()"
    try:
        done = subprocess.run([python, "-c", _PROBE], capture_output=True, text=True, check=False)
    except OSError as error:
        return f"{python} does not start ({error.strerror}): {cure}"
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["it ended without a word"]
        return f"{python} cannot read topics ({said[-1]}): {cure}"
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if done.stdout.strip() != own:
        return f"{python} is Python {done.stdout.strip()}, and the driver's is {own}: {cure}"
    return None
