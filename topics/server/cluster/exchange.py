"""The exchange of a node in a cluster: what is answered here, and what goes to the leader.

`assembly` chooses it once, in the place of `TopicsExchange`, which knows nothing of clusters.

A follower answers from its replica what only reads.  To the leader goes what may write, whatever names a
topic of class `ephemeral` (its records are in the leader's memory and nowhere else), and a read for which
routers have to copy first.  A node that leads answers all by itself, and says with each write where the
log stood then.

The guard, the limits and the origin rule of this node judge a request before it goes anywhere.  One that
was forwarded is not forwarded again: it would go round among nodes that disagree about who leads.
"""

import secrets
import time
from collections import deque
from typing import Final

import msgspec

from topics.protocol.driver.group_commit import Deliver, Reply, Ticket
from topics.protocol.driver.streams import Streams
from topics.protocol.http import answer_models as models
from topics.protocol.http import routes
from topics.protocol.http.answers import open_object
from topics.protocol.http.bodies import TrimBody, parse_trim
from topics.protocol.http.origins import OriginRule
from topics.protocol.http.routes import Probe, Route, StreamKind
from topics.protocol.model.commands import (
    FACTS,
    Command,
    CreateWatch,
    DeleteRecords,
    Diff,
    facts_of,
)
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.protocol.model.holder import NOBODY
from topics.protocol.model.outcomes import Deleted, Outcome
from topics.server.access.guard import Guard, credentials
from topics.server.cluster import forwarding
from topics.server.cluster.forwarding import FORWARDED, POSITION, Request, not_leader
from topics.server.cluster.later import Later, Made, Mapped
from topics.server.cluster.neighbours import Neighbours, trimmed_of
from topics.server.cluster.positions import Position, parse_position
from topics.server.cluster.second_look import END_MS, SecondLook, behind
from topics.server.cluster.store_files import SCOPES, FileRequest, StoreFiles
from topics.server.http import fields
from topics.server.http.exchange import TopicsExchange
from topics.server.http.heads import Judged
from topics.server.http.holders import Holders
from topics.server.http.inflation import inflate
from topics.server.http.interface import Answer, Head, Pending, Socket, Streaming
from topics.server.http.request import APART_BYTES, Admitted
from topics.server.http.responder import JSON, Responder
from topics.server.observing.measures import OTHER
from topics.server.observing.observer import Observer
from topics.server.service.service import LocalService, WatchSocket
from topics.server.service.shell import Shell
from topics.server.service.slots import Slot


class _Wait(msgspec.Struct):
    """The field of a body that says how long its request may wait."""

    wait_ms: int | float | None = None


_PLAIN_BYTES: Final = 64 << 10
_WAIT: Final = msgspec.json.Decoder(_Wait)


class ClusterExchange(TopicsExchange):
    """Implements `interface.Exchange` over a replica and its neighbours."""

    def __init__(
        self,
        runtime: Shell,
        neighbours: Neighbours,
        origins: OriginRule | None = None,
        observer: Observer | None = None,
        holders: Holders | None = None,
        *,
        guard: Guard | None = None,
        trace_meta: bool = False,
        files: StoreFiles | None = None,
    ) -> None:
        service = ClusterService(runtime, neighbours)
        super().__init__(
            runtime, origins, observer, holders, guard=guard, trace_meta=trace_meta, service=service
        )
        self._neighbours = neighbours
        self.files = files

    def begin(self, head: Head, lane: int = 0) -> "Answer | Admitted":
        token = next((value for name, value in head.headers if name == FORWARDED), None)
        is_nodes = token is not None and forwarding.is_token(
            token, self._neighbours.forwarder.token
        )
        if self.files is not None and StoreFiles.is_asked(head.method, head.path):
            # It ends as an admission does: the type of the drivers, and not of what is built on this.
            return self._begin_file(self.files, head, is_nodes=is_nodes)  # type: ignore[return-value]
        if is_nodes:
            # The other node says who its client is, as a proxy that is trusted does.
            named = (value for name, value in head.headers if name == b"x-forwarded-for")
            client = next(named, b"").decode("latin-1")
            head = Head(head.method, head.path, head.query, head.headers, client, head.memo)
        return super().begin(head, lane)

    def _begin_file(self, files: StoreFiles, head: Head, *, is_nodes: bool) -> Answer | FileRequest:
        """A request for the store's files, by another node or by a key that may read everything."""
        header = fields.reader(head.headers)
        # It stands in no table of routes: it is the nodes' own, and counted with what no route takes.
        call = Responder(self._runtime, self._observer, head, header, time.perf_counter(), OTHER)
        try:
            if not is_nodes:
                self._admit_reader(call)
        except Rejection as refusal:
            return call.refuse(refusal)
        return files.begin(call)

    def _admit_reader(self, call: Responder) -> None:
        if self._origins is not None:
            self._origins.check(call.header, call.head.path)
        if self._guard is not None:
            caller = self._guard.require_key(call.head)
            caller.require_scopes(SCOPES)
            if caller.prefixes:
                what = "the key may not touch every topic, and the store's files hold them all"
                raise Rejection(ErrorCode.FORBIDDEN, what)

    def drain(self) -> None:
        """What waits for news at another node ends, and so does not hold up the stop."""
        self._neighbours.forwarder.drain()

    def _admit(self, call: Responder, judged: Judged, slot: Slot) -> Admitted:
        return ClusterAdmitted(
            call,
            judged,
            call.head.query,
            self._service,
            slot,
            self._scraping,
            self.history,
            self._trace_meta,
            judged.max_body_bytes,
            self._beats,
            _neighbours=self._neighbours,
        )


class ClusterService(LocalService):
    """Commands on a node: what a replica that lags may not say is looked at twice."""

    def __init__(self, shell: Shell, neighbours: Neighbours) -> None:
        super().__init__(shell)
        self._standing = neighbours.standing

    def submit(self, command: Command, deliver: Deliver, slot: Slot) -> Reply | Ticket:
        submit = self.shell.submit
        if isinstance(command, DeleteRecords) and command.erase:
            found = submit(command, lambda reply: deliver(self._with_log(reply)))
            return found if isinstance(found, Ticket) else self._with_log(found)
        # A leader may lag, too: deposed while it was paused, it does not know it yet; and a follower
        # may have shown a record before its leader hears that the record was accepted.
        if not facts_of(command).is_read or isinstance(command, CreateWatch):
            return submit(command, deliver)
        return SecondLook(self._standing, lambda on: submit(command, on), deliver).begin()

    def _with_log(self, reply: Reply) -> Reply:
        """Says of an erasure until when the cluster's log may have the bytes."""
        if not isinstance(reply.result, Deleted):
            return reply
        until_ms = self._standing.log_retained_until_ms(self.shell.now_ms)
        result = msgspec.structs.replace(reply.result, log_retained_until_ms=until_ms)
        return msgspec.structs.replace(reply, result=result)


class ClusterAdmitted(Admitted, eq=False, kw_only=True):
    """A request that may send its body, on a node of a cluster."""

    _neighbours: Neighbours
    _pieces: list[bytes] | None = None
    """The body of a request that may turn out to be the leader's once it is parsed."""

    def finish(self, pieces: list[bytes]) -> Answer | Pending | Streaming:
        call = self._call
        try:
            return self._finish(pieces)
        except Rejection as refusal:
            return call.refuse(refusal)
        except Exception:
            return call.fail()

    def _finish(self, pieces: list[bytes]) -> Made:
        target = self._judged.route.target
        if isinstance(target, Probe):
            if target is Probe.READY:
                self._neighbours.require_ready()
            elif target is Probe.TRIM:
                return self._trim(pieces)
            return super().finish(pieces)
        if target is StreamKind.WATCH:
            return self._watch_at(pieces)
        is_read = self._judged.route.is_read
        if self._neighbours.standing.leads:
            made = super().finish(pieces)
            return made if is_read else self._placed(made)
        if not is_read:
            return self._forward(pieces)
        if sum(map(len, pieces)) > APART_BYTES:
            # A page of filters, which the leader parses on a thread as this node would.
            return self._forward(pieces)
        self._pieces = list(pieces)
        return super().finish(pieces)

    # ------------------------------------------------------------------ here

    def _begin(self, command: Command) -> Answer | Pending:
        """Carry out a read that was parsed, when this replica shows enough."""
        standing = self._neighbours.standing
        pieces, self._pieces = self._pieces, None
        if not standing.leads and pieces is not None and self._is_leaders(command):
            return self._forward(pieces)
        index = self._index_asked()
        needs_end = isinstance(command, CreateWatch) and self._is_beyond(command)
        if index <= standing.index and not needs_end:
            return super()._begin(command)
        wait_ms = (isinstance(command, Diff) and command.wait_ms) or END_MS
        work = self._when_shown(command, pieces, index, wait_ms, needs_end=needs_end)
        return Later(self._call, work)

    async def _when_shown(
        self,
        command: Command,
        pieces: list[bytes] | None,
        index: int,
        wait_ms: int,
        *,
        needs_end: bool,
    ) -> Made:
        await self._wait(index, wait_ms, needs_end=needs_end)
        is_here = self._neighbours.standing.leads or pieces is None
        if not is_here and self._is_leaders(command):
            # What it waited for made it so: copies are owed, or the class is another one.
            assert pieces is not None
            return self._forward(pieces)
        return super()._begin(command)

    async def _wait(self, index: int, wait_ms: int, *, needs_end: bool) -> None:
        """Raises Rejection: 503 `replica_behind`."""
        standing = self._neighbours.standing
        if not await standing.wait_for(index, wait_ms):
            raise behind(f"this replica does not show unit {index} yet")
        if needs_end and not await standing.wait_for_end(END_MS):
            raise behind()

    def _is_leaders(self, command: Command) -> bool:
        """Whether the leader alone can answer a read."""
        engine = self._call.runtime.engine
        names = facts_of(command).topics(command)
        return engine.has_ephemeral(names) or engine.barrier_for(command) is not None

    def _is_beyond(self, command: Command) -> bool:
        """Whether a session would begin in a topic, or at a place, that is not known here."""
        assert isinstance(command, CreateWatch)
        engine, cursors = self._call.runtime.engine, command.cursors
        return not all(
            engine.has_shown(name, max(begin.from_seq, cursors.get(name, 0)))
            for name, begin in command.topics.items()
        )

    def _index_asked(self) -> int:
        given = self._call.header(POSITION)
        if given is None:
            return 0
        return parse_position(given, shard=self._neighbours.standing.shard)

    def _placed(self, made: Made) -> Made:
        """The answer to a write, with the place of the log that has it."""
        if isinstance(made, Streaming):
            return made
        return (
            self._with_place(made) if isinstance(made, Answer) else Mapped(made, self._with_place)
        )

    def _with_place(self, answer: Answer) -> Answer:
        if answer.status >= 300:
            return answer
        # An answer to a write is given once its unit was applied here.
        standing = self._neighbours.standing
        place = Position(standing.shard, standing.index)
        return msgspec.structs.replace(answer, headers=(*answer.headers, (POSITION, place.text)))

    # ------------------------------------------------------------------ the log

    def _trim(self, pieces: list[bytes]) -> Made:
        """`POST /v0/cluster/trim` (§8.8): by the leader.  The log has everybody's records."""
        if self._call.caller.prefixes:
            what = "the key is for some names only, and the cluster's log has all"
            raise Rejection(ErrorCode.FORBIDDEN, what)
        if not self._neighbours.standing.leads:
            return self._forward(pieces)
        judged, size = self._judged, sum(map(len, pieces))
        if not judged.has_kind:
            kind = judged.header(b"content-type")
            routes.check_content_type(kind, empty=not size, rule=judged.route.body)
        body = b"".join(pieces)
        if judged.is_gzipped and size:
            body = inflate(body, self.max_body_bytes)
        return Later(self._call, self._trimmed(parse_trim(body)))

    async def _trimmed(self, asked: TrimBody) -> Made:
        found = await self._neighbours.standing.trim(asked)
        text = open_object(trimmed_of(found, is_dry=bool(asked.dry_run)))
        call = self._call
        return call.answer(200, (JSON,), [text, call.performance(Reply(Outcome()))])

    # ------------------------------------------------------------------ names and answers

    def _entropy(self) -> str:
        return self._neighbours.tag + secrets.token_urlsafe(16)

    def _cluster(self) -> models.Cluster:
        return self._neighbours.answer()

    # ------------------------------------------------------------------ streams

    def _watch_at(self, pieces: list[bytes]) -> Made:
        url = self._neighbours.url_of_session(self._judged.name)
        if url is not None and not self._was_forwarded:
            return self._forward(pieces, url=url)
        standing = self._neighbours.standing
        if not standing.leads:
            self._require_here()
        index = self._index_asked()
        query = routes.parse_query(self._query)
        is_rewound = self._call.header(b"last-event-id") or query.get("last_event_id")
        if not is_rewound and index <= standing.index:
            return super().finish(pieces)
        return Later(self._call, self._when_rewound(pieces, index))

    def _require_here(self) -> None:
        """Raises Rejection: 404 for a session with a topic of which the leader alone has the records by
        now.  Its client makes another one, which is the leader's."""
        call = self._call
        engine, wid = call.runtime.engine, self._judged.name
        streams = Streams(engine)
        found = streams.topics_of(wid)
        if found is None or not engine.has_ephemeral(found):
            return
        now_ms = call.runtime.now_ms
        streams.forget(wid, now_ms, call.caller)
        streams.require_session(wid, now_ms, call.caller)

    async def _when_rewound(self, pieces: list[bytes], index: int) -> Made:
        """A stream that another node has sent farther than this replica is goes on when it has that
        too; before, its cursor would look like one of another instance."""
        await self._wait(index, END_MS, needs_end=True)
        return super().finish(pieces)

    def _begin_socket(self, stream: WatchSocket) -> Socket:
        from topics.server.cluster.sockets import ClusterSocketFeed

        call = self._call
        call.is_timed = False
        call.observe(101)
        feed = ClusterSocketFeed(
            self._service,
            stream,
            self._slot,
            self._neighbours,
            authorization=credentials(call.head.headers),
            client=self._client,
        )
        call.forget_secrets()
        return feed

    # ------------------------------------------------------------------ to another node

    @property
    def _was_forwarded(self) -> bool:
        return self._call.header(FORWARDED) is not None

    @property
    def _client(self) -> str:
        """The address in whose share the request counts here."""
        holder = self._slot.holder
        return holder.name.partition("/")[0] if holder != NOBODY and not holder.is_key else ""

    def _forward(self, pieces: list[bytes], url: str | None = None) -> Later:
        """The answer of the leader, or of the node at `url`."""
        if self._was_forwarded:
            leader = self._neighbours.standing.leader_url
            raise not_leader("this node does not lead", leader)
        is_leaders = url is None
        to = self._neighbours.require_leader_url() if url is None else url
        call, route = self._call, self._judged.route
        head = call.head
        target = head.path + (b"?" + head.query if head.query else b"")
        waits = isinstance(route.target, StreamKind) or _waits(route, pieces)
        is_read = route.is_read
        request = Request(
            method=head.method,
            target=target,
            headers=head.headers,
            body=deque(pieces),
            client=self._client or head.client,
            is_read=is_read,
            # An erasure is answered when it is done.
            is_long=waits or route.guard == "delete",
        )
        pieces.clear()
        if waits:
            call.is_timed = False

        def is_current() -> bool:
            return not is_leaders or self._neighbours.standing.leader_url == to

        work = self._carry(request, to, is_current)
        return Later(call, work, waits_for_news=waits)

    async def _carry(self, request: Request, url: str, is_current: "forwarding.IsCurrent") -> Made:
        call = self._call
        made = await self._neighbours.forwarder.carry(request, url, is_current)
        call.observe(made.status)
        names = {name for name, _ in made.headers}
        also = tuple(each for each in call.also if each[0] not in names)
        made = msgspec.structs.replace(made, headers=(*made.headers, *also))
        if isinstance(made, Streaming):
            self.close()  # a stream is no request in flight (§11)
        return made


def _waits(route: Route, pieces: list[bytes]) -> bool:
    """Whether a request may wait for news, by its body; one that is not read here may."""
    size = sum(map(len, pieces))
    if route.command is None or FACTS[route.command].waits is None or not size:
        return False
    if size > _PLAIN_BYTES:
        return True
    try:
        return bool(_WAIT.decode(b"".join(pieces)).wait_ms)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return True
