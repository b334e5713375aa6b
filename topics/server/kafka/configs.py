"""Configs of topics and of this server, as clients read them."""

from typing import Any, Final

from topics.protocol.faces.kafka import configs, errors
from topics.protocol.faces.kafka.names import is_shown
from topics.protocol.model.commands import DescribeTopics
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.fetched import TopicsDescribed
from topics.server.kafka.call import NODE, Call
from topics.server.kafka.steps import Steps

TOPIC, BROKER = 2, 4
"""Kinds of resources, by Kafka's numbers."""
_OF_TOPIC, _DEFAULT, _STATIC = 1, 5, 4
"""Where a value comes from, by Kafka's numbers."""


def describe_configs(call: Call) -> Steps[Any]:
    """The configs of some topics, or of this server."""
    T, results = call.T, []
    for asked in call.request.resources:
        result = T.DescribeConfigsResult(
            resource_type=asked.resource_type, resource_name=asked.resource_name
        )
        found: dict[str, Any] = {}
        if asked.resource_type == TOPIC:
            found = yield from _of_topic(call, asked.resource_name, result)
        elif asked.resource_type == BROKER:
            found = _of_broker(call, asked.resource_name, result)
        else:
            result.error_code = errors.INVALID_REQUEST
            result.error_message = (
                f"topics has no configs of resources of type {asked.resource_type}"
            )
        keys = asked.configuration_keys
        result.configs = [each for name, each in found.items() if keys is None or name in keys]
        results.append(result)
    return T.DescribeConfigsResponse(results=results)


def _of_topic(call: Call, name: str, result: Any) -> Steps[dict[str, Any]]:
    lacks = call.lacks("read", name)
    if lacks is not None:
        result.error_code, result.error_message = errors.TOPIC_AUTHORIZATION_FAILED, lacks.message
        return {}
    described: TopicsDescribed = yield from call.ask(DescribeTopics(names=[name]))
    if not described.topics or not is_shown(name):
        result.error_code = errors.UNKNOWN_TOPIC_OR_PARTITION
        result.error_message = f"there is no topic '{name}'"
        return {}
    config = described.topics[0].config
    default = configs.shown(TopicConfig())
    found = {}
    for key, value in configs.shown(config).items():
        source = _DEFAULT if value == default[key] else _OF_TOPIC
        found[key] = _entry(call, key, value, source, configs.CONFIGS[key])
    return found


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
    named = configs.Named(configs.STRING, str, lambda _: {}, is_read_only=True)
    return {key: _entry(call, key, value, _STATIC, named) for key, value in values.items()}


def _entry(call: Call, name: str, value: str, source: int, named: configs.Named) -> Any:
    T = call.T
    synonyms = []
    if call.request.include_synonyms:
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
