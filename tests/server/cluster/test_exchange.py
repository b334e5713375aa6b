"""What a node of a cluster answers by itself, and what it has the leader answer."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h2.connection
import h2.events
import pytest

from topics.protocol.cluster.rule.trimming import Wait
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.openapi.operations import OPERATIONS
from topics.protocol.model.commands import CommitOffsets
from topics.protocol.model.groups import Membership, OffsetCommit
from topics.protocol.model.holder import Holder
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.cluster.node.status import HistoryLoss, TrimStatus
from topics.server.http.holders import Holders

from .pair import FakeStanding, Node, Pair, a_pair, request, run, until

WRITES = [
    ("PUT", "/v0/topics/t", {}),
    ("POST", "/v0/topics/t", {"records": [{"data": 1}]}),
    ("POST", "/v0/topics/t/delete", {"before_seq": 1}),
    ("POST", "/v0/topics/t/purge", {}),
    ("POST", "/v0/topics/q/claim", {"node": "w"}),
    ("POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1]}),
    ("POST", "/v0/topics/q/nack", {"node": "w", "seqs": [1]}),
    ("POST", "/v0/topics/q/extend", {"node": "w", "seqs": [1], "lease_ms": 1000}),
    ("PUT", "/v0/routers/r", {"source": "t", "dest": "u"}),
    ("DELETE", "/v0/routers/r", None),
    ("DELETE", "/v0/topics/t", None),
]


@pytest.mark.parametrize(("method", "target", "body"), WRITES, ids=lambda v: str(v)[:24])
def test_what_may_write_is_the_leaders(method: str, target: str, body: object) -> None:
    """A follower has the leader answer, whose status, body and name come back; its own engine is
    asked nothing."""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("t", 1)
                node.put("q", 1, type="queue")
            if "routers" in target and method == "DELETE":
                await pair.leader.ask("PUT", "/v0/routers/r", {"source": "t", "dest": "u"})
            before = pair.follower.shell.engine.state.topics["t"].head_seq

            answer = await pair.follower.ask(method, target, body)

            assert answer.headers["x-topics-leader"] == pair.leader.url
            assert answer.status in (200, 201), answer
            assert pair.leader.exchange._observer.measures is not None
            assert pair.follower.shell.engine.state.topics["t"].head_seq == before
            assert pair.follower.peers.counts.forwarded == 1

    run(story())


READS = [
    ("GET", "/v0/topics", None),
    ("GET", "/v0/topics/t", None),
    ("HEAD", "/v0/topics/t", None),
    ("POST", "/v0/topics/t/diff", {}),
    ("GET", "/v0/topics/t/records", None),
    ("GET", "/v0/routers", None),
    ("POST", "/v0/watch", {"topics": {"t": {}}}),
    ("GET", "/v0/health", None),
    ("GET", "/v0/ready", None),
    ("GET", "/v0/limits", None),
    ("GET", "/v0/metrics", None),
    ("GET", "/v0/cluster", None),
    ("GET", "/v0/openapi.json", None),
]


@pytest.mark.parametrize(("method", "target", "body"), READS, ids=lambda v: str(v)[:24])
def test_what_only_reads_is_answered_here(method: str, target: str, body: object) -> None:
    """Without a connection to the leader, which may be far away or gone."""

    async def story() -> None:
        async with a_pair() as pair:
            pair.follower.put("t", 1)
            pair.follower.standing.leader_url = None

            answer = await pair.follower.ask(method, target, body)

            assert answer.status == 200, answer
            assert "x-topics-leader" not in answer.headers
            assert pair.follower.peers.counts.forwarded == 0

    run(story())


def test_a_node_that_leads_answers_all_by_itself() -> None:
    """And says where the log stood with each write. (§5 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.standing.index = 17

            written = await pair.leader.append("t", 1)
            read = await pair.leader.ask("POST", "/v0/topics/t/diff", {})
            refused = await pair.leader.ask("POST", "/v0/topics/t", {"records": []})

            assert (written.status, written.headers["x-topics-position"]) == (201, "0.17")
            assert "x-topics-position" not in read.headers
            assert (refused.status, "x-topics-position" in refused.headers) == (400, False)
            assert pair.leader.peers.counts.forwarded == 0

    run(story())


def test_the_position_of_a_forwarded_write_comes_back() -> None:
    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.standing.index = 5
            written = await pair.follower.append("t", 1)
            assert written.headers["x-topics-position"] == "0.5"
            assert written.json["first_seq"] == 1

    run(story())


# ---------------------------------------------------------------------- reads that are the leader's


@pytest.mark.parametrize(
    ("method", "target", "body"),
    [
        ("POST", "/v0/topics/e/diff", {}),
        ("GET", "/v0/topics/e/records", None),
        ("GET", "/v0/topics/e", None),
        ("HEAD", "/v0/topics/e", None),
        ("POST", "/v0/watch", {"topics": {"t": {}, "e": {}}}),
    ],
    ids=lambda v: str(v)[:24],
)
def test_records_of_class_ephemeral_are_the_leaders(method: str, target: str, body: object) -> None:
    """They are in its memory and nowhere else. (§4 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("t", 0)
                node.put("e", durability="ephemeral")
            pair.leader.put("e", "here")

            answer = await pair.follower.ask(method, target, body)

            assert answer.status == 200
            assert answer.headers["x-topics-leader"] == pair.leader.url
            if target.endswith(("diff", "records")):
                assert [each["data"] for each in answer.json["records"]] == ["here"]

    run(story())


def test_a_session_of_the_leader_is_streamed_through_a_follower() -> None:
    """A `wid` names its node, and any other forwards its stream. (§5 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.put("t", "first")
            made = await pair.leader.ask("POST", "/v0/watch", {"topics": {"t": {}}})
            wire = await pair.follower.connect()
            wire.send(request("GET", made.json["stream_url"], None, "Accept: text/event-stream"))

            status, headers = await wire.head()
            got = await wire.chunks_until(b"caught-up")
            pair.leader.put("t", "second")
            got += await wire.chunks_until(b"second")

            assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
            assert headers["x-topics-leader"] == pair.leader.url
            assert b'"data":"first"' in got

    run(story())


def test_a_read_that_waited_may_turn_out_to_be_the_leaders() -> None:
    """The unit that it waited for made the topic `ephemeral`, or owes it copies. (§5 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            standing = pair.follower.standing
            standing.ends = None
            for node in (pair.leader, pair.follower):
                node.put("t", 1, durability="disk")
            wire = await pair.follower.connect()
            position = "x-topics-position: 0.5"
            wire.send(request("POST", "/v0/topics/t/diff", {"from_seq": 0}, position))
            await until(lambda: standing.waited)
            for node in (pair.leader, pair.follower):
                node.put("t", durability="ephemeral")
            pair.leader.put("t", "in memory")
            pair.leader.standing.index = standing.index = 5

            answer = await wire.answer()

            assert answer.headers["x-topics-leader"] == pair.leader.url
            assert [each["data"] for each in answer.json["records"]] == [1, "in memory"]

    run(story())


def test_a_mixed_session_is_the_leaders() -> None:
    """One topic of class `ephemeral` makes the whole session the leader's, and a follower streams both.
    (§4 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("t")
                node.put("e", durability="ephemeral")
            pair.leader.put("t", "logged")
            pair.leader.put("e", "in memory")
            made = await pair.follower.ask("POST", "/v0/watch", {"topics": {"t": {}, "e": {}}})
            assert made.status == 200
            wire = await pair.follower.connect()
            wire.send(request("GET", made.json["stream_url"]))
            _, headers = await wire.head()
            assert headers["x-topics-leader"] == pair.leader.url
            got = await wire.chunks_until(b"in memory")
            if b"logged" not in got:
                await wire.chunks_until(b"logged")

    run(story())


def test_a_session_of_a_topic_that_became_ephemeral_is_gone() -> None:
    """This node would show nothing of it any more: 404, as of a session that was forgotten, and a new
    one is the leader's."""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("t", 1, durability="disk")
            made = await pair.follower.ask("POST", "/v0/watch", {"topics": {"t": {}}})
            assert "x-topics-leader" not in made.headers
            for node in (pair.leader, pair.follower):
                node.put("t", durability="ephemeral")

            gone = await pair.follower.ask("GET", made.json["stream_url"])
            assert gone.code == (404, "not_found")
            cursor = made.json["cursor"]
            body = {"topics": {"t": {}}, "cursor": cursor}
            again = await pair.follower.ask("POST", "/v0/watch", body)
            assert again.headers["x-topics-leader"] == pair.leader.url

    run(story())


def test_a_client_that_leaves_ends_the_stream_of_the_other_node() -> None:
    """The session's stream is closed with it."""

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.put("t", "first")
            made = await pair.leader.ask("POST", "/v0/watch", {"topics": {"t": {}}})
            wire = await pair.follower.connect()
            wire.send(request("GET", made.json["stream_url"]))
            await wire.head()
            await wire.chunks_until(b"first")
            assert list(pair.leader.shell.engine.watches.streams)

            wire.close()
            await until(lambda: not list(pair.leader.shell.engine.watches.streams))

    run(story())


def test_a_session_of_this_node_is_served_here_whoever_leads() -> None:
    async def story() -> None:
        async with a_pair() as pair:
            pair.follower.put("t", "first")
            made = await pair.follower.ask("POST", "/v0/watch", {"topics": {"t": {}}})
            wire = await pair.follower.connect()
            wire.send(request("GET", made.json["stream_url"]))
            await wire.head()
            await wire.chunks_until(b"first")
            assert pair.follower.peers.counts.forwarded == 0

            unknown = await pair.follower.ask("GET", "/v0/watch/wid_of_nobody")
            assert unknown.status == 404

    run(story())


def test_jobs_are_pushed_through_a_follower() -> None:
    """A work stream is the leader's: it leases jobs. (§10.8)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
            wire = await pair.follower.connect()
            wire.send(request("GET", "/v0/topics/q/work?node=w", None, "Accept: text/event-stream"))
            status, _ = await wire.head()
            pair.leader.put("q", "a job")
            assert status == 200
            assert b"a job" in await wire.chunks_until(b"a job")

    run(story())


def test_a_read_waits_for_copies_at_the_leader() -> None:
    """A follower copies nothing: where routers owe a topic copies, the read is the leader's. (§6)"""

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.put("src", 1)
            await pair.leader.ask("PUT", "/v0/routers/r", {"source": "src", "dest": "dst"})
            engine = pair.follower.shell.engine
            pair.follower.put("dst", 0)
            owed = object()
            engine.barrier_for = lambda command: owed  # type: ignore[assignment,method-assign,return-value]

            read = await pair.follower.ask("POST", "/v0/topics/dst/diff", {})

            assert read.headers["x-topics-leader"] == pair.leader.url

    run(story())


# ---------------------------------------------------------------------- no leader, loops


def test_without_a_leader_a_write_is_refused_and_a_read_is_not() -> None:
    """503 with `Retry-After`; nothing was applied, and the answer says so."""

    async def story() -> None:
        async with a_pair() as pair:
            pair.follower.put("t", 1)
            pair.follower.standing.leader_url = None

            refused = await pair.follower.append("t", 2)

            assert refused.code == (503, "not_leader")
            assert refused.headers["retry-after"] == "1"
            assert refused.json["error"]["detail"] == {"leader": None, "outcome": "not_applied"}
            assert (await pair.follower.ask("POST", "/v0/topics/t/diff", {})).status == 200

    run(story())


def test_a_forwarded_request_is_not_forwarded_again() -> None:
    """Two nodes that take each other for the leader answer at once."""

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.standing.leads = False
            pair.leader.standing.leader_url = pair.follower.url

            refused = await pair.follower.append("t", 1)

            assert refused.code == (503, "not_leader")
            detail = refused.json["error"]["detail"]
            assert detail == {"leader": pair.follower.url, "outcome": "not_applied"}
            assert pair.leader.peers.counts.forwarded == 0

    run(story())


# ---------------------------------------------------------------------- who asks


def keys(tmp_path: Path) -> Guard:
    source = source_of("a-key-that-is-long-enough-to-be-one", None)
    assert source is not None
    return Guard(source)


def test_the_leader_asks_for_the_key_again(tmp_path: Path) -> None:
    """The follower refuses a request without one; the leader's own keys decide in the end."""
    right = "Authorization: Bearer a-key-that-is-long-enough-to-be-one"

    async def story() -> None:
        async with a_pair(lambda: keys(tmp_path)) as pair:
            body = {"records": [{"data": 1}]}
            without = await pair.follower.ask("POST", "/v0/topics/t", body)
            with_key = await pair.follower.ask("POST", "/v0/topics/t", body, right)
            assert without.code == (401, "unauthorized")
            assert with_key.status == 201
            assert pair.follower.peers.counts.forwarded == 1

            # The leader's keys are others by now; the follower has not read them yet.
            pair.leader.exchange._guard.keys.replace([])  # type: ignore[union-attr]
            late = await pair.follower.ask("POST", "/v0/topics/t", body, right)
            assert late.code == (401, "unauthorized")
            assert late.headers["x-topics-leader"] == pair.leader.url

    run(story())


def seen_client(node: Node) -> list[str]:
    """Addresses in whose share requests come to count at a node."""
    seen: list[str] = []
    peer = node.exchange.slots.peer
    node.exchange.slots.bounds_requests = True  # else nobody asks

    def noted(address: str) -> Holder:
        seen.append(address)
        return peer(address)

    node.exchange.slots.peer = noted
    return seen


def test_the_leader_believes_a_node_and_nobody_else_about_the_client() -> None:
    """`X-Forwarded-For` counts with the cluster's token; a client that makes one up is itself."""

    async def story() -> None:
        async with a_pair() as pair:
            seen = seen_client(pair.leader)
            pair.follower.exchange._holders = Holders(["127.0.0.0/8"])
            spoofed = "X-Forwarded-For: 203.0.113.9"
            body = {"records": [{"data": 1}]}
            await pair.follower.ask("POST", "/v0/topics/t", body, spoofed)
            assert seen == ["203.0.113.9"]  # as the follower judged it, by its own proxies

            made_up = "X-Topics-Forwarded: 0123456789abcdef"
            await pair.leader.ask("POST", "/v0/topics/t", body, spoofed, made_up)
            assert seen[-1] == "127.0.0.1"

    run(story())


def test_a_pages_origin_is_judged_where_the_page_is() -> None:
    """The leader sees no head: what the page asks for comes as a command, with all that its head said
    of it."""

    async def story() -> None:
        async with a_pair() as pair:
            seen: list[Any] = []
            submit = pair.leader.shell.submit

            def noted(command: Any, deliver: Any) -> Any:
                seen.append(command)
                return submit(command, deliver)

            pair.leader.shell.submit = noted  # type: ignore[method-assign]
            answer = await pair.follower.ask(
                "POST",
                "/v0/topics/t?return_seqs=false",
                {"records": [{"data": 1}]},
                "Origin: http://page.example",
                "Sec-Fetch-Site: same-origin",
                "Connection: keep-alive, x-hop",
                "X-Hop: 1",
                "Idempotency-Key: k",
                "Prefer: handling=strict",
            )
            assert answer.status == 201
            (got,) = seen
            assert (bool(got.key), got.return_seqs) == (True, False)

    run(story())


def test_a_request_over_http2_is_forwarded_too() -> None:
    async def story() -> None:
        async with a_pair() as pair:
            wire = await pair.follower.connect()
            client = h2.connection.H2Connection()
            client.initiate_connection()
            head = [
                (":method", "POST"), (":path", "/v0/topics/t"), (":scheme", "http"),
                (":authority", "localhost"), ("content-type", "application/json"),
            ]  # fmt: skip
            client.send_headers(1, head)
            client.send_data(1, b'{"records":[{"data":1}]}', end_stream=True)
            wire.send(client.data_to_send())
            events = []
            while not any(isinstance(event, h2.events.StreamEnded) for event in events):
                events += client.receive_data(await wire.reader.read(65536))
            (response,) = [e for e in events if isinstance(e, h2.events.ResponseReceived)]
            headers = {bytes(n): bytes(v) for n, v in response.headers}  # type: ignore[arg-type]
            assert headers[b":status"] == b"201"
            assert headers[b"x-topics-leader"] == pair.leader.url.encode()

    run(story())


# ---------------------------------------------------------------------- positions and second looks


def test_a_read_waits_for_the_position_that_its_client_has() -> None:
    """It is answered with the write in it, once the replica has applied that."""

    async def story() -> None:
        async with a_pair() as pair:
            follower = pair.follower
            follower.put("t", "old")
            follower.standing.ends = None
            asking = asyncio.ensure_future(
                follower.ask("POST", "/v0/topics/t/diff", {}, "X-Topics-Position: 0.3")
            )
            await until(lambda: follower.standing.waited)
            follower.put("t", "new")
            follower.standing.index = 3

            read = await asking
            assert [each["data"] for each in read.json["records"]] == ["old", "new"]

    run(story())


@pytest.mark.parametrize(
    ("target", "body", "bound_ms"),
    [
        ("/v0/topics/t/diff", {"wait_ms": 700}, 700),
        ("/v0/topics/t/diff", {}, 5000),
    ],
)
def test_a_replica_that_stays_behind_says_so(target: str, body: object, bound_ms: int) -> None:
    """503 `replica_behind` after the request's `wait_ms`, or five seconds where it has none."""

    async def story() -> None:
        async with a_pair() as pair:
            pair.follower.put("t", "old")
            pair.follower.standing.ends = False
            read = await pair.follower.ask("POST", target, body, "X-Topics-Position: 0.9")
            assert read.code == (503, "replica_behind")
            assert read.headers["retry-after"] == "1"
            assert pair.follower.standing.waited == [bound_ms]

    run(story())


@pytest.mark.parametrize("text", ["", "7", "0.x", "1.5", "0.5.5", "0." + "9" * 40])
def test_a_position_that_is_none_is_refused(text: str) -> None:
    """A read that ignored it would promise what it does not hold."""

    async def story() -> None:
        async with a_pair() as pair:
            pair.follower.put("t", "old")
            read = await pair.follower.ask(
                "GET", "/v0/topics/t", None, f"X-Topics-Position: {text}"
            )
            assert read.code == (400, "invalid_request")

    run(story())


ABSENT = [
    ("POST", "/v0/topics/t/diff", {}),
    ("GET", "/v0/topics/t", None),
    ("GET", "/v0/topics/t/records", None),
    ("POST", "/v0/watch", {"topics": {"t": {}}}),
]


either = pytest.mark.parametrize("role", ["follower", "leader"])


def of(pair: Pair, role: str) -> tuple[Node, FakeStanding]:
    node: Node = getattr(pair, role)
    return node, node.standing


@either
@pytest.mark.parametrize(("method", "target", "body"), ABSENT, ids=lambda v: str(v)[:24])
def test_a_topic_is_absent_only_from_the_end_of_the_log(
    role: str, method: str, target: str, body: object
) -> None:
    """404 is answered once the replica has all that the log held as it was asked; what came until
    then is found; and one that does not get there says that it is behind.  A leader may have been deposed without knowing it, as
    one that was paused."""

    async def story() -> None:
        async with a_pair() as pair:
            node, standing = of(pair, role)
            assert (await node.ask(method, target, body)).code == (404, "topic_not_found")
            assert standing.waited == [5000]

            standing.ends = False
            assert (await node.ask(method, target, body)).code == (503, "replica_behind")

            standing.ends, standing.on_end = True, lambda: node.put("t", "came")
            assert (await node.ask(method, target, body)).status == 200

    run(story())


def put_group(node: Node) -> None:
    commit = CommitOffsets("g", [OffsetCommit("t", 1, -1, "")], Membership())
    node.shell.submit(commit, lambda _: None)


LATEST = "/v0/topics/t/latest?tag=a"
TAGGED = b'{"records":[{"data":2,"tag":"a"}]}'


def put_tagged(node: Node) -> None:
    limits = node.shell.limits
    append = parse_append("t", TAGGED, limits, return_seqs=True, header_key=None)
    node.shell.submit(append, lambda _: None)


PARTS_ABSENT: dict[str, tuple[str, str, object, Callable[[Node], None]]] = {
    "partition_not_found": (
        "POST",
        "/v0/topics/t/diff",
        {"from_seq": 0, "partition": 2},
        lambda node: node.put("t", partitions=3),
    ),
    "record_not_found": ("GET", LATEST, None, put_tagged),
    "group_not_found": ("GET", "/v0/groups/g", None, put_group),
}


@either
@pytest.mark.parametrize("code", PARTS_ABSENT)
def test_what_a_topic_or_group_has_is_absent_only_from_the_end_of_the_log(
    role: str, code: str
) -> None:
    """As a topic is: partitions that were added, the latest record of a tag, and groups that committed."""
    method, target, body, comes = PARTS_ABSENT[code]

    async def story() -> None:
        async with a_pair() as pair:
            node, standing = of(pair, role)
            node.put("t", 1, partitions=2)
            assert (await node.ask(method, target, body)).code == (404, code)
            assert standing.waited == [5000]

            standing.ends = False
            assert (await node.ask(method, target, body)).code == (503, "replica_behind")

            standing.ends, standing.on_end = True, lambda: comes(node)
            assert (await node.ask(method, target, body)).status == 200

    run(story())


@either
def test_a_cursor_above_the_head_waits_for_the_end_of_the_log(role: str) -> None:
    """`recreated` would be false on a replica that lags: the cursor is from another node.  A follower
    may have shown a record before its leader knows that it was accepted."""

    async def story() -> None:
        async with a_pair() as pair:
            node, standing = of(pair, role)
            node.put("t", 1)
            diff = ("POST", "/v0/topics/t/diff", {"from_seq": 2})
            assert (await node.ask(*diff)).json["tombstone"]["reason"] == "recreated"
            assert standing.waited == [5000]

            standing.ends = False
            assert (await node.ask(*diff)).code == (503, "replica_behind")

            standing.ends, standing.on_end = True, lambda: node.put("t", 2, 3)
            read = await node.ask(*diff)
            assert (read.json["tombstone"], read.json["next_from_seq"]) == (None, 3)

    run(story())


@either
def test_a_stream_that_moves_here_waits_for_the_end_of_the_log(role: str) -> None:
    """With `Last-Event-ID` it may be farther than this replica is. (§5 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            node, standing = of(pair, role)
            node.put("t", 1)
            made = await node.ask("POST", "/v0/watch", {"topics": {"t": {}}})
            stream = made.json["stream_url"]
            standing.ends = False
            refused = await node.ask("GET", stream, None, f"Last-Event-ID: {made.json['cursor']}")
            assert refused.code == (503, "replica_behind")

            standing.ends = True
            wire = await node.connect()
            wire.send(request("GET", stream, None, f"Last-Event-ID: {made.json['cursor']}"))
            assert (await wire.head())[0] == 200

    run(story())


def test_a_client_that_leaves_during_a_second_look_is_not_answered() -> None:
    async def story() -> None:
        async with a_pair() as pair:
            follower = pair.follower
            follower.standing.ends = None
            wire = await follower.connect()
            wire.send(request("GET", "/v0/topics/t"))
            await until(lambda: follower.standing.waited)
            wire.close()
            await until(lambda: not follower.shared.connections)
            follower.standing.ends = True

            assert (await follower.ask("GET", "/v0/health")).status == 200

    run(story())


# ---------------------------------------------------------------------- what operators see


def test_the_cluster_is_shown() -> None:
    """`GET /v0/cluster`: nodes, leader, term, lags. (§5 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            shown = (await pair.follower.ask("GET", "/v0/cluster")).json
            assert (shown["enabled"], shown["node"], shown["leader"]) == (True, "n2", "n1")
            assert shown["leader_url"] == pair.leader.url
            assert [node["role"] for node in shown["nodes"]] == ["leader", "follower"]

    run(story())


def test_each_node_tells_of_its_own_clients() -> None:
    """Not of those that another node has asked it for; and says its name. (§8.9 of the contract)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("q", type="queue")
                node.put("t", 1, 2)
            work = await pair.follower.connect()
            work.send(request("GET", "/v0/topics/q/work?node=w", None, "Accept: text/event-stream"))
            await work.head()
            poll = await pair.follower.connect()
            poll.send(request("POST", "/v0/topics/t/diff", {"from_seq": 2, "wait_ms": 30_000}))
            await until(lambda: len(pair.follower.exchange.clients) == 2)

            leader = (await pair.leader.ask("GET", "/v0/clients")).json
            assert (leader["node"], leader["clients"]) == ("n1", [])
            follower = (await pair.follower.ask("GET", "/v0/clients")).json
            assert follower["node"] == "n2"
            worker, reader = sorted(
                follower["clients"], key=lambda each: each["kind"], reverse=True
            )
            assert (worker["kind"], worker["topics"]) == ("work", [{"topic": "q"}])
            assert (reader["kind"], reader["lag"]) == ("read", 0)

    run(story())


def test_a_replica_does_not_know_the_head_of_an_ephemeral_topic() -> None:
    """Its records are the leader's, which does. (§8.9 of the contract)"""

    async def story() -> None:
        async with a_pair() as pair:
            for node in (pair.leader, pair.follower):
                node.put("e", durability="ephemeral")
            pair.leader.put("e", 1, 2)
            for node in (pair.leader, pair.follower):
                poll = await node.connect()
                body = {"from_seq": 2, "wait_ms": 30_000}
                poll.send(request("POST", "/v0/topics/e/diff", body))
                await until(lambda node=node: len(node.exchange.clients) == 1)
                [client] = (await node.ask("GET", "/v0/clients")).json["clients"]
                assert client.get("lag") == (0 if node is pair.leader else None)

    run(story())


def test_a_replica_that_lags_is_not_ready() -> None:
    """A balancer sends clients elsewhere; health is another thing."""

    async def story() -> None:
        async with a_pair() as pair:
            standing = pair.follower.standing
            standing.lag_ms = 10_000
            assert (await pair.follower.ask("GET", "/v0/ready")).status == 200
            standing.lag_ms = 10_001
            behind = await pair.follower.ask("GET", "/v0/ready")
            assert behind.code == (503, "replica_behind")
            assert behind.json["error"]["detail"] == {"lag_units": 1, "lag_ms": 10_001}
            standing.lag_ms, standing.loss = 0, HistoryLoss(at_ms=1, index=2, what="unit 2")
            lost = await pair.follower.ask("GET", "/readyz")
            assert lost.json["error"]["detail"] == {"reason": "history_lost"}
            assert (await pair.follower.ask("GET", "/healthz")).status == 200

    run(story())


def test_a_standing_that_changes_is_looked_at_for_each_request() -> None:
    async def story() -> None:
        async with a_pair() as pair:
            node = pair.follower
            assert "x-topics-leader" in (await node.append("t", 1)).headers
            node.standing.leads = True
            assert "x-topics-leader" not in (await node.append("t", 1)).headers
            assert isinstance(node.standing, FakeStanding)

    run(story())


def test_a_trim_is_the_leaders_and_says_what_each_node_needs() -> None:
    """Asked of any node; a wrong body is refused before anything is asked. (§6 of the cluster, §8.8)"""

    async def story() -> None:
        async with a_pair() as pair:
            trim = "/v0/cluster/trim"
            found = await pair.follower.ask("POST", trim, {"now": True, "dry_run": True})
            assert found.headers["x-topics-leader"] == pair.leader.url
            assert {**found.json, "performance": None} == {
                "trimmed": False, "before": 57, "records": 50, "log_start": 7, "log_end": 70,
                "waits_for": "node", "node": "n2", "performance": None,
                "positions": [
                    {"node": "n1", "offset": 69, "is_copy": True},
                    {"node": "n2", "offset": None, "is_copy": False},
                ],
            }  # fmt: skip
            example = json.loads(json.dumps(OPERATIONS["POST /v0/cluster/trim"].example.answer))
            assert example["application/json"].keys() == found.json.keys()
            done = await pair.leader.ask("POST", trim, {"before": 20})
            assert (done.json["trimmed"], done.json["records"]) == (True, 13)
            assert [(each.now, each.before) for each in pair.leader.standing.trims] == [
                (True, None),
                (None, 20),
            ]
            for body in ({"befor": 1}, {"before": -1}, {"before": 1, "now": True}, {"now": 1}):
                refused = await pair.leader.ask("POST", trim, body)
                assert refused.code == (400, "invalid_request"), body
            assert len(pair.leader.standing.trims) == 2
            pair.follower.standing.leader_url = None
            assert (await pair.follower.ask("POST", trim, {})).code == (503, "not_leader")

    run(story())


def test_an_erasure_says_until_when_the_clusters_log_has_the_bytes() -> None:
    """A delete that erases nothing says nothing of it. (§5)"""

    async def story() -> None:
        async with a_pair() as pair:
            delete = "/v0/topics/t/delete"
            pair.leader.put("t", 1, 2, 3)
            plain = await pair.leader.ask("POST", delete, {"before_seq": 2})
            assert "log_retained_until" not in plain.json
            erased = await pair.leader.ask("POST", delete, {"before_seq": 3, "erase": True})
            assert erased.json["log_retained_until"] == pair.leader.shell.now_ms + 90_000

    run(story())


def test_how_far_the_trimming_is_shows() -> None:
    """What it waits for, and when it was last; null before a leader has looked. (§6 of the cluster)"""

    async def story() -> None:
        async with a_pair() as pair:
            assert (await pair.follower.ask("GET", "/v0/cluster")).json["trim"] is None
            pair.follower.standing.trim_status = TrimStatus(
                looked_ms=9000, before=5, waits_for=Wait.RETENTION
            )
            shown = (await pair.follower.ask("GET", "/v0/cluster")).json["trim"]
            assert shown == {
                "before": 5, "waits_for": "retention", "node": None, "looked_ms": 9000,
                "last_ms": None,
            }  # fmt: skip

    run(story())


def test_a_key_for_some_names_trims_nothing(tmp_path: Path) -> None:
    """The log has everybody's records. (§0.2, §8.8)"""
    source = source_of("limited-key-that-is-long-enough:read+admin:in.", None)
    assert source is not None
    limited = "Authorization: Bearer limited-key-that-is-long-enough"

    async def story() -> None:
        async with a_pair(lambda: Guard(source)) as pair:
            for node in (pair.leader, pair.follower):
                refused = await node.ask("POST", "/v0/cluster/trim", {"now": True}, limited)
                assert refused.code == (403, "forbidden")
            assert pair.leader.standing.trims == []

    run(story())
