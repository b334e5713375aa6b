"""Rows of a run as a record batch: any rows, any columns, the text byte for byte (docs/arrow.md)."""

import json
import random
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from protocol.batches.builder import some_records
from protocol.state.test_packed_run import batch_of

from topics.arrow import columns
from topics.protocol.model.render import render_batch
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.packed_run import PackedRun

TS = 1_748_450_001_234
DATA = st.sampled_from(['"x"', '{"a": 1.0e2}', "null", '"é🦜"', "[" + "1," * 50 + "1]"])
META = st.none() | st.sampled_from(["{}", '{"k": "v"}'])
NAME = st.none() | st.sampled_from(["n-1", "é"])
ROWS = st.lists(st.tuples(DATA, META, NAME, NAME), min_size=1, max_size=30)
Row = tuple[str, str | None, str | None, str | None]


def run_of(rows: list[Row], first_seq: int = 7) -> HotRun:
    run = HotRun(first_seq)
    run.append(
        render_batch(
            [data.encode() for data, *_ in rows],
            first_seq=first_seq,
            ts_ms=TS,
            metas=[None if meta is None else meta.encode() for _, meta, *_ in rows],
            nodes=[node for *_, node, _ in rows],
            tags=[tag for *_, tag in rows],
        )
    )
    return run


@given(ROWS, st.data())
def test_a_batch_is_the_rows_that_were_asked_for(rows: list[Row], draw: st.DataObject) -> None:
    """Every column of any of them, near each other or far apart. (§0.4)"""
    run = run_of(rows)
    picked = sorted(draw.draw(st.sets(st.integers(0, len(rows) - 1), min_size=1)))

    made = columns.batch("t", run, np.array(picked), columns.schema(list(columns.FIELDS)))

    assert made.to_pydict() == {
        "topic": ["t"] * len(picked),
        "seq": [7 + row for row in picked],
        "ts": made.column("ts").to_pylist(),
        "node": [rows[row][2] for row in picked],
        "tag": [rows[row][3] for row in picked],
        "data": [rows[row][0] for row in picked],
        "meta": [rows[row][1] for row in picked],
    }
    assert set(made.column("ts").cast(pa.int64()).to_pylist()) == {TS * 1000}


@pytest.mark.parametrize("rows", [slice(None), slice(3, None, 5)])
def test_what_kafkas_records_have_beside_is_a_column_where_it_is_asked_for(rows: slice) -> None:
    """The members that a page shows, in one object; null where there are none. (docs/kafka.md)"""
    run = PackedRun(7, tag_bytes_max=20)
    for count in (3, 60):
        run.append(batch_of(some_records(random.Random(count), count)))
    wanted = np.arange(run.count)[rows]
    (text,) = run.read_blocking([(0, run.count)])
    records = json.loads(b"[" + bytes(text) + b"]")
    names = ("$form", "$key", "$time", "$headers")

    made = columns.batch("t", run, wanted, columns.schema(["seq", "marks"]))

    shown = [{name: r[name] for name in names if name in r} for r in records]
    found = made.column("marks").to_pylist()
    assert [json.loads(each or "{}") for each in found] == [shown[row] for row in wanted]
    assert any(found)
    assert made.column("seq").to_pylist() == (wanted + 7).tolist()
    assert "marks" not in columns.FIELDS
    plain = columns.batch("t", run_of([("1", None, None, None)]), np.array([0]), made.schema)
    assert plain.column("marks").to_pylist() == [None]


@given(st.lists(st.integers(0, 40) | st.integers(0, (1 << 32) - 1), min_size=1))
def test_strings_are_looked_up_once_each(ids: list[int]) -> None:
    """However many rows have them, and however large their ids are; id 0 is null."""
    looked: list[int] = []

    def look(numbers: list[int]) -> list[str]:
        looked.extend(numbers)
        return [f"s{number}" for number in numbers]

    found = columns.strings(look, np.array(ids, np.uint32)).to_pylist()

    assert found == [f"s{number}" if number else None for number in ids]
    assert sorted(looked) == sorted({*ids} - {0})


@given(st.lists(st.sampled_from(list(columns.FIELDS)), unique=True, min_size=1), st.booleans())
def test_a_batch_has_the_columns_that_were_asked_for(names: list[str], loss_rows: bool) -> None:
    """In their order, each of the type of the schema."""
    schema = columns.schema(names, loss_rows=loss_rows)

    made = columns.batch("t", run_of([("1", None, "n", None)]), np.array([0]), schema)

    assert made.schema == schema
    assert made.schema.names == [*names, *(columns.LOSS_FIELDS if loss_rows else ())]
    if loss_rows:
        assert made.column("_kind").to_pylist() == ["record"]
        assert made.column("_gap").to_pylist() == [None]


def test_an_unknown_column_is_refused() -> None:
    """With the names that there are."""
    with pytest.raises(ValueError, match=r'no column "sequence"; there are topic, seq'):
        columns.schema(["seq", "sequence"])


def test_a_name_is_decoded_once() -> None:
    """However many rows have it: a table of a run has few."""
    looked: list[int] = []

    def look(ids: list[int]) -> list[str]:
        looked.extend(ids)
        return [f"n{name_id}" for name_id in ids]

    ids = np.array([2, 0, 1, 2, 2, 1, 0], np.uint32)
    found: Any = columns.strings(look, ids).to_pylist()

    assert found == ["n2", None, "n1", "n2", "n2", "n1", None]
    assert sorted(looked) == [1, 2]
