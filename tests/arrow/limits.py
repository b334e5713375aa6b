"""Values, names and types at the ends of what a record may hold, and beyond, and what becomes of them."""

from typing import Any

import pyarrow as pa
from hypothesis import strategies as st

from topics.arrow.payload import Unfit, fit

US = pa.timestamp("us", tz="UTC")

ODD = [
    0, -1, 127, 128, (1 << 24) + 1, (1 << 53) + 1, -(1 << 53) - 1, 1 << 63, 1 << 64, 10**38, 10**309,
    -0.0, 0.1, 1e39, -1e39, 3.4028235e38, 1e308, "", "1.5", "null", "2026-01-01", "2026-02-30",
    "0001-01-01T00:00:00Z", "0000-12-31", "9999-12-31T23:59:59.999999Z", "0001-01-01T00:00:00+14:00",
    "2026-01-01T00:00:00", "2026-01-01 00:00+0100", "1e400", "2026-01-01T00:00:00.1234567Z", "\0",
    "\u2028\x7f\ufeff",
]  # fmt: skip

NAMES = [
    "a.b",
    "",
    '"',
    "\\",
    "\n",
    "\0",
    "ä",
    "data",
    "a/b",
    "a b",
    "A",
    "a",
    "$seq",
    "😀",
    "x" * 300,
]

TAGS = [
    None, "", ".", "..", "a/b", "%2F", "__HIVE_DEFAULT_PARTITION__", "a\0b", "a\nb", "a=b", "x" * 256,
    "ü" * 128, "😀" * 64, " a ", "\"'", "\u202e", "null", "a", "A",
]  # fmt: skip

TYPES: list[pa.DataType] = [
    pa.bool_(), pa.int8(), pa.int64(), pa.uint8(), pa.uint64(), pa.float32(), pa.float64(), pa.string(), US,
    pa.date32(), pa.decimal128(10, 2), pa.decimal128(38, 0),
]  # fmt: skip

values = st.recursive(
    st.none() | st.booleans() | st.integers(-(1 << 65), 1 << 65) | st.text(max_size=5)
    | st.floats(allow_nan=False, allow_infinity=False) | st.sampled_from(ODD),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("abc"), inner),
    max_leaves=5,
)  # fmt: skip


def fitted(text: str, wanted: pa.DataType) -> tuple[Any, int | None]:
    """What `fit` makes of one value, and how many integers it rounds; None where it does not fit."""
    rounded: list[str] = []
    try:
        return pa.array([fit(text, wanted, rounded)], wanted)[0].as_py(), len(rounded)
    except Unfit:
        return None, None
