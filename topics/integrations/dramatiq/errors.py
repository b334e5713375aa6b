"""Errors of the client as errors of dramatiq."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from dramatiq.errors import ConnectionClosed

from topics.client import BadAnswer, NotReady, ServerFault, Throttled, Unreachable

_PASSING: Final = (Unreachable, NotReady, Throttled, ServerFault, BadAnswer)
"""Errors that end when the server, or the way to it, is well again."""


@contextmanager
def connection_errors() -> Iterator[None]:
    """Raise errors that pass as dramatiq's `ConnectionClosed`, after which workers try again."""
    try:
        yield
    except _PASSING as error:
        raise ConnectionClosed(error) from error
