"""Configs of topics, as clients read and change them, and of this server, which they only read."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any, Final

from topics.protocol.faces.kafka import configs, errors
from topics.protocol.faces.kafka.configs import BadConfig
from topics.protocol.faces.kafka.names import is_legal, is_shown
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.commands import DescribeTopics, PutTopic
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import Rejection
from topics.protocol.model.fetched import TopicsDescribed
from topics.protocol.model.kafka_configs import STRING
from topics.protocol.model.names import quote
from topics.protocol.model.outcomes import TopicPut
from topics.server.kafka.call import Call
from topics.server.kafka.steps import Steps

TOPIC, BROKER = 2, 4
"""Kinds of resources, by Kafka's numbers."""
_OF_TOPIC, _DEFAULT, _STATIC = 1, 5, 4
"""Where a value comes from, by Kafka's numbers."""
IN_SYNC: Final = "min.insync.replicas"
"""The log's, and so every topic's."""
ENTRIES_KEPT: Final = 1000
"""Entries of answers that are kept, for the next that says the same."""
ENTRIES_LONG: Final = 1000
"""Entries of one answer that are encoded at once; more are encoded by a thread."""
ENTRIES_MAX: Final = 50_000
"""Entries of one answer, to the end of a topic's: those of some thousand topics."""
TRIES: Final = 100
"""Of a change, while others change the same topic: each try that fails is a change of theirs that did not."""
_BROKERS: Final = configs.Named(STRING, str, str, is_read_only=True)


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
            result.error_message = _no_configs(asked.resource_type)
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
        result.error_code, result.error_message = _no_topic(name)
        return {}
    has_synonyms = call.request.include_synonyms
    return {
        key: _entry(key, value, source, configs.CONFIGS[key], has_synonyms)
        for key, value, source in _sourced(call, described.topics[0].config)
    }


def _no_topic(name: str) -> tuple[int, str]:
    """The error of a topic that is not there, and why."""
    code = errors.UNKNOWN_TOPIC_OR_PARTITION if is_legal(name) else errors.INVALID_TOPIC
    return code, f"there is no topic {quote(name)}"


def _no_configs(kind: int) -> str:
    return f"topics has no configs of resources of type {kind}"


def settable(call: Call, given: Sequence[Any]) -> list[Any]:
    """Configs that a client gives, without the log's own where it has the log's value."""
    own = IN_SYNC, str(call.nodes.min_in_sync)
    return [each for each in given if (each.name, each.value) != own]


def _sourced(call: Call, config: TopicConfig) -> Iterator[tuple[str, str, int]]:
    """Name and value of each config of a topic, and where it comes from."""
    given = configs.given(config)
    for key, value in configs.shown(config).items():
        if key == IN_SYNC:
            yield key, str(call.nodes.min_in_sync), _DEFAULT
        else:
            yield key, value, _OF_TOPIC if key in given else _DEFAULT


def of_created(call: Call, config: TopicConfig) -> list[Any]:
    """What a client that makes a topic is told of its configs: Java's waits for them."""
    return [_created(key, value, source) for key, value, source in _sourced(call, config)]


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
    if name not in ("", str(call.nodes.number)):
        result.error_code = errors.INVALID_REQUEST
        result.error_message = f"this server is number {call.nodes.number}"
        return {}
    values: Final = {
        "auto.create.topics.enable": str(call.rules.auto_create).lower(),
        "default.replication.factor": str(call.nodes.replicas),
        "delete.topic.enable": "true",
        "log.cleanup.policy": configs.DEFAULTS["cleanup.policy"],
        "log.message.timestamp.type": configs.DEFAULTS["message.timestamp.type"],
        "log.retention.bytes": configs.DEFAULTS["retention.bytes"],
        "log.retention.ms": configs.DEFAULTS["retention.ms"],
        "message.max.bytes": configs.DEFAULTS["max.message.bytes"],
        IN_SYNC: str(call.nodes.min_in_sync),
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
        values = [(value, source)]
        if source == _OF_TOPIC:
            values.append((configs.DEFAULTS[name], _DEFAULT))
        synonyms = [
            T.DescribeConfigsSynonym(name=name, value=each, source=of) for each, of in values
        ]
    return T.DescribeConfigsResourceResult(
        name=name,
        value=value,
        read_only=named.is_read_only,
        config_source=source,
        synonyms=synonyms,
        config_type=named.kind,
        documentation=None,
    )


# ---------------------------------------------------------------------- changed

Change = Callable[[TopicConfig], TopicConfig]
"""A config, and what becomes of it; raises BadConfig."""
_READ_ONLY: Final = (
    "a server's configs are the settings of its process: set them there, and start it again"
)
_OPERATIONS: Final = (configs.SET, configs.DELETE, configs.APPEND, configs.SUBTRACT)


def alter_configs(call: Call) -> Steps[Any]:
    """Give topics these configs, and no others."""
    return (yield from _altered(call, call.T.AlterConfigsResponse, _replacement))


def incremental_alter_configs(call: Call) -> Steps[Any]:
    """Change some configs of topics."""
    return (yield from _altered(call, call.T.IncrementalAlterConfigsResponse, _increment))


def _replacement(asked: Sequence[Any]) -> Change:
    texts = {each.name: each.value for each in asked}
    _require_values(each.name for each in asked if each.value is None)
    return lambda config: configs.replaced(config, texts)


def _increment(asked: Sequence[Any]) -> Change:
    for each in asked:
        if each.config_operation not in _OPERATIONS:
            raise ValueError(f"there is no operation {each.config_operation} on a config")
    changes = {each.name: (each.config_operation, each.value) for each in asked}
    _require_values(
        each.name
        for each in asked
        if each.value is None and each.config_operation != configs.DELETE
    )
    return lambda config: configs.changed(config, changes)


def _require_values(names: Iterator[str]) -> None:
    """Raises ValueError: some have none."""
    name = next(names, None)
    if name is not None:
        raise ValueError(f"{quote(name)} has no value")


def _altered(
    call: Call, response: Callable[..., Any], change_of: Callable[[Sequence[Any]], Change]
) -> Steps[Any]:
    """Change the configs of each resource, or of none of its own where one of them is refused."""
    T, request, responses = call.T, call.request, []
    named = Counter((each.resource_type, each.resource_name) for each in request.resources)
    for asked in request.resources:
        kind, name = asked.resource_type, asked.resource_name
        is_twice = named[kind, name] > 1
        code, why = yield from _changed(
            call, kind, name, asked.configs, change_of, is_twice=is_twice
        )
        responses.append(
            T.AlterConfigsResourceResponse(
                error_code=code, error_message=why, resource_type=kind, resource_name=name
            )
        )
        yield from call.part_done()
    return response(responses=responses)


def _changed(
    call: Call,
    kind: int,
    name: str,
    asked: Sequence[Any],
    change_of: Callable[[Sequence[Any]], Change],
    *,
    is_twice: bool,
) -> Steps[tuple[int, str | None]]:
    """Change one resource; its error, 0 where there is none, and why."""
    if is_twice:
        return errors.INVALID_REQUEST, "the request names the resource twice"
    lacks = call.lacks("admin", name) if kind == TOPIC else call.lacks("admin")
    if lacks is not None:
        code = (
            errors.TOPIC_AUTHORIZATION_FAILED
            if kind == TOPIC
            else errors.CLUSTER_AUTHORIZATION_FAILED
        )
        return code, lacks.message
    if kind == BROKER:
        return errors.INVALID_REQUEST, _READ_ONLY
    if kind != TOPIC:
        return errors.INVALID_REQUEST, _no_configs(kind)
    if len({each.name for each in asked}) < len(asked):
        return errors.INVALID_REQUEST, "the request names a config twice"
    try:
        change = change_of(settable(call, asked))
    except ValueError as error:
        return errors.INVALID_REQUEST, str(error)
    described: TopicsDescribed = yield from call.ask(DescribeTopics(names=[name]))
    if not described.topics or not is_shown(name):
        return _no_topic(name)
    return (yield from _put(call, name, described.topics[0].config, change))


def _put(
    call: Call, name: str, config: TopicConfig, change: Change
) -> Steps[tuple[int, str | None]]:
    """Put a changed config in the place of the one that it was made of, or of what another made of that."""
    for _ in range(TRIES):
        try:
            wanted = change(config)
        except BadConfig as error:
            return errors.INVALID_CONFIG, str(error)
        if call.request.validate_only:
            return 0, None
        try:
            put: TopicPut = yield from call.ask(PutTopic(name, wanted, True, previous=config))
        except Rejection as refusal:
            return errors.code_of(refusal), refusal.message
        if put.config == wanted:
            return 0, None
        config = put.config
    return errors.REQUEST_TIMED_OUT, f"others change topic {quote(name)} all the time"
