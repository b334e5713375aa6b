"""What a record may hold goes through every format and comes back: exact, or rounded and counted, or as
text beside null.  No value and no name ends the export of a topic.  (§0.3, §1.1, §2)"""

import json
import random
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet
import pytest
from arrow.limits import NAMES, ODD, TAGS, TYPES, fitted, values
from hypothesis import given, settings
from hypothesis import strategies as st

from topics import NewRecord
from topics.export.inferring import inferred
from topics.export.lake import OsLake
from topics.export.loading import Unusable
from topics.export.manifest import By, Format, Settings
from topics.export.planning import partition_value
from topics.export.run import ExportJob, ExportRun
from topics.export.schema_file import written
from topics.export.table_types import TableFiles, without_unfit
from topics.export.tables import open_tables, tables_of
from topics.testing import MemoryTopics

from .exporting import Quiet, export, remote, rows
from .lakes import MemoryLake

BYS: list[By] = ["none", "date", "hour", "tag"]

names = st.sampled_from(NAMES) | st.text(max_size=3)
tags = st.sampled_from(TAGS) | st.text(max_size=5)
objects = st.dictionaries(names, values | st.dictionaries(names, values, max_size=2), max_size=4)
types = st.recursive(
    st.sampled_from(TYPES),
    lambda inner: (
        inner.map(pa.list_)
        | st.dictionaries(names, inner, min_size=1, max_size=2).map(
            lambda fields: pa.struct(list(fields.items()))
        )
    ),
    max_leaves=3,
)


def expected(memory: MemoryTopics, fields: pa.Schema | None) -> tuple[list[dict[str, Any]], int]:
    """The rows of an export of a topic `t`, and how many integers are rounded in them."""
    wanted = None if fields is None else pa.struct(list(fields))
    found, rounded = [], 0
    for record in memory.client.read("t", record_type=Text, include_tags=True):
        assert isinstance(record, Text)
        text = bytes(record.data).decode()
        row: dict[str, Any] = {"seq": record.seq, "node": record.node, "tag": record.tag}
        row["meta"] = bytes(record.meta).decode() or None
        row["data"] = text
        if wanted is not None:
            row["data"], count = fitted(text, wanted)
            row["_corrupt"] = text if count is None else None
            rounded += count or 0
        found.append(row)
    return found, rounded


class Text(msgspec.Struct, kw_only=True, rename={"seq": "$seq", "node": "$node", "tag": "$tag"}):
    seq: int
    node: str | None = None
    tag: str | None = None
    data: msgspec.Raw
    meta: msgspec.Raw = msgspec.Raw(b"")


def plain(found: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The rows without what no record says: the topic, the time."""
    return [
        {name: each for name, each in row.items() if name not in ("topic", "ts")} for row in found
    ]


def lines(lake: MemoryLake) -> list[dict[str, Any]]:
    """The rows of an export of lines."""
    return [
        {
            "seq": record.seq,
            "node": record.node,
            "tag": record.tag,
            "meta": bytes(record.meta).decode() or None,
            "data": bytes(record.data).decode(),
        }
        for record in (msgspec.json.decode(row["line"], type=Text) for row in rows(lake))
    ]


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.tuples(values | objects, tags), min_size=1, max_size=6),
    st.sampled_from(BYS),
    st.none() | st.dictionaries(names, types, min_size=1, max_size=3) | st.just("infer"),
)
def test_what_a_record_holds_comes_back(
    given_records: list[Any], by: By, members: dict[str, pa.DataType] | str | None
) -> None:
    """In files of both formats, by each partition, as text, of a schema that is given, and of one that is
    inferred."""
    records = [
        NewRecord(data, tag=tag, node="n\0", meta={"a.b": data}) for data, tag in given_records
    ]
    with MemoryTopics() as memory, remote(memory) as source:
        memory.client.append_many("t", records)
        fields = None if members is None or members == "infer" else pa.schema(list(members.items()))  # type: ignore[union-attr]
        if members == "infer" and any(
            isinstance(record.data, dict) and record.data for record in records
        ):
            fields = inferred(source, ExportJob(("t",)))
        form = None if fields is None else written(fields)
        parquet, jsonl = MemoryLake(), MemoryLake()
        result = export(source, parquet, settings=Settings("parquet", by, fields=form))
        export(source, jsonl, settings=Settings("jsonl", by))

        whole, rounded = expected(memory, fields)
        assert plain(rows(parquet)) == whole
        assert (result.rows, result.rounded) == (len(records), rounded)
        assert result.corrupt == sum(row.get("_corrupt") is not None for row in whole)
        assert lines(jsonl) == expected(memory, None)[0]


@pytest.mark.parametrize("by", ["none", "tag"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_what_a_record_holds_comes_back_from_tables(tmp_path: Path, format: Format, by: By) -> None:
    """Every type with every odd value, every odd name and every odd tag."""
    pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[format])
    members = {f"t{n}": kind for n, kind in enumerate(TYPES)}
    members |= {name: pa.struct([(name or "x", pa.list_(pa.uint64()))]) for name in NAMES}
    fields, unfit = without_unfit(pa.schema(list(members.items())), format)
    assert unfit == {"delta": ["data.\0", "data.a"], "iceberg": ["data."]}[format]
    records = [NewRecord({f"t{n}": odd}) for n in range(len(TYPES)) for odd in ODD]
    records += [NewRecord({name: {name or "x": [2**64 - 1, None]}}) for name in NAMES]
    records += [NewRecord(1, tag=tag, node="\0", meta={"": 1}) for tag in TAGS]
    with MemoryTopics() as memory, remote(memory) as source:
        memory.client.append_many("t", records)
        chosen = Settings(format, by, fields=written(fields))
        with open_tables(OsLake(tmp_path), chosen) as tables:
            result = ExportRun(source, tables, ExportJob(("t",)), Quiet()).once()
        tables = tables_of(OsLake(tmp_path))
        compared = tables.compare(source, "t")
        assert compared is not None
        assert (compared.is_whole, compared.same) == (True, len(records))
        whole, rounded = expected(memory, fields)
        (lineage,) = tables.lineages().values()
        assert (result.rounded, lineage.rounded) == (rounded, rounded)
        assert lineage.corrupt == sum(row["_corrupt"] is not None for row in whole)
        found = [batch.to_pylist() for batch in tables._windows("t", lineage)]
        assert plain([row for part in found for row in part]) == whole


@pytest.mark.parametrize("topic", ["x" * 255, "catalog.db", "a.b:c", "lost:found"])
@pytest.mark.parametrize("format", ["parquet", "jsonl", "delta", "iceberg"])
def test_any_topic(tmp_path: Path, format: Format, topic: str) -> None:
    """Also one of the longest names, or that is called as a file of the export is."""
    with MemoryTopics() as memory, remote(memory) as source:
        memory.client.append(topic, 1)
        if format in ("parquet", "jsonl"):
            assert (
                export(source, OsLake(tmp_path), topic, settings=Settings(format, "none")).rows == 1
            )
            return
        pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[format])
        for _ in range(2):
            with open_tables(OsLake(tmp_path), Settings(format, "none")) as tables:
                ExportRun(source, tables, ExportJob((topic,)), Quiet()).once()
        tables_of(OsLake(tmp_path)).verify(topic)


@pytest.mark.parametrize("name", ["a?b", "a#b", "a%20b", "a[b", "a\nb", "a\\b"], ids=repr)
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_path_that_is_another_one_in_a_url(tmp_path: Path, format: Format, name: str) -> None:
    """It is refused before anything is written; the libraries would write to another directory."""
    with pytest.raises(Unusable, match=f"the path of a {format} table has no"):
        open_tables(OsLake(tmp_path / name), Settings(format, "none"))


@pytest.mark.parametrize("tag", TAGS)
def test_a_tag_in_a_path(tag: str | None) -> None:
    """It is there itself, or by its beginning and a digest; no two tags have one directory."""
    if tag is None:
        return
    value = partition_value(tag)
    assert len(json.dumps(value)) < 300
    assert value == tag or (value.startswith(tag[:10]) and "," in value)
    assert sum(partition_value(other) == value for other in TAGS if other is not None) == 1


CODECS = {"zstd": "ZSTD", "snappy": "SNAPPY", "lz4": "LZ4", "gzip": "GZIP", "none": "UNCOMPRESSED"}


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
@pytest.mark.parametrize("compression", CODECS)
def test_files_are_as_small_and_as_compressed_as_was_asked(
    tmp_path: Path, format: Format, compression: str
) -> None:
    """Of every format whose files are Parquet, and however much smaller than a row group a file is."""
    chance = random.Random(1)
    data = [chance.randbytes(200).hex() for _ in range(3000)]
    size_bytes = 200_000
    with MemoryTopics() as memory, remote(memory) as source:
        memory.client.append_many("t", data)
        if format == "parquet":
            chosen = Settings("parquet", "none")
            export(
                source, OsLake(tmp_path), settings=chosen, compression=compression,
                target_bytes=size_bytes,
            )  # fmt: skip
        else:
            pytest.importorskip({"delta": "deltalake", "iceberg": "pyiceberg"}[format])
            files = TableFiles(compression, size_bytes)
            with open_tables(OsLake(tmp_path), Settings(format, "none"), files) as tables:
                ExportRun(source, tables, ExportJob(("t",)), Quiet()).once()
    written_files = sorted((tmp_path / "t").rglob("*.parquet"))
    assert len(written_files) > 1
    for file in written_files:
        # Delta's library writes 1,024 rows at once.
        assert file.stat().st_size < 3 * size_bytes
        metadata = pyarrow.parquet.read_metadata(file)
        assert metadata.row_group(0).column(0).compression.startswith(CODECS[compression])
