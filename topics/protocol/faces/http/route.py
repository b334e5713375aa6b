"""A row of the route table, and what a request brings to its parser."""

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Final, Literal

import msgspec

from topics.protocol.model.access import SCOPES, Scope
from topics.protocol.model.commands import FACTS, Append, Command
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.names import is_topic_name, require_topic_name
from topics.protocol.model.records import Buffer

Guard = Literal[
    "read", "write", "read+write", "read+write+delete", "delete", "admin", "probe", "socket", "open"
]
"""Who may use a route: who has these scopes; `socket`: any key, and each of its commands asks for
scopes of its own; `probe`: everybody, or any key; `open`: everybody (§0.2, §8)."""


class BodyRule(Enum):
    """Whether a request has a body that is read."""

    NONE = "none"
    JSON = "json"
    JSON_OR_EMPTY = "json or empty"
    """A body of no bytes stands for `{}`, whatever its Content-Type is."""


# Paths of requests read these: Python 3.11 finds a member of an Enum through its metaclass, slowly.
NO_BODY: Final = BodyRule.NONE


class Probe(Enum):
    """Requests that the shell answers without the engine, ready or not."""

    PAGE = "page"
    HEALTH = "health"
    READY = "ready"
    METRICS = "metrics"
    LIMITS = "limits"
    OPENAPI = "openapi"
    DOCS = "docs"
    CONSOLE = "console"
    HISTORY = "history"
    CLIENTS = "clients"
    CLUSTER = "cluster"
    TRIM = "trim"


class StreamKind(Enum):
    """Requests that are answered by a stream."""

    WATCH = "watch"
    WORK = "work"
    SOCKET = "socket"


class Request(msgspec.Struct, frozen=True):
    """What a route's parser gets: the decoded name, the query, headers it may read, the body.

    `item` is what a second `:` of the path stands for.  `entropy` makes an unguessable name; randomness is the shell's.  `pause` is called between the steps
    in which a large body is read: it lets others have the interpreter.
    """

    name: str
    query: Mapping[str, str]
    header: Callable[[bytes], bytes | None]
    body: Buffer
    limits: Limits
    entropy: Callable[[], str]
    pause: Callable[[], None] = lambda: None
    item: str = ""


Parser = Callable[[Request], Command]


class Route(msgspec.Struct, frozen=True):
    """One row: method and path, where `:` stands for a name; what may be done with it."""

    method: str
    path: tuple[bytes, ...]
    guard: Guard
    body: BodyRule
    target: Parser | Probe | StreamKind
    command: type[Command] | None
    """What the parser makes; of a push stream what it goes on doing; None: no single command."""
    scopes: frozenset[Scope]
    """What a key needs."""
    has_name: bool
    """Whether `:` is the name of a topic, a router or a group."""
    has_item: bool
    """Whether there is a second `:`, for something below that."""
    takes_token: bool
    """Whether a key may come as `?token=`, because the `EventSource` of a browser sends no header
    (§7.1)."""

    def max_body_bytes(self, limits: Limits) -> int:
        """What its body may have.  Only a write has records; any other body is parsed in one call, on
        the event loop, and everything that is of use in it is bounded by other limits."""
        if self.command is Append:
            return limits.max_body_bytes
        return min(limits.max_body_bytes, limits.max_command_bytes)

    @property
    def is_read(self) -> bool:
        """Whether it changes nothing that an event tells; what comes over a WebSocket says so itself."""
        return self.command is None or FACTS[self.command].is_read

    @property
    def line(self) -> str:
        """As the table spells it: `GET /v0/topics/:`."""
        return f"{self.method} /{b'/'.join(self.path).decode()}"


def name_to_read(request: Request) -> str:
    """The name in a read: 404 where no topic can have it."""
    if not is_topic_name(request.name):
        raise no_such_name(request.name)
    return request.name


def no_such_name(name: str) -> Rejection:
    return Rejection(ErrorCode.TOPIC_NOT_FOUND, "no topic has such a name", {"topic": name[:256]})


def name_to_write(request: Request) -> str:
    return require_topic_name(request.name)


def header_text(value: bytes) -> str:
    """A header as the same text would stand in a body; what is not UTF-8 is read as Latin-1."""
    try:
        return value.decode()
    except UnicodeDecodeError:
        return value.decode("latin-1")


def _path(text: str) -> tuple[bytes, ...]:
    return tuple(text.encode().split(b"/")[1:])


def route(
    line: str,
    guard: Guard,
    target: Parser | Probe | StreamKind,
    body: BodyRule = BodyRule.NONE,
    *,
    makes: type[Command] | None = None,
) -> Route:
    method, text = line.split()
    path = _path(text)
    return Route(
        method,
        path,
        guard,
        body,
        target,
        makes,
        scopes=SCOPES.intersection(guard.split("+")),
        has_item=path.count(b":") > 1,
        has_name=b":" in path and path[1] in (b"topics", b"routers", b"groups", b"schedules"),
        takes_token=target in (StreamKind.WATCH, StreamKind.WORK),
    )


ANY_BODY: Final = BodyRule.JSON_OR_EMPTY
