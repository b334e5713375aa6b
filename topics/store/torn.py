"""What starts set aside of torn logs, and how long it stays.

Owns the bounds on `*.torn` files, which nothing reads but a person who wants to know what a crash
left.  Refuses to know how a log is torn.  Invariant: a start removes only what an earlier one set
aside.
"""

from collections.abc import Iterator
from typing import Final

from topics.store.files import Files
from topics.store.layout import TORN

KEPT_S: Final = 30 * 24 * 3600
KEPT_BYTES: Final = 1 << 30


def age_out(files: Files) -> tuple[str, ...]:
    """*Blocking.* Unlink the torn files that are older than 30 days, and of the rest the oldest, as
    long as they are more than 1 GiB in all.

    Returns:
        A sentence for each file that is gone.
    """
    oldest_s = files.now_s() - KEPT_S
    told = []
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
            continue  # nothing relies on its being gone
        told.append(f"{name}, the torn end of a log, was removed: {why}")
    return tuple(told)


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
