"""Errors: a line with what to do for everything that a user can mend."""

import pytest

from topics.arrow import DataLoss, Gap, NoSuchTopic, NotDurable, NotReadable
from topics.client import BadAnswer, Forbidden, NotReady, Unauthorized, Unreachable
from topics.protocol.model.errors import Corrupt, Unusable
from topics.spark.errors import BadOption, SparkFailure, advice, explained

MENDABLE = [
    (DataLoss([Gap("t", 1, 2, "cap")] * 3), "and 2 more gaps; to go on, set startingOffsets"),
    (NoSuchTopic("t"), 'topic "t" does not exist; subscribe names'),
    (NotReadable("it is ephemeral"), "option url instead of path"),
    (NotDurable("it is of class disk"), "disk, or set option readConsistency to visible"),
    (Unauthorized("unauthorized", 401, "no"), "the option apiKey, or TOPICS_API_KEY"),
    (Forbidden("forbidden", 403, "no"), "the option apiKey"),
    (Unreachable("unreachable", 0, "http://h"), "is `topics serve` running there"),
    (BadAnswer("bad_answer", 404, "HTTP 404"), "is option url that of a topics server?"),
    (NotReady("not_ready", 503, "replaying"), "replaying"),
    (
        Corrupt("/d/1.seg", 77, "digest"),
        "/d/1.seg: corrupt at byte 77: digest; nothing was skipped",
    ),
    (Unusable("/d", "format 9 is newer"), "/d: format 9 is newer; path is the data directory"),
    (PermissionError(13, "Permission denied", "/d"), "/d: Permission denied; is path there"),
]


@pytest.mark.parametrize(("error", "line"), MENDABLE, ids=lambda v: type(v).__name__)
def test_what_can_be_mended(error: Exception, line: str) -> None:
    """One line, of one exception, without the trace of another."""
    with pytest.raises(SparkFailure) as caught, explained():
        raise error
    assert line in str(caught.value)
    assert "\n" not in str(caught.value)
    assert caught.value.__suppress_context__


def test_what_cannot() -> None:
    """A bug is shown as it is, and our own lines are not wrapped again."""
    assert advice(KeyError("x")) is None
    with pytest.raises(ZeroDivisionError), explained():
        raise ZeroDivisionError
    with pytest.raises(BadOption, match=r"^there$"), explained():
        raise BadOption("there")
