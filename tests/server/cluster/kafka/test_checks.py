"""The start makes or verifies what a node rests on; what is wrong is told in one sentence. (§2, §6)"""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import msgspec
import pytest

from tests.cluster.log_promises import fill
from tests.ports import unused_port
from topics.protocol.cluster.rule.unit import Shard, TermBegan, encode
from topics.server.cluster.kafka.asking import Brokers, only
from topics.server.cluster.kafka.checks import (
    CLOCK_MS_MAX,
    COMPACTED,
    KEEPING,
    MESSAGE_BYTES_FLOOR,
    Joined,
    join,
    require_clock,
    skew_ms,
    tag,
)
from topics.server.cluster.kafka.failures import (
    CannotStart,
    ClockOff,
    OtherCluster,
    OtherShards,
    SmallMessages,
    TooFewBrokers,
    Unreachable,
    WrongTopic,
)
from topics.server.cluster.kafka.library import NewTopic
from topics.server.cluster.kafka.settings import KafkaSettings

from .joined import joined, wall_ms


async def joins(
    settings: KafkaSettings,
    *,
    known: bytes | None = None,
    now_ms: Callable[[], int] = wall_ms,
) -> Joined:
    found = await join(settings, Brokers(settings), known=known, now_ms=now_ms)
    await found.writer.close()
    return found


async def make(settings: KafkaSettings, topic: str, partitions: int = 1, **config: str) -> None:
    """A topic that an operator made; `_` stands for `.`."""
    spelled = {key.replace("_", "."): value for key, value in config.items()}
    new = NewTopic(topic, num_partitions=partitions, replication_factor=1, config=spelled)
    await Brokers(settings).ask(lambda admin: only(admin.create_topics([new])))


def refusal(settings: KafkaSettings, **said: object) -> CannotStart:
    with pytest.raises(CannotStart) as raised:
        asyncio.run(joins(settings, **said))  # type: ignore[arg-type]
    text = str(raised.value)
    assert "\n" not in text
    assert len(text) < 300
    return raised.value


# ---------------------------------------------------------------------- the clock


@pytest.mark.parametrize(
    ("sent", "stamped", "received", "skew"),
    [
        (100, 100, 100, 0),
        (100, 150, 200, 0),  # the time that it took explains all of it
        (100, 200, 200, 0),
        (100, 40, 110, 60),  # ahead of the broker
        (100, 300, 200, -100),  # behind it
    ],
)
def test_a_skew_is_what_the_way_does_not_explain(
    sent: int, stamped: int, received: int, skew: int
) -> None:
    """A slow broker is no wrong clock. (§4)"""
    assert skew_ms(sent_ms=sent, stamped_ms=stamped, received_ms=received) == skew


@pytest.mark.parametrize("sign", [1, -1])
def test_a_clock_may_be_off_by_a_second(sign: int) -> None:
    require_clock(sign * CLOCK_MS_MAX)
    with pytest.raises(ClockOff, match=f"at least {CLOCK_MS_MAX + 1} ms"):
        require_clock(sign * (CLOCK_MS_MAX + 1))


# ---------------------------------------------------------------------- without an answer


def test_brokers_that_are_not_there_are_waited_for() -> None:
    """For as long as the setting says, and no longer."""
    port = unused_port()
    settings = KafkaSettings(f"127.0.0.1:{port}", start_ms=300)

    told = refusal(settings)

    assert isinstance(told, Unreachable)
    assert f"127.0.0.1:{port} did not answer for 300 ms" in str(told)


# ---------------------------------------------------------------------- with a broker


@pytest.mark.kafka
def test_the_first_node_makes_what_the_others_find(settings: KafkaSettings) -> None:
    """Every topic with the configuration that it needs; all nodes agree on the cluster's id, and one
    that begins at the same time as another."""

    async def story() -> None:
        found = await asyncio.gather(*(joins(replace(settings, node=n)) for n in ("a", "b", "c")))
        assert len({(one.cluster, one.secret, one.log_id) for one in found}) == 1
        assert len(found[0].cluster) == len(found[0].secret) == 16
        assert found[0].secret != found[0].cluster
        assert "secret" not in repr(found[0])
        again = await joins(settings, known=found[0].cluster)
        assert again.cluster == found[0].cluster

    asyncio.run(story())


@pytest.mark.kafka
def test_a_cluster_has_as_many_partitions_as_shards(settings: KafkaSettings) -> None:
    many = replace(settings, shards=3)
    asyncio.run(joins(many))

    told = refusal(settings)

    assert isinstance(told, OtherShards)
    assert "has 3 partitions, this node is set to 1: set TOPICS_CLUSTER_SHARDS" in str(told)


LOSING = [
    *((".log", key, bad) for key, bad in [
        ("cleanup.policy", "compact"),
        ("retention.ms", "604800000"),
        ("retention.bytes", "1000000000"),
        ("unclean.leader.election.enable", "true"),
    ]),
    (".nodes", "cleanup.policy", "delete"),
    (".nodes", "message.timestamp.type", "CreateTime"),
]  # fmt: skip


@pytest.mark.kafka
@pytest.mark.parametrize(("topic", "key", "bad"), LOSING)
def test_a_topic_that_may_lose_records_is_refused(
    settings: KafkaSettings, topic: str, key: str, bad: str
) -> None:
    """And not changed. (§2)"""
    sound = dict(COMPACTED if topic == ".nodes" else KEEPING) | {key: bad}
    asyncio.run(make(settings, settings.name + topic, **sound))

    told = refusal(settings)

    assert isinstance(told, WrongTopic)
    assert f'"{settings.name}{topic}" has {key}={bad}' in str(told)


def test_all_that_a_topic_may_lose_records_by_is_tried_out() -> None:
    """The rows above are those of the table."""
    tried = {(topic, key) for topic, key, _ in LOSING}
    assert tried == {(".log", key) for key in KEEPING} | {(".nodes", key) for key in COMPACTED}


@pytest.mark.kafka
def test_a_topic_with_fewer_copies_in_sync_is_refused(settings: KafkaSettings) -> None:
    asyncio.run(joins(settings))

    told = refusal(replace(settings, min_isr=2))

    assert isinstance(told, WrongTopic)
    assert "has min.insync.replicas=1, TOPICS_CLUSTER_MIN_ISR asks for 2" in str(told)


@pytest.mark.kafka
def test_a_topic_with_fewer_copies_than_asked_for_is_told_as_too_few_brokers(
    settings: KafkaSettings,
) -> None:
    """Brokers may still come, so this waits."""
    told = refusal(replace(settings, replication=3, start_ms=1500))

    assert isinstance(told, TooFewBrokers)
    assert "1 of the 3 brokers" in str(told)


@pytest.mark.kafka
def test_messages_that_are_too_small_for_a_unit_are_refused(settings: KafkaSettings) -> None:
    """A unit of the greatest size would not fit into its parts. (§1)"""
    small = {**KEEPING, "max.message.bytes": str(MESSAGE_BYTES_FLOOR - 1)}
    asyncio.run(make(settings, settings.log_topic, **small))

    told = refusal(settings)

    assert isinstance(told, SmallMessages)
    assert f"takes messages of {MESSAGE_BYTES_FLOOR - 1} bytes" in str(told)


@pytest.mark.kafka
def test_data_of_another_cluster_are_refused(settings: KafkaSettings) -> None:
    asyncio.run(joins(settings))

    told = refusal(settings, known=bytes(16))

    assert isinstance(told, OtherCluster)
    assert tag(bytes(16)) in str(told)


@pytest.mark.kafka
def test_a_log_of_another_cluster_is_refused(settings: KafkaSettings) -> None:
    """The control topic was made anew, and the log was not."""

    async def fill_it() -> None:
        async with joined(settings) as node:
            foreign = encode(TermBegan(1, bytes(16), "other"), Shard(bytes(16)))
            await fill(node.log, foreign)

    asyncio.run(fill_it())

    told = refusal(settings)

    assert isinstance(told, OtherCluster)
    assert f'"{settings.log_topic}" is of cluster {tag(bytes(16))}' in str(told)


@pytest.mark.kafka
def test_what_no_node_wrote_into_the_log_is_nobodys(settings: KafkaSettings) -> None:
    """It is skipped there, so it says nothing here."""

    async def story() -> None:
        async with joined(settings) as node:
            await fill(node.log, b"x", b"y" * 100)
        await joins(settings)

    asyncio.run(story())


@pytest.mark.kafka
@pytest.mark.parametrize(
    ("raw", "told"),
    [
        (b"garbage", "holds something else"),
        (msgspec.json.encode({"cluster": "zz", "shards": 1}), "holds something else"),
        (
            msgspec.json.encode({"cluster": bytes(16).hex(), "shards": 1, "format": 3}),
            "made by a newer version",
        ),
        (
            msgspec.json.encode({"cluster": bytes(16).hex(), "shards": 4, "format": 1}),
            "has 4 shards",
        ),
    ],
)
def test_a_control_topic_of_something_else_is_refused(
    settings: KafkaSettings, raw: bytes, told: str
) -> None:
    async def control() -> None:
        aside = replace(settings, name=f"{settings.name}-aside")
        async with joined(aside) as node:
            await make(settings, settings.control_topic, **KEEPING)
            await node.found.writer.send(settings.control_topic, 0, raw)

    asyncio.run(control())

    assert told in str(refusal(settings))


@pytest.mark.kafka
@pytest.mark.parametrize("off_ms", [60_000, -60_000])
def test_a_clock_that_is_off_is_refused(settings: KafkaSettings, off_ms: int) -> None:
    """Against the time that the broker gives a record. (§4)"""
    told = refusal(settings, now_ms=lambda: wall_ms() + off_ms)

    assert isinstance(told, ClockOff)
