"""`topics.asgi:app` under another server: uvicorn, as a process of its own."""

import os
import subprocess
import sys
from pathlib import Path

from topics.store.files import OsFiles

from .fakes import DEADLINE_S

COMMAND = (sys.executable, "-m", "uvicorn", "topics.asgi:app", "--port", "0", "--no-use-colors")


def refused(data_dir: Path) -> tuple[int, str]:
    """Exit code and output of a uvicorn that has to end by itself."""
    environment = {**os.environ, "TOPICS_DATA_DIR": str(data_dir)}
    done = subprocess.run(
        COMMAND, env=environment, capture_output=True, text=True, timeout=DEADLINE_S
    )
    return done.returncode, done.stdout + done.stderr


def test_a_second_process_on_a_data_directory_does_not_start(tmp_path: Path) -> None:
    """As a second worker would be: the host ends, and prints that one process owns a data
    directory. It used to report that startup is complete, and answered 503 for ever. (§0.6)"""
    owner = OsFiles(tmp_path)
    owner.prepare(create=True)
    assert owner.lock()

    code, said = refused(tmp_path)

    owner.close()
    assert code != 0
    assert f"{tmp_path}: another process is using this data directory" in said
    assert "one process owns a data directory, so the application runs with one worker" in said
    assert "startup complete" not in said


def test_a_directory_of_something_else_does_not_start(tmp_path: Path) -> None:
    """The host prints the store's line. (§0.6)"""
    (tmp_path / "holiday.jpg").touch()

    code, said = refused(tmp_path)

    assert code != 0
    assert f'{tmp_path}: not a data directory of topics: it holds "holiday.jpg"' in said
