"""Whether others may change what this process relies on, judged as ssh judges its own files.

Owns the rule and the cure that the messages name.  A file of keys, or one that says which server gets a
key, is refused where somebody else may write it: whoever does chooses the keys.  Nothing is changed.
"""

import os
import stat
from pathlib import Path


def refusal_of(path: Path, status: os.stat_result, *, is_personal: bool = False) -> str | None:
    """Why a file is not to be read, with the cure; None where only its owner may write it.

    Args:
        status: Of the open file, so that what is judged is what is read.
        is_personal: It must be this user's, or root's.  A server's files may be the operator's, as where
            a container has them from the host.
    """
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return f"others may write it; chmod go-w {path}"
    me = os.geteuid()
    if is_personal and me and status.st_uid not in (0, me):
        return f"it belongs to another user (uid {status.st_uid}), who may write it; chown it"
    folder = path.absolute().parent
    try:
        above = folder.stat()
    except OSError:
        return None
    if above.st_mode & stat.S_IWOTH and not above.st_mode & stat.S_ISVTX:
        return f"others may replace it; chmod o-w {folder}"
    return None


def warning_of(directory: Path) -> str | None:
    """What is said of a data directory that others may write to, with the cure; None of any other.

    A group counts where it is not the process's own: a volume of Kubernetes is writable by that.
    """
    try:
        status = directory.stat()
    except OSError:
        return None  # what is wrong with it is told by who opens it
    is_open = status.st_mode & stat.S_IWOTH or (
        status.st_mode & stat.S_IWGRP and status.st_gid != os.getegid()
    )
    return f"others may write to {directory}; chmod go-w {directory}" if is_open else None
