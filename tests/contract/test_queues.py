"""Queues over a real server's wires: calls and refusals, pushed jobs, and workers during kills
(§10)."""

import random
import re
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import pytest

from .api import Api, dumps
from .server import Server, until
from .streams import Client, News, Sse1, Sse2, cut, news, read
from .wire import Ended, Http1, Wire, check

Start = Callable[..., Server]
JSON = {"content-type": "application/json"}
STREAM = {"accept": "text/event-stream"}


def call(api: Api, name: str, what: str, **fields: object) -> Any:
    return api.ok("POST", f"/v0/topics/{name}/{what}", {"node": "w", **fields})


# ---------------------------------------------------------------------- calls


@pytest.mark.every_server
def test_a_job_from_claim_to_ack(api: Api, name: str) -> None:
    """Every field of every answer. (§10.2, §10.4-§10.7)"""
    api.put(name, type="queue", lease_ms=60_000)
    api.append(name, {"data": {"n": 1}, "tag": "t", "meta": {"m": 1}}, "b", "c")

    claimed = call(api, name, "claim", max=2)
    first, second = claimed["claimed"]
    assert set(claimed) == {"topic", "claimed", "count", "ready", "performance"}
    assert (claimed["topic"], claimed["count"], claimed["ready"]) == (name, 2, 1)
    assert set(first) == {
        "$seq", "$ts", "$tag", "lease_id", "deadline", "deliveries", "data", "meta",
    }  # fmt: skip
    assert set(second) == {"$seq", "$ts", "lease_id", "deadline", "deliveries", "data"}
    assert re.fullmatch("lease_[0-9a-f]+", first["lease_id"])
    assert 0 <= first["deadline"] - first["$ts"] - 60_000 < 60_000

    extended = call(api, name, "extend", seqs=[1, 9], lease_ms=100_000)
    assert (extended["extended"], extended["skipped"]) == (1, [9])
    assert extended["deadlines"]["1"] >= first["deadline"]
    nacked = call(api, name, "nack", seqs=[2], lease_ids=[second["lease_id"]], delay_ms=60_000)
    assert (nacked["nacked"], nacked["skipped"]) == (1, [])
    assert (nacked["ready"], nacked["in_flight"]) == (1, 1)
    acked = call(api, name, "ack", seqs=[1, 2], lease_ids=[first["lease_id"], second["lease_id"]])
    assert (acked["acked"], acked["skipped"]) == (1, [2])
    assert (acked["ready"], acked["in_flight"]) == (1, 0)
    state = api.state(name)
    assert (state["type"], state["count"]) == ("queue", 2)
    assert state["queue"] == {"ready": 1, "in_flight": 0, "delayed": 1, "dead_lettered": 0}


def test_only_a_synced_ack_says_how_long_it_took(api: Api, name: str) -> None:
    """`fsync_ms` is 0 except on an `fsync` queue. (§10.4)"""
    times = []
    for durability in ("disk", "fsync"):
        queue = f"{name}-{durability}"
        api.put(queue, type="queue", durability=durability)
        api.append(queue, 1)
        call(api, queue, "claim")
        times.append(call(api, queue, "ack", seqs=[1])["performance"]["fsync_ms"])

    assert times[0] == 0
    assert times[1] > 0


BAD: list[tuple[str, object, str]] = [
    ("claim", {}, "node"),
    ("claim", {"node": ""}, "$.node"),
    ("claim", {"node": 1}, "$.node"),
    ("claim", {"node": "w", "max": -1}, "$.max"),
    ("claim", {"node": "w", "max": "1"}, "$.max"),
    ("claim", {"node": "w", "max": 1.5}, "$.max"),
    ("claim", {"node": "w", "lease_ms": "x"}, "$.lease_ms"),
    ("claim", {"node": "x" * 5000}, "$.node"),
    ("ack", {"node": "w"}, "seqs"),
    ("ack", {"seqs": [1]}, "node"),
    ("ack", {"node": "w", "seqs": ["1"]}, "$.seqs[0]"),
    ("ack", {"node": "w", "seqs": [-1]}, "$.seqs[0]"),
    ("ack", {"node": "w", "seqs": [1], "lease_ids": []}, "$.lease_ids"),
    ("ack", {"node": "w", "seqs": [1], "lease_ids": [1]}, "$.lease_ids[0]"),
    ("nack", {"node": "w", "seqs": [1], "delay_ms": -1}, "$.delay_ms"),
    ("extend", {"node": "w", "seqs": [1]}, "lease_ms"),
    ("extend", {"node": "w", "seqs": [1], "lease_ms": None}, "$.lease_ms"),
]  # fmt: skip


def test_what_is_malformed_is_refused(api: Api, name: str) -> None:
    """400 that names the path, before the topic is looked up. (§10.2-§10.6)"""
    api.put(name, type="queue")
    for what, body, path in BAD:
        answer = api.ask("POST", f"/v0/topics/{name}/{what}", body)
        assert (answer.status, answer.code) == (400, "invalid_request"), (what, body)
        assert path in answer.error["message"], answer
    many = {"node": "w", "seqs": list(range(1, 1002))}
    assert api.refused("POST", f"/v0/topics/{name}/ack", many) == (400, "batch_too_large")


def test_what_is_no_queue_is_refused(api: Api, name: str) -> None:
    """404 without a topic, 409 on a log; every call of §10, and the stream. (§10)"""
    api.put(f"{name}-log")
    body = {"node": "w", "seqs": [1], "lease_ms": 100}
    for what in ("claim", "ack", "nack", "extend"):
        missing = api.refused("POST", f"/v0/topics/{name}/{what}", body)
        assert missing == (404, "topic_not_found")
        wrong = api.refused("POST", f"/v0/topics/{name}-log/{what}", body)
        assert wrong == (409, "not_a_queue")
    for method in ("GET", "HEAD"):
        for topic, status in ((name, 404), (f"{name}-log", 409)):
            found = api.ask(method, f"/v0/topics/{topic}/work?node=w", headers=STREAM)
            assert found.status == status


def test_the_head_of_a_stream(api: Api, name: str) -> None:
    """400, 405 and 406 before anything; HEAD answers with the head alone and leases nothing.
    (§10.8)"""
    api.put(name, type="queue")
    api.append(name, 1)
    path = f"/v0/topics/{name}/work"
    for query in ("", "?node=", "?node=w&max=x", "?node=w&max=-1", "?node=w&lease_ms=1.5"):
        answer = api.ask("GET", path + query, headers=STREAM)
        assert (answer.status, answer.code) == (400, "invalid_request"), query
    answer = api.ask("GET", path + "?node=w", headers={"accept": "application/json"})
    assert (answer.status, answer.code) == (406, "not_acceptable")
    assert api.ask("POST", path, {}).status == 405
    assert api.ask("GET", f"/v0/topics/{name}/claim").status == 405

    head = api.ask("HEAD", path + "?node=w&max=5", headers=STREAM)

    assert head.status == 200
    assert head.headers["content-type"].startswith("text/event-stream")
    assert head.headers["cache-control"] == "no-store"
    assert head.headers["x-accel-buffering"] == "no"
    assert api.state(name)["queue"]["in_flight"] == 0


# ---------------------------------------------------------------------- waiting


@pytest.mark.every_server
def test_a_waiting_claim_is_woken(api: Api, wires: Callable[[], Wire], name: str) -> None:
    """By an append, and by the expiry of another worker's lease, without any other request.
    (§10.2)"""
    api.put(name, type="queue")
    other = wires()
    ask = {"node": "v", "wait_ms": 20_000, "lease_ms": 100}
    other.send("POST", f"/v0/topics/{name}/claim", dumps(ask), JSON)
    api.append(name, "x")
    job = check(other.receive()).json["claimed"][0]
    assert (job["data"], job["deliveries"]) == ("x", 1)

    other.send("POST", f"/v0/topics/{name}/claim", dumps(ask | {"node": "u"}), JSON)
    (again,) = check(other.receive()).json["claimed"]

    assert (again["$seq"], again["deliveries"]) == (1, 2)
    assert again["deadline"] - 100 > job["deadline"]


def test_a_window_is_shared(api: Api, wires: Callable[[], Wire], name: str) -> None:
    """The claims of one window get jobs in turn, one each. (§10.2)"""
    api.put(name, type="queue", claim_jitter_ms=300)
    api.append(name, *range(10))
    asking = [wires() for _ in range(2)]
    for i, wire in enumerate(asking):
        wire.send("POST", f"/v0/topics/{name}/claim", dumps({"node": f"w{i}", "max": 99}), JSON)
    counts = [check(wire.receive()).json["count"] for wire in asking]

    assert sorted(counts) in ([5, 5], [0, 10])
    assert sum(counts) == 10


# ---------------------------------------------------------------------- pushed work


@pytest.fixture(params=[Sse1, Sse2])
def pushing(request: pytest.FixtureRequest, server: Server) -> Iterator[Callable[..., Client]]:
    """Opens push streams, over HTTP/1.1 or HTTP/2."""
    opened: list[Client] = []

    def open_stream(name: str, query: str = "node=w") -> Client:
        opened.append(request.param(server.port, f"/v0/topics/{name}/work?{query}"))
        return opened[-1]

    yield open_stream
    for client in opened:
        client.socket.close()


def jobs(client: Client, n: int, *, or_more: bool = False) -> list[News]:
    """The next n jobs; where that is allowed, also those that came with them."""
    found = []
    while len(found) < n:
        for each in read(client)[1]:
            assert each.kind == "job", each
            found.append(each)
    assert or_more or len(found) == n
    return found


@pytest.mark.every_server
def test_jobs_are_pushed_and_replaced(
    server: Server, pushing: Callable[..., Client], name: str
) -> None:
    """An opening, then at most `max` jobs at a time; each ack brings the next. (§10.8)"""
    api = Api(server.connect(Http1))
    api.put(name, type="queue")
    api.append(name, {"data": {"n": 1}, "tag": "t"}, "b", "c")
    client = pushing(name, "node=w&max=2&lease_ms=50000")

    first, second = jobs(client, 2)

    assert first.id == "1"
    assert set(first.fields) == {
        "topic", "$seq", "lease_id", "deadline", "$ts", "$tag", "deliveries", "data",
    }  # fmt: skip
    assert (first.fields["topic"], first.fields["data"]) == (name, {"n": 1})
    assert client.source.retry_ms == 2000  # type: ignore[attr-defined]
    assert re.fullmatch(r" ?hb \d+", client.source.comments[0])  # type: ignore[attr-defined]
    call(api, name, "ack", seqs=[2], lease_ids=[second.fields["lease_id"]])
    (third,) = jobs(client, 1)
    assert (third.id, third.fields["data"]) == ("3", "c")
    assert api.state(name)["queue"]["in_flight"] == 2


def test_a_job_that_was_given_up_is_pushed_again(
    server: Server, pushing: Callable[..., Client], name: str
) -> None:
    """After its delay, and after its lease expired, without any other request. (§10.8)"""
    api = Api(server.connect(Http1))
    api.put(name, type="queue")
    api.append(name, "x")
    client = pushing(name, "node=w&max=1&lease_ms=100")
    given: list[News] = []
    while len(given) < 3:  # on a busy machine several come at once
        given += jobs(client, 1, or_more=True)
    assert [job.fields["deliveries"] for job in given[:3]] == [1, 2, 3]
    call(api, name, "extend", seqs=[1], lease_ms=60_000)
    call(api, name, "nack", seqs=[1], delay_ms=100)

    (job, *_) = jobs(client, 1, or_more=True)
    assert job.fields["deliveries"] >= 4


@pytest.mark.every_server
def test_a_connection_that_breaks_gives_its_jobs_back(
    server: Server, pushing: Callable[..., Client], name: str
) -> None:
    """At once, and only the jobs of that connection: not those that the same worker claimed.
    (§10.8)"""
    api = Api(server.connect(Http1))
    api.put(name, type="queue")
    api.append(name, "own", "pushed", "pushed")
    call(api, name, "claim")
    client = pushing(name, "node=w&max=2")
    assert [job.id for job in jobs(client, 2)] == ["2", "3"]

    cut(client)

    found = []
    while len(found) < 2:
        found += call(api, name, "claim", node="v", max=2, wait_ms=20_000)["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(2, 2), (3, 2)]
    assert call(api, name, "ack", seqs=[1])["acked"] == 1


def test_a_stream_of_a_queue_that_goes_is_told(
    server: Server, pushing: Callable[..., Client], name: str
) -> None:
    """When the queue is deleted, an error frame with 404 is the last. (§10.8)"""
    api = Api(server.connect(Http1))
    api.put(name, type="queue")
    client = pushing(name)
    until("the stream is open", lambda: "topics_sse_connections 0" not in metrics(api))
    api.drop(name)

    told = next(each for each in news(client) if each.kind == "error")

    assert told.fields["code"] == 404


def metrics(api: Api) -> str:
    return api.ask("GET", "/v0/metrics").body.decode()


@pytest.mark.every_server
def test_a_stop_ends_streams_and_keeps_leases(private: Start) -> None:
    """Pushed jobs are released, claimed ones stay leased, delivery counts are kept. (§10.1,
    §10.8)"""
    server = private()
    api = Api(server.connect(Http1))
    api.put("q", type="queue", lease_ms=3_600_000)
    api.append("q", "claimed", "pushed", "nacked")
    token = call(api, "q", "claim")["claimed"][0]["lease_id"]
    client = Sse1(server.port, "/v0/topics/q/work?node=s&max=1")
    jobs(client, 1)
    call(api, "q", "claim", node="v")
    call(api, "q", "nack", node="v", seqs=[3])
    server.signal(signal.SIGTERM)
    told = next(each for each in news(client) if each.kind == "error")
    assert told.fields["code"] == 503
    client.socket.close()
    assert server.wait() == 0
    api = Api(server.start().connect(Http1))

    state = api.state("q")["queue"]
    assert (state["ready"], state["in_flight"]) == (2, 1)
    found = call(api, "q", "claim", node="v", max=9)["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in found] == [(2, 2), (3, 2)]
    assert call(api, "q", "ack", seqs=[1], lease_ids=[token])["acked"] == 1


@pytest.mark.parametrize("lasting", [False, True])
def test_a_kill_takes_leases_unless_they_last(private: Start, lasting: bool) -> None:
    """After a kill every job can be claimed whose delay is over; with `leases_durable` leases are kept too.
    (§10.1)"""
    server = private()
    api = Api(server.connect(Http1))
    api.put("q", type="queue", lease_ms=3_600_000, leases_durable=lasting)
    api.append("q", "a", "b", "c", "d")
    tokens = [job["lease_id"] for job in call(api, "q", "claim", max=3)["claimed"]]
    call(api, "q", "nack", seqs=[2], delay_ms=3_600_000)
    call(api, "q", "ack", seqs=[3])
    server.kill()
    api = Api(server.start().connect(Http1))

    held = call(api, "q", "ack", seqs=[1], lease_ids=[tokens[0]])
    found = call(api, "q", "claim", node="v", max=9)["claimed"]

    assert held["acked"] == int(lasting)
    assert [job["$seq"] for job in found] == ([4] if lasting else [1, 4])
    assert not {job["lease_id"] for job in found} & set(tokens)
    server.assert_log_is_quiet()


def test_what_workers_said_outlives_a_kill(private: Start) -> None:
    """Reasons, progress and results that were answered are there after SIGKILL, whatever becomes of leases.
    (§10.1)"""
    server = private()
    api = Api(server.connect(Http1))
    api.put("q", type="queue", lease_ms=3_600_000, dead_letter="d", keep_done=10)
    api.append("q", *"abcd")
    call(api, "q", "claim", max=4)
    call(api, "q", "extend", seqs=[1], lease_ms=60_000, progress={"at": 1})
    call(api, "q", "nack", seqs=[2], reason="no net", delay_ms=3_600_000)
    call(api, "q", "nack", seqs=[3], reason="broken", dead=True)
    call(api, "q", "ack", seqs=[4], result=[4])
    server.kill()
    api = Api(server.start().connect(Http1))

    items = {seq: api.ask("GET", f"/v0/topics/q/jobs/{seq}").json for seq in (1, 2, 3, 4)}
    assert [items[seq]["state"] for seq in (1, 2, 3, 4)] == ["ready", "delayed", "dead", "done"]
    assert items[1]["progress"] == {"at": 1}
    assert [each["reason"] for each in items[2]["reasons"]] == ["no net"]
    assert (items[3]["dead_letter"], items[4]["result"]) == ({"topic": "d", "seq": 1}, [4])
    moved = api.ask("POST", "/v0/topics/d/redrive", {"to": "q"}).json
    assert (moved["moved"], moved["more"]) == (1, False)
    server.kill()
    api = Api(server.start().connect(Http1))
    assert [job["seq"] for job in api.ask("GET", "/v0/topics/q/jobs").json["jobs"]] == [1, 2, 5]
    assert api.ask("POST", "/v0/topics/d/redrive", {"to": "q"}).json["moved"] == 0
    server.assert_log_is_quiet()


# ---------------------------------------------------------------------- workers among kills

LEASE_MS = 400


@dataclass
class Grant:
    """One lease as a worker received it.

    Attributes:
        until_ms: Its deadline as last sent.
        is_open: Its end may have come sooner than that: it was given up, or that may be.
    """

    seq: int
    lease: int
    deliveries: int
    since_ms: int
    until_ms: int
    is_open: bool = False


@dataclass
class Book:
    """All responses that the workers received, together."""

    grants: dict[int, list[Grant]] = field(default_factory=lambda: defaultdict(list))
    acked: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    doubtful: set[int] = field(default_factory=set)
    stale: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def has(self, acked: int, over: threading.Event) -> bool:
        return len(self.acked) >= acked or over.is_set()


class Worker(threading.Thread):
    """Claims, stalls, acks, nacks, extends, and disconnects now and then, until it is stopped.

    Its only clock is the server's: what it believes of leases is what the server sent.
    """

    def __init__(self, number: int, server: Server, book: Book, over: threading.Event) -> None:
        super().__init__(daemon=True)
        self._rng = random.Random(number)
        self._server = server
        self._book = book
        self._over = over
        self._number = number
        self._lives = 0
        self._wire = Http1(server.port)
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            while not self._over.is_set():
                self._live()
        except BaseException as failure:
            self.failure = failure
            self._over.set()

    def _live(self) -> None:
        """One connection of a worker; another name each time, as another process would have."""
        self._lives += 1
        self._node = f"w{self._number}-{self._lives}"
        self._wire = Http1(self._server.port)
        try:
            while not self._over.is_set() and self._rng.random() > 0.02:
                self._work()
        except (Ended, OSError):
            self._over.wait(0.05)
        finally:
            self._wire.reset()

    def _ask(self, what: str, **fields: object) -> Any:
        body = dumps({"node": self._node, **fields})
        self._wire.send("POST", f"/v0/topics/q/{what}", body, JSON)
        answer = check(self._wire.receive())
        if answer.status == 503:
            raise Ended("starting or stopping")
        assert answer.status == 200, answer
        return answer.json

    def _work(self) -> None:
        rng = self._rng
        most = rng.randint(1, 4)
        told = self._ask("claim", max=most, wait_ms=rng.choice((0, 50)), lease_ms=LEASE_MS)
        held = [self._granted(job) for job in told["claimed"]]
        if rng.random() < 0.02:
            raise Ended("this worker is no more, and what it held is left to time")
        for grant, job in zip(held, told["claimed"], strict=True):
            if rng.random() < 0.1:
                self._over.wait(rng.choice((0.1, 0.5, 0.9)))
            self._finish(grant, is_poison=job["data"]["poison"])

    def _granted(self, job: dict[str, Any]) -> Grant:
        lease = int(job["lease_id"].removeprefix("lease_"), 16)
        until_ms = job["deadline"]
        grant = Grant(job["$seq"], lease, job["deliveries"], until_ms - LEASE_MS, until_ms)
        with self._book.lock:
            self._book.grants[grant.seq].append(grant)
        return grant

    def _finish(self, grant: Grant, *, is_poison: bool) -> None:
        rng, book = self._rng, self._book
        named = {"seqs": [grant.seq], "lease_ids": [f"lease_{grant.lease:x}"]}
        if rng.random() < 0.1:
            told = self._ask("extend", lease_ms=LEASE_MS, **named)
            grant.until_ms = told["deadlines"].get(str(grant.seq), grant.until_ms)
        if is_poison or rng.random() < 0.1:
            grant.is_open = True
            self._ask("nack", delay_ms=rng.choice((0, 30)), **named)
            return
        with book.lock:
            book.doubtful.add(grant.seq)
        told = self._ask("ack", **named)
        with book.lock:
            if told["acked"]:
                book.acked[grant.seq].append(grant.lease)
            else:
                assert told["skipped"] == [grant.seq]
                book.stale += 1


def served(server: Server, *, n: int, kills: int, workers: int) -> Book:
    """`n` jobs done by `workers` during so many kills."""
    api = Api(server.connect(Http1))
    config = {"lease_ms": LEASE_MS, "max_deliveries": 6, "dead_letter": "dead"}
    api.put("q", type="queue", leases_durable=True, **config)
    api.append("q", *[{"data": {"poison": i % 10 == 0}} for i in range(n)])
    book, over = Book(), threading.Event()
    crew = [Worker(i, server, book, over) for i in range(workers)]
    for worker in crew:
        worker.start()
    try:
        for kill in range(kills):
            wanted = (kill + 1) * n * 8 // (10 * (kills + 1))
            until("some are done", partial(book.has, wanted, over), 60)
            server.kill()
            server.start()
        api = Api(server.connect(Http1))
        until("all are done", lambda: api.state("q")["count"] == 0 or over.is_set(), 60)
    finally:
        over.set()
        for worker in crew:
            worker.join()
    for worker in crew:
        if worker.failure is not None:
            raise worker.failure
    return book


def judge(api: Api, book: Book, n: int) -> None:
    """Each job was acked once or is a dead letter; leases of a job follow one another; and a lease
    that was superseded had no effect."""
    dead = [record["meta"]["$dead_letter_src_seq"] for record in api.walk("dead", limit=1000)]
    assert len(dead) == len(set(dead))
    acked = set(book.acked)
    assert not acked & set(dead)
    lost = set(range(1, n + 1)) - acked - set(dead) - book.doubtful
    assert not lost, sorted(lost)
    assert {seq for seq in range(1, n + 1) if seq % 10 == 1} <= set(dead)
    assert api.state("q")["queue"]["dead_lettered"] == len(dead)
    for seq, leases in book.acked.items():
        assert leases == [max(grant.lease for grant in book.grants[seq])], seq
    numbers = [grant.lease for grants in book.grants.values() for grant in grants]
    assert len(numbers) == len(set(numbers))
    for grants in book.grants.values():
        grants.sort(key=lambda grant: grant.lease)
        for one, next_one in pairwise(grants):
            assert one.deliveries < next_one.deliveries, (one, next_one)
            assert one.is_open or one.until_ms < next_one.since_ms, (one, next_one)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_workers_among_kills(private: Start, is_full: bool) -> None:
    """Twenty workers that stall and disconnect, and a server that is killed again and again: every
    job is acked once or is a dead letter, and no two workers hold one job. (§10.1-§10.6)"""
    n, kills = (6000, 24) if is_full else (400, 3)
    server = private(segment_max_records=64)

    book = served(server, n=n, kills=kills, workers=20)

    judge(Api(server.connect(Http1)), book, n)
    assert server.stop() == 0
    server.assert_log_is_quiet()
