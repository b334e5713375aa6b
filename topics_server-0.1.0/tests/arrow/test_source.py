"""What a scan asks for, and what it may not (docs/arrow.md)."""

import pytest

from topics.arrow import columns
from topics.arrow.source import NoSuchTopic, Wanted

SCHEMA = columns.schema(["seq"])


def test_a_tag_and_a_prefix_exclude_each_other() -> None:
    """One of them would be ignored in silence."""
    with pytest.raises(ValueError, match="exclude each other"):
        Wanted(SCHEMA, tag="a", tag_prefix="b")
    assert Wanted(SCHEMA, tag="").tag_prefix is None


@pytest.mark.parametrize("rows", [0, -1])
def test_a_batch_has_a_row(rows: int) -> None:
    """A scan of empty batches would not end."""
    with pytest.raises(ValueError, match="below 1"):
        Wanted(SCHEMA, batch_rows=rows)
    assert Wanted(SCHEMA, batch_rows=1).batch_rows == 1


def test_a_missing_topic_is_named() -> None:
    """A `KeyError` alone would show the name in quotes and nothing else."""
    assert str(NoSuchTopic("jobs")) == 'topic "jobs" does not exist'
    assert isinstance(NoSuchTopic("jobs"), KeyError)
