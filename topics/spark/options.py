"""Options of `format("topics")`: their names, their values, and what is said of a wrong one.

Owns the table of names.  Spark hands options over in lower case, so they are looked up without
regard to case; a name that is in no table is refused with the nearest one, because an option that
is ignored in silence is a limit that does not hold.
"""

import difflib
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar, cast, get_args

from topics.arrow.scan import place_in
from topics.arrow.source import Consistency
from topics.protocol.model.config import PARTITIONS_MAX
from topics.protocol.model.names import PARTITION_MARK
from topics.spark.errors import BadOption
from topics.visible import without_password

T = TypeVar("T")

Access = Literal["auto", "local", "remote"]
Loss = Literal["fail", "warn", "rows"]
Parsing = Literal["PERMISSIVE", "FAILFAST", "DROPMALFORMED"]
WriteMode = Literal["direct", "staged"]
Where = int | str
"""A place in a topic: the first seq, or a word (`topics.arrow.scan.PLACES`)."""

PLACE: Final = ("path", "url", "apiKey", "access", "retryFor", "readConsistency")
NAMES: Final = ("subscribe", "subscribePattern", "assign")
BOUNDS: Final = (
    *("startingOffsets", "endingOffsets", "fromSeq", "startingTimestamp", "endingTimestamp"),
    *("startingOffsetsByTimestamp", "endingOffsetsByTimestamp"),
    "startingOffsetsByTimestampStrategy",
)
OF_BATCHES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
KEPT: Final = ("tag", "tagPrefix", "excludeNode")
SHAPE: Final = (
    *("columns", "includeMeta", "includeMetadata", "includePartition", "kafkaCompat"),
    "includeHeaders",
    *("mode", "inferSchema", "samplingRecords", "batchRows"),
)
HANDLING: Final = ("lossHandling", "failOnDataLoss")
PLANNING: Final = ("minPartitions", "maxPartitionBytes", "pushFilters")
ADMISSION: Final = (
    *("maxRecordsPerTrigger", "maxOffsetsPerTrigger", "maxBytesPerTrigger"),
    *("minRecordsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay", "readerName"),
)
READ: Final = (*PLACE, *NAMES, *BOUNDS, *KEPT, *SHAPE, *HANDLING, *PLANNING, *ADMISSION)
WRITE: Final = (
    *("url", "apiKey", "topic", "txnAppId", "txnVersion", "txnTopic", "writeMode", "stagingDir"),
    *("chunkRecords", "chunkBytes", "dataFormat", "ignoreNullFields", "minIdempotencyWindow"),
    "retryFor",
)
OF_SPARK: Final = frozenset({"checkpointlocation", "queryname", "path", "topic"})
"""Options that Spark itself adds or reads beside ours."""

MAX_RECORDS_PER_TRIGGER: Final = 1_000_000
MAX_PARTITION_BYTES: Final = 256 << 20
BATCH_ROWS: Final = 32_768
"""Half of a scan's own: no more CPU in Spark, and half the memory in a worker."""
SAMPLING_RECORDS: Final = 10_000
CHUNK_RECORDS: Final = 10_000
CHUNK_BYTES: Final = 32 << 20
IDEMPOTENCY_WINDOW_MS: Final = 86_400_000
NUMBER_MAX: Final = (1 << 63) - 1
RETRY_FOR_S: Final = 120.0
NO_TABLES: Final = (
    "topics are views, not tables: Spark hands the OPTIONS of a table (CREATE TABLE … USING topics) to no "
    "source in Python; use CREATE TEMPORARY VIEW … USING topics OPTIONS (…), and write by df.write"
)
READ_RETRY_FOR_S: Final = 15.0
"""The client's own: a query that cannot begin says so soon."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where topics lie; `repr` shows neither the key nor the URL, which may hold a password.

    Attributes:
        retry_for_s: How long a read waits for a server that is busy or away.
        consistency: None: `durable` of a path, and `visible` of a URL.
    """

    path: str | None = None
    url: str | None = field(default=None, repr=False)
    api_key: str | None = field(default=None, repr=False)
    access: Access = "auto"
    retry_for_s: float = READ_RETRY_FOR_S
    consistency: Consistency | None = None


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of what is read.

    Attributes:
        default: For a topic that is not in `by_topic`.
        by_topic: Name -> the first seq, or a word.  A topic's name is for all of its partitions, and
            `orders#3` for partition 3 alone.
        ts_ms: The first record at or after this time, milliseconds since the epoch; wins over both.
        ts_by_topic: The same, a topic.
    """

    default: Where
    by_topic: Mapping[str, Where] = field(default_factory=dict)
    ts_ms: int | None = None
    ts_by_topic: Mapping[str, int] = field(default_factory=dict)

    def of(self, name: str) -> Where:
        """Of a partition (`partition_name`)."""
        found = place_in(self.by_topic, name)
        return self.default if found is None else found

    def time_of(self, name: str) -> int | None:
        found = place_in(self.ts_by_topic, name)
        return self.ts_ms if found is None else found

    def names(self) -> set[str]:
        """The topics, and partitions of topics, that it names."""
        return {*self.by_topic, *self.ts_by_topic}


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read was asked for; fields as the options of the same name in docs/spark.md."""

    place: Place
    topics: tuple[str, ...] | None
    partitions: Mapping[str, tuple[int, ...]]
    pattern: str | None
    start: Bound
    end: Bound
    no_match: Literal["error", "latest"]
    loss: Loss
    tag: str | None
    tag_prefix: str | None
    exclude_nodes: tuple[str, ...]
    columns: tuple[str, ...] | None
    include_meta: bool
    include_metadata: bool
    include_partition: bool | None
    is_kafka: bool
    include_headers: bool
    mode: Parsing
    infer_schema: bool
    sampling_records: int
    batch_rows: int
    min_partitions: int
    max_partition_bytes: int
    pushes_filters: bool
    max_records_per_trigger: int
    max_bytes_per_trigger: int | None
    min_records_per_trigger: int
    max_trigger_delay_ms: int
    reader_name: str | None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write was asked for; fields as the options of the same name in docs/spark.md.

    Attributes:
        ignores_null_fields: None: as the session says.
    """

    place: Place
    topic: str | None
    app: str | None
    version: int | None
    txn_topic: str
    mode: WriteMode
    staging_dir: str | None
    chunk_records: int
    chunk_bytes: int
    data_format: Literal["json", "text"]
    ignores_null_fields: bool | None
    window_ms: int
    retry_for_s: float


class _Given:
    """Options as they were given, by names in any case; reading one wrong raises `BadOption`."""

    def __init__(self, options: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._values = {name.lower(): value for name, value in options.items()}
        by_lower = {name.lower(): name for name in known}
        if "provider" in self._values or any(name.startswith("option.") for name in self._values):
            raise BadOption(NO_TABLES)
        for name in self._values:
            if name not in by_lower and name not in OF_SPARK:
                raise BadOption(_unknown(name, by_lower))

    def has(self, name: str) -> bool:
        return name.lower() in self._values

    def text(self, name: str, default: str | None = None) -> str | None:
        return self._values.get(name.lower(), default)

    def _parsed(self, name: str, parse: Callable[[str], T], default: T, what: str) -> T:
        value = self.text(name)
        if value is None:
            return default
        try:
            return parse(value)
        except (ValueError, TypeError, KeyError, AttributeError):
            # JSON of another shape than the option's has no `items`.
            raise BadOption(f"option {name}: {_short(value)} is not {what}") from None

    def count(self, name: str, default: int, *, least: int = 1) -> int:
        value = self._parsed(name, _number, default, "a whole number")
        if value < least:
            raise BadOption(f"option {name}: {value} is below {least}")
        return value

    def flag(self, name: str, default: bool) -> bool:
        words = {"true": True, "false": False}
        return self._parsed(name, lambda v: words[v.lower()], default, "true or false")

    def word(self, name: str, words: tuple[str, ...], default: str) -> Any:
        value = self.text(name, default)
        for word in words:
            if word.lower() == str(value).lower():
                return word
        raise BadOption(f"option {name}: {value!r} is none of {', '.join(words)}")

    def names(self, name: str) -> tuple[str, ...]:
        return tuple(part.strip() for part in (self.text(name) or "").split(",") if part.strip())

    def bytes(self, name: str, default: int | None) -> int | None:
        """A size: a number of bytes, or one with `k`, `m`, `g` behind it, as Spark's sizes."""
        return self._parsed(name, _size, default, "a size such as 268435456 or 256m")

    def delay_ms(self, name: str, default: int) -> int:
        return self._parsed(name, _duration_ms, default, "a time such as 500ms, 30s, 15m or 24h")

    def one_of(self, *names: str) -> None:
        given = [name for name in names if self.has(name)]
        if len(given) > 1:
            raise BadOption(f"options {' and '.join(given)} exclude each other")


def _short(value: str) -> str:
    return repr(value if len(value) <= 100 else f"{value[:97]}...")


def _number(text: str) -> int:
    """Any number that a record can have as seq or time, and so any size of a read."""
    value = int(text)
    if abs(value) > NUMBER_MAX:
        raise ValueError(text)
    return value


def _unknown(name: str, by_lower: Mapping[str, str]) -> str:
    if name.startswith("kafka."):
        return (
            f"option {name} is of Kafka's client and means nothing here; the server is option url"
        )
    near = difflib.get_close_matches(name, by_lower, n=1, cutoff=0.6)
    hint = (
        f"; did you mean {by_lower[near[0]]}?"
        if near
        else f"; there are {', '.join(by_lower.values())}"
    )
    return f"there is no option {name}{hint}"


_UNITS: Final = {"": 1, "b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMES: Final = {"ms": 1, "s": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def _size(text: str) -> int:
    text = text.strip().lower()
    digits = text.rstrip("bkmgt")
    size = int(digits) * _UNITS[text[len(digits) :].removesuffix("b") or ""]
    if size < 1:
        raise ValueError(text)
    return size


def _duration_ms(text: str) -> int:
    text = text.strip().lower()
    digits = text.rstrip("abcdefghijklmnopqrstuvwxyz ")
    duration_ms = int(digits) * _TIMES[text[len(digits) :].strip() or "ms"]
    if not 0 <= duration_ms <= NUMBER_MAX:
        raise ValueError(text)
    return duration_ms


def _url(given: _Given) -> str | None:
    url = given.text("url")
    if url is not None and not url.startswith(("http://", "https://")):
        raise BadOption(
            f"option url: {without_password(url)!r} does not begin with http:// or https://"
        )
    return url


def _path(text: str) -> str:
    """A path, its `file:` URI, or, as `load([...])` hands it over, a JSON list of one."""
    if text.startswith("["):
        [text] = json.loads(text)
    path = text.removeprefix("file://").removeprefix("file:")
    if not path:
        raise ValueError(text)
    return path


def _place(given: _Given) -> Place:
    path, url = given._parsed("path", _path, None, "one data directory"), _url(given)
    access = given.word("access", get_args(Access), "auto")
    if path is None and url is None:
        raise BadOption("give option path (a data directory) or url (a server)")
    if (access == "local" and path is None) or (access == "remote" and url is None):
        raise BadOption(f"access {access} needs option {'path' if access == 'local' else 'url'}")
    key = given.text("apiKey") or os.environ.get("TOPICS_API_KEY") or None
    retry_for_ms = given.delay_ms("retryFor", int(READ_RETRY_FOR_S * 1000))
    consistency = (
        given.word("readConsistency", get_args(Consistency), "durable")
        if given.has("readConsistency")
        else None
    )
    return Place(path, url, key, access, retry_for_ms / 1000, consistency)


def _topics(given: _Given) -> tuple[tuple[str, ...] | None, str | None]:
    """Names, or a pattern."""
    given.one_of(*NAMES)
    if given.has("subscribePattern"):
        return None, given.text("subscribePattern")
    if given.has("assign"):
        return tuple(_partitions(given)), None
    names = given.names("subscribe")
    if not names:
        raise BadOption("give option subscribe (names with commas between) or subscribePattern")
    return tuple(dict.fromkeys(names)), None


def _partitions(given: _Given) -> dict[str, tuple[int, ...]]:
    """The partitions that `assign` names, by topic."""
    none: dict[str, tuple[int, ...]] = {}
    return given._parsed("assign", _assigned, none, 'JSON such as {"orders":[0]}')


def _assigned(text: str) -> dict[str, tuple[int, ...]]:
    found = {}
    for topic, partitions in json.loads(text).items():
        if not isinstance(partitions, list) or not partitions:
            raise ValueError(text)
        found[topic] = tuple(_partition(each) for each in partitions)
    return found


def _partition(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < PARTITIONS_MAX:
        raise ValueError(value)
    return value


def _by_topic(text: str, meaning: Callable[[int], T]) -> dict[str, T]:
    """`{"orders": 23}`, of all partitions, or, as Kafka has it, `{"orders": {"0": 23}}`."""
    found = {}
    for topic, value in json.loads(text).items():
        each = {topic: value}
        if isinstance(value, dict):
            each = {f"{topic}{PARTITION_MARK}{_partition(int(n))}": v for n, v in value.items()}
        for name, said in each.items():
            if not isinstance(said, int) or isinstance(said, bool):
                raise ValueError(text)
            found[name] = meaning(said)
    return found


def _seq(value: int) -> Where:
    """Kafka's -2 and -1 are words; its first offset is 0, and our first seq 1."""
    if not -2 <= value <= NUMBER_MAX:
        raise ValueError(value)
    words: dict[int, Where] = {-2: "earliest", -1: "latest", 0: 1}
    return words.get(value, value)


def _time(value: int) -> int:
    if not 0 <= value <= NUMBER_MAX:
        raise ValueError(value)
    return value


STARTS: Final = ("earliest", "earliest-retained", "latest")
ENDS: Final = ("latest",)
_OFFSETS: Final = 'a word ({}), a seq, or JSON such as {{"orders": 23}}'


def _bound(given: _Given, side: str, words: tuple[str, ...], default: str) -> Bound:
    """What `startingOffsets` or `endingOffsets`, and the options of time beside it, say."""
    offsets, time = f"{side}Offsets", f"{side}Timestamp"
    by_time = f"{side}OffsetsByTimestamp"
    given.one_of(offsets, time, by_time, *(["fromSeq"] if side == "starting" else []))

    def parse(text: str) -> Bound:
        if text.lower() in words:
            return Bound(text.lower())
        if text.lstrip().startswith("{"):
            return Bound(default, _by_topic(text, _seq))
        return Bound(_seq(_number(text)))

    if given.has("fromSeq") and side == "starting":
        return Bound(given.count("fromSeq", 0, least=0) + 1)
    if given.has(time):
        return Bound(default, ts_ms=given.count(time, 0, least=0))
    if given.has(by_time):
        what = 'JSON such as {"orders": 1795254071742}'
        none: dict[str, int] = {}
        times = given._parsed(by_time, lambda text: _by_topic(text, _time), none, what)
        return Bound(default, ts_by_topic=times)
    found = given._parsed(offsets, parse, Bound(default), _OFFSETS.format(", ".join(words)))
    bad = [w for w in found.by_topic.values() if isinstance(w, str) and w not in words]
    if bad or (isinstance(found.default, str) and found.default not in words):
        raise BadOption(f"option {offsets}: {given.text(offsets)!r} cannot be {side}")
    return found


def _loss(given: _Given) -> Loss:
    given.one_of(*HANDLING)
    if given.has("failOnDataLoss"):
        return "fail" if given.flag("failOnDataLoss", True) else "warn"
    return cast(Loss, given.word("lossHandling", get_args(Loss), "fail"))


def read_options(
    options: Mapping[str, str], *, is_stream: bool = False, cores: int = 1
) -> ReadOptions:
    """The options of a read, checked.

    Args:
        cores: `minPartitions` where it is not given.

    Raises:
        BadOption: One does not exist, has no such value, or does not go with another.
    """
    given = _Given(options, READ)
    if not any(given.has(name) for name in ("path", "url", *NAMES)):
        raise BadOption(f"give option path or url, and subscribe; {NO_TABLES}")
    ends = [name for name in OF_BATCHES if given.has(name)]
    if is_stream and ends:
        raise BadOption(f"option {ends[0]} is for batch reads: a stream has no end")
    given.one_of("maxRecordsPerTrigger", "maxOffsetsPerTrigger")
    given.one_of("minRecordsPerTrigger", "minOffsetsPerTrigger")
    given.one_of("tag", "tagPrefix")
    topics, pattern = _topics(given)
    most = given.count("maxOffsetsPerTrigger", MAX_RECORDS_PER_TRIGGER)
    least = given.count("minOffsetsPerTrigger", 0, least=0)
    size = given.bytes("maxPartitionBytes", MAX_PARTITION_BYTES)
    assert size is not None
    return ReadOptions(
        place=_place(given),
        topics=topics,
        partitions=_partitions(given),
        pattern=pattern,
        start=_bound(given, "starting", STARTS, "latest" if is_stream else "earliest"),
        end=_bound(given, "ending", ENDS, "latest"),
        no_match=given.word("startingOffsetsByTimestampStrategy", ("error", "latest"), "error"),
        loss=_loss(given),
        tag=given.text("tag"),
        tag_prefix=given.text("tagPrefix"),
        exclude_nodes=given.names("excludeNode"),
        columns=given.names("columns") or None,
        include_meta=given.flag("includeMeta", True),
        include_metadata=given.flag("includeMetadata", False),
        include_partition=(
            given.flag("includePartition", False) if given.has("includePartition") else None
        ),
        is_kafka=given.flag("kafkaCompat", False),
        include_headers=given.flag("includeHeaders", False),
        mode=given.word("mode", get_args(Parsing), "PERMISSIVE"),
        infer_schema=given.flag("inferSchema", False),
        sampling_records=given.count("samplingRecords", SAMPLING_RECORDS),
        batch_rows=given.count("batchRows", BATCH_ROWS),
        min_partitions=given.count("minPartitions", cores),
        max_partition_bytes=size,
        pushes_filters=given.flag("pushFilters", False),
        max_records_per_trigger=given.count("maxRecordsPerTrigger", most),
        max_bytes_per_trigger=given.bytes("maxBytesPerTrigger", None),
        min_records_per_trigger=given.count("minRecordsPerTrigger", least, least=0),
        max_trigger_delay_ms=given.delay_ms("maxTriggerDelay", 900_000),
        reader_name=given.text("readerName"),
    )


_APP: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")


def write_options(options: Mapping[str, str]) -> WriteOptions:
    """The options of a write, checked.  Raises BadOption."""
    given = _Given(options, WRITE)
    url, app = _url(given), given.text("txnAppId")
    if url is None:
        hint = "" if given.has("topic") or given.has("path") else f"; {NO_TABLES}"
        raise BadOption(
            f"give option url: records are written through a server, never into its files{hint}"
        )
    if (app is None) is given.has("txnVersion"):
        raise BadOption("options txnAppId and txnVersion belong together")
    if app is not None and not (0 < len(app) <= 128 and _APP.issuperset(app)):
        raise BadOption(
            f"option txnAppId: {app!r} has more than 128 characters, or others than A-Z a-z 0-9 _ -"
        )
    mode = given.word("writeMode", get_args(WriteMode), "direct")
    if (mode == "staged") is not given.has("stagingDir"):
        raise BadOption(
            "writeMode staged and option stagingDir, a folder that all workers share, belong together"
        )
    size = given.bytes("chunkBytes", CHUNK_BYTES)
    assert size is not None
    return WriteOptions(
        place=Place(
            url=url, api_key=given.text("apiKey") or os.environ.get("TOPICS_API_KEY") or None
        ),
        topic=given.text("topic"),
        app=app,
        version=given.count("txnVersion", 0, least=0) if app is not None else None,
        txn_topic=given.text("txnTopic") or "spark.txn",
        mode=mode,
        staging_dir=given.text("stagingDir"),
        chunk_records=given.count("chunkRecords", CHUNK_RECORDS),
        chunk_bytes=size,
        data_format=given.word("dataFormat", ("json", "text"), "json"),
        ignores_null_fields=(
            given.flag("ignoreNullFields", True) if given.has("ignoreNullFields") else None
        ),
        window_ms=given.delay_ms("minIdempotencyWindow", IDEMPOTENCY_WINDOW_MS),
        retry_for_s=given.delay_ms("retryFor", int(RETRY_FOR_S * 1000)) / 1000,
    )
