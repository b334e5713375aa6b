"""The exchange of a node in a cluster.

`assembly` chooses it once, in the place of `TopicsExchange`, which knows nothing of clusters.  What is answered
here and what goes to the leader is `service`'s to say.  The exchange reads of a head what only nodes have: the
position that a client was given, links of other nodes, requests for the store's files.

The guard, the limits and the origin rule of this node judge a request before it goes anywhere; the node that
decides it looks the key up again.
"""

import secrets
import time
from functools import partial
from typing import Final

import msgspec

from topics.protocol.driver.reply import Ticket
from topics.protocol.faces.http.cluster import Cluster, TrimBody, parse_trim
from topics.protocol.faces.http.negotiation import check_content_type
from topics.protocol.faces.http.origins import OriginRule
from topics.protocol.faces.http.rendering import open_object
from topics.protocol.faces.http.route import Probe
from topics.protocol.model.access import Caller
from topics.protocol.model.errors import ErrorCode, Rejection
from topics.server.access.guard import Guard
from topics.server.cluster.kafka_face import FaceNodes, FaceService
from topics.server.cluster.link_socket import LinkSocket
from topics.server.cluster.link_wire import LINK_PATH, VERSION, VERSION_FIELD
from topics.server.cluster.neighbours import Neighbours, trimmed_of
from topics.server.cluster.peers import Peers, not_leader
from topics.server.cluster.positions import parse_position
from topics.server.cluster.service import NodeService
from topics.server.cluster.tokens import FORWARDED, is_token
from topics.server.http import fields
from topics.server.http.exchange import TopicsExchange
from topics.server.http.heads import Judged
from topics.server.http.holders import Holders
from topics.server.http.inflation import inflate
from topics.server.http.interface import Answer, Head, Opening, Pending, Socket, Streaming
from topics.server.http.probes import plain
from topics.server.http.reports import Reported, Told
from topics.server.http.request import Admitted
from topics.server.http.responder import POSITION, Responder
from topics.server.http.store_files import StoreFiles
from topics.server.links.desk import Desk
from topics.server.links.served_streams import STREAMS
from topics.server.observing.measures import OTHER
from topics.server.observing.observer import Observer
from topics.server.service.later import later
from topics.server.service.nodes import Nodes
from topics.server.service.service import Service
from topics.server.service.shell import Shell
from topics.server.service.slots import Slot, Slots
from topics.server.transport.shared import Shared

TRIM: Final = "TRIM"
"""The report that trims the log first."""
_PATH: Final = LINK_PATH.encode()
_decode_trim: Final = msgspec.msgpack.Decoder(TrimBody).decode
_encode: Final = msgspec.msgpack.Encoder().encode


class ClusterExchange(TopicsExchange):
    """Implements `interface.Exchange` over a replica and its neighbours."""

    def __init__(
        self,
        runtime: Shell,
        neighbours: Neighbours,
        peers: Peers,
        origins: OriginRule | None = None,
        observer: Observer | None = None,
        holders: Holders | None = None,
        *,
        guard: Guard | None = None,
        trace_meta: bool = False,
        files: StoreFiles | None = None,
        kafka_nodes: FaceNodes | None = None,
        is_strict: bool = False,
    ) -> None:
        self._node = NodeService(runtime, neighbours, peers)
        super().__init__(
            runtime,
            origins,
            observer,
            holders,
            guard=guard,
            trace_meta=trace_meta,
            files=files,
            service=self._node,
            is_strict=is_strict,
        )
        self._neighbours = neighbours
        self._peers = peers
        self._kafka_nodes = kafka_nodes
        self._face = FaceService(runtime, neighbours, peers)
        peers.key_of = self._key_of
        self._shared: Shared | None = None

    def carried_by(self, shared: Shared) -> None:
        self._shared = shared
        self._peers.answers = shared.answers

    def _has_whole(self, name: str) -> bool:
        return self._node.standing.leads or self._runtime.engine.is_logged(name)

    @property
    def parts(self) -> tuple[Service, Slots, Guard | None, Nodes | None]:
        return self._face, self.slots, self._guard, self._kafka_nodes

    def _key_of(self, caller: Caller) -> bytes:
        return b"" if self.keys is None else self.keys.digest_of(caller)

    def _is_nodes(self, head: Head) -> bool:
        token = next((value for name, value in head.headers if name == FORWARDED), None)
        return token is not None and is_token(token, self._peers.token)

    def drain(self) -> None:
        """What waits for news at another node ends, and so does not hold up the stop."""
        self._peers.drain()

    def _admit(self, call: Responder, judged: Judged, slot: Slot) -> Admitted:
        slot.elsewhere = call.elsewhere
        given = call.header(POSITION)
        if given is not None:
            slot.index = parse_position(given, shard=self._neighbours.standing.shard)
        return ClusterAdmitted(
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
            _node=self._node,
        )

    # ------------------------------------------------------------------ links of other nodes

    def connect(self, head: Head) -> Answer | Socket | Opening:
        if head.path != _PATH:
            return super().connect(head)
        call = self._call_of(head)
        try:
            return self._open_link(head, call)
        except Rejection as refusal:
            return call.refuse(refusal)

    def _call_of(self, head: Head) -> Responder:
        """Of a handshake that stands in no table of routes: it is the nodes' own, and counted with what no
        route takes."""
        header = fields.reader(head.headers)
        return Responder(self._runtime, self._observer, head, header, time.perf_counter(), OTHER)

    def _open_link(self, head: Head, call: Responder) -> LinkSocket:
        """Raises Rejection."""
        if not self._is_nodes(head) or self._shared is None:
            raise Rejection(ErrorCode.NOT_FOUND, "no such path")
        if call.header(VERSION_FIELD) != VERSION:
            raise Rejection(ErrorCode.INVALID_REQUEST, "a link of a version that is not known here")
        call.observe(101)
        socket = LinkSocket()
        # What a node asks is decided here, or nowhere.
        service = NodeService(self._runtime, self._neighbours, self._peers, may_ask=False)
        reports = {TRIM: self._report_trim}
        keys = self.keys
        desk = Desk(
            self._shared,
            socket,
            service,
            self.slots,
            (lambda _: None) if keys is None else keys.by_digest,
            STREAMS,
            reports,
            counts=True,
        )
        socket.received, socket.ended = desk.received, desk.close
        return socket

    def _report_trim(self, arguments: bytes, caller: Caller, told: Told) -> None:
        standing = self._neighbours.standing
        if not standing.leads:
            raise not_leader("this node does not lead", standing.leader_url)
        asked = _decode_trim(arguments)

        def trimmed(found: bytes | Rejection) -> None:
            told(found if isinstance(found, Rejection) else [found])

        later(trimmed_text(self._neighbours, asked), trimmed)


async def trimmed_text(neighbours: Neighbours, asked: TrimBody) -> bytes:
    """Trim the log, and say what came of it.  Raises Rejection."""
    found = await neighbours.standing.trim(asked)
    return open_object(trimmed_of(found, is_dry=bool(asked.dry_run)))


class ClusterAdmitted(Admitted, eq=False, kw_only=True):
    """A request that may send its body, on a node of a cluster."""

    _node: NodeService

    def finish(self, pieces: list[bytes]) -> Answer | Pending | Streaming:
        target = self._judged.route.target
        if target is not Probe.READY and target is not Probe.TRIM:
            return super().finish(pieces)
        call = self._call
        try:
            if target is Probe.TRIM:
                return self._trim(pieces)
            self._node.neighbours.require_ready()
            return super().finish(pieces)
        except Rejection as refusal:
            return call.refuse(refusal)
        except Exception:
            return call.fail()

    def _trim(self, pieces: list[bytes]) -> Pending:
        """`POST /v0/cluster/trim` (§8.8): by the leader.  The log has everybody's records."""
        call, node = self._call, self._node
        if call.caller.prefixes:
            what = "the key is for some names only, and the cluster's log has all"
            raise Rejection(ErrorCode.FORBIDDEN, what)
        judged, size = self._judged, sum(map(len, pieces))
        if not judged.has_kind:
            kind = judged.header(b"content-type")
            check_content_type(kind, empty=not size, rule=judged.route.body)
        body = b"".join(pieces)
        if judged.is_gzipped and size:
            body = inflate(body, self.max_body_bytes)
        asked = parse_trim(body)
        reported = Reported(call, partial(plain, call))
        ticket: Ticket
        if node.standing.leads:
            ticket = later(trimmed_text(node.neighbours, asked), reported.told)
        else:
            ticket = node.report(TRIM, _encode(asked), self._slot, reported.told)
        reported.ticket = ticket
        return reported

    # ------------------------------------------------------------------ names and answers

    def _entropy(self) -> str:
        return self._node.neighbours.tag + secrets.token_urlsafe(16)

    def _cluster(self) -> Cluster:
        return self._node.neighbours.answer()
