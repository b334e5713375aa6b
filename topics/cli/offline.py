"""What the commands on a data directory share: its lock, the collector, and how they end.

Such a command reads a directory as a whole and ends, so that it makes millions of objects and hardly
a cycle.
"""

import fcntl
import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from topics.cli.exits import CORRUPT, UNUSABLE, Stop


@contextmanager
def refusals(path: Path) -> Iterator[None]:
    """Turn what a store or a disk refuses into a line and an exit code, and keep the garbage
    collector off: it would visit every topic again and again."""
    from topics.protocol.model.errors import Corrupt, StoreError

    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    except Corrupt as error:
        raise Stop(str(error), CORRUPT if error.is_proven else UNUSABLE) from None
    except StoreError as error:
        raise Stop(str(error), UNUSABLE) from None
    except OSError as error:
        raise Stop(f"{error.filename or path}: {error.strerror or error}", UNUSABLE) from None
    finally:
        if was_on:
            gc.enable()


@contextmanager
def unused(data_dir: Path, *, exclusive: bool = False) -> Iterator[None]:
    """Keep a server from starting meanwhile: a file that is being written would look damaged.

    Args:
        exclusive: Keep other commands like this one away, too: the directory is about to change.
    """
    from topics.store.layout import LOCK_NAME

    try:
        lock = os.open(data_dir / LOCK_NAME, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        yield
        return
    try:
        fcntl.flock(lock, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise Stop(f"{data_dir}: in use by a running server; stop it first", UNUSABLE) from None
    finally:
        os.close(lock)
