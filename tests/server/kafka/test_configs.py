"""Configs as clients read them (§8)."""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.configs import CONFIGS
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.config import TopicConfig
from topics.server.kafka import configs
from topics.server.kafka.call import Rules

from .desk import KafkaDesk, Meddler
from .test_login import guarded, login


def describe(desk: KafkaDesk, kind: int, name: str, keys: Any = None, **fields: Any) -> Any:
    T = types("DescribeConfigsRequest")
    asked = T.DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=keys
    )
    (found,) = desk.ask("DescribeConfigs", resources=[asked], **fields).results
    assert (found.resource_type, found.resource_name) == (kind, name)
    return found


@pytest.fixture
def desk() -> KafkaDesk:
    made = KafkaDesk()
    made.create()
    return made


def test_a_topic_shows_every_config() -> None:
    """With where it comes from: the topic's own, or the default."""
    desk = KafkaDesk()
    desk.create(retention_bytes="5000")
    found = {each.name: each for each in describe(desk, 2, "t").configs}
    assert found.keys() == CONFIGS.keys()
    assert (found["retention.bytes"].value, found["retention.bytes"].config_source) == ("5000", 1)
    assert (found["retention.ms"].value, found["retention.ms"].config_source) == ("-1", 5)
    assert found["min.insync.replicas"].read_only
    assert found["cleanup.policy"].value == "delete"


def test_some_configs_and_their_synonyms(desk: KafkaDesk) -> None:
    found = describe(desk, 2, "t", ["retention.ms", "x"], include_synonyms=True)
    (only,) = found.configs
    assert [(each.name, each.value) for each in only.synonyms] == [("retention.ms", "-1")]
    alter(desk, ("retention.ms", SET, "7"))
    (only,) = describe(desk, 2, "t", ["retention.ms"], include_synonyms=True).configs
    assert [(each.value, each.source) for each in only.synonyms] == [("7", 1), ("-1", 5)]


def test_no_configs_by_name_are_all(desk: KafkaDesk) -> None:
    """As in Kafka, beside null."""
    assert len(describe(desk, 2, "t", []).configs) == len(CONFIGS)


def test_many_topics_are_described_by_a_thread_and_too_many_are_refused(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each by itself: a request of 400 kB would else be answered by gigabytes, and nobody served meanwhile. (§9)"""
    monkeypatch.setattr(configs, "ENTRIES_LONG", 1)
    monkeypatch.setattr(configs, "ENTRIES_MAX", len(CONFIGS))
    T = types("DescribeConfigsRequest")
    asked = [T.DescribeConfigsResource(resource_type=2, resource_name="t", configuration_keys=None)]

    found = desk.ask("DescribeConfigs", resources=asked * 3).results

    assert [each.error_code for each in found] == [0, 0, errors.INVALID_REQUEST]
    assert [len(each.configs) for each in found] == [len(CONFIGS), len(CONFIGS), 0]
    assert "no more" in found[2].error_message


def test_the_server_has_a_few() -> None:
    desk = KafkaDesk(rules=Rules(auto_create=False))
    for name in ("1", ""):
        found = {each.name: each for each in describe(desk, 4, name).configs}
        assert found["auto.create.topics.enable"].value == "false"
        assert found["num.partitions"].read_only
    assert describe(desk, 4, "2").error_code == errors.INVALID_REQUEST


def test_what_is_not_there() -> None:
    desk = KafkaDesk()
    for name in ("t", "_t"):
        found = describe(desk, 2, name, version=1)
        assert (found.error_code, found.configs) == (errors.UNKNOWN_TOPIC_OR_PARTITION, [])
    for name in ("", ".", "..", "a b", "n" * 32_767):
        found = describe(desk, 2, name, version=1)
        assert (found.error_code, found.configs) == (errors.INVALID_TOPIC, [])
    assert describe(desk, 8, "1").error_code == errors.INVALID_REQUEST


# ---------------------------------------------------------------------- changed

SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(desk: KafkaDesk, *changes: Any, kind: int = 2, name: str = "t", **fields: Any) -> Any:
    """Change configs one by one: each a name, an operation and a value."""
    T = types("IncrementalAlterConfigsRequest")
    asked = [
        T.AlterableConfig(name=key, config_operation=operation, value=value)
        for key, operation, value in changes
    ]
    resource = T.AlterConfigsResource(resource_type=kind, resource_name=name, configs=asked)
    (found,) = desk.ask("IncrementalAlterConfigs", resources=[resource], **fields).responses
    assert (found.resource_type, found.resource_name) == (kind, name)
    return found


def replace(desk: KafkaDesk, *texts: Any, kind: int = 2, name: str = "t", **fields: Any) -> Any:
    """Give a topic these configs and no others."""
    T = types("AlterConfigsRequest")
    asked = [T.AlterableConfig(name=key, value=value) for key, value in texts]
    resource = T.AlterConfigsResource(resource_type=kind, resource_name=name, configs=asked)
    (found,) = desk.ask("AlterConfigs", resources=[resource], **fields).responses
    return found


def given(desk: KafkaDesk) -> dict[str, str]:
    """The configs that somebody set."""
    found = describe(desk, 2, "t").configs
    return {each.name: each.value for each in found if each.config_source == 1}


def config_of(desk: KafkaDesk) -> TopicConfig:
    return desk.shell.engine.state.topics["t"].config


@pytest.mark.parametrize("version", [0, 1])
def test_one_config_is_changed_and_the_others_stay(version: int) -> None:
    """Also what Kafka has no name for. (§8)"""
    desk = KafkaDesk()
    desk.create(retention_ms="5", segment_ms="6", topics_durability="fsync")
    changes = [("retention.ms", SET, "7"), ("segment.ms", DELETE, None), ("flush.ms", SET, "8")]
    assert alter(desk, *changes, version=version).error_code == 0
    assert given(desk) == {"retention.ms": "7", "flush.ms": "8", "topics.durability": "fsync"}
    assert config_of(desk).ttl_ms == 7


def test_lists_get_and_lose_items(desk: KafkaDesk) -> None:
    assert alter(desk, ("cleanup.policy", APPEND, "compact")).error_code == 0
    assert given(desk) == {"cleanup.policy": "delete,compact"}
    assert alter(desk, ("cleanup.policy", SUBTRACT, "delete")).error_code == 0
    assert config_of(desk).is_compacted


@pytest.mark.parametrize("version", range(3))
def test_all_configs_are_replaced(version: int) -> None:
    """But for those that an older client does not know that it takes away. (§8)"""
    desk = KafkaDesk()
    desk.create(retention_ms="5", segment_ms="6", topics_durability="fsync")
    assert replace(desk, ("flush.ms", "8"), version=version).error_code == 0
    assert given(desk) == {"flush.ms": "8", "topics.durability": "fsync"}
    assert replace(desk).error_code == 0
    assert given(desk) == {"topics.durability": "fsync"}


def test_a_change_can_be_tried(desk: KafkaDesk) -> None:
    assert alter(desk, ("retention.ms", SET, "7"), validate_only=True).error_code == 0
    assert replace(desk, ("retention.ms", "7"), validate_only=True).error_code == 0
    bad = alter(desk, ("retention.ms", SET, "x"), validate_only=True)
    assert bad.error_code == errors.INVALID_CONFIG
    assert given(desk) == {}


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ([("retention.ms", SET, "x")], errors.INVALID_CONFIG, "a whole number"),
        ([("no.such", SET, "5")], errors.INVALID_CONFIG, "knows no config"),
        ([("retention.ms", APPEND, "5")], errors.INVALID_CONFIG, "is no list"),
        ([("retention.ms", SET, None)], errors.INVALID_REQUEST, "has no value"),
        ([("cleanup.policy", APPEND, None)], errors.INVALID_REQUEST, "has no value"),
        ([("retention.ms", 9, "5")], errors.INVALID_REQUEST, "no operation 9"),
        (
            [("retention.ms", SET, "5"), ("retention.ms", DELETE, None)],
            errors.INVALID_REQUEST,
            "twice",
        ),
        ([("flush.ms", SET, "5"), ("retention.ms", SET, "x")], errors.INVALID_CONFIG, "a whole"),
    ],
)
def test_a_change_is_made_whole_or_refused(
    desk: KafkaDesk, changes: Any, code: int, words: str
) -> None:
    """With Kafka's codes, and a sentence. (§8)"""
    found = alter(desk, *changes)
    assert found.error_code == code
    assert words in found.error_message
    assert given(desk) == {}


@pytest.mark.parametrize(
    ("texts", "code", "words"),
    [
        ([("retention.ms", "x")], errors.INVALID_CONFIG, "a whole number"),
        ([("retention.ms", None)], errors.INVALID_REQUEST, "has no value"),
        ([("retention.ms", "5"), ("retention.ms", "6")], errors.INVALID_REQUEST, "twice"),
    ],
)
def test_a_replacement_is_made_whole_or_refused(
    desk: KafkaDesk, texts: Any, code: int, words: str
) -> None:
    found = replace(desk, *texts)
    assert found.error_code == code
    assert words in found.error_message
    assert given(desk) == {}


@pytest.mark.parametrize(
    ("kind", "name", "code", "words"),
    [
        (2, "u", errors.UNKNOWN_TOPIC_OR_PARTITION, "no topic"),
        (2, "a b", errors.INVALID_TOPIC, "no topic"),
        (4, "1", errors.INVALID_REQUEST, "settings of its process"),
        (4, "", errors.INVALID_REQUEST, "settings of its process"),
        (8, "1", errors.INVALID_REQUEST, "type 8"),
    ],
)
def test_what_has_no_configs_to_change(
    desk: KafkaDesk, kind: int, name: str, code: int, words: str
) -> None:
    for found in (
        alter(desk, ("retention.ms", SET, "5"), kind=kind, name=name),
        replace(desk, ("retention.ms", "5"), kind=kind, name=name),
    ):
        assert found.error_code == code
        assert words in found.error_message


def test_each_resource_is_changed_by_itself() -> None:
    """And one that is named twice not at all, as in Kafka."""
    desk = KafkaDesk()
    T = types("IncrementalAlterConfigsRequest")
    resources = []
    for name, text in (("t", "5"), ("u", "x"), ("v", "7"), ("t", "6")):
        desk.create(name)
        config = T.AlterableConfig(name="retention.ms", config_operation=SET, value=text)
        resources.append(
            T.AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
        )
    found = desk.ask("IncrementalAlterConfigs", resources=resources).responses
    assert [each.error_code for each in found] == [
        errors.INVALID_REQUEST,
        errors.INVALID_CONFIG,
        0,
        errors.INVALID_REQUEST,
    ]
    topics = desk.shell.engine.state.topics
    assert [topics[name].config.ttl_ms for name in "tuv"] == [0, 0, 7]


def test_a_change_takes_nothing_away_that_another_changed_meanwhile(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(desk.shell, "submit", Meddler(desk, times=3).submit)
    assert alter(desk, ("retention.ms", SET, "7")).error_code == 0
    assert (config_of(desk).ttl_ms, config_of(desk).cap_records) == (7, 1)


def test_a_change_that_never_finds_the_topic_at_rest_is_given_up(
    desk: KafkaDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a code upon which clients try again."""
    monkeypatch.setattr(desk.shell, "submit", Meddler(desk, times=configs.TRIES).submit)
    found = alter(desk, ("retention.ms", SET, "7"))
    assert found.error_code == errors.REQUEST_TIMED_OUT
    assert config_of(desk).ttl_ms == 0


def test_a_change_that_the_engine_refuses_says_why(desk: KafkaDesk) -> None:
    desk.shell.engine.on_failed()
    found = alter(desk, ("retention.ms", SET, "7"))
    assert found.error_code == errors.KAFKA_STORAGE_ERROR
    assert found.error_message


def test_who_may_change_configs() -> None:
    """Scope `admin`, and the prefix, as over HTTP. (§7)"""
    desk = guarded("a:admin+read,s:read,i:admin:in.")
    changes = [("retention.ms", SET, "7")]
    login(desk, "a")
    desk.create()
    assert alter(desk, *changes).error_code == 0
    login(desk, "s")
    assert alter(desk, *changes).error_code == errors.TOPIC_AUTHORIZATION_FAILED
    assert replace(desk, ("flush.ms", "8")).error_code == errors.TOPIC_AUTHORIZATION_FAILED
    assert alter(desk, kind=4, name="1").error_code == errors.CLUSTER_AUTHORIZATION_FAILED
    assert describe(desk, 4, "1").error_code == errors.CLUSTER_AUTHORIZATION_FAILED
    login(desk, "i")
    assert alter(desk, *changes).error_code == errors.TOPIC_AUTHORIZATION_FAILED
    assert config_of(desk).ttl_ms == 7
