"""Options: every name and value, and what is said of a wrong one."""

from typing import Any

import pytest

from topics.spark.errors import BadOption
from topics.spark.options import READ, Bound, Place, read_options, write_options

HERE = {"url": "http://127.0.0.1:4000", "subscribe": "orders"}


def read(**options: str) -> Any:
    return read_options({k.lower(): v for k, v in {**HERE, **options}.items()})


def test_names_are_read_in_any_case() -> None:
    """Spark hands them over in lower case."""
    assert read(maxRecordsPerTrigger="7").max_records_per_trigger == 7
    assert read(MAXRECORDSPERTRIGGER="7").max_records_per_trigger == 7


@pytest.mark.parametrize("name", READ)
def test_a_typo_finds_every_name(name: str) -> None:
    """One letter less of any option is an error that names an option."""
    typo = name[:1] + name[2:]
    with pytest.raises(BadOption, match=f"there is no option {typo.lower()}; did you mean "):
        read(**{typo: "1"})


BOUNDS = [
    ("startingOffsets", "earliest", Bound("earliest")),
    ("startingOffsets", "EARLIEST-RETAINED", Bound("earliest-retained")),
    ("startingOffsets", "23", Bound(23)),
    ("startingOffsets", "0", Bound(1)),
    ("startingOffsets", '{"orders": 23}', Bound("earliest", {"orders": 23})),
    ("startingOffsets", '{"orders": {"0": -1}}', Bound("earliest", {"orders#0": "latest"})),
    ("startingOffsets", '{"orders": -2}', Bound("earliest", {"orders": "earliest"})),
    ("fromSeq", "23", Bound(24)),
    ("startingTimestamp", "1000", Bound("earliest", ts_ms=1000)),
    (
        "startingOffsetsByTimestamp",
        '{"orders": {"0": 5}}',
        Bound("earliest", ts_by_topic={"orders#0": 5}),
    ),
]


@pytest.mark.parametrize(("name", "value", "bound"), BOUNDS)
def test_beginnings(name: str, value: str, bound: Bound) -> None:
    """Words, seqs, JSON in both forms, Kafka's numbers for words, times; Kafka's 0 is our 1."""
    assert read(**{name: value}).start == bound


def test_a_stream_begins_at_the_head() -> None:
    """As Kafka's source: a batch from the beginning, a stream from now on."""
    assert read().start == Bound("earliest")
    assert read_options(HERE, is_stream=True).start == Bound("latest")
    assert read(endingOffsets='{"orders": 9}').end == Bound("latest", {"orders": 9})


WRONG = [
    (
        {"url": "localhost:4000"},
        "option url: 'localhost:4000' does not begin with http:// or https",
    ),
    ({"startingOffsets": '{"orders": {"-1": 3}}'}, "is not a word"),
    ({"startingOffsets": '{"orders": {"1000": 3}}'}, "is not a word"),
    ({"startingOffsets": '{"orders": {"x": 3}}'}, "is not a word"),
    ({"startingOffsets": '{"orders": {"1": {"1": 3}}}'}, "is not a word"),
    ({"includePartition": "yes"}, "'yes' is not true or false"),
    ({"startingOffsets": "-3"}, "is not a word"),
    ({"startingOffsets": '{"orders": "x"}'}, "is not a word"),
    ({"endingOffsets": "earliest"}, "is not a word"),
    ({"endingOffsets": "-2"}, "cannot be ending"),
    ({"startingOffsets": "1", "fromSeq": "1"}, "startingOffsets and fromSeq exclude each other"),
    ({"tag": "a", "tagPrefix": "b"}, "tag and tagPrefix exclude each other"),
    ({"failOnDataLoss": "true", "lossHandling": "warn"}, "exclude each other"),
    ({"failOnDataLoss": "maybe"}, "'maybe' is not true or false"),
    ({"lossHandling": "skip"}, "'skip' is none of fail, warn, rows"),
    ({"maxBytesPerTrigger": "lots"}, "'lots' is not a size"),
    ({"maxTriggerDelay": "soon"}, "'soon' is not a time"),
    ({"minPartitions": "0"}, "minPartitions: 0 is below 1"),
    ({"assign": '{"orders":[1]}', "subscribe": ""}, "exclude each other"),
    ({"readConsistency": "strong"}, "'strong' is none of durable, visible"),
    ({"access": "local"}, "access local needs option path"),
    ({"subscribe": " , "}, "give option subscribe"),
    ({"path": '["/a", "/b"]'}, "is not one data directory"),
    ({"path": '["/a"'}, "is not one data directory"),
    ({"path": "[1]"}, "is not one data directory"),
    ({"path": "file:"}, "is not one data directory"),
    ({"startingOffsetsByTimestamp": "[1]"}, "is not JSON such as"),
    ({"startingOffsetsByTimestamp": '{"orders": -5}'}, "is not JSON such as"),
    ({"startingOffsets": "9" * 20}, "is not a word"),
    ({"startingTimestamp": "9" * 5000}, r"startingTimestamp: '9{97}\.\.\.' is not a whole number"),
    ({"retryFor": "-1"}, "'-1' is not a time"),
    ({"maxTriggerDelay": "-5s"}, "'-5s' is not a time"),
]


@pytest.mark.parametrize(("options", "line"), WRONG)
def test_wrong_values(options: dict[str, str], line: str) -> None:
    """Each is refused with its name."""
    with pytest.raises(BadOption, match=line):
        read(**options)


@pytest.mark.parametrize(
    "text",
    [
        *("[]", '"orders"', '{"orders": 0}', "{", '{"orders": []}', '{"orders": [-1]}'),
        *('{"orders": [true]}', '{"orders": [1000]}', '{"orders": ["0"]}'),
    ],
)
def test_an_assignment_of_another_shape(text: str) -> None:
    """Kafka's form is an object of lists."""
    with pytest.raises(BadOption, match=r"option assign: .* is not JSON such as"):
        read_options({"url": HERE["url"], "assign": text})


def test_a_stream_has_no_end() -> None:
    """As Kafka's: an end that did not hold would be worse than none."""
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        with pytest.raises(BadOption, match=f"option {name} is for batch reads"):
            read_options({**HERE, name.lower(): "5"}, is_stream=True)


def test_places() -> None:
    """A URI of a file is a path, a list of one path as well; the key is not shown."""
    assert read(path="file:/data").place.path == "/data"
    assert read(path='["/data"]').place.path == "/data"
    assert "sesame" not in repr(read(apiKey="sesame"))
    assert read(apiKey="sesame").place == Place(url=HERE["url"], api_key="sesame")
    assert read_options({"path": "/d", "assign": '{"a":[0],"b":[0]}'}).topics == ("a", "b")


def test_a_bound_of_a_topic_is_that_of_each_partition() -> None:
    """But for those that are named by their numbers, in Kafka's form. (§2.1)"""
    given = '{"orders": {"0": 7, "2": -1}, "words": 5}'
    bound = read(startingOffsets=given).start
    names = ("orders", "orders#1", "orders#2", "words", "words#3")
    assert [bound.of(name) for name in names] == [7, "earliest", "latest", 5, 5]
    times = read(startingOffsetsByTimestamp='{"orders": {"1": 6}, "words": 9}').start
    assert [times.time_of(name) for name in names] == [None, 6, None, 9, 9]


def test_consistency() -> None:
    """What is durable, or what is visible; where nothing is said, the place decides."""
    assert read().place.consistency is None
    assert read(readConsistency="VISIBLE").place.consistency == "visible"
    assert read(readConsistency="durable").place.consistency == "durable"


def test_the_key_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """As for every other client."""
    monkeypatch.setenv("TOPICS_API_KEY", "sesame")
    assert read().place.api_key == "sesame"
    assert write_options({"url": "http://h", "topic": "t"}).place.api_key == "sesame"


def test_sizes_and_times() -> None:
    """As Spark writes them."""
    assert read(maxBytesPerTrigger="64m").max_bytes_per_trigger == 64 << 20
    assert read(maxBytesPerTrigger="1kb").max_bytes_per_trigger == 1024
    assert read(maxTriggerDelay="15m").max_trigger_delay_ms == 900_000
    assert read(maxTriggerDelay="250").max_trigger_delay_ms == 250
    assert read().place.retry_for_s == 15
    assert read(retryFor="2m").place.retry_for_s == 120


def test_a_write_goes_through_a_server() -> None:
    """Files belong to the server's process."""
    with pytest.raises(BadOption, match="never into its files"):
        write_options({"path": "/data", "topic": "t"})
    found = write_options({"url": "http://h", "topic": "t", "txnappid": "a", "txnversion": "0"})
    assert (found.app, found.version, found.txn_topic, found.window_ms) == (
        "a",
        0,
        "spark.txn",
        86_400_000,
    )
