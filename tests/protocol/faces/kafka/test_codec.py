"""The codec of Kafka's messages beside two others: kafka-python's, and Kafka's own classes."""

import json
import random
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from brokers import NoBrokers, jars, java

from topics.protocol.faces.kafka import schema
from topics.protocol.faces.kafka.codec import Malformed, decode, encode

HERE = Path(__file__).parent
CAPTURES = [json.loads(line) for line in (HERE / "captures.jsonl").read_text().splitlines()]
"""A request of each kind and version, as one of ten clients sent it."""
REQUESTS = {schema.message(name).key: name for name in schema.names() if name.endswith("Request")}
MESSAGES = [
    (name, version)
    for name in schema.names()
    for version in range(schema.message(name).versions[0], schema.message(name).versions[1] + 1)
]
TEXTS = ("", "a", "Größe", "t" * 200)
NUMBERS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}


def joined(name: str, version: int, value: Any) -> bytes:
    return b"".join(encode(name, version, value))


def again(name: str, version: int, data: bytes) -> bytes:
    return joined(name, version, decode(name, version, memoryview(data)))


def scalar(kind: str, dice: random.Random) -> Any:
    match kind:
        case "bool":
            return dice.random() < 0.5
        case "string":
            return dice.choice(TEXTS)
        case "bytes" | "records":
            return dice.randbytes(dice.choice((0, 1, 127, 300)))
        case "uuid":
            return dice.randbytes(16)
    most = (1 << NUMBERS[kind]) - 1
    return dice.choice((0, -1, most, -most - 1, dice.randint(-most, most)))


def value(shape: schema.Shape, version: int, dice: random.Random) -> Any:
    """A struct with the fields that a version has, tagged ones now and then."""

    def of(field: schema.Field) -> Any:
        if field.is_nullable(version) and dice.random() < 0.3:
            return None
        if field.is_array:
            return [one(field) for _ in range(dice.choice((0, 1, 3)))]
        return one(field)

    def one(field: schema.Field) -> Any:
        if field.struct is not None:
            return value(field.struct, version, dice)
        return scalar(field.kind, dice)

    fields = [
        each
        for each in shape.fields
        if each.is_in(version) and (not each.is_tagged(version) or dice.random() < 0.5)
    ]
    return shape.type(**{field.name: of(field) for field in fields})


def samples(name: str, count: int) -> Iterator[tuple[int, Any]]:
    """Values of each version of a message."""
    message = schema.message(name)
    for version in range(message.versions[0], message.versions[1] + 1):
        for seed in range(count):
            yield version, value(message.shape, version, random.Random(seed))


@pytest.mark.parametrize(
    "sent", CAPTURES, ids=lambda sent: f"{REQUESTS[sent['api']]}{sent['version']}"
)
def test_what_clients_send_is_read_and_written_byte_for_byte(sent: Any) -> None:
    data = bytes.fromhex(sent["request"])
    message = schema.message(REQUESTS[sent["api"]])
    at = 10 + max(int.from_bytes(data[8:10], "big", signed=True), 0)
    at += sent["version"] >= message.flexible

    found = decode(message.shape.name, sent["version"], memoryview(data), at)

    assert joined(message.shape.name, sent["version"], found) == data[at:]


@pytest.mark.parametrize("name", schema.names())
def test_a_message_comes_back(name: str) -> None:
    """Of each message and version: all fields, tagged ones included, and null where it may be."""
    for version, found in samples(name, 10):
        sent = joined(name, version, found)

        assert decode(name, version, memoryview(sent)) == found
        assert again(name, version, sent + b"behind it") == sent


@cache
def of_kafka_python() -> dict[str, Any]:
    import importlib
    import pkgutil

    import kafka.protocol
    from kafka.protocol.api_message import ApiMessage

    found: dict[str, Any] = {}
    for module in pkgutil.walk_packages(kafka.protocol.__path__, "kafka.protocol."):
        for name, each in vars(importlib.import_module(module.name)).items():
            if isinstance(each, type) and issubclass(each, ApiMessage):
                found[name] = each
    return found


@pytest.mark.filterwarnings("ignore:.*_text is deprecated")
@pytest.mark.parametrize("name", schema.names())
def test_kafka_python_says_the_same(name: str) -> None:
    """What is written here is what it reads, and what it writes is what is read here."""
    theirs = of_kafka_python()[name]
    if name == "ApiVersionsResponse":
        pytest.skip("it reads this one in the form of version 0, whatever was asked")
    for version, found in samples(name, 5):
        sent = joined(name, version, found)

        read = theirs.decode(sent, version=version)
        read._header = None

        assert decode(name, version, memoryview(read.encode(version=version))) == found


@pytest.fixture(scope="module")
def classes() -> Path:
    try:
        java()
        return jars()
    except NoBrokers as missing:
        pytest.skip(str(missing))


@pytest.mark.kafka
@pytest.mark.timeout(600)
def test_kafkas_own_classes_say_the_same(classes: Path) -> None:
    """Each message is read by Kafka's class, written again, and has the same bytes."""
    sent, expected = [], []
    for name in schema.names():
        for version, found in samples(name, 10):
            data = joined(name, version, found)
            sent.append(f"{name} {version} {data.hex()}")
            expected.append((name, version, found))

    done = subprocess.run(
        ["java", "-cp", f"{classes}/*", str(HERE / "Again.java")],
        input="\n".join(sent),
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    answers = done.stdout.splitlines()
    assert len(answers) == len(expected)
    for (name, version, found), answer in zip(expected, answers, strict=True):
        assert decode(name, version, memoryview(bytes.fromhex(answer))) == found, (name, version)


# -- bytes of strangers ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent", CAPTURES, ids=lambda sent: f"{REQUESTS[sent['api']]}{sent['version']}"
)
def test_a_request_that_is_cut_or_lies_is_malformed(sent: Any) -> None:
    """At each byte: what is read is a request or `Malformed`, and nothing is believed that is not there."""
    name, version = REQUESTS[sent["api"]], sent["version"]
    whole = bytes.fromhex(sent["request"])[10:]
    for at in range(len(whole)):
        for lie in (b"\xff\xff\xff\xff\x0f", b"\x7f\xff\xff\xff", b"\x80" * 6, b"\x00"):
            with suppress(Malformed):
                decode(name, version, memoryview(whole[:at] + lie + whole[at + len(lie) :]))
        with suppress(Malformed):
            decode(name, version, memoryview(whole[:at]))


@pytest.mark.parametrize(
    ("name", "version", "data", "why"),
    [
        ("MetadataRequest", 12, b"\xff\xff\xff\xff\x0f", "longer than what is left"),
        ("MetadataRequest", 4, b"\x7f\xff\xff\xff\0", "longer than what is left"),
        ("MetadataRequest", 12, b"\x80\x80\x80\x80\x80\x01", "more than five bytes"),
        ("MetadataRequest", 12, b"\xff\xff\xff\xff\x7f", "more than 32 bits"),
        ("MetadataRequest", 4, b"\0\0\0\x01\0\x05ab", "longer than what is left"),
        ("MetadataRequest", 4, b"\0\0\0\x01\0\x02\xff\xfe\0", "utf-8"),
        ("HeartbeatRequest", 0, b"\xff\xff", "group_id is null"),
        ("HeartbeatRequest", 0, b"\0\x01", "longer than what is left"),
        ("HeartbeatRequest", 0, b"", "requires a buffer"),
        ("MetadataRequest", 12, b"\x01\0\0\x01\x07\x09", "a tagged field longer"),
        ("FetchRequest", 12, None, "of another size"),
    ],
)
def test_no_length_is_believed_before_its_bytes_are_there(
    name: str, version: int, data: bytes | None, why: str
) -> None:
    if data is None:
        # `cluster_id`, tag 0, is "ab", and a byte is left over.
        data = (
            joined(name, version, schema.types(name).FetchRequest())[:-1] + b"\x01\x00\x04\x03ab!"
        )

    with pytest.raises(Malformed, match=why):
        decode(name, version, memoryview(data))


def test_a_request_has_a_bounded_number_of_elements() -> None:
    """All arrays count together, so that arrays in arrays are no way around."""
    T = schema.types("FetchRequest")
    within = [T.FetchPartition() for _ in range(199)]
    request = T.FetchRequest(
        topics=[T.FetchTopic(topic="t", partitions=within) for _ in range(100)]
    )
    data = joined("FetchRequest", 12, request)
    assert decode("FetchRequest", 12, memoryview(data)) == request

    within.append(T.FetchPartition())
    data = joined("FetchRequest", 12, request)
    with pytest.raises(Malformed, match="too many elements"):
        decode("FetchRequest", 12, memoryview(data))


def test_records_are_referred_to_and_not_copied() -> None:
    batch = memoryview(bytes(1000))
    T = schema.types("FetchResponse")
    part = T.PartitionData(records=[batch[:400], batch[400:]])
    response = T.FetchResponse(responses=[T.FetchableTopicResponse(topic="t", partitions=[part])])

    pieces = encode("FetchResponse", 12, response)

    assert sum(isinstance(piece, memoryview) and piece.obj is batch.obj for piece in pieces) == 2
    found = decode("FetchResponse", 12, memoryview(b"".join(pieces)))
    assert found.responses[0].partitions[0].records == batch
