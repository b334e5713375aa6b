"""Requests in, answers out: the order of refusals, and what is done with a body.

Knows neither ASGI nor HTTP framing: a driver gives it a head, then a body, and writes the answer
(`topics.server.http.interface`).  Requests are refused in one order, which `begin` and
`Admitted.finish` define; a refused request changes nothing.
"""

import logging
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from topics.protocol.faces.http.origins import OriginRule, cors_fields, is_preflight
from topics.protocol.faces.http.routes import find_route, item_of
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.access.failures import Failures
from topics.server.access.guard import Guard
from topics.server.access.key_ring import KeyRing
from topics.server.access.keys import Entry
from topics.server.http import fields
from topics.server.http.beats import Beats
from topics.server.http.connected import Connected
from topics.server.http.heads import Judged
from topics.server.http.holders import Holders
from topics.server.http.interface import Answer, Head, Opening, Socket
from topics.server.http.reports import Reporter, reporters
from topics.server.http.request import Admitted
from topics.server.http.responder import Responder
from topics.server.http.store_files import SCOPES, FileRequest, StoreFiles
from topics.server.observing import metrics, usage
from topics.server.observing.figures import source_of
from topics.server.observing.history import History
from topics.server.observing.measures import OTHER, RequestMeasures
from topics.server.observing.observer import Observer
from topics.server.observing.scraping import Scraping
from topics.server.service.clients import Clients
from topics.server.service.nodes import Nodes
from topics.server.service.service import LocalService, Service
from topics.server.service.shell import READY, Phase, Shell, not_serving
from topics.server.service.slots import Slot, Slots

log = logging.getLogger("topics.http")


class TopicsExchange:
    """Implements `interface.Exchange` over a runtime.

    Args:
        origins: Which origins and hosts are allowed; None: all.
        observer: What notes every request; None: one that only counts.
        holders: Says who sent a request that has no key.
        guard: The keys; None where the server has none.
        trace_meta: Whether the records of an append name its trace in their meta.
        files: What gives the store's files; None where there are none to give.
        service: Decides commands and opens streams; None: the runtime's engine does.
        is_strict: Whether what nobody would read of a request is refused where its head says nothing of it
            (`TOPICS_HANDLING`).
    """

    def __init__(
        self,
        runtime: Shell,
        origins: OriginRule | None = None,
        observer: Observer | None = None,
        holders: Holders | None = None,
        *,
        guard: Guard | None = None,
        trace_meta: bool = False,
        files: StoreFiles | None = None,
        service: Service | None = None,
        is_strict: bool = False,
    ) -> None:
        self._runtime = runtime
        self._service = service or LocalService(runtime)
        self._origins = origins
        self._observer = observer or Observer()
        self._guard = guard
        self._trace_meta = trace_meta
        self._is_strict = is_strict
        self.files = files
        self._holders = holders or Holders()
        self.clients = Clients(
            lambda: runtime.engine,
            lambda: runtime.now_ms,
            self._has_whole,
            is_whole=self._service.has_engine,
        )
        self.connected = Connected(self.clients)
        self.slots = Slots(runtime.limits, self._holders.peer, self.clients)
        self._scraping = Scraping(runtime, self._source)
        self.history = History(runtime, self._observer.measures)
        if self._service.has_engine:
            self._observer.on_answer = self.history.note
        self._beats = Beats()
        self.more: list[Callable[[], Iterable[metrics.Family]]] = []
        """What else metrics are made of: the transport's."""
        self.on_revoked: list[Callable[[Caller], None]] = []
        """What else ends where a key is removed."""

    def begin(self, head: Head, connection: int = 0) -> Answer | Admitted:
        """See `interface.Exchange`; `connection` is the number of the connection (`ConnectionExchange`)."""
        begun = time.perf_counter()
        memo = head.memo
        judged: Judged | None = None if memo is None else memo.judged
        header = fields.reader(head.headers) if judged is None else judged.header
        head = self._holders.named(head, header)
        call = Responder(self._runtime, self._observer, head, header, begun, OTHER)
        admitted = None
        try:
            # The refusals, in their order.  Those that follow from the head alone are not looked for
            # again in a head that came before and met none of them; whatever may change while the
            # server runs is decided for each request.
            if judged is None:
                fields.require_single(head.headers)
                if self.files is not None and StoreFiles.is_asked(head.method, head.path):
                    # It ends as an admission does: the type of the drivers, and not of what is
                    # built on this.
                    return self._begin_file(self.files, call)  # type: ignore[return-value]
                found = self._find(head, call)
                if isinstance(found, Answer):
                    return found
                judged = found
            call.also = judged.also
            if self._guard is not None:
                call.caller = self._guard.admit(judged.route, judged.name, head)
            if judged.needs_serving and self._runtime.phase is not READY:
                raise not_serving(self._runtime)
            call.route = judged.label
            slot = Slot(self.slots, head.client, call.caller, connection, header=header)
            if judged.is_counted and self.slots.bounds_requests:
                slot.begin_request()
            admitted = self._admit(call, judged, slot)
            if call.caller.is_key:
                self.slots.of_keys.enter(call.caller, slot)
            if not judged.is_sound:
                judged.check()
                judged.is_sound = True
                if memo is not None:
                    memo.judged = judged
            return admitted
        except Rejection as refusal:
            answer = call.refuse(refusal)
        except Exception:
            answer = call.fail()
        if admitted is not None:
            admitted.close()
        return answer

    def _admit(self, call: Responder, judged: Judged, slot: Slot) -> Admitted:
        return Admitted(
            call,
            judged,
            call.head.query,
            self._service,
            slot,
            self._scraping,
            self.history,
            self.connected,
            self._trace_meta,
            judged.max_body_bytes,
            self._beats,
        )

    def _begin_file(self, files: StoreFiles, call: Responder) -> FileRequest:
        """A request for the store's files, by another node or by a key that may read everything.

        Raises:
            Rejection: 403, 401.
        """
        if not self._is_nodes(call.head):
            if self._origins is not None:
                self._origins.check(call.header, call.head.path)
            if self._guard is not None:
                caller = self._guard.require_key(call.head)
                caller.require_scopes(SCOPES)
                if caller.prefixes:
                    what = "the key may not touch every topic, and the store's files hold them all"
                    raise Rejection(ErrorCode.FORBIDDEN, what)
        return files.begin(call)

    def _is_nodes(self, head: Head) -> bool:
        """Whether another node of the same cluster asks."""
        return False

    def _find(self, head: Head, call: Responder) -> Answer | Judged:
        """The route, for a page that may ask; or the answer to a page that asks whether it may.

        Raises:
            Rejection: 403, 401, 404, 405.
        """
        if self._origins is not None:
            origin = self._origins.check(call.header, head.path)
            if origin is not None:
                call.also = cors_fields(origin)
                if is_preflight(head.method, call.header):
                    call.observe(204)
                    return Answer(204, cors_fields(origin, preflight=True), [])
        try:
            route, name = find_route(head.method, head.path)
        except Rejection:
            if self._guard is not None:
                self._guard.require_key(head)  # 401 comes before 404
            raise
        max_body_bytes = route.max_body_bytes(self._runtime.limits)
        item = item_of(route, head.path)
        return Judged(
            call.header, route, name, max_body_bytes, call.also, item, is_strict=self._is_strict
        )

    def connect(self, head: Head) -> Answer | Socket | Opening:
        """Judge a WebSocket handshake, which is a GET except for its answer (§7.7)."""
        admitted = self.begin(head)
        if isinstance(admitted, Answer):
            return admitted
        try:
            return admitted.connect()
        finally:
            admitted.close()

    def _has_whole(self, name: str) -> bool:
        """Whether the engine of this process has all records of a partition."""
        return self._service.has_engine or self._runtime.engine.is_logged(name)

    def _source(self, caller: Caller) -> metrics.Measured:
        """What metrics are made of."""
        more = (self._observer.measures.families(), usage.families())
        sources = (family for source in self.more for family in source())
        return source_of(self._runtime, self.slots, (*more, sources), caller)

    @property
    def measures(self) -> RequestMeasures:
        """What was answered here, and in other processes for this one."""
        return self._observer.measures

    def reporters(self) -> Mapping[str, Reporter]:
        """What makes the reports that another process asks for, by their kinds."""
        return reporters(self._runtime, self._scraping, self.history, self.connected)

    @property
    def parts(self) -> tuple[Service, Slots, Guard | None, Nodes | None]:
        """What another face of this server shares with this one; of a node of a cluster, also who leads."""
        return self._service, self.slots, self._guard, None

    @property
    def keys(self) -> KeyRing | None:
        """The keys in force; None where the server has none."""
        return None if self._guard is None else self._guard.keys

    @property
    def failures(self) -> Failures | None:
        """The requests with unknown keys; None where the server has no keys."""
        return None if self._guard is None else self._guard.failures

    @property
    def has_keys_file(self) -> bool:
        return self._guard is not None and self._guard.has_file

    async def reload(self) -> None:
        """Read the keys file again, and end what keys that are gone have open."""
        if self._guard is None:
            log.info("SIGHUP: there is nothing to read again; settings stay")
        elif self._runtime.phase is not Phase.STOPPED:
            await self._guard.reload(self._runtime.read_in_thread, self._revoke)

    def put_keys(self, entries: list[Entry]) -> None:
        """Put other keys in force, where any are asked for, and end what keys that are gone have
        open."""
        if self._guard is not None:
            self._guard.replace(entries, self._revoke)

    def carried_by(self, shared: Any) -> None:
        """What the connections of this process share: a node of a cluster has links among them."""

    def drain(self) -> None:
        """The server stops.  What waits here ends with the runtime."""

    def _revoke(self, caller: Caller) -> None:
        self._runtime.engine.revoke(caller)
        self.slots.revoke(caller)
        for revoke in self.on_revoked:
            revoke(caller)


class ConnectionExchange:
    """Implements `interface.Exchange` for one connection: what it asks of another process has its turns
    together there.

    Args:
        connection: Its number.
    """

    def __init__(self, exchange: TopicsExchange, connection: int) -> None:
        self._exchange = exchange
        self._connection = connection
        self.connect = exchange.connect

    def begin(self, head: Head) -> Answer | Admitted:
        return self._exchange.begin(head, self._connection)
