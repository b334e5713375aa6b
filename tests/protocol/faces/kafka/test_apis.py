"""The list of what is served, and the heads of messages."""

import json
import struct
from pathlib import Path
from typing import Any

import pytest

from topics.protocol.faces.kafka import apis
from topics.protocol.faces.kafka.apis import SERVED, Asked, asked_of, head_of
from topics.protocol.faces.kafka.codec import Malformed, decode, encode
from topics.protocol.faces.kafka.schema import message, types

CAPTURES = [
    json.loads(line) for line in (Path(__file__).parent / "captures.jsonl").read_text().splitlines()
]


def head(key: int, version: int, client: bytes | None = b"me", *, rest: bytes = b"") -> memoryview:
    size = -1 if client is None else len(client)
    return memoryview(struct.pack(">hhih", key, version, 7, size) + (client or b"") + rest)


@pytest.mark.parametrize("key", SERVED)
def test_what_is_served_can_be_read_and_answered(key: int) -> None:
    """In each version that is announced, but for those that are only announced."""
    api = SERVED[key]
    request, response = message(f"{api.name}Request"), message(f"{api.name}Response")
    first = apis.PRODUCE_FIRST if key == apis.PRODUCE else api.first

    assert request.key == response.key == key
    assert request.versions[0] <= first <= api.last <= request.versions[1]


@pytest.mark.parametrize("sent", CAPTURES, ids=lambda sent: f"{sent['api']}-{sent['version']}")
def test_the_head_of_what_clients_send_is_read(sent: Any) -> None:
    found = asked_of(memoryview(bytes.fromhex(sent["request"])))

    assert (found.key, found.version) == (sent["api"], sent["version"])
    if found.api is not None:
        decode(
            f"{found.api.name}Request",
            found.version,
            memoryview(bytes.fromhex(sent["request"])),
            found.at,
        )


def test_a_client_may_have_no_name_or_one_that_is_no_text() -> None:
    assert asked_of(head(18, 0, None)).client is None
    assert asked_of(head(18, 0, b"\xff")).client == "\ufffd"
    assert asked_of(head(18, 0, b"")) == Asked(18, 0, 7, "", 10)


def test_tagged_fields_of_a_head_are_passed_over() -> None:
    tags = b"\x02\x00\x03abc\x05\x00"

    assert asked_of(head(3, 12, rest=tags + b"body")).at == 12 + len(tags)
    assert asked_of(head(3, 4, rest=b"body")).at == 12
    assert asked_of(head(999, 12, rest=b"body")).at == 12


@pytest.mark.parametrize(
    "frame",
    [
        memoryview(b""),
        memoryview(b"\0\x12\0\0\0\0\0"),
        head(18, 0)[:-1],
        head(3, 12),
        head(3, 12, rest=b"\x01\x00\x09abc"),
        head(3, 12, rest=b"\x05\x00"),
        head(3, 12, rest=b"\xff\xff\xff\xff\xff\xff"),
    ],
)
def test_what_is_no_head_is_malformed(frame: memoryview) -> None:
    with pytest.raises(Malformed):
        asked_of(frame)


@pytest.mark.parametrize(
    ("key", "version", "is_served"),
    [(0, 0, True), (0, 13, True), (0, 14, False), (1, 3, False), (18, 5, False), (24, 0, False)],
)
def test_a_version_is_served_or_not(key: int, version: int, is_served: bool) -> None:
    assert (asked_of(head(key, version, rest=b"\0")).api is not None) is is_served


@pytest.mark.parametrize(("key", "version", "end"), [(3, 8, b""), (3, 9, b"\0"), (18, 4, b"")])
def test_a_response_begins_with_the_number_of_its_request(
    key: int, version: int, end: bytes
) -> None:
    assert head_of(Asked(key, version, 7, None, 0)) == struct.pack(">i", 7) + end


def test_the_list_says_what_is_served() -> None:
    """A client of a version that nobody knows yet reads it in the form of the first one."""
    body = b"".join(encode("ApiVersionsResponse", 0, apis.versions(35)))

    found = decode("ApiVersionsResponse", 0, memoryview(body))

    assert found.error_code == 35
    listed = {each.api_key: (each.min_version, each.max_version) for each in found.api_keys}
    assert listed == {key: (api.first, api.last) for key, api in SERVED.items()}


@pytest.mark.parametrize("version", [0, 1, 2])
def test_produce_as_clients_sent_it_before_it_was_described(version: int) -> None:
    """The body is that of version 3 without the name of a transaction, its answer has less. (§1)"""
    body = struct.pack(">hiih", -1, 1000, 1, 1) + b"t" + struct.pack(">iii", 1, 0, 3) + b"xyz"
    frame = head(apis.PRODUCE, version, rest=body)
    asked = asked_of(frame)

    request = apis.old_produce(frame, asked)

    (topic,) = request.topic_data
    assert (topic.name, topic.partition_data[0].records) == ("t", b"xyz")
    T = types("ProduceResponse")
    part = T.PartitionProduceResponse(index=4, error_code=35, base_offset=-1)
    topics = [T.TopicProduceResponse(name="t", partition_responses=[part])]
    found = b"".join(apis.of_old_produce(asked, T.ProduceResponse(responses=topics)))
    assert found[:25] == struct.pack(">ih", 1, 1) + b"t" + struct.pack(">iihq", 1, 4, 35, -1)
    assert len(found) == 25 + (0, 4, 12)[version]
