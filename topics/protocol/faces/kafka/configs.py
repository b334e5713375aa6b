"""A topic's configs, as Kafka's clients name them.

Those that mean something here are fields of a topic's config.  What no field says is kept as text
(`model/kafka_configs`): configs without effect here, values that equal a field's default, and the retention of a topic
whose policy does not delete.  Anything else is refused by name.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

import msgspec
from msgspec import UNSET

from topics.protocol.model.config import MESSAGE_BYTES_MAX, TopicConfig
from topics.protocol.model.durability import durability_of
from topics.protocol.model.kafka_configs import (
    INT,
    KEPT,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    TEXT_MAX,
    items,
    whole_number,
)
from topics.protocol.model.names import quote

POLICY: Final = "cleanup.policy"
RETENTION: Final = ("retention.bytes", "retention.ms")
"""Apply where the policy deletes."""
_DELETE, _COMPACT = "delete", "compact"
_FOREVER: Final = -1
OWN: Final = "topics."
"""How the names begin that Kafka does not know."""


class BadConfig(Exception):
    """A config that no topic can have, in words."""


class Named(NamedTuple):
    """A config.

    Attributes:
        kind: Kafka's number of what its value is.
        shown: Its value of a topic's config.
        parsed: A value as it is shown; raises ValueError, of one line.
        fields: The fields of the config that a value is, as it is shown.
        is_read_only: Nobody sets it.
    """

    kind: int
    shown: Callable[[TopicConfig], str]
    parsed: Callable[[str], str]
    fields: Callable[[str], Mapping[str, Any]] = lambda _: {}
    is_read_only: bool = False


def _bounded(least: int, most: int, *, none: int | None = None) -> Callable[[str], str]:
    """Numbers, and one that stands for none."""

    def parsed(text: str) -> str:
        value = whole_number(text)
        if value != none and not least <= value <= most:
            raise ValueError(
                f"a number from {least} to {most}" + (f", or {none} for none" if none else "")
            )
        return str(value)

    return parsed


def _member(*allowed: str) -> Callable[[str], str]:
    def parsed(text: str) -> str:
        value = text.strip()
        if value not in allowed:
            raise ValueError(" or ".join(allowed))
        return value

    return parsed


def _policy_of(text: str) -> str:
    """Empty is a policy: records stay, whatever their age and number."""
    policy = items(text)
    if any(each not in (_DELETE, _COMPACT) for each in policy):
        raise ValueError(f"{_DELETE}, {_COMPACT}, or both")
    return ",".join(policy)


def _policy(config: TopicConfig) -> str:
    """As it was given, where that is what the topic does; else by what it does."""
    deletes = bool(config.ttl_ms or config.cap_bytes)
    given = (config.kafka_configs or {}).get(POLICY)
    if given is not None:
        policy = items(given)
        if (_COMPACT in policy) == config.is_compacted and (_DELETE in policy or not deletes):
            return given
    if not config.is_compacted:
        return _DELETE
    return f"{_COMPACT},{_DELETE}" if deletes else _COMPACT


def _retention(name: str, field: str) -> Named:
    """A bound of ours, whose 0 is Kafka's -1; kept as text where the topic's policy does not delete."""

    bound = _bound(field)

    def shown(config: TopicConfig) -> str:
        if getattr(config, field) or _DELETE in items(_policy(config)):
            return bound.shown(config)
        return (config.kafka_configs or {}).get(name, str(_FOREVER))

    return bound._replace(shown=shown)


def _bound(field: str) -> Named:
    def shown(config: TopicConfig) -> str:
        return str(min(getattr(config, field), LONG_MAX) or _FOREVER)

    return Named(
        LONG,
        shown,
        _bounded(1, LONG_MAX, none=_FOREVER),
        lambda text: {field: max(int(text), 0)},
    )


def _kept(name: str) -> Named:
    kept = KEPT[name]
    return Named(kept.kind, lambda config: config.kafka_config(name), kept.parsed)


def _durability(text: str) -> dict[str, Any]:
    return {"durability": text, "durable": text == durability_of(durable=True)}


CONFIGS: Final[Mapping[str, Named]] = dict(
    sorted(
        {
            **{name: _kept(name) for name in KEPT},
            POLICY: Named(LIST, _policy, _policy_of),
            "max.message.bytes": Named(
                INT,
                lambda each: str(each.batch_bytes_max),
                _bounded(1, MESSAGE_BYTES_MAX),
                lambda text: {"max_message_bytes": int(text)},
            ),
            "message.timestamp.type": Named(
                STRING,
                lambda each: "LogAppendTime" if each.has_append_time else "CreateTime",
                _member("CreateTime", "LogAppendTime"),
                lambda text: {"message_timestamp_type": text},
            ),
            "min.insync.replicas": Named(INT, lambda _: "1", _member("1"), is_read_only=True),
            "retention.bytes": _retention("retention.bytes", "cap_bytes"),
            "retention.ms": _retention("retention.ms", "ttl_ms"),
            "topics.cap.records": _bound("cap_records"),
            "topics.discard": Named(
                STRING,
                lambda each: each.discard,
                _member("old", "reject"),
                lambda text: {"discard": text},
            ),
            "topics.durability": Named(
                STRING,
                lambda each: each.durability,
                _member("ephemeral", "memory", "disk", "fsync"),
                _durability,
            ),
        }.items()
    )
)
"""By name."""


def shown(config: TopicConfig) -> dict[str, str]:
    """The configs of a topic, by name."""
    return {name: named.shown(config) for name, named in CONFIGS.items()}


DEFAULTS: Final[Mapping[str, str]] = shown(TopicConfig())
_UNSET_FIELDS: Final = {
    "max.message.bytes": "max_message_bytes",
    "message.timestamp.type": "message_timestamp_type",
}
"""Configs whose fields say whether anybody set them."""
_RESET: Final[Mapping[str, Any]] = {
    **{
        field: value
        for name, named in CONFIGS.items()
        for field, value in named.fields(DEFAULTS[name]).items()
    },
    **dict.fromkeys(_UNSET_FIELDS.values(), UNSET),
    "kafka_configs": UNSET,
}
"""The fields of a config of which nothing was set."""


def given(config: TopicConfig) -> dict[str, str]:
    """The configs that somebody set, also to their defaults."""
    kept = config.kafka_configs or {}
    return {
        name: text
        for name, text in shown(config).items()
        if name in kept
        or text != DEFAULTS[name]
        or (name in _UNSET_FIELDS and getattr(config, _UNSET_FIELDS[name]) is not UNSET)
    }


def config_with(config: TopicConfig, given_: Mapping[str, str]) -> TopicConfig:
    """A config of which these configs are set, and no others; what Kafka has no name for stays.  Raises BadConfig."""
    texts = {name: parsed(name, text) for name, text in given_.items()}
    changes = dict(_RESET)
    policy = items(texts.get(POLICY, _DELETE))
    for name, text in texts.items():
        if name not in RETENTION or _DELETE in policy:
            changes.update(CONFIGS[name].fields(text))
    if config.is_compacted != (_COMPACT in policy):
        changes["compact"] = True if _COMPACT in policy else UNSET
    said = given(msgspec.structs.replace(config, **changes))
    kept = {name: text for name, text in sorted(texts.items()) if said.get(name) != text}
    return msgspec.structs.replace(config, **{**changes, "kafka_configs": kept or UNSET})


def parsed(name: str, text: str) -> str:
    """A value as it is shown.  Raises BadConfig."""
    named = CONFIGS.get(name)
    if named is None:
        raise BadConfig(f"topics knows no config {quote(name)}")
    _require_size(name, text)
    try:
        return named.parsed(text)
    except ValueError as error:
        raise BadConfig(f"{quote(text)} is no value of {name}: {error}") from error


def _require_size(name: str, text: str) -> None:
    if len(text) > TEXT_MAX:
        raise BadConfig(f"a value of {name} has at most {TEXT_MAX} characters")


def with_kept(config: TopicConfig) -> TopicConfig:
    """A config whose texts are as they are kept.  Raises BadConfig, where they say what a field says otherwise."""
    if config.kafka_configs is UNSET:
        return config
    texts = {name: parsed(name, text) for name, text in config.kafka_configs.items()}
    config = msgspec.structs.replace(config, kafka_configs=texts)
    for name, text in texts.items():
        found = CONFIGS[name].shown(config)
        if found != text:
            raise BadConfig(f"{name} is {quote(found)} by the fields of the config")
    return config


# ---------------------------------------------------------------------- changes

SET, DELETE, APPEND, SUBTRACT = range(4)
"""What becomes of one config, by Kafka's numbers."""


def changed(config: TopicConfig, changes: Mapping[str, tuple[int, str]]) -> TopicConfig:
    """A config after some changes: the operation on a name, and its text.  Raises BadConfig."""
    texts = given(config)
    for name, (operation, text) in changes.items():
        if operation == SET:
            texts[name] = text
        elif operation == DELETE:
            texts.pop(name, None)
        else:
            texts[name] = _listed(name, operation, text, texts)
    return config_with(config, texts)


def _listed(name: str, operation: int, text: str, texts: Mapping[str, str]) -> str:
    named = CONFIGS.get(name)
    if named is None or named.kind != LIST:
        raise BadConfig(f"{quote(name)} is no list, to which items are added or taken from it")
    _require_size(name, text)
    before = items(texts.get(name, DEFAULTS[name]))
    if operation == APPEND:
        return ",".join([*before, *items(text)])
    gone = items(text)
    return ",".join(each for each in before if each not in gone)


def replaced(config: TopicConfig, texts: Mapping[str, str]) -> TopicConfig:
    """A config of which these configs are set, and no others but those that Kafka does not know: a client of Kafka's
    does not know that it would reset them.  Raises BadConfig."""
    own = {name: text for name, text in given(config).items() if name.startswith(OWN)}
    return config_with(config, {**own, **texts})
