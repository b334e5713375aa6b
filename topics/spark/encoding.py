"""Rows of Spark as records to append.

Owns which columns a write takes and how their values become JSON.  `data` that is a string is JSON
already and goes as it is, byte for byte, once it is known to be one value: a text that is not would
change the request around it.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec
import orjson
import pyarrow as pa
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    IntegralType,
    LongType,
    StringType,
    StructType,
    YearMonthIntervalType,
)

from topics.nesting import DEPTH_MAX, deep, depth_of
from topics.protocol.model.names import partition_name
from topics.spark.errors import BadOption, SparkFailure
from topics.spark.options import WriteOptions
from topics.spark.texts import Rules, held, texts_of

COLUMNS: Final = ("data", "tag", "node", "meta", "topic", "partition", "seq")
ALIASES: Final = {"value": "data", "key": "tag"}
"""Names of Kafka's sink."""
STAMP: Final = "_topics_spark"
"""The member of `meta` in which the first record of a chunk says which chunk that is."""

_validate: Final = deep(msgspec.json.Decoder(msgspec.Raw).decode)


@dataclass(frozen=True, slots=True)
class Row:
    """A record to append, and where it comes from.

    Attributes:
        body: The JSON object of the record without its end and without `meta`.
        meta: JSON of an object, or None.
        target: The topic to append to.
        source, seq: The record that it was made of, where the row names it (`topic`, `partition`, `seq`).
            Where it is appended, the server decides by its tag.
    """

    body: bytes
    meta: bytes | None
    target: str
    source: str = ""
    seq: int | None = None

    def encoded(self, stamp: bytes | None = None) -> bytes:
        """The record; with a stamp in its `meta`."""
        meta = self.meta
        if stamp is not None:
            rest = b"}" if meta is None else meta.strip()[1:].lstrip()
            meta = b"{%b%b" % (stamp, rest if rest == b"}" else b"," + rest)
        return self.body + (b"}" if meta is None else b',"meta":%b}' % meta)


@dataclass(frozen=True, slots=True)
class Columns:
    """Which column of a row is what; `None`: there is none.

    Attributes:
        places: Our name -> the number of the column.
        data: The type of `data`.
        topic: The option of that name.
        is_text: A string of `data` is a text to be written as a JSON string.
        rules: How values of other types become JSON.
    """

    places: dict[str, int]
    data: DataType
    topic: str | None
    is_text: bool
    rules: Rules = field(default_factory=Rules)

    def rows(self, batch: pa.RecordBatch) -> Iterator[Row]:
        """The rows of a batch.

        Raises:
            SparkFailure: `data` or `meta` of a row is not JSON, or it names no topic.
        """
        none = [None] * batch.num_rows
        column = held(batch).column(self.places["data"])
        data = _data_texts(self.data, self.is_text, column, self.rules)
        tags, nodes = self._strings(batch, "tag"), self._strings(batch, "node")
        metas = self._metas(batch)
        named = self._list(batch, "topic") or none
        partitions = self._list(batch, "partition") or none
        seqs = self._list(batch, "seq") or none
        for text, tag, node, meta, topic, partition, seq in zip(
            *(data, tags or none, nodes or none, metas or none, named, partitions, seqs),
            strict=True,
        ):
            target = self.topic or topic
            if target is None:
                raise SparkFailure(
                    "a row has a null in its column topic, and option topic is not given"
                )
            body = b'{"data":' + _checked(text, "data")
            if tag is not None:
                body += b',"tag":' + orjson.dumps(tag)
            if node is not None:
                body += b',"node":' + orjson.dumps(node)
            if meta is not None:
                meta = _own_meta(meta)
            source = topic if self.topic is not None and topic is not None else ""
            yield Row(body, meta, target, partition_name(source, partition or 0), seq)

    def _list(self, batch: pa.RecordBatch, name: str) -> list[Any] | None:
        return batch.column(self.places[name]).to_pylist() if name in self.places else None

    def _strings(self, batch: pa.RecordBatch, name: str) -> list[str | None] | None:
        if name not in self.places:
            return None
        found = batch.column(self.places[name])
        return (found.cast(pa.string()) if pa.types.is_binary(found.type) else found).to_pylist()  # type: ignore[no-any-return]

    def _metas(self, batch: pa.RecordBatch) -> list[bytes | None] | None:
        if "meta" not in self.places:
            return None
        return batch.column(self.places["meta"]).cast(pa.binary()).to_pylist()  # type: ignore[no-any-return]


def columns_of(schema: StructType, options: WriteOptions) -> Columns:
    """Raises BadOption: A column is missing, unknown or of a wrong type."""
    names = set(schema.names)
    places: dict[str, int] = {}
    for n, each in enumerate(schema.fields):
        name = each.name
        if name in ALIASES and ALIASES[name] not in names:
            name = ALIASES[name]
        if name not in COLUMNS and not name.startswith("_") and name != "ts":
            raise BadOption(
                f"column {each.name} has no place in a record: a write takes data, and may take "
                "tag, node, meta, topic, partition and seq (to_json(struct(...)) makes one data of many columns)"
            )
        if isinstance(each.dataType, YearMonthIntervalType):
            raise BadOption(
                f"column {each.name} is {each.dataType.simpleString()}, which PySpark hands over within "
                "a struct only: write struct(...) or to_json(struct(...))"
            )
        places[name] = n
    if "data" not in places:
        raise BadOption("a write needs the column data")
    if options.topic is None and "topic" not in places:
        raise BadOption("give option topic, or a column topic")
    for name, kinds in _KINDS.items():
        if name in places and not isinstance(schema[places[name]].dataType, kinds):
            found = schema[places[name]].dataType.simpleString()
            raise BadOption(f"column {name} is {found}, not {kinds[0]().simpleString()}")
    return Columns(
        places, schema[places["data"]].dataType, options.topic, options.data_format == "text"
    )


_KINDS: Final[dict[str, tuple[Any, ...]]] = {
    "tag": (StringType, BinaryType),
    "node": (StringType,),
    "meta": (StringType,),
    "topic": (StringType,),
    "partition": (IntegerType, LongType),
}


def _checked(text: bytes, what: str) -> bytes:
    why: object = f"nested more than {DEPTH_MAX} levels deep"
    try:
        _validate(text)
        if depth_of(text, DEPTH_MAX) <= DEPTH_MAX:
            return text
    except RecursionError:
        pass
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        why = error
    raise SparkFailure(
        f"{what} is not JSON: {text[:80]!r} ({why}); for plain text set dataFormat text"
    ) from None


_members: Final = deep(msgspec.json.Decoder(dict[str, msgspec.Raw]).decode)


def _own_meta(meta: bytes) -> bytes:
    """`meta` of a record, without the stamp of the write that the row was read of."""
    if _checked(meta, "meta").lstrip()[:1] != b"{":
        raise SparkFailure(f"meta is no JSON object: {meta[:80]!r}")
    if STAMP.encode() not in meta:
        return meta
    members = _members(meta)
    if members.pop(STAMP, None) is None:
        return meta
    return msgspec.json.encode(members)


def _data_texts(kind: DataType, is_text: bool, column: pa.Array, rules: Rules) -> Iterator[bytes]:
    """`data` of each row as JSON; a NULL is `null`."""
    if isinstance(kind, StringType | BinaryType):
        for each in column.cast(pa.binary()).to_pylist():
            if each is None:
                yield b"null"
            else:
                yield orjson.dumps(each.decode()) if is_text else each
        return
    for text in texts_of(kind, column, rules):
        yield b"null" if text is None else text.encode()


def is_sourced(schema: StructType) -> bool:
    """Whether rows name the record that they were made of."""
    return "seq" in schema.names and isinstance(schema["seq"].dataType, IntegralType)
