"""Retention of the torn log ends that recoveries set aside.

Owns the bounds on `*.torn` files, which only an operator reads, after a crash.  Knows nothing of how
a log is torn.  Invariant: a start removes only files that an earlier start set aside.
"""

from collections.abc import Iterator
from typing import Final

from topics.store.files import Files
from topics.store.layout import TORN

KEPT_S: Final = 30 * 24 * 3600
KEPT_BYTES: Final = 1 << 30


def age_out(files: Files) -> tuple[str, ...]:
    """*Blocking.* Unlink torn files older than 30 days, and the oldest of the rest until at most
    1 GiB is left.

    Returns:
        A sentence for each file that was removed.
    """
    oldest_s = files.now_s() - KEPT_S
    removed = []
    kept_bytes = 0
    for modified_s, size, name in sorted(_found(files), reverse=True):
        kept_bytes += size
        if modified_s < oldest_s:
            why = "older than 30 days"
        elif kept_bytes > KEPT_BYTES:
            why = "the newer ones hold 1 GiB"
        else:
            continue
        try:
            files.unlink(name)
        except OSError:
            continue  # nothing relies on its removal
        removed.append(f"{name}, the torn end of a log, was removed: {why}")
    return tuple(removed)


def _found(files: Files) -> Iterator[tuple[int, int, str]]:
    """(modified_s, bytes, name) of each torn file that can be looked at."""
    for name in files.names():
        if TORN.fullmatch(name):
            try:
                file = files.open(name)
                try:
                    yield files.modified_s(name), file.size(), name
                finally:
                    file.close()
            except OSError:
                continue
