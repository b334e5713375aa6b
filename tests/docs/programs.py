"""Programs that pages show, in a place of their own: their files, and servers that run them."""

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from .pages import ROOT, blocks
from .place import Place


def write_files(page: str, place: Place) -> None:
    """Each file that a page of docs/ has, where the page says."""
    for block in blocks(ROOT / "docs" / page):
        name = block.said("file")
        if name is not None:
            path = place.folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(place.here(block.code))


@contextmanager
def served(application: str, place: Place) -> Iterator[str]:
    """The address of an application that uvicorn serves in that place."""
    command = ["python", "-m", "uvicorn", application, "--port", "0", "--no-access-log"]
    process = subprocess.Popen(
        command, cwd=place.folder, env=place.environment, stderr=subprocess.PIPE, text=True
    )
    try:
        assert process.stderr is not None
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if (found := re.search(r"running on (http://\S+)", line)) is not None:
                break
        else:
            raise AssertionError("".join(lines))
        yield found[1]
    finally:
        process.terminate()
        assert "Traceback" not in process.communicate()[1], (
            "the application has an error in its log"
        )


def tools() -> Path:
    """The programs of the environment that runs this."""
    return Path(sys.executable).parent
