"""The file that receives the bound address, for a program that starts a server on port 0.

Owns what may be at that path: a regular file, or nothing yet.  Anything else is refused: the rename
would replace a device, a pipe or a link.

Invariant: a reader finds the whole address or none, and no draft is left behind.  A server that has
stopped takes its address away, unless another one has written there since.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path
from typing import Final

SETTING: Final = "TOPICS_PORT_FILE"


class BadPortFile(Exception):
    """The file cannot be written; one line, names the setting and why (exit code 2)."""


def check(path: Path) -> None:
    """Refuse what can be known to fail, before anything is opened.  Raises BadPortFile."""
    try:
        _check_target(path)
        parent = path.parent
        if not stat.S_ISDIR(os.stat(parent).st_mode):
            raise _refused(path, f"{parent} is not a directory")
    except OSError as error:
        raise _refused(path, f"{error.filename}: {error.strerror}") from None
    if not os.access(parent, os.W_OK | os.X_OK):
        raise _refused(path, f"no file can be made in {parent}")


def write(path: Path, address: str) -> None:
    """Leave the address in the file, whole or not at all.  Raises BadPortFile."""
    draft = path.with_name(f"{path.name}.{os.getpid()}.tmp")
    try:
        _check_target(path)
        draft.unlink(missing_ok=True)
        try:
            with draft.open("x") as file:
                file.write(address + "\n")
            draft.replace(path)
        except OSError:
            with suppress(OSError):
                draft.unlink()
            raise
    except OSError as error:
        raise _refused(path, error.strerror or str(error)) from None


def remove(path: Path, address: str) -> None:
    """Take the address away, if the file still has it; what another server wrote stays."""
    with suppress(OSError, ValueError, BadPortFile):
        _check_target(path)
        if path.read_text() == address + "\n":
            path.unlink()


def _check_target(path: Path) -> None:
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    if stat.S_ISDIR(mode):
        raise _refused(path, "it is a directory")
    if stat.S_ISLNK(mode):
        raise _refused(path, "it is a symbolic link")
    if not stat.S_ISREG(mode):
        raise _refused(path, "it is not a regular file")


def _refused(path: Path, why: str) -> BadPortFile:
    return BadPortFile(f"{SETTING} {path} cannot be written: {why}")
