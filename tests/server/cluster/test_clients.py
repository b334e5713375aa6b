"""What clients of a cluster see: three servers over a real broker, and the client's own programs. (§5)

One cluster for all stories of this module, which come in their order.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from tests import brokers, nodes
from tests.nodes import Answered, NodeServer, NodeServers
from topics.client import AsyncClient, Client, Record

pytestmark = pytest.mark.kafka

PATIENCE_SECONDS = 60
"""Bounds a hang."""


@pytest.fixture(scope="module")
def kafka() -> Iterator[str]:
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    with brokers.running() as found:
        yield found.bootstrap


@pytest.fixture(scope="module")
def servers(kafka: str) -> Iterator[NodeServers]:
    with nodes.running(kafka, TOPICS_CLUSTER_SESSION_MS="2000") as found:
        yield found


@pytest.fixture
def follower(servers: NodeServers) -> NodeServer:
    leader = servers.leader()
    return next(node for node in servers.nodes if node is not leader)


def put(node: NodeServer, topic: str, **config: object) -> str:
    """The position of the answer."""
    _, headers = node.ask_with_headers(f"/v0/topics/{topic}", config, method="PUT")
    return headers["x-topics-position"]


def append(node: NodeServer, topic: str, *datas: object, **more: object) -> tuple[Any, str]:
    """The answer, and its position."""
    body = {"records": [{"data": data} for data in datas], **more}
    answer, headers = node.ask_with_headers(f"/v0/topics/{topic}", body)
    return answer, headers["x-topics-position"]


def page(node: NodeServer, topic: str, position: str = "", from_seq: int = 0) -> Any:
    headers = {"x-topics-position": position} if position else {}
    body = {"from_seq": from_seq}
    return node.ask_with_headers(f"/v0/topics/{topic}/diff", body, headers=headers)[0]


def datas(found: Any) -> list[object]:
    return [record["data"] for record in found["records"]]


def eventually(is_so: Callable[[], Any]) -> Any:
    """Ask until it is so; an answer of a moment without a leader is none."""
    until = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            if found := is_so():
                return found
        except (Answered, OSError):
            pass
        assert time.monotonic() < until, "never"
        time.sleep(0.05)


def next_leader(servers: NodeServers) -> NodeServer:
    """Kill the leader; the next one."""
    killed = servers.leader()
    killed.kill()
    found = servers.leader()
    killed.start()
    killed.wait_ready()
    assert found is not killed
    return found


# ---------------------------------------------------------------------- class ephemeral


def test_a_class_changes_to_ephemeral_and_back(servers: NodeServers) -> None:
    """Through any node.  What was only in the leader's memory is told as lost on every node, and what
    was logged before is there. (§4)"""
    first, second, third = servers.nodes
    put(first, "veil", durability="disk")
    append(second, "veil", "logged")
    put(third, "veil", durability="ephemeral")
    _, position = append(first, "veil", "in memory", "too")
    assert [datas(page(node, "veil", position)) for node in servers.nodes] == [
        ["logged", "in memory", "too"]
    ] * 3

    put(second, "veil", durability="fsync")
    _, position = append(third, "veil", "again")

    for node in servers.nodes:
        assert datas(page(node, "veil", position)) == ["logged"]
        found = page(node, "veil", position, from_seq=1)
        stone = found["tombstone"]
        assert (stone["gap_from"], stone["gap_to"], stone["reason"]) == (2, 3, "crash")
        assert datas(page(node, "veil", position, from_seq=3)) == ["again"]


class Ws:
    """A WebSocket of one node."""

    def __init__(self, node: NodeServer) -> None:
        url = node.url.replace("http", "ws") + "/v0/ws"
        self._opening = connect(url, proxy=None)
        self._connection: ClientConnection

    def __enter__(self) -> "Ws":
        self._connection = self._opening.__enter__()
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()

    def say(self, **message: object) -> Any:
        self._connection.send(json.dumps(message))
        return self.hear()

    def hear(self) -> Any:
        return json.loads(self._connection.recv(timeout=PATIENCE_SECONDS))

    def last(self) -> Any:
        """The message before the end."""
        found = None
        while True:
            try:
                found = self.hear()
            except ConnectionClosed:
                return found


def test_a_socket_at_a_follower_has_both_kinds_of_topics(
    servers: NodeServers, follower: NodeServer
) -> None:
    """It publishes through the follower, and subscribes with the ack's position.  When the leader dies the
    socket ends; at another node the client goes on from where it was, each logged record comes once, and
    what was in the leader's memory is told as lost. (§4, §5)"""
    put(follower, "mist", durability="ephemeral")
    put(follower, "plain")
    with Ws(follower) as ws:
        topics = {"mist": {}, "plain": {}}
        ack = ws.say(op="publish", topic="mist", records=[{"data": "m1"}])
        append(servers.nodes[0], "plain", "p1")
        begun = ws.say(op="subscribe", topics=topics, position=ack["position"])
        assert set(begun["topics"]) == set(topics)
        seen = [ws.hear() for _ in range(2)]
        while sum(frame["op"] == "record" for frame in seen) < 2:
            seen.append(ws.hear())
        got = {f["topic"]: f["records"][0]["data"] for f in seen if f["op"] == "record"}
        assert got == {"mist": "m1", "plain": "p1"}

        leader = next_leader(servers)

        assert ws.last()["code"] == "not_leader"

    other = next(node for node in servers.nodes if node not in (leader, follower))
    eventually(lambda: append(other, "mist", "m2"))
    _, position = append(other, "plain", "p2")
    with Ws(other) as ws:
        topics = {"mist": {"from_seq": 1}, "plain": {"from_seq": 1}}
        assert ws.say(op="subscribe", topics=topics, position=position)["op"] == "subscribed"
        frames = [ws.hear()]
        while sum(frame["op"] == "caught_up" for frame in frames) < 2:
            frames.append(ws.hear())
    mist = [frame for frame in frames if frame["topic"] == "mist"]
    assert (mist[0]["op"], mist[0]["gap_from"]) == ("tombstone", 2)
    assert mist[1]["records"][0]["data"] == "m2"
    plain = [datas(frame) for frame in frames if frame["op"] == "record" and frame not in mist]
    assert plain == [["p2"]]


def told(node: NodeServer, data: str) -> bool:
    """Once, however often it is tried."""
    append(node, "ground", data, idempotency_key=data)
    return True


def test_a_watch_of_both_kinds_goes_on_at_another_node(servers: NodeServers) -> None:
    """The Python client's watch, of a follower: a change of the leader in its middle neither leaves out
    nor doubles a logged record. (§5)"""
    put(servers.nodes[0], "fog", durability="ephemeral")
    put(servers.nodes[0], "ground")
    leader = servers.leader()
    follower = next(node for node in servers.nodes if node is not leader)

    async def story() -> list[object]:
        seen: list[object] = []
        async with AsyncClient(follower.url) as client:
            watch = client.watch(["fog", "ground"])
            async with asyncio.timeout(PATIENCE_SECONDS):
                await client.append("ground", "g1")
                async for topic, item in watch:
                    if not isinstance(item, Record) or topic != "ground":
                        continue
                    seen.append(item.data)
                    if item.data == "g1":
                        await asyncio.to_thread(next_leader, servers)
                        for data in ("g2", "g3"):
                            await asyncio.to_thread(eventually, partial(told, follower, data))
                    if item.data == "g3":
                        break
        return seen

    assert asyncio.run(story()) == ["g1", "g2", "g3"]


# ---------------------------------------------------------------------- queues


def claimed(node: NodeServer, queue: str, **more: object) -> list[Any]:
    found = node.ask(f"/v0/topics/{queue}/claim", {"node": "w", "max": 10, **more})
    jobs: list[Any] = found["claimed"]
    return jobs


def test_a_failover_keeps_leases_and_keys(servers: NodeServers, follower: NodeServer) -> None:
    """A job that was claimed is nobody else's at the next leader, and its worker acks it there; an append
    under a known key is the one of before; the new leases are above the old. (§4)"""
    put(follower, "jobs", type="queue", dead_letter="dead", max_deliveries=1)
    first, _ = append(follower, "jobs", "a", idempotency_key="k")
    [job] = claimed(follower, "jobs", lease_ms=600_000)

    leader = next_leader(servers)

    again = eventually(lambda: append(servers.nodes[0], "jobs", "a", idempotency_key="k"))[0]
    assert (again["deduped"], again["seqs"]) == (True, first["seqs"])
    assert claimed(follower, "jobs") == []
    append(follower, "jobs", "b")
    [other] = claimed(follower, "jobs")
    term = leader.ask("/v0/cluster")["term"]
    assert int(other["lease_id"].removeprefix("lease_"), 16) >> 40 == term
    body = {"node": "w", "seqs": [job["$seq"]], "lease_id": job["lease_id"]}
    assert follower.ask("/v0/topics/jobs/ack", body)["acked"] == 1

    body = {"node": "w", "seqs": [other["$seq"]], "lease_id": other["lease_id"]}
    follower.ask("/v0/topics/jobs/nack", body)
    for node in servers.nodes:
        assert eventually(lambda node=node: datas(page(node, "dead"))) == ["b"]


def test_a_worker_at_a_follower_is_pushed_jobs(servers: NodeServers, follower: NodeServer) -> None:
    """`GET /work` is carried to the leader; a job comes from wherever it was appended. (§10.8)"""
    put(follower, "pushed", type="queue")
    headers = {"accept": "text/event-stream"}
    url = f"{follower.url}/v0/topics/pushed/work?node=w"
    with httpx.stream("GET", url, headers=headers, timeout=PATIENCE_SECONDS) as stream:
        assert stream.headers["x-topics-leader"] == servers.leader().url
        append(servers.leader(), "pushed", "now")
        line = next(line for line in stream.iter_lines() if line.startswith("data: "))
    assert json.loads(line[6:])["data"] == "now"


# ---------------------------------------------------------------------- as on one node


def test_copies_of_a_router_are_read_at_every_node(servers: NodeServers) -> None:
    """A router that was made at one node, and a record that was written at another. (§9)"""
    first, second, third = servers.nodes
    put(first, "source")
    first.ask("/v0/routers/r", {"source": "source", "dest": "copies"}, method="PUT")
    _, position = append(second, "source", "x")

    for node in servers.nodes:
        assert datas(page(node, "copies", position)) == ["x"]
    assert third.ask("/v0/routers/r")["router"] == "r"


def test_every_node_answers_alike(servers: NodeServers) -> None:
    """The API's document, the limits, the console's page, and metrics that parse. (§5)"""
    texts = []
    for node in servers.nodes:
        got = [httpx.get(node.url + path) for path in ("/v0/openapi.json", "/v0/limits", "/")]
        assert [answer.status_code for answer in got] == [200, 200, 200]
        texts.append([got[0].text, got[1].json() | {"performance": None}, got[2].text])
        for line in httpx.get(node.url + "/v0/metrics").text.splitlines():
            assert line.startswith("#") or float(line.rsplit(" ", 1)[1]) is not None
    assert texts[0] == texts[1] == texts[2]


def test_a_follower_reads_strictly(follower: NodeServer) -> None:
    """`Prefer: handling=strict` goes along with what is forwarded, too. (§0)"""
    for path, body in (("/v0/topics/s", {"records": [{"data": 1}], "recods": []}),):
        with pytest.raises(Answered) as refused:
            follower.ask_with_headers(path, body, headers={"prefer": "handling=strict"})
        assert refused.value.status == 400
    good = {"records": [{"data": 1}]}
    _, headers = follower.ask_with_headers(
        "/v0/topics/s", good, headers={"prefer": "handling=strict"}
    )
    assert headers["preference-applied"] == "handling=strict"


def test_a_follower_speaks_http_2(follower: NodeServer) -> None:
    """A write and a read, one of which is forwarded."""
    with httpx.Client(http1=False, http2=True, base_url=follower.url) as client:
        written = client.post("/v0/topics/two", json={"records": [{"data": 2}]})
        assert (written.http_version, written.status_code) == ("HTTP/2", 201)
        position = {"x-topics-position": written.headers["x-topics-position"]}
        read = client.post("/v0/topics/two/diff", json={"from_seq": 0}, headers=position)
        assert datas(read.json()) == [2]


def test_a_client_reads_what_it_wrote_at_a_follower(follower: NodeServer) -> None:
    """It keeps the position by itself."""
    with Client(follower.url) as client:
        for number in range(50):
            client.append("own", number)
            assert client.topic("own").head_seq == number + 1


def run(node: NodeServer, *arguments: str, stdin: str = "") -> str:
    """What the command says."""
    command = [sys.executable, "-m", "topics", *arguments]
    done = subprocess.run(
        command,
        input=stdin,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
        env={**node._environment, "TOPICS_URL": node.url},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_line_at_a_follower(follower: NodeServer, tmp_path: Path) -> None:
    """Writes, reads, exports and backs up, by a follower's URL and its store."""
    run(follower, "append", "cli", "-", stdin='{"n":1}\n{"n":2}\n')
    assert '"n":1' in eventually(lambda: run(follower, "read", "cli")).replace(" ", "")
    assert "cli" in run(follower, "topics")
    assert follower.url in run(follower, "cluster", "status")
    out = tmp_path / "out"
    eventually(lambda: follower.ask("/v0/topics/cli")["head_seq"] == 2)
    run(follower, "export", "cli", "--to", str(out), "--format", "jsonl")
    lines = "".join(path.read_text() for path in sorted(out.rglob("*.jsonl")))
    assert '"n":1' in lines.replace(" ", "")
    place = tmp_path / "backup"
    run(follower, "backup", "--data-dir", str(follower.data_dir / "store"), str(place))
    restored = tmp_path / "restored"
    run(follower, "restore", str(place), str(restored))
    assert (restored / "topics.id").exists()


# ---------------------------------------------------------------------- keys


FULL, READER, OTHERS = (f"{name}-key-that-is-as-long-as-it-has-to-be" for name in "frp")


def status_of(
    node: NodeServer, token: str, path: str, body: object = None, method: str = ""
) -> int:
    how = method or ("GET" if body is None else "POST")
    headers = {"authorization": f"Bearer {token}"}
    return httpx.request(how, node.url + path, json=body, headers=headers).status_code


def test_keys_are_asked_for_at_the_follower_and_at_the_leader(kafka: str, tmp_path: Path) -> None:
    """Each scope and prefix at each node; a key that one node alone has dropped is refused by the leader
    wherever a request comes to, and SIGHUP ends what a removed key has open. (§0.2, §5)"""
    files = [tmp_path / f"keys-{number}" for number in (1, 2, 3)]
    for file in files:
        file.write_text(f"{FULL}\n{READER}:read\n{OTHERS}:rw:a.\n")
        file.chmod(0o600)
    settings = {"TOPICS_CLUSTER_NAME": "keyed", "TOPICS_API_KEYS_FILE": str(files[0])}
    servers = NodeServers(tmp_path, kafka, 1, TOPICS_CLUSTER_SESSION_MS="2000", **settings)
    for node, file in zip(servers.nodes, files, strict=True):
        node._environment["TOPICS_API_KEYS_FILE"] = str(file)
        node.token = FULL
    try:
        servers.start()
        leader = servers.leader()
        record = {"records": [{"data": 1}]}
        for node in servers.nodes:
            assert status_of(node, FULL, "/v0/topics/a.t", record) in (200, 201)
            assert status_of(node, READER, "/v0/topics/a.t", record) == 403
            assert status_of(node, OTHERS, "/v0/topics/a.t", record) == 200
            assert status_of(node, OTHERS, "/v0/topics/b.t", record) == 403
            assert status_of(node, OTHERS, "/v0/topics/a.t", method="DELETE") == 403
            assert status_of(node, READER, "/v0/topics/a.t/diff", {"from_seq": 0}) == 200
            assert status_of(node, "no-key", "/v0/cluster") == 401
        follower = next(node for node in servers.nodes if node is not leader)
        watch = {"topics": {"a.t": {"tail": True}}}
        headers = {"authorization": f"Bearer {OTHERS}"}
        made = httpx.post(f"{follower.url}/v0/watch", json=watch, headers=headers).json()
        stream_url = follower.url + made["stream_url"]
        with httpx.stream("GET", stream_url, headers=headers, timeout=PATIENCE_SECONDS) as stream:
            lines = stream.iter_lines()
            assert next(lines)
            for file in files:
                file.write_text(f"{FULL}\n{READER}:read\n")
            leader.signal(signal.SIGHUP)
            eventually(lambda: status_of(leader, OTHERS, "/v0/topics/a.t") == 401)
            assert status_of(follower, OTHERS, "/v0/topics/a.t/diff", {"from_seq": 0}) == 200
            assert status_of(follower, OTHERS, "/v0/topics/a.t", record) == 401
            for node in servers.nodes:
                node.signal(signal.SIGHUP)
            assert any("401" in line for line in lines)
        eventually(lambda: status_of(follower, OTHERS, "/v0/topics/a.t") == 401)
        for node in servers.nodes:
            assert FULL not in node.out
    finally:
        servers.stop()
