"""The columns that a read has: as Spark's types, and made of the batches of a scan.

Owns the two forms of a row, our own and that of Kafka's source, and what `.schema(...)` may ask
for: any of the columns, in any order, `data` and `meta` as structs.  Spark compares the schema of a
batch with its own to the letter, so batches are built to that of Spark's.
"""

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import pyarrow as pa
from pyarrow.types import is_timestamp
from pyspark.sql.pandas.types import from_arrow_schema, to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
    VariantType,
)

from topics.arrow.columns import PARTITION, TIMESTAMP, columns_of
from topics.nesting import deep
from topics.spark.errors import BadOption, SparkFailure
from topics.spark.options import Parsing, ReadOptions

GAP: Final = StructType(
    [
        StructField("from", LongType()),
        StructField("to", LongType()),
        StructField("reason", StringType()),
        StructField("missed", LongType()),
    ]
)
METADATA: Final = StructType(
    [StructField("source", StringType()), StructField("epoch", StringType())]
)
HEADERS: Final = ArrayType(
    StructType([StructField("key", StringType()), StructField("value", BinaryType())])
)
OWN: Final[dict[str, DataType]] = {
    "topic": StringType(),
    PARTITION: IntegerType(),
    "seq": LongType(),
    "ts": TimestampType(),
    "node": StringType(),
    "tag": StringType(),
    "data": StringType(),
    "meta": StringType(),
}
KAFKA: Final[dict[str, DataType]] = {
    "key": BinaryType(),
    "value": BinaryType(),
    "topic": StringType(),
    "partition": IntegerType(),
    "offset": LongType(),
    "timestamp": TimestampType(),
    "timestampType": IntegerType(),
}
KAFKA_SOURCE: Final = {
    "key": "tag", "value": "data", "topic": "topic", "partition": "partition", "offset": "seq",
    "timestamp": "ts", "headers": "meta",
}  # fmt: skip
"""Column of Kafka's source -> the column of a scan that it is made of."""
LOSS: Final[dict[str, DataType]] = {"_kind": StringType(), "_gap": GAP}
CORRUPT: Final = "_corrupt"

LOG_APPEND_TIME: Final = 1
"""`timestampType` of a record whose time the server gave it."""


def default_schema(options: ReadOptions, *, has_partitions: bool = False) -> StructType:
    """The columns of a read without `.schema(...)`.

    Args:
        has_partitions: One of the topics has several; where no option says otherwise, they are a column.

    Raises:
        BadOption: `columns` has a wrong one.
    """
    known = available(options)
    if options.columns is not None:
        unknown = [name for name in options.columns if name not in known]
        if unknown:
            raise BadOption(f"option columns: {no_column(unknown[0], known)}")
        return _schema({name: known[name] for name in options.columns})
    if options.is_kafka:
        names = [*KAFKA, *(["headers"] if options.include_headers else [])]
    else:
        left_out = {name for name, is_in in _included(options, has_partitions).items() if not is_in}
        names = [name for name in OWN if name not in left_out]
    if options.loss == "rows":
        names += LOSS
    if options.include_metadata:
        names.append("_metadata")
    return _schema({name: known[name] for name in names})


def _included(options: ReadOptions, has_partitions: bool) -> dict[str, bool]:
    given = options.include_partition
    return {
        "meta": options.include_meta,
        PARTITION: has_partitions if given is None else given,
    }


def available(options: ReadOptions) -> dict[str, DataType]:
    """Every column that a read with these options can have."""
    own = {**KAFKA, "headers": HEADERS} if options.is_kafka else OWN
    loss = LOSS if options.loss == "rows" else {}
    return {**own, **loss, "_metadata": METADATA, CORRUPT: StringType()}


def _schema(types: dict[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in types.items()])


def no_column(name: str, known: Sequence[str] | dict[str, DataType]) -> str:
    near = difflib.get_close_matches(name, list(known), n=1)
    hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
    return f'no column "{name}"; {hint}'


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of a scan become rows of Spark.

    Attributes:
        schema: What Spark wants of a batch, to the letter.
        scanned: Columns of the scan that it is made of, in a scan's order.
        typed: Of `data`, the fields of the struct that Spark wants; None: as text.
        is_kafka: Columns are those of Kafka's source.
        mode: What becomes of `data` that does not fit `typed`.
        source: For `_metadata`: the path or the URL.
    """

    schema: pa.Schema
    scanned: tuple[str, ...]
    typed: pa.Schema | None = None
    is_kafka: bool = False
    mode: Parsing = "PERMISSIVE"
    source: str = ""
    has_loss_rows: bool = field(default=False)

    def build(self, batch: pa.RecordBatch, epoch: str) -> pa.RecordBatch:
        """A batch of a scan as Spark wants it; fewer rows where `mode` drops some.

        Raises:
            SparkFailure: `mode` is FAILFAST and `data` of a row does not fit.
        """
        if self.typed is not None:
            batch = self._typed(batch)
        made = {name: batch.column(name) for name in batch.schema.names}
        n = batch.num_rows
        arrays = [self._column(each, made, n, epoch) for each in self.schema]
        return pa.record_batch(arrays, schema=self.schema)

    def _typed(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        from topics.arrow.typed import BadRow, typed

        try:
            return typed(batch, self.typed, self.mode)
        except BadRow as error:
            raise SparkFailure(
                f"data does not fit the schema, and mode is FAILFAST: {error}"
            ) from None

    def _column(self, each: pa.Field, made: dict[str, pa.Array], n: int, epoch: str) -> pa.Array:
        if self.is_kafka and each.name in _MAKERS:
            return _MAKERS[each.name](made, n).cast(each.type)
        if each.name == "_metadata":
            value = {"source": self.source, "epoch": epoch}
            return pa.repeat(pa.scalar(value, each.type), n)
        if each.name == CORRUPT and CORRUPT not in made:
            return pa.nulls(n, pa.string())
        found = made[each.name]
        return found if found.type.equals(each.type) else found.cast(each.type)


def _headers(made: dict[str, pa.Array], n: int) -> pa.Array:
    """The top-level members of `meta`, each value as JSON."""
    rows = [None if text is None else _members(text) for text in made["meta"].to_pylist()]
    return pa.array(rows, to_arrow_schema(_schema({"h": HEADERS})).field(0).type)


_members_of: Final = deep(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)


def _members(text: str) -> list[dict[str, Any]]:
    return [{"key": key, "value": bytes(value)} for key, value in _members_of(text).items()]


_MAKERS: Final[dict[str, Callable[[dict[str, pa.Array], int], pa.Array]]] = {
    "key": lambda made, n: made["tag"],
    "value": lambda made, n: made["data"],
    "partition": lambda made, n: made["partition"],
    "offset": lambda made, n: made["seq"],
    "timestamp": lambda made, n: made["ts"],
    "timestampType": lambda made, n: pa.repeat(pa.scalar(LOG_APPEND_TIME, pa.int32()), n),
    "headers": _headers,
}


def layout(options: ReadOptions, given: StructType | pa.Schema, source: str) -> Layout:
    """How a read's rows are made.

    Args:
        given: What the engine wants: the default, or what `.schema(...)` said.  Spark gives its own
            types, Sail those of Arrow, and each wants batches to the letter.

    Raises:
        BadOption: A column that there is not, or of a type that it does not have.
    """
    wanted = spark_schema(given)
    exact = given if isinstance(given, pa.Schema) else to_arrow_schema(wanted, timezone="UTC")
    known = available(options)
    typed: pa.Schema | None = None
    for each in wanted.fields:
        if each.name not in known:
            raise BadOption(f"schema: {no_column(each.name, known)}")
        if each.name == "data" and isinstance(each.dataType, StructType):
            _require_parsed(each.dataType, "data")
            typed = pa.schema(list(exact.field("data").type))
        elif each.dataType != known[each.name]:
            raise BadOption(_wrong_type(each, known[each.name]))
    sources = [KAFKA_SOURCE.get(name, name) if options.is_kafka else name for name in wanted.names]
    needed = set(sources)
    if typed is not None and options.mode == "FAILFAST":
        needed.add("seq")  # for the message
    fields = columns_of(has_partitions=True)
    scanned = tuple(name for name in fields if name in needed) or ("seq",)
    return Layout(
        schema=exact,
        scanned=scanned,
        typed=typed,
        is_kafka=options.is_kafka,
        mode=options.mode,
        source=source,
        has_loss_rows=options.loss == "rows",
    )


def spark_schema(given: StructType | pa.Schema) -> StructType:
    """The columns that an engine names, as Spark's types; a time is UTC, also without a zone."""
    if not isinstance(given, pa.Schema):
        return given
    times = [each.with_type(TIMESTAMP) if is_timestamp(each.type) else each for each in given]
    found: StructType = from_arrow_schema(pa.schema(times))
    return found


def _require_parsed(kind: DataType, path: str) -> None:
    """Raises BadOption: The type has a part that the source does not make of JSON."""
    match kind:
        case StructType():
            for each in kind.fields:
                _require_parsed(each.dataType, f"{path}.{each.name}")
        case ArrayType():
            _require_parsed(kind.elementType, f"{path}[]")
        case MapType():
            _require_parsed(kind.valueType, f"{path}[]")
        case VariantType():
            raise BadOption(
                f"schema: {path} is a VARIANT, which Spark makes: read data as STRING and select "
                "parse_json(data), or read the member as STRING"
            )


def _wrong_type(each: StructField, kind: DataType) -> str:
    said = (
        f"schema: column {each.name} is {kind.simpleString()}, not {each.dataType.simpleString()}"
    )
    if isinstance(each.dataType, VariantType):
        return f"{said}; Spark makes a VARIANT of it: select parse_json({each.name})"
    if each.name == "data":
        return f"{said}; a struct is parsed by the source, for others use from_json or parse_json"
    return said
