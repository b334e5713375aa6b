"""`SparkFailure`: what went wrong, in one line that says what to do.

An exception of a data source reaches the driver as text below a trace of two languages.  So
whatever a user can mend is said in the last line of that text, in the names of Spark's options.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from topics.arrow import DataLoss, NoSuchTopic, NotDurable, NotReadable
from topics.protocol.model.errors import Corrupt, StoreError, Unusable


class SparkFailure(Exception):
    """A read or a write that cannot go on; the message is one line."""


class BadOption(SparkFailure, ValueError):
    """An option that does not exist, has no such value, or does not go with another."""


RESTARTED: Final = (
    "to go on behind the gap, set lossHandling to warn or rows; the checkpoint says where a stream is, so "
    "startingOffsets counts with a new one only (docs/spark.md, Loss)"
)


def advice(error: BaseException, *, is_restarted: bool = False) -> str | None:
    """One line on an error that a user can mend; None for any other error.

    Args:
        is_restarted: It is one of a stream that goes on where its checkpoint says.
    """
    match error:
        case DataLoss():
            more = f" and {len(error.gaps) - 1} more gaps" if len(error.gaps) > 1 else ""
            if is_restarted:
                return f"{error.gaps[0]}{more}; {RESTARTED}"
            return (
                f'{error.gaps[0]}{more}; to go on, set startingOffsets to "earliest-retained" or '
                "behind the gap, or lossHandling to warn or rows (docs/spark.md, Loss)"
            )
        case NoSuchTopic():
            return (
                f"{error}; subscribe names topics that are there, subscribePattern may match none"
            )
        case NotDurable():
            return f"{error}, or set option readConsistency to visible"
        case NotReadable():
            return f"{error} (option url instead of path)"
        case Corrupt():
            return f"{error}; nothing was skipped: `topics inspect` checks the directory"
        case Unusable():
            return f"{error}; path is the data directory of a topics server of this version"
        case StoreError():
            return str(error)
        case OSError() if error.filename is not None:
            name = (
                os.fsdecode(error.filename) if isinstance(error.filename, bytes) else error.filename
            )
            return f"{name}: {error.strerror}; is path there, and readable, on every worker?"
    return _advice_of_client(error)


def _advice_of_client(error: BaseException) -> str | None:
    """The same on an error of the client's, which is imported only where a server is read or written.

    It takes a quarter of a worker's start, and where it is not imported no error is its.
    """
    client = sys.modules.get("topics.client")
    if client is None or not isinstance(error, client.TopicsError):
        return None
    match error:
        case client.Unauthorized() | client.Forbidden():
            return f"{error}; the key is the option apiKey, or TOPICS_API_KEY of the driver"
        case client.Unreachable():
            return f"{error}; is `topics serve` running there, and reachable from this machine?"
        case client.BadAnswer():
            return f"{error}; is option url that of a topics server?"
    return str(error)


@contextmanager
def url_checked() -> Iterator[None]:
    """While a client is made: it knows best what is a URL."""
    try:
        yield
    except ValueError as error:
        raise BadOption(f"option url: {error}") from None


@contextmanager
def explained(*, is_restarted: bool = False) -> Iterator[None]:
    """Turns an error that a user can mend into a `SparkFailure`; others pass as they are."""
    try:
        yield
    except SparkFailure:
        raise
    except Exception as error:
        line = advice(error, is_restarted=is_restarted)
        if line is None:
            raise
        raise SparkFailure(line) from None
