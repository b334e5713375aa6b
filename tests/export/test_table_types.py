"""What tables have no place for."""

import pyarrow as pa
import pytest

from topics.export.manifest import Format
from topics.export.table_types import stored, unfit_path, without_unfit

INT = pa.int64()


@pytest.mark.parametrize(
    ("format", "members", "kept", "unfit"),
    [
        (
            "delta",
            {"a": INT, "A": INT, "ä": INT, "Ä": INT},
            {"a": INT, "ä": INT},
            ["data.A", "data.Ä"],
        ),
        ("delta", {"a\0": INT, "": INT, "a.b": INT}, {"": INT, "a.b": INT}, ["data.a\0"]),
        ("iceberg", {"": INT, "a": INT, "A": INT}, {"a": INT, "A": INT}, ["data."]),
        (
            "iceberg",
            {"a.b": INT, "a": pa.struct([("b", INT), ("c", INT)])},
            {"a.b": INT, "a": pa.struct([("c", INT)])},
            ["data.a.b"],
        ),
        (
            "iceberg",
            {"l.element": INT, "l": pa.list_(pa.struct([("", INT)]))},
            {"l.element": INT},
            ["data.l.element.", "data.l"],
        ),
        ("parquet", {"a": INT, "A": INT, "": INT}, {"a": INT, "A": INT, "": INT}, []),
    ],
)
def test_names_that_a_format_has_not(
    format: Format, members: dict[str, pa.DataType], kept: dict[str, pa.DataType], unfit: list[str]
) -> None:
    """They are left out, each told with its path, and so is what has no member then."""
    assert without_unfit(pa.schema(members), format) == (pa.schema(kept), unfit)


def test_integers_without_a_sign() -> None:
    """They are stored in the next larger type, at any depth."""
    kinds = [pa.uint8(), pa.uint16(), pa.uint32(), pa.uint64(), pa.int8()]
    wider = [pa.int16(), pa.int32(), pa.int64(), pa.decimal128(20, 0), pa.int8()]
    for kind, wide in zip(kinds, wider, strict=True):
        given = pa.schema([("a", kind), ("o", pa.struct([("l", pa.list_(kind))]))])
        assert stored(given) == pa.schema([("a", wide), ("o", pa.struct([("l", pa.list_(wide))]))])


def test_a_path_that_is_another_one_in_a_url() -> None:
    """Its first such character is told."""
    assert unfit_path("/a b/ü:+'*/x") is None
    assert [unfit_path(f"/a{each}b?") for each in "?#%\\[\n"] == list("?#%\\[\n")
