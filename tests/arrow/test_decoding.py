"""Rows of every kind in one column: each becomes what it would be alone."""

import json
from typing import Any

import pyarrow as pa
import pytest

from topics.arrow.decoding import PART_ROWS, decoded

from .limits import ODD, TYPES, fitted


@pytest.mark.parametrize("kind", TYPES, ids=str)
def test_rows_that_fit_beside_rows_that_do_not(kind: pa.DataType) -> None:
    """Every odd value, alone, in a list, in an object and in a map, and rows that are no objects."""
    wanted = pa.struct(
        [("v", kind), ("l", pa.list_(kind)), ("o", pa.struct([("v", kind)])), ("m", pa.map_(pa.string(), kind))]
    )  # fmt: skip
    datas: list[Any] = [{"v": odd} for odd in ODD] + [{"l": [1, odd, None]} for odd in ODD]
    datas += [{"o": {"v": odd}} for odd in ODD] + [{"m": {"a": odd, "": odd}} for odd in ODD]
    texts = [json.dumps(data) for data in [*datas, {}, [], None, 5, "x", {"l": {}}, {"o": []}]]
    texts += ['{"v":-0}', '{"l":[-0, -0.0]}', ' {"v" : null , "v" : null }', '{"o":null,"l":null}']

    made = decoded(pa.array([*texts, None]), wanted)

    fitting = [fitted(text, wanted) for text in texts]
    assert made.structs.to_pylist() == [*(row for row, _ in fitting), None]
    assert made.bad.tolist() == [*(count is None for _, count in fitting), False]
    assert made.rounded == sum(count or 0 for _, count in fitting)


def test_more_rows_than_are_decoded_at_once() -> None:
    """In order, with one that does not fit at each end of a part."""
    texts = [f'{{"a":{n}}}' for n in range(2 * PART_ROWS + 3)]
    for n in (0, PART_ROWS - 1, PART_ROWS, 2 * PART_ROWS + 2):
        texts[n] = '{"a":"x"}'

    made = decoded(pa.array(texts), pa.struct([("a", pa.int64())]))

    rows = made.structs.to_pylist()
    assert [row and row["a"] for row in rows] == [
        None if bad else n for n, bad in enumerate(made.bad.tolist())
    ]
    assert made.bad.sum() == 4


def test_a_string_is_any_value_as_its_text() -> None:
    """A number as it was written, an object with its spaces; `-0` within a string is text."""
    texts = [
        "1.0e2",
        "-0",
        '"web-0"',
        '{"a": [1]}',
        "true",
        "null",
        '"\\u00fc\\n"',
        "12345678901234567890",
    ]
    rows = [f'{{"s":{text}}}' for text in texts] + ["{}"]

    found = decoded(pa.array(rows), pa.struct([("s", pa.string())])).structs.to_pylist()

    assert [row["s"] for row in found] == [
        "1.0e2", "-0", "web-0", '{"a": [1]}', "true", None, "ü\n", "12345678901234567890", None,
    ]  # fmt: skip
