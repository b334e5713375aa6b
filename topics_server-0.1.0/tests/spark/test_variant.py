"""`topics export --data-schema variant`: files that any reader of VARIANT takes for what they are."""

from pathlib import Path
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest

import topics.export
from bench.flights import Server
from topics import Client, NewRecord
from topics.spark.variant import AS_IT_IS

from .conftest import Reads, settle
from .test_export import export

pytestmark = pytest.mark.spark

TEXTS = [
    '{"n": 1, "to": {"city": "Zürich"}}',
    '{"n":2.50,"to":{"city":null}}',
    '{"n": 18446744073709551616}',
    "null",
    "[1, 2]",
    '{"a": 1, "a": 2}',
]
"""The last has a name twice, which no VARIANT can have."""


def found(reads: Reads, lake: Path, name: str) -> list[tuple[Any, ...]]:
    """Seq, text, a member by way of the VARIANT, and its type, of all rows."""
    frame = reads.spark.read.option(AS_IT_IS, "false").parquet(str(lake / name))
    assert frame.schema["data_variant"].dataType.simpleString() == "variant"
    rows = frame.selectExpr(
        "seq",
        "data",
        "variant_get(data_variant, '$.to.city', 'string')",
        "schema_of_variant(data_variant)",
    )
    return [tuple(row) for row in rows.orderBy("seq").collect()]


def test_data_beside_itself(
    reads: Reads, client: Client, server: Server, home: Path, name: str
) -> None:
    """The text byte for byte, and a VARIANT of it that is marked as one: after a commit, and after
    files were merged, written anew without a deleted record, and made again."""
    lake = home / "a läke [1]"
    there = ("--path", server.data_dir)
    client.append(name, *(NewRecord(msgspec.Raw(text.encode())) for text in TEXTS))
    settle(server)
    code, said = export(server.url, name, *there, "--to", lake, "--data-schema", "variant")
    assert code == 0, said

    rows = found(reads, lake, name)
    assert [row[1] for row in rows] == TEXTS
    assert [row[2] for row in rows] == ["Zürich", None, None, None, None, None]
    kinds = [row[3] for row in rows]
    assert kinds[1] == "OBJECT<n: DECIMAL(2,1), to: OBJECT<city: VOID>>"
    assert kinds[3:] == ["VOID", "ARRAY<BIGINT>", None]

    client.append(name, {"to": {"city": "Basel"}})
    settle(server)
    code, said = export(server.url, name, *there, "--to", lake)
    assert code == 0, said
    code, said = export(server.url, "compact", lake)
    assert code == 0, said
    [file] = (lake / name).glob("part-*.parquet")
    assert [row[2] for row in found(reads, lake, name)][-1] == "Basel"

    client.delete(name, before_seq=2)
    code, said = export(server.url, "reconcile", lake)
    assert code == 0, said
    [file] = (lake / name).glob("part-*.parquet")
    file.write_bytes(file.read_bytes()[:-1])
    code, said = export(server.url, "repair", lake)
    assert code == 0, said
    rows = found(reads, lake, name)
    assert [row[1] for row in rows[:-1]] == TEXTS[1:]
    assert rows[-1][2] == "Basel"

    code, said = export(server.url, "verify", lake, "--deep")
    assert code == 0, said
    assert topics.export.dataset(lake, name).to_table(columns=["seq"]).num_rows == len(TEXTS)
    [file] = (lake / name).glob("part-*.parquet")
    assert pq.read_metadata(file).row_group(0).column(0).compression == "ZSTD"
    assert not list((lake / "_topics_export" / "staged").iterdir())
