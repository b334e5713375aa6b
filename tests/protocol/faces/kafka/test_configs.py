"""Configs as Kafka's clients name them: which mean something here, and which are refused (§8)."""

import pytest

from topics.protocol.faces.kafka.configs import CONFIGS, LONG_MAX, BadConfig, config_of, shown
from topics.protocol.model.config import TopicConfig


def test_what_is_set_is_shown() -> None:
    given: dict[str, str | None] = {
        "retention.ms": "1000",
        "retention.bytes": "2000",
        "max.message.bytes": "3000",
        "message.timestamp.type": "LogAppendTime",
        "topics.cap.records": "7",
        "topics.discard": "reject",
        "topics.durability": "fsync",
    }
    config = config_of(given)
    found = shown(config)
    assert {name: found[name] for name in given} == given
    assert (config.ttl_ms, config.cap_bytes, config.cap_records) == (1000, 2000, 7)
    assert (config.batch_bytes_max, config.has_append_time, config.durable) == (3000, True, True)
    assert config_of({"topics.durability": "ephemeral"}).durable is False


def test_what_is_not_set_is_as_it_always_is() -> None:
    """Kafka keeps a week by default; here nothing goes without being asked to. (§8)"""
    found = shown(TopicConfig())
    assert (found["retention.ms"], found["retention.bytes"]) == ("-1", "-1")
    assert found["message.timestamp.type"] == "CreateTime"
    assert config_of({}) == config_of({"retention.ms": "-1", "segment.ms": None}) == TopicConfig()
    again = config_of({name: value for name, value in found.items() if name != "topics.durability"})
    assert shown(again) == found


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("segment.bytes", "1"),
        ("flush.ms", str(LONG_MAX)),
        ("min.cleanable.dirty.ratio", "0.9"),
        ("preallocate", "true"),
        ("compression.type", "zstd"),
    ],
)
def test_what_has_no_effect_is_taken(name: str, text: str) -> None:
    """Programs set them, and fail where they are refused. (§12.9)"""
    assert config_of({name: text}) == TopicConfig()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such", "1"),
        ("retention.ms", "0"),
        ("retention.ms", "-2"),
        ("retention.ms", "a week"),
        ("max.message.bytes", "0"),
        ("max.message.bytes", str(2**31)),
        ("message.timestamp.type", "Now"),
        ("topics.durability", "paper"),
        ("topics.discard", "new"),
        ("segment.bytes", "many"),
        ("min.cleanable.dirty.ratio", "half"),
        ("preallocate", "perhaps"),
        ("cleanup.policy", "compact"),
        ("min.insync.replicas", "2"),
        ("compression.type", "brotli"),
    ],
)
def test_what_no_topic_can_have_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(BadConfig, match=name):
        config_of({name: text})


def test_every_config_takes_what_it_shows() -> None:
    for name, text in shown(TopicConfig()).items():
        assert CONFIGS[name].change(text) is not None
