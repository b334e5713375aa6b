"""Parquet files: their columns, encodings and metadata."""

import io
from collections.abc import Iterator

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from topics.export.codec import Measured
from topics.export.manifest import Damaged, Settings
from topics.export.parquet import COMPRESSIONS, GROUP_ROWS, ParquetCodec
from topics.testing import MemoryTopics

from .exporting import export, remote, rows
from .lakes import MemoryLake


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        yield memory


def test_the_columns_of_parquet(memory: MemoryTopics) -> None:
    """Text verbatim, times to the microsecond, null for what is not there."""
    memory.client.append("t", msgspec.Raw(b'{"a": 1.0}'), tag="x", meta={"m": 1})
    memory.client.append("t", None, node="w")
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake)

    first, second = rows(lake)
    assert (first["data"], first["meta"], first["tag"], first["node"]) == (
        '{"a": 1.0}',
        '{"m":1}',
        "x",
        None,
    )
    assert (second["data"], second["meta"], second["tag"], second["node"]) == (
        "null",
        None,
        None,
        "w",
    )
    assert first["ts"].microsecond % 1000 == 0
    assert first["topic"] == "t"


def test_a_column_of_sparks_is_not_read() -> None:
    """`data_variant` is made again of `data` wherever rows are written anew."""
    lake, columns = MemoryLake(), {"seq": [1, 2], "data": ["1", "2"]}
    variant = {"data_variant": [{"value": b"", "metadata": b""}] * 2}
    written = io.BytesIO()
    pq.write_table(pa.table({**columns, **variant}), written)
    sink = lake.create("x")
    sink.write(written.getvalue())

    [batch] = ParquetCodec().batches(lake, "x")
    assert batch.to_pydict() == columns


def file_of(lake: MemoryLake) -> pq.ParquetFile:
    [path] = [path for path in lake.files() if path.startswith("t/")]
    return pq.ParquetFile(io.BytesIO(lake.read(path)))


def test_how_columns_are_stored(memory: MemoryTopics) -> None:
    """Dictionaries where values repeat, deltas where they grow, statistics but for text."""
    memory.client.append("t", *({"n": n, "word": "w"} for n in range(50)), tag="x", node="w")
    for fields in (None, {"n": "int64", "word": "string", "l": ["string"]}):
        lake = MemoryLake()
        with remote(memory) as source:
            export(source, lake, settings=Settings("parquet", "none", fields=fields))
        group = file_of(lake).metadata.row_group(0)
        columns = {
            group.column(i).path_in_schema: group.column(i) for i in range(group.num_columns)
        }

        def is_dictionary(name: str) -> bool:
            return "RLE_DICTIONARY" in columns[name].encodings  # noqa: B023

        assert all(map(is_dictionary, ("topic", "node", "tag")))
        assert all("DELTA_BINARY_PACKED" in columns[name].encodings for name in ("seq", "ts"))
        assert {column.compression for column in columns.values()} == {"ZSTD"}
        assert columns["seq"].statistics.max == 50
        if fields is None:
            assert not is_dictionary("data")
            assert columns["data"].statistics is None
        else:
            assert is_dictionary("data.word")
            assert columns["data.n"].statistics.max == 49


def test_a_file_says_what_it_is_of(memory: MemoryTopics) -> None:
    """Its topic, the instance, the seqs, and the version that wrote it."""
    memory.client.append("t", 1, 2)
    lake = MemoryLake()
    with remote(memory) as source:
        export(source, lake)
        epoch = source.bounds("t").epoch
    told = {key.decode(): value.decode() for key, value in file_of(lake).metadata.metadata.items()}
    assert told["topics.topic"] == "t"
    assert told["topics.instance"] == epoch
    assert (told["topics.from"], told["topics.to"]) == ("1", "2")
    assert "topics.version" in told


@pytest.mark.parametrize("compression", COMPRESSIONS)
def test_row_groups_have_a_size(compression: str) -> None:
    """Of rows, and of bytes where rows are large; in every compression the rows are the same."""
    lake = MemoryLake()
    lake.make_directory("d")
    sink = Measured(lake.create("d/x"))
    codec = ParquetCodec(compression)
    writer = codec.writer(sink, {}, 1 << 40)
    n = 1 << 16
    columns = {"seq": pa.array(range(n), pa.int64())}
    batch = pa.record_batch(
        [columns.get(f.name, pa.nulls(n, f.type)) for f in codec.schema], schema=codec.schema
    )
    for _ in range(5):
        writer.write(batch)
    writer.close()

    found = pq.ParquetFile(io.BytesIO(lake.read("d/x"))).metadata
    assert [found.row_group(i).num_rows for i in range(found.num_row_groups)] == [GROUP_ROWS, n]
    assert codec.count(lake, "d/x") == 5 * n
    assert sink.size == lake.size("d/x")
    assert sum(map(len, codec.batches(lake, "d/x"))) == 5 * n


def test_what_is_no_file_of_parquet() -> None:
    """Is damage, with its name."""
    lake = MemoryLake()
    lake.append("x", b"PAR1 and so on")
    with pytest.raises(Damaged, match="x: "):
        ParquetCodec().count(lake, "x")
    with pytest.raises(Damaged, match="x: "):
        list(ParquetCodec().batches(lake, "x"))
