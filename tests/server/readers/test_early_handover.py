"""A connection that is given away once its protocol is known, or stays."""

from functools import partial
from typing import Any, TypeVar, cast

from topics.server.readers.early_handover import EarlyHandover

T = TypeVar("T")


def _same(value: T, _: object) -> T:
    return value


class Fake:
    """A connection."""

    def __init__(self) -> None:
        self.speaker: Any = None
        self.is_finished = False

    def become(self, speaker: Any) -> None:
        self.speaker = speaker

    def finish(self) -> None:
        self.is_finished = True


def test_it_is_given_away_or_becomes_what_it_would_have_been() -> None:
    """Without a reader that takes it, it is served here."""
    for is_given in (True, False):
        connection, speaker = Fake(), object()
        given = partial(_same, is_given)
        passing = EarlyHandover(cast(Any, connection), given, partial(_same, cast(Any, speaker)))
        assert passing.work() is not is_given
        assert connection.speaker is (None if is_given else speaker)


def test_nothing_of_it_is_in_flight() -> None:
    """Before its first turn it has no request, no deadline and nothing to write."""
    connection: Any = Fake()
    passing = EarlyHandover(connection, lambda _: True, lambda _: passing)
    passing.writable()
    passing.due()
    passing.ended()
    passing.close()
    assert not passing.stalled()
    passing.drain()
    assert connection.is_finished
