"""Configs of topics and of this server, as clients read them."""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final

from topics.protocol.faces.kafka import configs, errors
from topics.protocol.faces.kafka.names import is_shown
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import DescribeTopics
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.fetched import TopicsDescribed
from topics.protocol.model.names import quote
from topics.server.kafka.call import NODE, Call
from topics.server.kafka.steps import Steps

TOPIC, BROKER = 2, 4
"""Kinds of resources, by Kafka's numbers."""
_OF_TOPIC, _DEFAULT, _STATIC = 1, 5, 4
"""Where a value comes from, by Kafka's numbers."""
ENTRIES_KEPT: Final = 1000
"""Entries of answers that are kept, for the next that says the same."""
ENTRIES_LONG: Final = 1000
"""Entries of one answer that are encoded at once; more are encoded by a thread."""
ENTRIES_MAX: Final = 50_000
"""Entries of one answer, to the end of a topic's: those of nearly two thousand topics."""
_BROKERS: Final = configs.Named(configs.STRING, str, lambda _: {}, is_read_only=True)


def describe_configs(call: Call) -> Steps[Any]:
    """The configs of some topics, or of this server."""
    T, results, entries = call.T, [], 0
    for asked in call.request.resources:
        result = T.DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        found: dict[str, Any] = {}
        if entries > ENTRIES_MAX:
            result.error_code = errors.INVALID_REQUEST
            result.error_message = f"a request describes about {ENTRIES_MAX} configs, and no more"
        elif asked.resource_type == TOPIC:
            found = yield from _of_topic(call, asked.resource_name, result)
        elif asked.resource_type == BROKER:
            found = _of_broker(call, asked.resource_name, result)
        else:
            result.error_code = errors.INVALID_REQUEST
            result.error_message = (
                f"topics has no configs of resources of type {asked.resource_type}"
            )
        keys = asked.configuration_keys  # none at all are all, as in Kafka
        result.configs = [each for name, each in found.items() if not keys or name in keys]
        results.append(result)
        entries += len(result.configs)
    call.is_long = entries > ENTRIES_LONG
    return T.DescribeConfigsResponse(results=results)


def _of_topic(call: Call, name: str, result: Any) -> Steps[dict[str, Any]]:
    lacks = call.lacks("read", name)
    if lacks is not None:
        result.error_code, result.error_message = errors.TOPIC_AUTHORIZATION_FAILED, lacks.message
        return {}
    described: TopicsDescribed = yield from call.ask(DescribeTopics(names=[name]))
    if not described.topics or not is_shown(name):
        result.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = f"there is no topic {quote(name)}"
        return {}
    has_synonyms = call.request.include_synonyms
    return {
        key: _entry(key, value, source, configs.CONFIGS[key], has_synonyms)
        for key, value, source in _sourced(described.topics[0].config)
    }


def _sourced(config: TopicConfig) -> Iterator[tuple[str, str, int]]:
    """Name and value of each config of a topic, and where it comes from."""
    default = configs.shown(TopicConfig())
    for key, value in configs.shown(config).items():
        yield key, value, _DEFAULT if value == default[key] else _OF_TOPIC


def of_created(config: TopicConfig) -> list[Any]:
    """What a client that makes a topic is told of its configs: Java's waits for them."""
    return [_created(key, value, source) for key, value, source in _sourced(config)]


@lru_cache(ENTRIES_KEPT)
def _created(name: str, value: str, source: int) -> Any:
    """As `_entry`."""
    return types("CreateTopicsResponse").CreatableTopicConfigs(
        name=name,
        value=value,
        read_only=configs.CONFIGS[name].is_read_only,
        config_source=source,
    )


def _of_broker(call: Call, name: str, result: Any) -> dict[str, Any]:
    lacks = call.lacks("admin")
    if lacks is not None:
        result.error_code, result.error_message = errors.CLUSTER_AUTHORIZATION_FAILED, lacks.message
        return {}
    if name not in ("", str(NODE)):
        result.error_code = errors.INVALID_REQUEST
        result.error_message = f"this server is number {NODE}"
        return {}
    values: Final = {
        "auto.create.topics.enable": str(call.rules.auto_create).lower(),
        "default.replication.factor": "1",
        "log.message.timestamp.type": "CreateTime",
        "message.max.bytes": configs.CONFIGS["max.message.bytes"].shown(TopicConfig()),
        "min.insync.replicas": "1",
        "num.partitions": "1",
    }
    has_synonyms = call.request.include_synonyms
    return {
        key: _entry(key, value, _STATIC, _BROKERS, has_synonyms) for key, value in values.items()
    }


@lru_cache(ENTRIES_KEPT)
def _entry(name: str, value: str, source: int, named: configs.Named, has_synonyms: bool) -> Any:
    """One entry, which all topics share that have this value: nobody changes it."""
    T = types("DescribeConfigsResponse")
    synonyms = []
    if has_synonyms:
        synonyms = [T.DescribeConfigsSynonym(name=name, value=value, source=source)]
    return T.DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=named.is_read_only,
        config_source=source,
        synonyms=synonyms,
        config_type=named.kind,
        documentation=None,
    )
