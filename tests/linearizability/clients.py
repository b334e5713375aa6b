"""Clients that work on one server at once, through its kills, and write down what they did.

Owns the threads and their wires, half of them HTTP/1.1 and half HTTP/2.  Knows nothing of what is
right: that is the checker's.  A write without an answer is written down as such; where it has an
idempotency key, it is repeated until it has one, and is one call.
"""

import random
import threading
import time
from collections.abc import Callable, Mapping
from itertools import count
from typing import Any, Final

from contract.api import dumps
from contract.server import DEADLINE_S, Server
from contract.wire import Ended, Http1, Http2, Wire, check

from .history import (
    ALL,
    ENDLESS,
    Ack,
    Append,
    Claim,
    Delete,
    Filter,
    Grant,
    LogHistory,
    QueueHistory,
    Read,
)

LOGS: Final = ("memory", "disk", "fsync")
"""One log of each class that a kill may take nothing from."""
QUEUE: Final = "jobs"
ORDERED: Final = "ordered"
"""Its jobs are done in order by group."""
URGENT: Final = "urgent"
"""Its jobs have priorities."""
QUEUES: Final[Mapping[str, Mapping[str, object]]] = {
    QUEUE: {},
    ORDERED: {"order": "group"},
    URGENT: {},
}
"""Their configs."""
GROUPS: Final = 12
"""Of the ordered queue."""
PRIORITIES: Final = (0, 0, 0, 3, 9)
SHARED: Final = 6
"""Tags are `s0.17`: the batch alone has it, and shares what is before the dot with others."""
NODES: Final = ("n0", "n1", "n2")
OLD: Final = 60
"""Batches that lie before everything else, so that a filtered read and a delete by tag begin there."""
BETWEEN: Final = 3000
"""Records behind them of which no filter wants any: in runs of 64, which are cold after each start."""
FILLING: Final = 400
"""As many, and no text, in a batch that a client puts between two others now and then."""
FILLER: Final = "p"
"""Their tag."""
LEASE_MS: Final = 400
JSON: Final = {"content-type": "application/json"}


class Refused(Exception):
    """The server did not do it, and said so: it is starting."""


class Run:
    """What all clients of a run share: the server, whether it is up, and the histories."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.logs = {name: LogHistory() for name in LOGS}
        self.queues = {name: QueueHistory() for name in QUEUES}
        self.is_up = threading.Event()
        self.is_over = threading.Event()
        self.calls = 0
        self.heads = dict.fromkeys(LOGS, 0)
        self.batches: dict[str, list[tuple[str, range]]] = {name: [] for name in LOGS}
        """(tag, seqs) of the batches that were answered."""
        self.busy_from = dict.fromkeys(LOGS, 0)
        """Behind which seq the clients write."""
        self.lock = threading.Lock()
        self._numbers = count(1)

    def number(self) -> int:
        """A number that no other call gets."""
        return next(self._numbers)

    def saw(self, topic: str, head: int) -> None:
        with self.lock:
            self.heads[topic] = max(self.heads[topic], head)


def connected(run: Run, *, http2: bool) -> Wire:
    return (Http2 if http2 else Http1)(run.server.port)


def asked(wire: Wire, target: str, body: dict[str, object]) -> Any:
    """The answer to a POST.

    Raises:
        Ended, OSError: There is none, and it may have been done.
        Refused: It was not done.
    """
    wire.send("POST", target, dumps(body), JSON)
    answer = check(wire.receive())
    if answer.status in (429, 503):
        raise Refused(answer.body)
    assert answer.status in (200, 201), answer
    return answer.json


def read(
    wire: Wire,
    topic: str,
    from_seq: int,
    limit: int,
    now: Callable[[], int],
    which: Filter = ALL,
) -> Read:
    invoked = now()
    body: dict[str, object] = {"from_seq": from_seq, "limit": limit}
    if which.match is not None:
        body["match"] = which.match
    if which.skip is not None:
        body["node"] = which.skip
    page = asked(wire, f"/v0/topics/{topic}/diff", body)
    records = tuple((record["$seq"], record["data"]) for record in page["records"])
    has_tombstone = page["tombstone"] is not None
    head = page["head_seq"]
    return Read(
        invoked, now(), from_seq, records, page["next_from_seq"], head, has_tombstone, which
    )


def read_all(run: Run, wire: Wire) -> None:
    """Every log to its end, as calls of the history: by tag from its beginning, and whole from where
    clients write."""
    for topic, history in run.logs.items():
        for which, from_seq in ((Filter("s*"), 0), (ALL, run.busy_from[topic])):
            while True:
                found = read(wire, topic, from_seq, 1000, time.monotonic_ns, which)
                history.reads.append(found)
                run.saw(topic, found.head)
                from_seq = found.next_from
                if from_seq == found.head:
                    break


def prepare(run: Run, wire: Wire) -> None:
    """What every log has before there are clients: old batches, and many records behind them."""
    for topic in LOGS:
        for n in range(OLD):
            tag = f"s{n % SHARED}.{run.number()}"
            append(run, wire, topic, (f"{tag}/old",), tag, NODES[n % len(NODES)])
        for _ in range(0, BETWEEN, 1000):
            append(run, wire, topic, fillers(run, topic, 1000), FILLER, "")
        run.busy_from[topic] = run.heads[topic]


def fillers(run: Run, topic: str, count: int) -> tuple[str, ...]:
    """Texts of records that nobody deletes."""
    return tuple(f"{topic}/{run.number()}" for _ in range(count))


def append(run: Run, wire: Wire, topic: str, texts: tuple[str, ...], tag: str, node: str) -> None:
    """A batch, which nothing disturbs; it is repeated while the server has no room for it."""
    records = [{"data": text, "tag": tag} | ({"node": node} if node else {}) for text in texts]
    end = time.monotonic() + DEADLINE_S
    while True:
        invoked = time.monotonic_ns()
        try:
            told = asked(wire, f"/v0/topics/{topic}", {"records": records})
            break
        except Refused:
            assert time.monotonic() < end, "no room"
            time.sleep(0.01)
    first_seq = told["first_seq"]
    append = Append(invoked, time.monotonic_ns(), texts, first_seq, tag, node)
    run.logs[topic].appends.append(append)
    run.saw(topic, first_seq + len(texts) - 1)
    if node:
        run.batches[topic].append((tag, range(first_seq, first_seq + len(texts))))


def claim(wire: Wire, queue: str, node: str, most: int, now: Callable[[], int]) -> Claim:
    invoked = now()
    body: dict[str, object] = {"node": node, "max": most, "lease_ms": LEASE_MS}
    told = asked(wire, f"/v0/topics/{queue}/claim", body)
    grants = tuple(
        Grant(
            job["$seq"],
            int(job["lease_id"].removeprefix("lease_"), 16),
            job["deliveries"],
            job["deadline"] - LEASE_MS,
            job["deadline"],
            job.get("$tag", ""),
            job.get("priority", 0),
        )
        for job in told["claimed"]
    )
    return Claim(invoked, now(), grants)


def ack(wire: Wire, queue: str, node: str, grant: Grant, now: Callable[[], int]) -> Ack:
    """An ack, with an answer or without one."""
    invoked = now()
    body: dict[str, object] = {
        "node": node,
        "seqs": [grant.seq],
        "lease_ids": [f"lease_{grant.lease:x}"],
    }
    try:
        told = asked(wire, f"/v0/topics/{queue}/ack", body)
    except (Ended, OSError):
        return Ack(invoked, ENDLESS, grant.seq, grant.lease, None)
    assert told["acked"] + len(told["skipped"]) == 1
    return Ack(invoked, now(), grant.seq, grant.lease, told["acked"] == 1)


class Client(threading.Thread):
    """Random calls until the run is over."""

    def __init__(self, run: Run, seed: int) -> None:
        super().__init__(daemon=True)
        self.failure: BaseException | None = None
        self._run = run
        self._rng = random.Random(seed)
        self._is_http2 = seed % 2 == 1
        self._node = f"w{seed}"

    def run(self) -> None:
        try:
            while not self._run.is_over.is_set():
                if self._run.is_up.wait(0.1):
                    self._live()
        except BaseException as failure:
            self.failure = failure

    def _live(self) -> None:
        """One connection, until it ends."""
        wire = connected(self._run, http2=self._is_http2)
        try:
            while not self._run.is_over.is_set():
                self._call(wire)
                self._run.calls += 1
        except Refused:
            time.sleep(0.005)  # it is starting, or its small memory is full
        except (Ended, OSError):
            # The server is gone, or about to be.
            time.sleep(0.005)
        finally:
            wire.reset()

    def _call(self, wire: Wire) -> None:
        rng, topic = self._rng, self._rng.choice(LOGS)
        match rng.randrange(10):
            case 0 | 1 | 2:
                self._append(wire, topic)
            case 3 | 4:
                self._read(wire, topic)
            case 5:
                self._delete_some(wire, topic)
            case 6 | 7:
                self._work(wire, rng.choice([*QUEUES]))
            case _:
                self._append(wire, rng.choice([*QUEUES]))

    def _append(self, wire: Wire, topic: str) -> None:
        rng = self._rng
        size = rng.choice((1, 1, 2, 5, 40))
        filling = "x" * rng.choice((0, 30, 424, 3000))
        if topic not in QUEUES and rng.random() < 0.15:
            self._fill(wire, topic)
        number = self._run.number()
        tag = f"s{rng.randrange(SHARED)}.{number}"
        if topic == ORDERED:
            tag, size = f"g{rng.randrange(GROUPS)}", min(size, 5)
        node, priority = rng.choice(NODES), rng.choice(PRIORITIES) if topic == URGENT else 0
        texts = tuple(f"{number}/{i}{filling}" for i in range(size))
        of_all: dict[str, object] = {"tag": tag, "node": node}
        if priority:
            of_all["priority"] = priority
        records = [{"data": text, **of_all} for text in texts]
        body: dict[str, object] = {"records": records}
        if rng.random() < 0.5:
            body["idempotency_key"] = f"k{self._run.number()}"
        invoked, first_seq, returned = time.monotonic_ns(), None, ENDLESS
        try:
            told = asked(wire, f"/v0/topics/{topic}", body)
            first_seq, returned = told["first_seq"], time.monotonic_ns()
            assert told["seqs"] == list(range(first_seq, first_seq + size)), told
        except (Ended, OSError):
            if "idempotency_key" in body:
                first_seq, returned = self._repeated(topic, body)
        known = self._run.queues[topic] if topic in QUEUES else self._run.logs[topic]
        known.appends.append(Append(invoked, returned, texts, first_seq, tag, node, priority))
        if topic not in QUEUES and first_seq is not None:
            self._run.saw(topic, first_seq + size - 1)
            self._run.batches[topic].append((tag, range(first_seq, first_seq + size)))
        if first_seq is None:
            raise Ended("an append without an answer")
        if topic not in QUEUES and rng.random() < 0.3:
            self._look_back(wire, topic, tag)

    def _look_back(self, wire: Wire, topic: str, tag: str) -> None:
        """Read a batch before this one, which shares a tag with it: a delete of the tag that goes on
        meanwhile takes both, or was before this one came."""
        shared = tag.partition(".")[0] + "."
        found = [seqs for tag, seqs in self._run.batches[topic][-200:-1] if tag.startswith(shared)]
        if found:
            from_seq = self._rng.choice(found)[0] - 1
            seen = read(wire, topic, from_seq, 3, time.monotonic_ns)
            self._run.logs[topic].reads.append(seen)

    def _fill(self, wire: Wire, topic: str) -> None:
        """Records that no filter wants: whoever looks for others looks past them for some turns."""
        texts = fillers(self._run, topic, FILLING)
        body: dict[str, object] = {"records": [{"data": text, "tag": FILLER} for text in texts]}
        invoked = time.monotonic_ns()
        history = self._run.logs[topic]
        try:
            first_seq = asked(wire, f"/v0/topics/{topic}", body)["first_seq"]
        except (Ended, OSError):
            history.appends.append(Append(invoked, ENDLESS, texts, None, FILLER))
            raise
        history.appends.append(Append(invoked, time.monotonic_ns(), texts, first_seq, FILLER))
        self._run.saw(topic, first_seq + FILLING - 1)

    def _repeated(self, topic: str, body: dict[str, object]) -> tuple[int, int]:
        """(first seq, when it was answered) of a write under a key, once it has an answer."""
        end = time.monotonic() + DEADLINE_S
        while time.monotonic() < end:
            self._run.is_up.wait(DEADLINE_S)
            wire = connected(self._run, http2=self._is_http2)
            try:
                told = asked(wire, f"/v0/topics/{topic}", body)
                return told["first_seq"], time.monotonic_ns()
            except (Refused, Ended, OSError):
                time.sleep(0.005)
            finally:
                wire.reset()
        raise AssertionError("a write under a key never had an answer")

    def _read(self, wire: Wire, topic: str) -> None:
        rng, head = self._rng, self._run.heads[topic]
        which = self._drawn_filter(topic) if rng.random() < 0.5 else ALL
        if which is ALL:
            from_seq = rng.choice((0, rng.randint(0, head), max(0, head - 30)))
        else:
            from_seq = rng.choice((0, rng.randint(0, OLD), max(0, head - 3000)))
        limit = rng.choice((1, 10, 100) if which is ALL else (10, 1000, 1000))
        found = read(wire, topic, from_seq, limit, time.monotonic_ns, which)
        self._run.logs[topic].reads.append(found)
        self._run.saw(topic, found.head)

    def _drawn_filter(self, topic: str) -> Filter:
        rng, batches = self._rng, self._run.batches[topic]
        match = rng.choice((f"s{rng.randrange(SHARED)}.*", "s*", None))
        if match is None and batches and rng.random() < 0.3:
            match = rng.choice(batches)[0]
        return Filter(match, rng.choice((None, *NODES)) if match else rng.choice(NODES))

    def _delete_some(self, wire: Wire, topic: str) -> None:
        """A recent batch or an old one, which others may delete at the same time; seldom all of a tag
        that batches share, up to somewhere."""
        rng, head = self._rng, self._run.heads[topic]
        batches = self._run.batches[topic]
        if not batches:
            return
        which, before, seqs = None, ENDLESS, frozenset[int]()
        route, body = "delete", dict[str, object]()
        if rng.random() < 0.3:
            shared = rng.choice((*range(SHARED), None))
            which = Filter("s*" if shared is None else f"s{shared}.*")
            before = rng.choice((head // 2, max(1, head - 300), ENDLESS))
            body = {"match": which.match}
            if shared is not None and rng.random() < 0.5:
                route, body = "purge", {"filter": f"s{shared}.>"}
            if before != ENDLESS:
                body["seq" if route == "purge" else "before_seq"] = before
        else:
            tag, found = rng.choice(batches[-40:] if rng.random() < 0.8 else batches)
            body, seqs = {"match": tag}, frozenset(found)
        invoked, deleted, returned = time.monotonic_ns(), None, ENDLESS
        try:
            told = asked(wire, f"/v0/topics/{topic}/{route}", body)
            deleted = told["purged" if route == "purge" else "deleted"]
            returned = time.monotonic_ns()
        except (Ended, OSError):
            pass
        delete = Delete(invoked, returned, seqs, deleted, which, before)
        self._run.logs[topic].deletes.append(delete)
        if deleted is None:
            raise Ended("a delete without an answer")

    def _work(self, wire: Wire, queue: str) -> None:
        rng, history = self._rng, self._run.queues[queue]
        claimed = claim(wire, queue, self._node, rng.randint(1, 30), time.monotonic_ns)
        history.claims.append(claimed)
        for grant in claimed.grants:
            if rng.random() < 0.02:
                return  # this worker leaves the rest to time
            done = ack(wire, queue, self._node, grant, time.monotonic_ns)
            history.acks.append(done)
            if done.is_done is None:
                raise Ended("an ack without an answer")


def drain(run: Run, wire: Wire, queue: str) -> None:
    """Do all jobs that are left, those too whose leases have yet to end."""
    end, history = time.monotonic() + DEADLINE_S, run.queues[queue]
    while asked(wire, f"/v0/topics/{queue}/diff", {"from_seq": 0, "limit": 1})["records"]:
        assert time.monotonic() < end, "jobs are left that nobody can claim"
        try:
            claimed = claim(wire, queue, "last", 1000, time.monotonic_ns)
            history.claims.append(claimed)
            for grant in claimed.grants:
                history.acks.append(ack(wire, queue, "last", grant, time.monotonic_ns))
        except Refused:
            time.sleep(0.005)
