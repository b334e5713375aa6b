"""Libraries of Python, unchanged: what they write is read by each other and over HTTP, and the other way round."""

import asyncio
import base64
import gzip
import json
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    OffsetSpec,
    ResourceType,
)
from contract.server import Server

SENT = [
    (b"k1", b'{"n": 1.0e2}', [("trace", b"z9")]),
    (None, b"text", []),
    (b"k1", None, []),
    (b"\xff", b"\x00\xff", [("h", None), ("h", b"\xfe")]),
    (b"", b"", []),
]


def produced(bootstrap: str, topic: str, records: Any, **settings: Any) -> None:
    errors: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **settings})
    for key, value, headers in records:
        producer.produce(
            topic, value, key, headers=headers, on_delivery=lambda error, _: errors.append(error)
        )
    assert producer.flush(60) == 0
    assert errors == [None] * len(records)


def consumed(
    bootstrap: str, topic: str, count: int, offset: int = 0, partition: int = 0
) -> list[Any]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(topic, partition, offset)])
    found: list[Any] = []
    try:
        while len(found) < count:
            message = consumer.poll(30)
            assert message is not None, f"{len(found)} of {count} came"
            assert message.error() is None, message.error()
            found.append(message)
    finally:
        consumer.close()
    return found


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_librdkafka_gets_back_what_it_sent(bootstrap: str, topic: str, codec: str) -> None:
    """Keys, values and headers byte for byte, in order; each with its own time."""
    many = SENT * 100
    produced(bootstrap, topic, many, **{"compression.type": codec})
    found = consumed(bootstrap, topic, len(many))
    assert [(m.key(), m.value(), m.headers() or []) for m in found] == many
    assert [m.offset() for m in found] == list(range(len(many)))


def test_both_faces_place_a_key_in_one_partition(
    bootstrap: str, topic: str, http: httpx.Client
) -> None:
    """librdkafka by Java's partitioner, HTTP by the tag; partitions that are added take what comes then. (§2.1)"""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_partitions([NewPartitions(topic, 3)])[topic].result(30)
    keys = [f"key.{nth}" for nth in range(60)]
    records = [(key.encode(), b"1", []) for key in keys]
    produced(bootstrap, topic, records, partitioner="murmur2_random")
    posted = {"records": [{"data": 2, "tag": key} for key in keys]}
    assert http.post(f"topics/{topic}", json=posted).status_code == 200

    found: dict[str, set[int]] = {}
    for partition in range(3):
        asked = {"partition": partition, "include_tags": True, "limit": 1000}
        page = http.post(f"topics/{topic}/diff", json=asked).json()
        for record in page["records"]:
            found.setdefault(record["$tag"], set()).add(partition)
        assert len(consumed(bootstrap, topic, len(page["records"]), partition=partition)) > 0
    assert found.keys() == set(keys)
    assert {len(partitions) for partitions in found.values()} == {1}
    assert http.get(f"topics/{topic}").json()["count"] == 2 * len(keys)


def test_one_record_has_two_faces(bootstrap: str, topic: str, http: httpx.Client) -> None:
    """§3's table, from both sides."""
    produced(bootstrap, topic, SENT)
    posted = {"records": [{"data": {"b": 1.50}, "tag": "k2", "meta": {"m": "x", "n": [1]}}]}
    assert http.post(f"topics/{topic}", json=posted).status_code == 200

    shown = http.post(f"topics/{topic}/diff", json={"include_tags": True}).json()["records"]

    assert [each["$seq"] for each in shown] == [1, 2, 3, 4, 5, 6]
    assert [each["data"] for each in shown] == [{"n": 100.0}, "text", None, "AP8=", "", {"b": 1.5}]
    assert [each.get("$form") for each in shown] == [None, "text", "null", "base64", "text", None]
    assert [each.get("$tag") for each in shown] == ["k1", None, "k1", None, None, "k2"]
    assert [each.get("$key") for each in shown] == [
        *(None, None, None, base64.b64encode(b"\xff").decode(), "", None)
    ]
    assert shown[0]["meta"] == {"trace": "z9"}
    last = consumed(bootstrap, topic, 6)[-1]
    assert (last.key(), last.offset()) == (b"k2", 5)
    assert json.loads(last.value()) == {"b": 1.5}
    assert last.headers() == [("m", b"x"), ("n", b"[1]")]
    assert last.timestamp()[1] == shown[-1]["$ts"]


def test_what_http_deletes_is_gone_for_kafka(
    bootstrap: str, topic: str, http: httpx.Client
) -> None:
    """By tag, within compressed batches; a consumer passes over what is not there."""
    many = [(b"k%d" % (at % 3), b"%d" % at, []) for at in range(300)]
    produced(bootstrap, topic, many, **{"compression.type": "zstd"})
    assert http.post(f"topics/{topic}/delete", json={"match": "k1"}).json()["deleted"] == 100
    found = consumed(bootstrap, topic, 200)
    assert [m.value() for m in found] == [value for key, value, _ in many if key != b"k1"]
    assert http.post(f"topics/{topic}/delete", json={"before_seq": 300}).status_code == 200
    (last,) = consumed(bootstrap, topic, 1)
    assert last.value() == b"299"


def test_a_stream_of_http_sees_what_kafka_writes(
    bootstrap: str, topic: str, http: httpx.Client
) -> None:
    made = http.post("watch", json={"topics": {topic: {"tail": True}}}).json()
    with http.stream("GET", f"watch/{made['wid']}", timeout=60) as stream:
        lines: Iterator[str] = stream.iter_lines()
        produced(bootstrap, topic, [(b"k", b'{"n": 7}', [])], **{"compression.type": "lz4"})
        data = next(line for line in lines if line.startswith("data:") and '"n"' in line)
    assert json.loads(data[5:])["records"][0]["data"] == {"n": 7}


def test_a_worker_of_http_takes_jobs_that_kafka_wrote(bootstrap: str, http: httpx.Client) -> None:
    assert http.put("topics/jobs-of-kafka", json={"type": "queue"}).status_code == 201
    produced(bootstrap, "jobs-of-kafka", [(b"k", b'{"job": 1}', []), (None, b"two", [])])
    claimed = http.post("topics/jobs-of-kafka/claim", json={"node": "w", "max": 2}).json()
    assert [each["data"] for each in claimed["claimed"]] == [{"job": 1}, "two"]
    seqs = [each["$seq"] for each in claimed["claimed"]]
    acked = http.post("topics/jobs-of-kafka/ack", json={"node": "w", "seqs": seqs})
    assert acked.status_code == 200
    assert http.get("topics/jobs-of-kafka").json()["count"] == 0


def test_a_router_copies_what_kafka_wrote_and_kafka_gets_it_back(
    bootstrap: str, topic: str, http: httpx.Client
) -> None:
    """Key, value and headers byte for byte, out of the copy. (121)"""
    router = {"source": topic, "dest": f"{topic}.copy"}
    assert http.put(f"routers/r-{topic}", json=router).status_code == 201
    produced(bootstrap, topic, SENT, **{"compression.type": "gzip"})
    page = {"wait_ms": 20_000, "from_seq": 0}
    assert http.post(f"topics/{topic}.copy/diff", json=page).status_code == 200
    found = consumed(bootstrap, f"{topic}.copy", len(SENT))
    assert [(m.key(), m.value(), m.headers() or []) for m in found] == SENT
    own = consumed(bootstrap, topic, len(SENT))
    assert [m.timestamp() for m in found] == [m.timestamp() for m in own]


def test_librdkafkas_idempotent_producer(bootstrap: str, topic: str) -> None:
    told: list[Any] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for at in range(3000):
        producer.produce(topic, b"%d" % at, on_delivery=lambda e, m: told.append((e, m.offset())))
        producer.poll(0)
    assert producer.flush(60) == 0
    assert told == [(None, at) for at in range(3000)]


def test_admins_of_librdkafka(bootstrap: str, topic: str, http: httpx.Client) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    produced(bootstrap, topic, SENT)
    partition = TopicPartition(topic, 0)
    for spec, offset in ((OffsetSpec.earliest(), 0), (OffsetSpec.latest(), 5)):
        assert admin.list_offsets({partition: spec})[partition].result(30).offset == offset
    trimmed = admin.delete_records([TopicPartition(topic, 0, 2)])
    assert trimmed[partition].result(30).low_watermark == 2
    assert [r["$seq"] for r in http.post(f"topics/{topic}/diff", json={}).json()["records"]] == [
        *(3, 4, 5)
    ]
    configs = admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)])
    (found,) = (each.result(30) for each in configs.values())
    assert found["cleanup.policy"].value == "delete"
    cluster = admin.describe_cluster().result(30)
    assert cluster.controller.id == 1
    admin.delete_topics([topic])[topic].result(30)
    assert http.get(f"topics/{topic}").status_code == 404


def test_librdkafka_changes_configs(bootstrap: str, topic: str, http: httpx.Client) -> None:
    """One by one, lists by their items; HTTP sees them, and what HTTP set stays. (§8)"""
    assert http.put(f"topics/{topic}", json={"priority": 7}).status_code == 200
    admin = AdminClient({"bootstrap.servers": bootstrap})

    def alter(name: str, operation: AlterConfigOpType, value: str | None) -> None:
        entry = ConfigEntry(name, value, incremental_operation=operation)
        asked = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        admin.incremental_alter_configs([asked])[asked].result(30)

    alter("retention.ms", AlterConfigOpType.SET, "700000")
    alter("segment.ms", AlterConfigOpType.SET, "5")
    alter("cleanup.policy", AlterConfigOpType.APPEND, "compact")
    config = http.get(f"topics/{topic}").json()["config"]
    assert (config["ttl_ms"], config["priority"], config["compact"]) == (700_000, 7, True)
    assert config["kafka_configs"] == {"cleanup.policy": "delete,compact", "segment.ms": "5"}
    alter("retention.ms", AlterConfigOpType.DELETE, None)
    asked = ConfigResource(ResourceType.TOPIC, topic)
    found = admin.describe_configs([asked])[asked].result(30)
    assert {each.name: each.value for each in found.values() if not each.is_default} == {
        "cleanup.policy": "delete,compact",
        "segment.ms": "5",
    }
    with pytest.raises(KafkaException, match="knows no config"):
        alter("no.such", AlterConfigOpType.SET, "1")


@pytest.mark.filterwarnings("ignore:read_text is deprecated", "ignore:open_text is deprecated")
def test_admins_of_kafka_python(bootstrap: str, topic: str) -> None:
    from kafka.admin import ConfigResource as Resource
    from kafka.admin import ConfigResourceType, KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.alter_configs([Resource(ConfigResourceType.TOPIC, topic, {"retention.ms": "700000"})])
    found = admin.describe_configs([Resource(ConfigResourceType.TOPIC, topic)])
    assert found["topic"][topic]["retention.ms"]["value"] == "700000"
    (node,) = admin.describe_log_dirs()
    (directory,) = node["log_dirs"]
    assert topic in [each["name"] for each in directory["topics"]]
    assert directory["total_bytes"] > 0
    assert topic in admin.list_config_resources()["topic"]
    assert admin.list_partition_reassignments() == {}
    admin.close()


@pytest.mark.filterwarnings("ignore:read_text is deprecated", "ignore:open_text is deprecated")
def test_kafka_python(bootstrap: str, topic: str) -> None:
    import kafka

    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, compression_type="gzip")
    for at in range(50):
        producer.send(topic, b"%d" % at, key=b"k", headers=[("h", b"v")])
    producer.flush(60)
    producer.close()
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, consumer_timeout_ms=30_000)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    consumer.seek_to_beginning(partition)
    found = [next(consumer) for _ in range(50)]
    assert [(each.offset, each.value, each.headers) for each in found] == [
        (at, b"%d" % at, [("h", b"v")]) for at in range(50)
    ]
    assert consumer.end_offsets([partition]) == {partition: 50}
    consumer.close()


def test_aiokafka(bootstrap: str, topic: str) -> None:
    aiokafka = pytest.importorskip("aiokafka")

    async def go() -> list[Any]:
        async with aiokafka.AIOKafkaProducer(
            bootstrap_servers=bootstrap, enable_idempotence=True
        ) as producer:
            for at in range(50):
                await producer.send_and_wait(topic, b"%d" % at, key=b"k")
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap)
        await consumer.start()
        try:
            partition = aiokafka.TopicPartition(topic, 0)
            consumer.assign([partition])
            await consumer.seek_to_beginning(partition)
            return [await asyncio.wait_for(consumer.getone(), 30) for _ in range(50)]
        finally:
            await consumer.stop()

    found = asyncio.run(go())
    assert [(each.offset, each.key, each.value) for each in found] == [
        (at, b"k", b"%d" % at) for at in range(50)
    ]


# ---------------------------------------------------------------------- groups


@pytest.mark.filterwarnings("ignore:read_text is deprecated", "ignore:open_text is deprecated")
def test_a_group_goes_on_where_it_committed(bootstrap: str, topic: str) -> None:
    """Also with another library: offsets are the group's. (§5)"""
    from kafka import KafkaConsumer

    produced(bootstrap, topic, [(None, b"%d" % at, []) for at in range(10)])
    settings = {"bootstrap.servers": bootstrap, "group.id": topic, "enable.auto.commit": False}
    consumer = Consumer({**settings, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    for _ in range(5):
        message = consumer.poll(30)
        assert message is not None
        assert message.error() is None
    consumer.commit(message, asynchronous=False)
    consumer.close()

    other = KafkaConsumer(topic, bootstrap_servers=bootstrap, group_id=topic)
    found = next(iter(other))
    other.close()
    assert (found.offset, found.value) == (5, b"5")


# ---------------------------------------------------------------------- what is refused


def test_transactions_are_refused_at_once_and_in_words(bootstrap: str) -> None:
    """Not by a time-out. (§6)"""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "x"})
    with pytest.raises(KafkaException) as refused:
        producer.init_transactions(60)
    assert "topics has no transactions" in str(refused.value) or refused.value.args[0].code() == 53


def test_keys_by_sasl(tmp_path: Any) -> None:
    """The password is an API key; a wrong one, and one of too few rights, are told apart. (§7)"""
    with Server(tmp_path, api_keys="all-secret,reads:read").start() as server:
        bootstrap = f"127.0.0.1:{server.port}"

        def login(password: str) -> dict[str, Any]:
            return {
                "bootstrap.servers": bootstrap,
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "PLAIN",
                "sasl.username": "anyone",
                "sasl.password": password,
            }

        told: list[Any] = []
        producer = Producer(login("all-secret"))
        producer.produce("t", b"1", on_delivery=lambda error, _: told.append(error))
        assert producer.flush(60) == 0
        assert told == [None]
        reader = Producer({**login("reads"), "message.timeout.ms": 30_000})
        reader.produce("t", b"2", on_delivery=lambda error, _: told.append(error))
        assert reader.flush(60) == 0
        assert told[1].code() == 29
        errors: list[Any] = []
        wrong = Producer({**login("wrong"), "error_cb": errors.append})
        until = time.monotonic() + 60
        while not errors and time.monotonic() < until:
            wrong.poll(0.1)
        assert "API key" in str(errors[0]) or errors[0].code() == -169


def test_a_batch_that_unpacks_without_end_concerns_nobody_else(
    bootstrap: str, topic: str, http: httpx.Client
) -> None:
    """300 MB of zeros in one megabyte: refused, and others are served meanwhile. (§9)"""
    from protocol.batches.builder import batch
    from server.kafka.desk import HEAD

    from topics.protocol.faces.kafka.codec import encode
    from topics.protocol.faces.kafka.schema import types

    data = batch(gzip.compress(b"\0" * (300 << 20), 9), 1, attributes=1)
    T = types("ProduceRequest")
    part = T.PartitionProduceData(index=0, records=data)
    value = T.ProduceRequest(
        transactional_id=None,
        acks=-1,
        timeout_ms=9,
        topic_data=[T.TopicProduceData(name=topic, partition_data=[part])],
    )
    body = HEAD.pack(0, 9, 7, 1) + b"c\0" + b"".join(map(bytes, encode("ProduceRequest", 9, value)))
    import socket

    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), 60) as wire:
        wire.sendall(len(body).to_bytes(4, "big") + body)
        assert http.get("health").status_code == 200
        answer = wire.recv(1 << 16)
    assert b"unpacked" in answer
    assert http.get(f"topics/{topic}").json()["count"] == 0


def test_what_was_read_is_appended_again(bootstrap: str, topic: str, server: Server) -> None:
    """`topics read | topics append`, and the client: Kafka gets equal keys, values and headers. (121)"""
    import subprocess
    import sys

    from topics import Client, NewRecord

    produced(bootstrap, topic, SENT)
    url = f"http://127.0.0.1:{server.port}"
    tool = (sys.executable, "-m", "topics")
    read = subprocess.run(
        [*tool, "read", topic, "--url", url, "--tags"], capture_output=True, check=True
    )
    subprocess.run(
        [*tool, "append", f"{topic}.cli", "--url", url, "--format", "records"],
        input=read.stdout,
        capture_output=True,
        check=True,
    )
    with Client(url) as client:
        page = client.diff(topic, include_tags=True)
        copies = [
            NewRecord(
                each.data,
                tag=each.tag,
                meta=each.meta,
                form=each.form,
                key=each.key,
                headers=each.headers,
            )
            for each in page.records
        ]
        client.append_many(f"{topic}.client", copies)
    for copy in (f"{topic}.cli", f"{topic}.client"):
        found = consumed(bootstrap, copy, len(SENT))
        got = [
            (m.key(), json.loads(m.value()) if i == 0 else m.value()) for i, m in enumerate(found)
        ]
        assert got == [
            (key, json.loads(value) if i == 0 else value) for i, (key, value, _) in enumerate(SENT)
        ]
        assert [m.headers() or [] for m in found] == [headers for *_, headers in SENT]


def test_http_shows_the_members_of_a_group(http: httpx.Client, bootstrap: str, topic: str) -> None:
    """Who reads what, how far the group is, and that it is the members' (§13.2)"""
    http.put(f"topics/{topic}", json={"partitions": 2})
    http.post(f"topics/{topic}", json={"records": [{"data": n} for n in range(3)]})
    settings = {"group.id": topic, "group.instance.id": "i-1", "auto.offset.reset": "earliest"}
    consumer = Consumer({"bootstrap.servers": bootstrap, "enable.auto.commit": False, **settings})
    consumer.subscribe([topic])
    try:
        message = consumer.poll(60)
        assert message is not None
        assert message.error() is None
        consumer.commit(message, asynchronous=False)

        told = http.get(f"groups/{topic}").json()
        assert (told["state"], told["protocol_type"]) == ("stable", "consumer")
        (member,) = told["members"]
        assert (member["instance_id"], member["client_id"]) == ("i-1", "rdkafka")
        assert member["assignment"] == [{"topic": topic, "partitions": [0, 1]}]
        (offset,) = told["offsets"]
        assert (offset["partition"], offset["seq"]) == (message.partition(), 1)
        moved = {"offsets": [{"topic": topic, "seq": 0}]}
        refused = http.post(f"groups/{topic}/commit", json=moved)
        assert (refused.status_code, refused.json()["error"]["code"]) == (
            409,
            "group_not_empty",
        )
        assert http.delete(f"groups/{topic}").status_code == 409
    finally:
        consumer.close()
