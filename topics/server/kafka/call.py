"""One request of a client of Kafka's, and the client."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Final, TypeVar

import msgspec

from topics.protocol.driver.client_states import ClientState
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.kafka.apis import Asked
from topics.protocol.faces.kafka.roles import APIS, OF_EVERY_NODE, Role, told
from topics.protocol.faces.kafka.schema import types
from topics.protocol.model.access import ANYONE, Caller, Scope
from topics.protocol.model.commands import Command, FetchPart
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.outcomes import Outcome
from topics.protocol.model.permission import permitted
from topics.server.kafka.measures import KafkaMeasures
from topics.server.kafka.steps import Later, Steps
from topics.server.service.clients import AGENT_CHARS_MAX
from topics.server.service.clients import Client as Connected
from topics.server.service.nodes import Nodes, Seen
from topics.server.service.service import Service
from topics.server.service.shell import ThreadCall
from topics.server.service.slots import Slot, Slots

T = TypeVar("T")

TURN_S: Final = 0.002
"""A request of many parts gives way to others after this."""
LOOK_PARTS: Final = 16
"""Parts between two looks at the clock."""
NOWHERE: Final = 1 << 62
"""Stands for an offset below 0, which is as far out as a place may be."""
FETCHED_MAX: Final = 64
"""Partitions of a fetch that are kept, to be told of."""
MANY_PARTS: Final = 500
"""The answer to a request of more parts is made on a thread."""
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = (1 << number for number in range(3, 9))
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 1 << 10, 1 << 11, 1 << 12
_OF_TOPIC: Final[Mapping[Scope, int]] = {
    "read": _READ | _DESCRIBE | _DESCRIBE_CONFIGS,
    "write": _WRITE | _CREATE | _DESCRIBE,
    "admin": _CREATE | _ALTER | _DESCRIBE | _ALTER_CONFIGS,
    "delete": _DELETE | _DESCRIBE,
}
"""Kafka's operations on a topic, by the scope of a key that allows them; likewise on a group and on a server."""
_OF_GROUP: Final[Mapping[Scope, int]] = {
    "read": _READ | _DESCRIBE,
    "delete": _DELETE | _DESCRIBE,
}
_OF_SERVER: Final[Mapping[Scope, int]] = {
    "read": _DESCRIBE,
    "write": _DESCRIBE | _IDEMPOTENT_WRITE,
    "admin": _CREATE | _DESCRIBE | _DESCRIBE_CONFIGS,
    "delete": _DESCRIBE,
}


class Rules(msgspec.Struct, frozen=True):
    """What the settings say of this face.

    Attributes:
        advertised: Host and port that clients are told; None: those by which they came.
        auto_create: A client may have a topic made by asking for its metadata.
        data_dir: Where the server keeps its topics; None: in memory.
    """

    advertised: tuple[str, int] | None = None
    auto_create: bool = True
    data_dir: str | None = None


class Client:
    """A connection, as its requests know it.

    Attributes:
        number: No other connection has it.
        address: Where it comes from.
        local: The host and port by which it came.
        caller: Who it is, once it has logged in.
        may_ask: It needs no login, or has logged in.
        mechanism: It has begun to log in by this.
        mute_s: How long nothing is read from it behind the answer that is written next.
        fetched: The first partitions of its last fetch, up to `FETCHED_MAX`.
        shown: What is told of it where an operator asks who is connected.
    """

    def __init__(self, number: int, address: str, local: tuple[str, int], *, may_ask: bool) -> None:
        self.number = number
        self.address = address
        self.local = local
        self.caller: Caller = ANYONE
        self.may_ask = may_ask
        self.mechanism: str | None = None
        self.mute_s = 0.0
        self.fetched: Sequence[FetchPart] = ()
        self.shown: Connected | None = None

    def state(self) -> ClientState:
        """Where it reads."""
        return ClientState(
            {part.topic: part.after_seq for part in self.fetched if part.after_seq < NOWHERE}
        )

    def named(self, name: str) -> None:
        """It has called itself so."""
        shown = self.shown
        if shown is not None and shown.agent != name:
            shown.agent = name[:AGENT_CHARS_MAX]

    def logged_in(self, caller: Caller) -> None:
        self.caller, self.may_ask = caller, True
        if self.shown is not None:
            self.shown.caller = caller

    def joined(self, group: str) -> None:
        """It is a member of a group; empty: of none."""
        if self.shown is not None:
            self.shown.group = group


class Call:
    """A request that is carried out.

    Attributes:
        api: Its name.
        role: What a node has to be that answers it.
        client_id: The client's name for itself.
        request: Decoded, by `faces.kafka.schema`.
        measures: Counts of all requests.
        T: The classes of its response.
        is_long: Its answer has so many fields that a thread is to encode it.
        is_timed: How long it takes says something of the server.
    """

    def __init__(
        self,
        service: Service,
        nodes: Nodes,
        rules: Rules,
        slots: Slots,
        measures: KafkaMeasures,
        client: Client,
        asked: Asked,
        request: Any,
    ) -> None:
        assert asked.api is not None
        self.service = service
        self.nodes = nodes
        self.rules = rules
        self.measures = measures
        self.client = client
        self.api = asked.api.name
        self.role = APIS[asked.key].role
        self.version = asked.version
        self.client_id = asked.client or ""
        self.request = request
        self.slot = Slot(slots, client.address, client.caller)
        self.T: SimpleNamespace = types(self.api + "Response")
        self.is_timed = True
        self.is_long = False
        self._seen: Seen | None = None
        self._is_throttled = False
        self._parts = 0
        self._turn_s = time.perf_counter()

    # ------------------------------------------------------------------ who asks

    @property
    def caller(self) -> Caller:
        return self.client.caller

    def lacks(self, scope: Scope, name: str | None = None) -> Rejection | None:
        """Why the client may not do what a scope is for, with a topic of that name; None: it may."""
        caller = self.caller
        if not caller.is_key:
            return None
        try:
            caller.require_scopes(frozenset((scope,)))
            if name is not None:
                caller.require_name(name)
        except Rejection as refusal:
            return refusal
        return None

    def operations(self, name: str | None = None) -> int:
        """What the client may do with a topic of that name, or with the server: a bit for each of Kafka's operations."""
        return self._operations(name, _OF_SERVER if name is None else _OF_TOPIC)

    def operations_on_group(self, name: str) -> int:
        """As `operations`, with a group of that name."""
        return self._operations(name, _OF_GROUP)

    def _operations(self, name: str | None, by_scope: Mapping[Scope, int]) -> int:
        found = 0
        for scope, bits in by_scope.items():
            if self.lacks(scope, name) is None:
                found |= bits
        return found

    # ------------------------------------------------------------------ who answers

    @property
    def cluster(self) -> Seen:
        """The cluster, at the moment in which the request asked first."""
        if self._seen is None:
            self._seen = self.nodes.seen(self.client.local)
        return self._seen

    def require_here(self) -> None:
        """Raises Rejection: another node answers this request, or none does now."""
        self._require_lead()
        if self.role in OF_EVERY_NODE:
            try:
                self.nodes.require_current()
            except Rejection as refusal:
                raise told(refusal, self.role) from None

    def _require_lead(self) -> None:
        if not self.nodes.leads and self.role not in OF_EVERY_NODE:
            refusal = Rejection(ErrorCode.NOT_LEADER, "this node does not lead")
            raise told(refusal, self.role)

    # ------------------------------------------------------------------ waiting

    def begin(self, command: Command, *, holds: bool = True) -> "Submitted":
        """Submit a command.  Raises Rejection."""
        later: Later[Reply] = Later(holds=holds)
        self._require_lead()
        try:
            if self.caller.is_key:
                command = permitted(command, self.caller)
            found = self.service.submit(command, later.come, self.slot)
        except Rejection as refusal:
            raise told(refusal, self.role) from None
        if isinstance(found, Reply):
            later.come(found)
            return Submitted(later, None, self.role)
        return Submitted(later, found, self.role)

    def ask(self, command: Command, *, holds: bool = True) -> Steps[Any]:
        """The outcome of a command; a request of many gives way to others now and then.  Raises Rejection."""
        yield from self.part_done()
        return (yield from self.begin(command, holds=holds).outcome())

    def thread(
        self,
        start: Callable[[Callable[[], T]], ThreadCall[T]],
        call: Callable[[], T],
        *,
        holds: bool = False,
    ) -> Steps[T]:
        """What a call returns that a thread makes; raises what it raises."""
        later: Later[T | Exception] = Later(holds=holds)

        def guarded() -> Any:
            try:
                return call()
            except Exception as error:
                return error

        is_given_up = False

        def on_done(done: ThreadCall[Any]) -> None:
            if not is_given_up:
                later.come(done.result())

        work = start(guarded)
        work.add_done_callback(on_done)
        try:
            found = yield later
        finally:
            if not later.is_there:
                is_given_up = True
                work.cancel()
        if isinstance(found, Exception):
            raise found
        return found  # type: ignore[no-any-return]

    def throttle(self) -> None:
        """It, or its client, has to wait for others: counted once for a request."""
        if not self._is_throttled:
            self._is_throttled = True
            self.measures.throttled(self.api)

    def part_done(self) -> Steps[None]:
        """One of its parts is done: give way to others where that took long.  Requests behind it wait."""
        self._parts += 1
        if self._parts % LOOK_PARTS or time.perf_counter() - self._turn_s < TURN_S:
            return
        later: Later[None] = Later()
        self.service.shell.later(0, lambda: later.come(None))
        yield later
        self._turn_s = time.perf_counter()

    @property
    def has_many_parts(self) -> bool:
        return self.is_long or self._parts > MANY_PARTS

    def pause(self, delay_s: float) -> Steps[None]:
        """Let others have their turn."""
        self.is_timed = False
        later: Later[None] = Later()
        self.service.shell.later(delay_s, lambda: later.come(None))
        yield later


class Submitted(msgspec.Struct, frozen=True):
    """A command that was submitted."""

    later: Later[Reply]
    ticket: Ticket | None
    role: Role

    def reply(self) -> Steps[Outcome | Exception]:
        """Its outcome, or why there is none."""
        try:
            reply = yield self.later
        finally:
            if not self.later.is_there and self.ticket is not None:
                self.ticket.cancel()
        result = reply.result
        return told(result, self.role) if isinstance(result, Rejection) else result

    def outcome(self) -> Steps[Outcome]:
        """Its outcome.  Raises Rejection."""
        found = yield from self.reply()
        if isinstance(found, Exception):
            raise found
        return found

    def cancel(self) -> None:
        if not self.later.is_there and self.ticket is not None:
            self.ticket.cancel()


def listed(names: Iterable[T]) -> list[T]:
    """The same, each once, in their order."""
    return list(dict.fromkeys(names))
