"""Keys that were given in plain text leave the process before it serves (§0.2, §12).

A string that a Python program has seen stays on its heap, in `/proc/PID/environ` and, if it was an
option, in `/proc/PID/cmdline`.  So the process begins anew, as another image under the same PID, with
digests in its environment in place of the secrets: neither a core dump nor another process of the
same user finds them then.
"""

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from topics.server.access.keys import DIGEST_MARK, KeySource

VARIABLE: Final = "TOPICS_API_KEYS"
OPTION: Final = "--api-keys"


def conceal(text: str | None, source: KeySource | None) -> None:
    """Begin anew where there is a secret to hide; returns where there is none, or where this is not
    a process of its own.

    Args:
        text: The setting as it was given.
        source: What it was parsed into.
    """
    if text is None or source is None or not has_secret(text) or not _is_own_process():
        return
    digests = ",".join(entry.text for entry in source.fixed)
    try:
        os.execve(sys.executable, without_option(sys.orig_argv), {**os.environ, VARIABLE: digests})
    except OSError:
        return  # it serves all the same; what it holds is what its environment held


def has_secret(text: str) -> bool:
    """Whether an entry holds something else than a digest."""
    return not all(entry.strip().startswith(DIGEST_MARK.decode()) for entry in text.split(","))


def without_option(arguments: Sequence[str]) -> list[str]:
    """A command line without the keys; the environment has them from now on."""
    kept, is_value = list[str](), False
    for argument in arguments:
        if is_value:
            is_value = False
        elif argument == OPTION:
            is_value = True
        elif not argument.startswith(OPTION + "="):
            kept.append(argument)
    return kept


def _is_own_process(arguments: Sequence[str] | None = None) -> bool:
    """Whether this process was started as `topics` or `python -m topics`: in any other, the program
    that it is may not be ended."""
    started = Path((sys.argv if arguments is None else arguments)[0])
    is_module = started.name == "__main__.py" and started.parent.name == "topics"
    return bool(sys.executable) and (started.name == "topics" or is_module)
