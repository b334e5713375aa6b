"""Configs as Kafka's clients name them: which mean something here, which are kept, and which are refused (§8)."""

import msgspec
import pytest
from hypothesis import given as drawn
from hypothesis import strategies as some
from msgspec import UNSET

from topics.protocol.faces.kafka.configs import (
    APPEND,
    CONFIGS,
    DEFAULTS,
    DELETE,
    SET,
    SUBTRACT,
    BadConfig,
    changed,
    config_with,
    given,
    replaced,
    shown,
    with_kept,
)
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.kafka_configs import LONG_MAX


def made(**texts: str) -> TopicConfig:
    return config_with(
        TopicConfig(), {name.replace("_", "."): text for name, text in texts.items()}
    )


def test_what_is_set_is_shown() -> None:
    texts = {
        "retention.ms": "1000",
        "retention.bytes": "2000",
        "max.message.bytes": "3000",
        "message.timestamp.type": "LogAppendTime",
        "topics.cap.records": "7",
        "topics.discard": "reject",
        "topics.durability": "fsync",
    }
    config = config_with(TopicConfig(), texts)
    found = shown(config)
    assert {name: found[name] for name in texts} == given(config) == texts
    assert (config.ttl_ms, config.cap_bytes, config.cap_records) == (1000, 2000, 7)
    assert (config.batch_bytes_max, config.has_append_time, config.durable) == (3000, True, True)
    assert config.kafka_configs is UNSET
    assert made(topics_durability="ephemeral").durable is False


def test_what_is_not_set_is_as_it_always_is() -> None:
    """Kafka keeps a week by default; here nothing goes without being asked to. (§8)"""
    found = shown(TopicConfig())
    assert (found["retention.ms"], found["retention.bytes"]) == ("-1", "-1")
    assert found["message.timestamp.type"] == "CreateTime"
    assert found == DEFAULTS
    assert list(found) == sorted(found)
    assert made() == TopicConfig()
    assert given(TopicConfig()) == {}


def test_what_was_set_to_its_default_was_set() -> None:
    """A program that keeps configs as a file says would else set them again and again. (§8)"""
    config = config_with(TopicConfig(), DEFAULTS)
    assert given(config) == shown(config) == DEFAULTS
    assert (config.ttl_ms, config.is_compacted) == (0, False)


@pytest.mark.parametrize(
    ("name", "text", "kept"),
    [
        ("segment.bytes", " 16384", "16384"),
        ("flush.ms", str(LONG_MAX), str(LONG_MAX)),
        ("min.cleanable.dirty.ratio", "0.9", "0.9"),
        ("preallocate", "true", "true"),
        ("compression.type", "zstd", "zstd"),
        ("message.timestamp.after.max.ms", "3600000", "3600000"),
    ],
)
def test_what_has_no_effect_is_kept(name: str, text: str, kept: str) -> None:
    """Programs set them, fail where they are refused, and read them back. (§12.9)"""
    config = config_with(TopicConfig(), {name: text})
    assert config == TopicConfig(kafka_configs={name: kept})
    assert given(config) == {name: kept}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("no.such", "1"),
        ("retention.ms", "0"),
        ("retention.ms", "-2"),
        ("retention.ms", "a week"),
        ("retention.ms", ""),
        ("retention.bytes", str(LONG_MAX + 1)),
        ("max.message.bytes", "0"),
        ("max.message.bytes", str(2**31)),
        ("message.timestamp.type", "Now"),
        ("topics.durability", "paper"),
        ("topics.discard", "new"),
        ("segment.bytes", "many"),
        ("min.cleanable.dirty.ratio", "half"),
        ("preallocate", "perhaps"),
        ("cleanup.policy", "none"),
        ("min.insync.replicas", "2"),
        ("compression.type", "brotli"),
        ("leader.replication.throttled.replicas", "0:1," * 1000),
        ("cleanup.policy", "compact," * 1000),
    ],
)
def test_what_no_topic_can_have_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(BadConfig, match=name):
        config_with(TopicConfig(), {name: text})


# ---------------------------------------------------------------------- policies


@pytest.mark.parametrize(
    ("policy", "text", "is_compacted", "ttl_ms"),
    [
        ("delete", "delete", False, 9),
        ("compact", "compact", True, 0),
        ("compact,delete", "compact,delete", True, 9),
        (" delete, compact ,delete", "delete,compact", True, 9),
        ("", "", False, 0),
    ],
)
def test_retention_applies_where_the_policy_deletes(
    policy: str, text: str, is_compacted: bool, ttl_ms: int
) -> None:
    """As in Kafka; and shows what was set in any case. (§8)"""
    config = made(cleanup_policy=policy, retention_ms="9")
    assert (config.is_compacted, config.ttl_ms) == (is_compacted, ttl_ms)
    assert given(config) == {"cleanup.policy": text, "retention.ms": "9"}


def test_retention_begins_to_apply_with_the_policy() -> None:
    config = made(cleanup_policy="compact", retention_bytes="9", topics_cap_records="5")
    assert (config.cap_bytes, config.cap_records) == (0, 5)  # what Kafka does not know always holds
    config = changed(config, {"cleanup.policy": (APPEND, "delete")})
    assert (config.cap_bytes, config.is_compacted) == (9, True)
    config = changed(config, {"cleanup.policy": (SET, "delete")})
    assert (config.cap_bytes, config.compact) == (9, UNSET)


def test_the_policy_of_what_http_configured_says_what_it_does() -> None:
    assert shown(TopicConfig(compact=True))["cleanup.policy"] == "compact"
    assert shown(TopicConfig(compact=True, ttl_ms=1))["cleanup.policy"] == "compact,delete"
    assert shown(TopicConfig(compact=False))["cleanup.policy"] == "delete"
    changed_ = changed(TopicConfig(compact=True, ttl_ms=1), {"segment.ms": (SET, "5")})
    assert (changed_.compact, changed_.ttl_ms) == (True, 1)


# ---------------------------------------------------------------------- changes


OTHERS = TopicConfig(
    durable=True,
    durability="fsync",
    cap_records=3,
    priority=4,
    dead_letter="letters",
    partitions=5,
    ttl_ms=6,
    max_message_bytes=7,
    kafka_configs={"segment.ms": "8"},
)


def test_a_change_of_one_config_changes_no_other() -> None:
    assert changed(OTHERS, {"retention.ms": (SET, "70")}) == msgspec.structs.replace(
        OTHERS, ttl_ms=70
    )
    assert changed(OTHERS, {"segment.ms": (DELETE, "")}).kafka_configs is UNSET
    assert changed(OTHERS, {"max.message.bytes": (DELETE, "")}).max_message_bytes is UNSET
    assert changed(OTHERS, {"no.such": (DELETE, "")}) == OTHERS
    assert changed(OTHERS, {}) == OTHERS


def test_a_bound_beyond_kafkas_greatest_number_is_that_number() -> None:
    """So that the topic's other configs can be changed: it never applies in either case."""
    endless = TopicConfig(ttl_ms=2**64 - 1, cap_records=2**64 - 1)
    assert shown(endless)["retention.ms"] == str(LONG_MAX)
    assert changed(endless, {"segment.ms": (SET, "5")}).cap_records == LONG_MAX


def test_all_configs_are_replaced_but_those_that_kafka_does_not_know() -> None:
    """A client that sets one by the older call would else take the durability away. (§8)"""
    found = replaced(OTHERS, {"retention.bytes": "9"})
    assert found == msgspec.structs.replace(
        OTHERS, ttl_ms=0, cap_bytes=9, max_message_bytes=UNSET, kafka_configs=UNSET
    )
    assert replaced(OTHERS, {"topics.durability": "disk"}).durability == "disk"


def test_lists_get_and_lose_items() -> None:
    """From the default on, each once, and in order."""
    config = changed(TopicConfig(), {"cleanup.policy": (APPEND, "compact,delete")})
    assert given(config) == {"cleanup.policy": "delete,compact"}
    config = changed(config, {"cleanup.policy": (SUBTRACT, "delete")})
    assert given(config) == {"cleanup.policy": "compact"}
    config = changed(config, {"cleanup.policy": (SUBTRACT, "compact")})
    assert given(config) == {"cleanup.policy": ""}


@pytest.mark.parametrize("name", ["retention.ms", "no.such"])
def test_what_is_no_list_gets_no_items(name: str) -> None:
    with pytest.raises(BadConfig, match=f'"{name}" is no list'):
        changed(TopicConfig(), {name: (APPEND, "5")})


@pytest.mark.parametrize("text", ["0:1," * 1000, ",".join(f"{at}:1" for at in range(150))])
def test_no_list_grows_beyond_what_a_value_may_have(text: str) -> None:
    """Nor is a very long one looked at: a frame may have 64 MiB. (§9)"""
    name = "leader.replication.throttled.replicas"
    config = config_with(TopicConfig(), {name: ",".join(f"{at}:0" for at in range(150))})
    with pytest.raises(BadConfig, match="at most 1024 characters"):
        changed(config, {name: (APPEND, text)})


VALUES = {
    "cleanup.policy": some.sampled_from(["", "compact", "delete", "delete,compact"]),
    "retention.ms": some.sampled_from(["-1", "1", "9"]),
    "retention.bytes": some.sampled_from(["-1", "1", "9"]),
    "max.message.bytes": some.sampled_from([DEFAULTS["max.message.bytes"], "9"]),
    "message.timestamp.type": some.sampled_from(["CreateTime", "LogAppendTime"]),
    "topics.durability": some.sampled_from(["disk", "fsync"]),
    "topics.cap.records": some.sampled_from(["-1", "9"]),
    "segment.ms": some.sampled_from([DEFAULTS["segment.ms"], "9"]),
}


@drawn(some.fixed_dictionaries({}, optional=VALUES), some.fixed_dictionaries({}, optional=VALUES))
def test_what_was_given_is_given_whatever_it_was(
    before: dict[str, str], after: dict[str, str]
) -> None:
    """In any order of changes: what a client reads is what was set last. (§8)"""
    config = config_with(TopicConfig(), before)
    assert given(config) == before
    config = changed(config, {name: (SET, text) for name, text in after.items()})
    assert given(config) == {**before, **after}
    assert with_kept(config) == config
    deleted = changed(config, dict.fromkeys(VALUES, (DELETE, "")))
    assert deleted == TopicConfig()


# ---------------------------------------------------------------------- over HTTP


def test_texts_are_kept_as_they_are_shown() -> None:
    assert with_kept(TopicConfig()) == TopicConfig()
    config = with_kept(TopicConfig(kafka_configs={"segment.ms": " 5 ", "retention.ms": "-1"}))
    assert config.kafka_configs == {"segment.ms": "5", "retention.ms": "-1"}


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (TopicConfig(kafka_configs={"no.such": "5"}), "no config"),
        (TopicConfig(kafka_configs={"segment.ms": "x"}), "a whole number"),
        (TopicConfig(kafka_configs={"retention.ms": "5"}), 'retention.ms is "-1"'),
        (TopicConfig(ttl_ms=5, kafka_configs={"retention.ms": "-1"}), 'retention.ms is "5"'),
        (TopicConfig(kafka_configs={"cleanup.policy": "compact"}), 'cleanup.policy is "delete"'),
        (TopicConfig(compact=True, kafka_configs={"cleanup.policy": ""}), 'is "compact"'),
        (
            TopicConfig(ttl_ms=5, compact=True, kafka_configs={"cleanup.policy": "compact"}),
            'is "compact,delete"',
        ),
    ],
)
def test_no_text_says_what_a_field_says_otherwise(config: TopicConfig, words: str) -> None:
    """Else two truths stood in one config."""
    with pytest.raises(BadConfig, match=words):
        with_kept(config)


def test_a_default_is_a_value_of_every_config() -> None:
    for name, text in DEFAULTS.items():
        assert CONFIGS[name].parsed(text) == text
