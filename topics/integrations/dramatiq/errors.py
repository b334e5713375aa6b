"""Errors of the client as errors of dramatiq."""

from collections.abc import Iterator
from contextlib import contextmanager

from dramatiq.errors import ConnectionClosed

from topics.client import PASSING


@contextmanager
def connection_errors() -> Iterator[None]:
    """Raise errors that pass as dramatiq's `ConnectionClosed`, after which workers try again."""
    try:
        yield
    except PASSING as error:
        raise ConnectionClosed(error) from error
