"""What the commands of `topics export` share."""

from pathlib import Path
from typing import Any

import click
import pytest

from topics.arrow import DataLoss, Gap, NoSuchTopic
from topics.cli.exits import Stop
from topics.cli.export_place import failures, size_bytes
from topics.export.loading import Unusable
from topics.export.manifest import Damaged
from topics.protocol.model.errors import Corrupt


def size(text: str) -> int:
    return size_bytes(None, None, text)  # type: ignore[arg-type]


def test_sizes() -> None:
    """By thousands and by 1024."""
    assert [size(text) for text in ("7", "256MB", "64MiB", "1gb", "2 KiB")] == [
        7, 256_000_000, 64 << 20, 10**9, 2048
    ]  # fmt: skip
    for text in ("", "0", "MB", "-1MB", "1TB", "1.5MB"):
        with pytest.raises(click.BadParameter, match="no size such as"):
            size(text)


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (
            DataLoss([Gap("t", 1, 2, "cap"), Gap("t", 5, 5, "ttl")]),
            4,
            "and 1 more gaps; begin with",
        ),
        (
            Damaged("t/x", "it is missing"),
            3,
            "lake/t/x: it is missing; `topics export repair lake`",
        ),
        (Corrupt("a.seg", 7, "bad"), 3, "a.seg"),
        (Unusable("no"), 2, "no"),
        (NoSuchTopic("t"), 2, 'topic "t" does not exist'),
        (ValueError("so"), 2, "so"),
        (
            OSError(28, "No space left on device", "lake/x"),
            2,
            "lake/x: No space left on device; make room",
        ),
        (OSError(28, "No space left on device"), 2, "lake: No space left on device"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_errors_are_a_line_and_a_code(error: Any, code: int, words: str) -> None:
    """Each of its own kind."""
    with pytest.raises(Stop) as caught, failures(Path("lake")):
        raise error
    assert caught.value.code == code
    assert words in caught.value.message
