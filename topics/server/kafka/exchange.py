"""Kafka's requests in, answers out, for all connections of a server.

A frame becomes a request (`faces/kafka`), a handler for its API carries that out, and its answer becomes buffers.  What
is no request ends its connection, as in Kafka.
"""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from topics.protocol.faces.kafka.apis import (
    API_VERSIONS,
    PRODUCE,
    PRODUCE_FIRST,
    Asked,
    asked_of,
    head_of,
    of_old_produce,
    old_produce,
    versions,
)
from topics.protocol.faces.kafka.codec import Malformed, decode, encode
from topics.protocol.faces.kafka.error_codes import error_codes
from topics.protocol.faces.kafka.errors import UNSUPPORTED_VERSION, NotHere
from topics.protocol.faces.kafka.roles import APIS, OF_EVERY_NODE, refused
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.records import Buffer
from topics.server.access.guard import Guard
from topics.server.kafka import admin, commits, groups, members
from topics.server.kafka.call import Call, Client, Rules
from topics.server.kafka.configs import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
from topics.server.kafka.fetch import fetch
from topics.server.kafka.login import authenticate, handshake
from topics.server.kafka.measures import End, KafkaMeasures
from topics.server.kafka.offsets import delete_records, list_offsets, offset_for_leader_epoch
from topics.server.kafka.produce import Unanswerable, produce, refused_version
from topics.server.kafka.producers import IdBlock, find_coordinator, init_producer_id
from topics.server.kafka.steps import Running, Steps
from topics.server.kafka.topics import (
    create_partitions,
    create_topics,
    delete_topics,
    describe_cluster,
    describe_topic_partitions,
    metadata,
)
from topics.server.service.nodes import Alone, Nodes
from topics.server.service.service import Service
from topics.server.service.shell import READY
from topics.server.service.slots import Slots

log = logging.getLogger("topics.kafka")

SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
_OPEN: Final = frozenset((API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE))
"""What a client may ask before it has logged in."""


APART_BYTES: Final = 64 << 10
"""Of a request that is decoded on a thread from here on."""
ENTER_S: Final = 0.1
"""Who has too many requests in flight is looked at again after this."""
ENTER_WAIT_S: Final = 30
"""Whose request had no turn by then is sent away."""


class Refused(Exception):
    """A connection that has to end, and why."""

    def __init__(self, message: str, end: End) -> None:
        super().__init__(message)
        self.end = end


class KafkaExchange:
    """Requests of one server.

    Args:
        slots: As HTTP's: both faces share what a client may have in flight.
        guard: The keys; None where the server has none.
        nodes: The cluster; None of a server that is alone.

    Attributes:
        measures: Counts of what was asked and answered.
    """

    def __init__(
        self,
        service: Service,
        slots: Slots,
        guard: Guard | None = None,
        rules: Rules | None = None,
        nodes: Nodes | None = None,
    ) -> None:
        self._service = service
        self._slots = slots
        self._guard = guard
        self._rules = rules or Rules()
        self._nodes = nodes or Alone(self._rules.advertised)
        self._clients: dict[Client, Callable[[], None]] = {}
        self._numbers = count(1)
        self.measures = KafkaMeasures()
        block = IdBlock()
        self._handlers: Mapping[int, Callable[[Call], Steps[Any]]] = {
            PRODUCE: produce,
            1: fetch,
            2: list_offsets,
            3: metadata,
            8: commits.commit,
            9: commits.offsets,
            10: find_coordinator,
            11: members.join,
            12: members.heartbeat,
            13: members.leave,
            14: members.sync,
            15: groups.describe,
            16: groups.list_groups,
            SASL_HANDSHAKE: handshake,
            API_VERSIONS: _versions,
            19: create_topics,
            20: delete_topics,
            21: delete_records,
            22: lambda call: init_producer_id(call, block),
            23: offset_for_leader_epoch,
            29: admin.describe_acls,
            30: admin.create_acls,
            31: admin.delete_acls,
            32: describe_configs,
            33: alter_configs,
            35: admin.describe_log_dirs,
            SASL_AUTHENTICATE: lambda call: authenticate(call, guard),
            37: create_partitions,
            42: groups.delete,
            44: incremental_alter_configs,
            46: admin.list_partition_reassignments,
            47: commits.delete,
            60: describe_cluster,
            61: admin.describe_producers,
            74: admin.list_config_resources,
            75: describe_topic_partitions,
        }

    def connected(self, address: str, local: tuple[str, int], end: Callable[[], None]) -> Client:
        """A connection; `end` ends it, where its key is removed."""
        client = Client(next(self._numbers), address, local, may_ask=self._guard is None)
        if self._slots.clients is not None:
            client.shown = self._slots.clients.enter("kafka", address, client.state)
        self._clients[client] = end
        self.measures.connections = len(self._clients)
        return client

    def gone(self, client: Client) -> None:
        """The connection is over."""
        if client.shown is not None:
            client.shown.leave()
        self._clients.pop(client, None)
        self.measures.connections = len(self._clients)

    def revoke(self, caller: Caller) -> None:
        """A key was removed: the connections that it logged in end."""
        for client, end in list(self._clients.items()):
            if client.caller is caller:
                self.measures.ended(End.LOGIN)
                end()

    def begin(
        self, client: Client, frame: memoryview, ended: "Callable[[Running[Answered]], None]"
    ) -> "Running[Answered]":
        """Carry out a request.

        Args:
            frame: Without its length.
            ended: Called when the answer is there, or there will be none.

        Raises:
            Refused: The connection ends.
        """
        if self._service.shell.phase is not READY:
            raise Refused("the server does not serve now", End.FAILED)
        try:
            asked = asked_of(frame)
            if not client.may_ask and asked.key not in _OPEN:
                raise Refused(f"a request of API {asked.key} before a login", End.LOGIN)
            if client.caller.is_revoked:
                raise Refused("its key is not valid any more", End.LOGIN)
            steps = self._steps(client, frame, asked)
        except Malformed as error:
            raise Refused(str(error), End.MALFORMED) from error
        return Running(steps, ended)

    def _steps(self, client: Client, frame: memoryview, asked: Asked) -> "Steps[Answered]":
        if asked.api is None:
            if asked.key == API_VERSIONS:
                self.measures.answered("ApiVersions", (UNSUPPORTED_VERSION,), None)
                return _at_once(
                    _framed(asked, encode("ApiVersionsResponse", 0, versions(UNSUPPORTED_VERSION)))
                )
            why = f"API {asked.key} in version {asked.version}, which is not served"
            raise Refused(why, End.MALFORMED)
        name = asked.api.name
        if asked.key == PRODUCE and asked.version < PRODUCE_FIRST:
            call = self._call(client, asked, old_produce(frame, asked))
            self.measures.answered(name, (UNSUPPORTED_VERSION,), None)
            return _at_once(_framed(asked, of_old_produce(asked, refused_version(call))))
        request = None
        if len(frame) < APART_BYTES or asked.key == PRODUCE:  # of which most are records
            request = decode(name + "Request", asked.version, frame, asked.at)
        return self._carried_out(self._call(client, asked, request), asked, frame)

    def _call(self, client: Client, asked: Asked, request: Any) -> Call:
        client.named(asked.client or "")
        return Call(
            self._service,
            self._nodes,
            self._rules,
            self._slots,
            self.measures,
            client,
            asked,
            request,
        )

    def _carried_out(self, call: Call, asked: Asked, frame: memoryview) -> "Steps[Answered]":
        begun_s = time.perf_counter()
        response = call.api + "Response"
        yield from self._entered(call)
        try:
            if call.request is None:
                call.request = yield from call.thread(
                    self._service.shell.decode_in_thread,
                    lambda: decode(call.api + "Request", asked.version, frame, asked.at),
                    holds=True,
                )
            answer = yield from self._answered(call, asked)
        except Unanswerable as error:
            raise Refused(str(error), End.UNANSWERABLE) from error
        except Malformed as error:
            raise Refused(str(error), End.MALFORMED) from error
        except Rejection as refusal:
            if refusal.code is not ErrorCode.UNAUTHORIZED and not isinstance(refusal, NotHere):
                log.exception("a request of API %d was refused as a whole", asked.key)
            raise Refused(refusal.message, End.FAILED) from refusal
        finally:
            call.slot.close()
        if answer is None:
            codes, body = list[int](), None
        elif call.has_many_parts:
            codes, body = yield from call.thread(
                self._service.shell.page_in_thread,
                lambda: (error_codes(response, answer), encode(response, asked.version, answer)),
            )
        else:
            codes, body = error_codes(response, answer), encode(response, asked.version, answer)
        took_s = time.perf_counter() - begun_s if call.is_timed else None
        self.measures.answered(call.api, codes, took_s)
        return () if body is None else _framed(asked, body)

    def _answered(self, call: Call, asked: Asked) -> Steps[Any]:
        """What the handler answers, on the node whose answer it is; elsewhere, that it is another's.

        Raises:
            Rejection: An API that every node answers, and this one cannot now.
        """
        api = APIS[asked.key]
        is_begun = False
        try:
            if asked.key not in _OPEN:
                call.require_here()
            is_begun = True
            return (yield from self._handlers[asked.key](call))
        except NotHere as why:
            if call.role in OF_EVERY_NODE:
                raise
            code, text = why.kafka_code, why.message
        if api.is_empty_elsewhere and not is_begun:
            code = 0
        if asked.key == PRODUCE and call.request.acks == 0:
            # The end of its connection has the client ask who leads.
            raise Unanswerable(text)
        parts = refused(api, call.api, call.request, code, text)
        while True:
            try:
                next(parts)
            except StopIteration as end:
                return end.value
            yield from call.part_done()

    def _entered(self, call: Call) -> Steps[None]:
        """Count a request among those in flight.  Where there are too many of its client it waits for its
        turn, and so do those behind it: a client of Kafka's that is sent away comes back at once."""
        left_s = float(ENTER_WAIT_S)
        while True:
            try:
                self._enter(call)
                return
            except Rejection as refusal:
                if left_s <= 0:
                    raise Refused(refusal.message, End.LIMIT) from refusal
            call.throttle()
            left_s -= ENTER_S
            yield from call.pause(ENTER_S)

    def _enter(self, call: Call) -> None:
        slot = call.slot
        try:
            slot.begin_request()
            if call.caller.is_key:
                self._slots.of_keys.enter(call.caller, slot)
        except Rejection:
            slot.close()
            raise


Answered = Sequence[Buffer]
"""An answer without its length; nothing where a request has none."""


def _versions(call: Call) -> Steps[Any]:
    """What is served."""
    return versions()
    yield


def _at_once(answer: Answered) -> Steps[Answered]:
    return answer
    yield


def _framed(asked: Asked, body: Sequence[Buffer]) -> Answered:
    return [head_of(asked), *body]
