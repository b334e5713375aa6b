"""Children that hear SIGINT, whatever the shell that began the tests does with it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def heard() -> Iterator[None]:
    """What is started in here takes SIGINT as by default.

    A shell's background jobs ignore it, and so does all that they start.  A handler of ours is none
    of a child's: it begins with the default.
    """
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
