"""Configs as clients read them (§8)."""

from typing import Any

import pytest

from topics.protocol.faces.kafka import errors
from topics.protocol.faces.kafka.configs import CONFIGS
from topics.protocol.faces.kafka.schema import types
from topics.server.kafka import configs
from topics.server.kafka.call import Rules

from .desk import KafkaDesk


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
    for name in ("t", "n" * 32_767):
        found = describe(desk, 2, name, version=1)
        assert (found.error_code, found.configs) == (errors.UNKNOWN_TOPIC_OR_PARTITION, [])
    assert describe(desk, 8, "1").error_code == errors.INVALID_REQUEST
