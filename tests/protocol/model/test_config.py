"""What is configured: defaults, and bounds that hold however a config came (§0.10, §6.1)."""

import msgspec
import pytest

from topics.protocol.model.config import RouterConfig, TopicConfig
from topics.protocol.model.durability import DURABILITIES


def test_a_config_left_out_is_this() -> None:
    """The defaults of every field, as every answer echoes them. (§0.10)"""
    assert msgspec.to_builtins(TopicConfig()) == {
        "type": "log",
        "ttl_ms": 0,
        "cap_records": 0,
        "cap_bytes": 0,
        "discard": "old",
        "durable": False,
        "durability": "disk",
        "priority": None,
        "auto_priority": True,
        "auto_create": True,
        "idempotency_window_ms": 120_000,
        "dedupe_node": True,
        "lease_ms": 30_000,
        "claim_jitter_ms": 0,
        "max_deliveries": 0,
        "dead_letter": None,
        "leases_durable": False,
    }


@pytest.mark.parametrize("durability", DURABILITIES)
def test_a_config_has_the_class_that_it_names(durability: str) -> None:
    """And comes back from the log as it was written. (§0.10)"""
    config = msgspec.convert({"durability": durability, "cap_records": 5}, TopicConfig)
    assert config.durability_class is DURABILITIES[config.durability]
    again = msgspec.msgpack.decode(msgspec.msgpack.encode(config), type=TopicConfig)
    assert again == config
    assert again != TopicConfig(cap_records=6, durability=config.durability)


@pytest.mark.parametrize(
    "wrong", [{"type": "stack"}, {"discard": "new"}, {"durability": "paper"}, {"cap_records": "1"}]
)
def test_a_config_that_no_server_wrote_is_not_read(wrong: dict[str, object]) -> None:
    """An unknown word in the log is an error, never a default. (§0.10)"""
    with pytest.raises(msgspec.ValidationError):
        msgspec.msgpack.decode(msgspec.msgpack.encode(wrong), type=TopicConfig)


def test_a_router_has_two_ends_and_defaults() -> None:
    """It keeps node and tag, has no filter, makes no cycle and copies at least once. (§6.1)"""
    assert msgspec.to_builtins(RouterConfig(source="a", dest="b")) == {
        "source": "a",
        "dest": "b",
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }
    with pytest.raises(msgspec.ValidationError):
        msgspec.convert({"source": "a"}, RouterConfig)


def test_a_topic_is_one_log_that_keeps_everything_unless_its_config_says_more() -> None:
    config = TopicConfig()
    assert (config.partition_count, config.is_compacted) == (1, False)
    config = TopicConfig(partitions=8, compact=True)
    assert (config.partition_count, config.is_compacted) == (8, True)


def test_a_topic_takes_any_time_unless_configs_of_kafka_bound_it() -> None:
    """And where the time of the append is the record's. (§8)"""
    assert TopicConfig().time_bounds_ms is None
    before, after = "message.timestamp.before.max.ms", "message.timestamp.after.max.ms"
    assert TopicConfig(kafka_configs={before: "5"}).time_bounds_ms == (5, 2**63 - 1)
    assert TopicConfig(kafka_configs={after: "6"}).time_bounds_ms == (2**63 - 1, 6)
    config = TopicConfig(kafka_configs={after: "6"}, message_timestamp_type="LogAppendTime")
    assert config.time_bounds_ms is None


def test_when_a_topic_is_compacted_stands_in_configs_of_kafka() -> None:
    """A day for tombstones, no lag, and half of the topic, as Kafka has it. (§8)"""
    config = TopicConfig(compact=True)
    assert (config.delete_retention_ms, config.min_compaction_lag_ms) == (86_400_000, 0)
    assert (config.max_compaction_lag_ms, config.min_dirty_ratio) == (2**63 - 1, 0.5)
    config = TopicConfig(
        kafka_configs={
            "delete.retention.ms": "1",
            "min.compaction.lag.ms": "2",
            "max.compaction.lag.ms": "3",
            "min.cleanable.dirty.ratio": "0.25",
        }
    )
    assert (config.delete_retention_ms, config.min_compaction_lag_ms) == (1, 2)
    assert (config.max_compaction_lag_ms, config.min_dirty_ratio) == (3, 0.25)
