"""What the document says of one route: its purpose, what it takes and answers, an example."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias

import msgspec
import orjson

from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.limits import (
    PAGE_SIZE_DEFAULT,
)

Shape: TypeAlias = type[msgspec.Struct]

Schema: TypeAlias = dict[str, Any]

JSON: Final = "application/json"

STREAM: Final = "text/event-stream"

TEXT: Final[Schema] = {"type": "string"}


class Parameter(msgspec.Struct, frozen=True):
    """A parameter of the query, or a header."""

    name: str
    description: str
    schema: Schema
    place: str = "query"
    required: bool = False


@dataclass(frozen=True, slots=True)
class Example:
    """One request and its answer.

    Attributes:
        answer: By media type: a text, or what its JSON says.
        name: What stands in the path in place of the name; `item` in place of the second one.
        query: Parameters of the query, as they are typed.
        body: JSON text.
        status: Of the answer.
        messages: Of a WebSocket, what a client says, by `op`.
    """

    answer: Mapping[str, Any]
    name: str = ""
    query: Mapping[str, str] = field(default_factory=dict)
    body: str = ""
    status: int = 200
    messages: Mapping[str, Any] = field(default_factory=dict)
    item: str = ""


@dataclass(frozen=True, slots=True)
class Operation:
    """One route.

    Attributes:
        name: The `operationId`; unique.
        answer: Shape of a good answer by media type; a type, or a schema.
        body: What a request says.
        creates: Whether a good answer is 201 where something was made.
        refusals: Codes that are its own.
        events: Shapes of a stream's `data` by event.
        messages: Shapes of what a client says over a WebSocket, by `op`.
        is_stable: Whether it has an `ETag` and no `performance`, and may be 304.
        description: What it does, in sentences: what a client has to know before it calls; the reference is
            docs/api.md.
        takes: What a body is, of a route that reads one.
        gives: What a good answer is.
        example: What a client sends, and what it gets.
    """

    tag: str
    name: str
    summary: str
    answer: Mapping[str, Shape | Schema]
    body: Shape | None = None
    parameters: tuple[Parameter, ...] = ()
    refusals: tuple[ErrorCode, ...] = ()
    creates: bool = False
    events: Mapping[str, Shape] = field(default_factory=dict)
    messages: Mapping[str, tuple[Shape, ...]] = field(default_factory=dict)
    is_stable: bool = False
    description: str = field(kw_only=True)
    takes: str = field(default="", kw_only=True)
    gives: str = field(kw_only=True)
    example: Example = field(kw_only=True)


def boolean(name: str, description: str, *, default: bool) -> Parameter:
    return Parameter(name, description, {"type": "boolean", "default": default})


def natural(name: str, description: str, default: int | None = None, **bounds: int) -> Parameter:
    schema: Schema = {"type": "integer", "minimum": 0, **bounds}
    return Parameter(
        name, description, schema if default is None else {**schema, "default": default}
    )


def json_of(shape: Shape | Schema) -> Mapping[str, Shape | Schema]:
    return {JSON: shape}


def json_text(text: str) -> Mapping[str, Any]:
    return {JSON: orjson.loads(text)}


EVENT_STREAM: Final[Mapping[str, Shape | Schema]] = {"text/event-stream": TEXT}

OF_A_TOPIC: Final = (ErrorCode.TOPIC_NOT_FOUND,)

OF_A_PARTITION: Final = (
    ErrorCode.TOPIC_NOT_FOUND,
    ErrorCode.PARTITION_NOT_FOUND,
    ErrorCode.PARTITION_REQUIRED,
)

OF_A_QUEUE: Final = (ErrorCode.TOPIC_NOT_FOUND, ErrorCode.NOT_A_QUEUE)

PAGE: Final = (
    Parameter("prefix", "Only names that begin so.", TEXT),
    natural("page_size", "At most 1000; 0 is the default.", PAGE_SIZE_DEFAULT),
    Parameter("cursor", "The `next_cursor` of the page before.", TEXT),
)

LISTED: Final = (
    "Names are in byte order. While there is a `next_cursor`, there is a further page: send it as "
    "`cursor`. Names outside of the key's prefixes are left out."
)
