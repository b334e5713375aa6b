"""Schemas as people write them down."""

import pyarrow as pa
import pytest

from topics.export.schema_file import fields_of, written


def test_a_schema_is_written_down() -> None:
    """In the form in which a person gives it, and back."""
    given = {
        "i": "int64",
        "at": "timestamp",
        "p": "decimal(10,2)",
        "l": ["string"],
        "o": {"x": "double"},
    }
    fields = fields_of(given)
    assert fields.field("o").type == pa.struct([("x", pa.float64())])
    assert written(fields) == given
    for wrong in (
        {},
        [],
        {"a": "integer"},
        {"a": ["string", "string"]},
        {"a": {"b": 5}},
        {"a": "decimal(99,1)"},
    ):
        with pytest.raises(ValueError, match=r"a|member"):
            fields_of(wrong)
