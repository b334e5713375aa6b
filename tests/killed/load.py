"""Clients that write to a cluster, and work on its jobs, while its processes are killed.

Owns what all clients of a run share, and the histories of what they did, in the terms of
`linearizability.history`.  A request goes to any node.  Where its outcome is not known, a write under a
key is sent again, to any node, until it is answered; one without a key is written down as it is.
"""

import http.client
import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable
from itertools import count
from typing import Any, Final

from linearizability.history import ENDLESS, Ack, Append, Claim, Delete, Grant, LogHistory
from linearizability.history import QueueHistory as Jobs

from tests.nodes import NodeServer, NodeServers

LOGS: Final = ("memory", "disk", "fsync")
"""One log of each class that is replicated; of `disk` records are deleted."""
DELETED: Final = "disk"
COPIES: Final = {"memory": "copies", "copies": "copies-of-copies"}
"""What routers copy, source to destination."""
CAPPED: Final = "capped"
AGING: Final = "aging"
PASSING: Final = "passing"
"""Of class `ephemeral`: what a change of the leader loses, tombstones say."""
LOSSY: Final = {CAPPED: {"cap"}, AGING: {"ttl"}, PASSING: {"crash"}}
"""Topics that may have tombstones, and why."""
QUEUE: Final = "jobs"
WAKE: Final = "wake"
"""A record in it ends the wait of a client that looks up only when it is given something."""
KEPT: Final = "kept"
"""What is left in the queue at the end, so that there is a state to compare."""
CONFIG: Final[dict[str, dict[str, Any]]] = {
    **{name: {"durability": name} for name in LOGS},
    **{name: {} for name in COPIES.values()},
    CAPPED: {"cap_records": 300},
    AGING: {"ttl_ms": 3000},
    PASSING: {"durability": "ephemeral"},
    QUEUE: {"type": "queue"},
}
LEASE_MS: Final = 3000
"""Of a lease that may run out while its job is worked on."""
SKEW_MS: Final = 1500
"""An ack that comes so long before the lease's end is in time, by whichever clock."""
ANSWER_S: Final = 12.0
"""A client does not wait for longer: then it asks another node."""
PULSE_S: Final = 1.0
PAUSE_S: Final = 0.02
"""Between two requests of one client, so that the clients do not take the processors from the nodes."""
DRAIN_S: Final = 180.0
"""Bounds a hang."""


class Unknown(Exception):
    """The request may have taken effect."""


class NotApplied(Exception):
    """The request took no effect, by the answer's own word."""


class Asker:
    """Requests of one thread, over a connection to each node that is kept."""

    def __init__(self, answer_s: float = ANSWER_S) -> None:
        self._answer_s = answer_s
        self._wires: dict[int, http.client.HTTPConnection] = {}

    def ask(
        self, node: NodeServer, path: str, body: object = None, method: str = "", **headers: str
    ) -> tuple[Any, dict[str, str]]:
        """The document and the headers of an answer.

        Raises:
            Unknown: There is no answer, or one that leaves it open.
            NotApplied: 503 `not_leader` with that outcome.
        """
        wire = self._wires.get(node.port)
        if wire is None:
            wire = http.client.HTTPConnection("127.0.0.1", node.port, timeout=self._answer_s)
            self._wires[node.port] = wire
        also = {name.replace("_", "-"): value for name, value in headers.items()}
        sent = None if body is None else json.dumps(body)
        also["content-type"] = "application/json"
        try:
            wire.request(method or ("GET" if body is None else "POST"), path, sent, also)
            answer = wire.getresponse()
            document, status = json.loads(answer.read()), answer.status
        except (OSError, http.client.HTTPException, ValueError) as error:
            wire.close()
            raise Unknown(repr(error)) from None
        if status in (200, 201):
            return document, {name.lower(): value for name, value in answer.getheaders()}
        assert status in (429, 503), (path, body, status, document)
        if document["error"].get("detail", {}).get("outcome") == "not_applied":
            raise NotApplied(str(document))
        raise Unknown(str(document))

    def close(self) -> None:
        for wire in self._wires.values():
            wire.close()


class Load:
    """What the clients of a run share.

    Args:
        long_lease_ms: Of a lease that is to outlive a change of the leader.

    Attributes:
        logs: What was done to each topic but the queue.
        not_applied: Records of appends without a key that were refused as not applied.
        seen: What a read or a stream showed of a topic: (seq, text).
        acknowledged: Writes with an answer.
        answered: (sent, answered) of the writes under keys, in ns; what outages are measured by.
        blows: How many blows have been dealt; leases are kept over them.
        ends: The last seq of each topic, once nothing is written any more.
        is_cut: The run failed: nobody waits for an end.
    """

    def __init__(self, servers: NodeServers, long_lease_ms: int) -> None:
        self.servers = servers
        self.long_lease_ms = long_lease_ms
        self.logs: dict[str, LogHistory] = defaultdict(LogHistory)
        self.jobs = Jobs()
        self.not_applied: list[str] = []
        self.seen: list[tuple[str, int, str]] = []
        self.faults: list[str] = []
        self.acknowledged = 0
        self.repeated = 0
        self.kept_leases = 0
        self.blows = 0
        self.answered: list[tuple[int, int]] = []
        self.ends: dict[str, int] = {}
        self.is_over = threading.Event()
        self.is_cut = threading.Event()
        self.threads: list[Client] = []
        self._numbers = count(1)

    def number(self) -> int:
        """A number that no other call gets."""
        return next(self._numbers)

    def node(self, rng: random.Random) -> NodeServer:
        """Any, dead and paused ones too: a client does not know."""
        return rng.choice(self.servers.nodes)

    def start(self, *clients: "Client") -> None:
        for client in clients:
            self.threads.append(client)
            client.start()

    def check_alive(self) -> None:
        """Raises what ended a client."""
        for client in self.threads:
            if client.failure is not None:
                raise client.failure

    def until(self, what: str, holds: Callable[[], bool], wait_s: float = DRAIN_S) -> None:
        end = time.monotonic() + wait_s
        while not holds():
            self.check_alive()
            assert time.monotonic() < end, f"never: {what}"
            time.sleep(0.01)

    @property
    def is_written(self) -> bool:
        """Nobody writes any more."""
        return not any(isinstance(one, Writer) and one.is_alive() for one in self.threads)

    def first_write_after(self, moment: int) -> int | None:
        """When the first write was answered that was sent after this moment; ns."""
        return next((end for begun, end in self.answered[-2000:] if begun >= moment), None)

    def end(self) -> None:
        self.is_over.set()
        for client in self.threads:
            client.join(DRAIN_S)
            assert not client.is_alive(), f"{client.name} hangs"
        self.check_alive()


class Client(threading.Thread, ABC):
    """Calls until the run is over."""

    def __init__(self, load: Load, seed: int) -> None:
        super().__init__(daemon=True, name=f"{type(self).__name__}-{seed}")
        self.failure: BaseException | None = None
        self.load, self.rng, self.asker = load, random.Random(seed), Asker()
        self.node = load.servers.nodes[seed % len(load.servers.nodes)]

    def run(self) -> None:
        try:
            while not self.load.is_over.is_set():
                self.call()
                self.load.is_over.wait(PAUSE_S)
            self.finish()
        except BaseException as failure:
            self.failure = failure
        finally:
            self.asker.close()

    @abstractmethod
    def call(self) -> None:
        """Once."""

    def finish(self) -> None:
        """What is done when the run is over."""

    def move(self) -> None:
        self.node = self.load.node(self.rng)


class Writer(Client):
    """Appends batches to all topics, with a key or without one."""

    def call(self) -> None:
        rng, load = self.rng, self.load
        topic = rng.choice((*LOGS, *LOGS, CAPPED, AGING, PASSING, QUEUE))
        is_keyed = rng.random() < 0.7 and topic != PASSING
        number, size = load.number(), rng.choice((1, 1, 2, 5, 20))
        tag = f"t{number}"
        texts = tuple(f"{topic}/{number}/{i}{'x' * rng.choice((0, 0, 100))}" for i in range(size))
        body: dict[str, object] = {"records": [{"data": text, "tag": tag} for text in texts]}
        if is_keyed:
            body["idempotency_key"] = f"k{number}"
        if rng.random() < 0.2:
            self.move()
        self.append(topic, texts, body)

    def append(self, topic: str, texts: tuple[str, ...], body: dict[str, object]) -> None:
        invoked, first_seq, returned = time.monotonic_ns(), None, ENDLESS
        history = self.load.jobs if topic == QUEUE else self.load.logs[topic]
        while first_seq is None:
            sent = time.monotonic_ns()
            try:
                answer, headers = self.asker.ask(self.node, f"/v0/topics/{topic}", body)
            except NotApplied:
                if "idempotency_key" not in body:
                    self.load.not_applied += texts
                    self.move()
                    return
            except Unknown:
                pass
            else:
                first_seq, returned = answer["first_seq"], time.monotonic_ns()
                break
            self.move()
            if "idempotency_key" not in body:
                break
            self.load.repeated += 1
            time.sleep(PAUSE_S)
        history.appends.append(Append(invoked, returned, texts, first_seq))
        if first_seq is not None:
            self.load.acknowledged += 1
            if "idempotency_key" in body:
                self.load.answered.append((sent, returned))
            if self.rng.random() < 0.2:
                self.read_back(topic, first_seq, texts, headers["x-topics-position"])

    def read_back(self, topic: str, first_seq: int, texts: tuple[str, ...], position: str) -> None:
        """A read that brings the position of a write shows that write, at any node. (§5)"""
        if topic not in LOGS or topic == DELETED:
            return
        node = self.load.node(self.rng)
        body = {"from_seq": first_seq - 1, "limit": len(texts)}
        try:
            page, _ = self.asker.ask(
                node, f"/v0/topics/{topic}/diff", body, x_topics_position=position
            )
        except (Unknown, NotApplied):
            return  # it is behind, and says so
        found = tuple(record["data"] for record in page["records"])
        if found != texts:
            self.load.faults.append(
                f"node {node.number} shows {found} at {first_seq} of {topic}, not {texts}"
            )


class Pulse(Writer):
    """Small writes, by which outages are measured: a node that is silent is left soon."""

    def __init__(self, load: Load, seed: int) -> None:
        super().__init__(load, seed)
        self.asker = Asker(PULSE_S)

    def call(self) -> None:
        number = self.load.number()
        text = f"{LOGS[0]}/{number}/pulse"
        body = {"records": [{"data": text, "tag": f"t{number}"}], "idempotency_key": f"k{number}"}
        self.move()
        self.append(LOGS[0], (text,), body)


class Reader(Client):
    """Reads anything at any node; what it sees has to be of the log for good."""

    def call(self) -> None:
        self.move()
        topic = self.rng.choice((*LOGS, *COPIES.values()))
        head = max((seq for name, seq, _ in self.load.seen[-400:] if name == topic), default=0)
        body = {"from_seq": self.rng.randint(0, head), "limit": 50}
        try:
            page, _ = self.asker.ask(self.node, f"/v0/topics/{topic}/diff", body)
        except (Unknown, NotApplied):
            return
        self.load.seen += [(topic, record["$seq"], record["data"]) for record in page["records"]]
        if page["tombstone"] is not None:
            self.load.faults.append(f"{self.node.url} tells of a loss in {topic}: {page}")


class Deleter(Client):
    """Deletes batches that were acknowledged."""

    def call(self) -> None:
        self.load.is_over.wait(0.1)
        history = self.load.logs[DELETED]
        known = [append for append in history.appends[-60:] if append.first_seq is not None]
        if not known:
            return
        batch = self.rng.choice(known)
        assert batch.first_seq is not None
        seqs = frozenset(range(batch.first_seq, batch.first_seq + len(batch.texts)))
        body = {"match": f"t{batch.texts[0].split('/')[1]}"}
        self.move()
        invoked, returned, deleted = time.monotonic_ns(), ENDLESS, None
        try:
            answer, _ = self.asker.ask(self.node, f"/v0/topics/{DELETED}/delete", body)
        except NotApplied:
            return
        except Unknown:
            pass
        else:
            returned, deleted = time.monotonic_ns(), answer["deleted"]
        history.deletes.append(Delete(invoked, returned, seqs, deleted))


class Worker(Client):
    """Claims jobs and acks them through any node; some leases it keeps over a blow."""

    def __init__(self, load: Load, seed: int) -> None:
        super().__init__(load, seed)
        self._kept: list[tuple[int, Grant]] = []

    def call(self) -> None:
        self.move()
        is_long = self.rng.random() < 0.5
        lease_ms = self.load.long_lease_ms if is_long else LEASE_MS
        for grant in self.claim(lease_ms, self.rng.randint(1, 8)):
            if is_long and len(self._kept) < 20:
                self._kept.append((self.load.blows, grant))
            elif is_long or self.rng.random() > 0.02:  # else it is left to time
                self.ack(grant)
        now_ms = time.time_ns() // 1_000_000
        for since, grant in list(self._kept):
            is_struck = self.load.blows > since
            if is_struck or now_ms > grant.until_ms - 2 * SKEW_MS or self.load.is_over.is_set():
                self._kept.remove((since, grant))
                self.load.kept_leases += is_struck
                self.ack(grant)

    def claim(self, lease_ms: int, most: int) -> tuple[Grant, ...]:
        body = {"node": self.name, "max": most, "lease_ms": lease_ms}
        invoked = time.monotonic_ns()
        try:
            answer, _ = self.asker.ask(self.node, f"/v0/topics/{QUEUE}/claim", body)
        except (Unknown, NotApplied):
            return ()
        grants = tuple(
            Grant(
                job["$seq"],
                int(job["lease_id"].removeprefix("lease_"), 16),
                job["deliveries"],
                job["deadline"] - lease_ms,
                job["deadline"],
            )
            for job in answer["claimed"]
        )
        self.load.jobs.claims.append(Claim(invoked, time.monotonic_ns(), grants))
        return grants

    def ack(self, grant: Grant) -> None:
        self.move()
        body = {
            "node": self.name,
            "seqs": [grant.seq],
            "lease_ids": [f"lease_{grant.lease:x}"],
        }
        invoked, returned, is_done = time.monotonic_ns(), ENDLESS, None
        try:
            answer, _ = self.asker.ask(self.node, f"/v0/topics/{QUEUE}/ack", body)
        except NotApplied:
            return
        except Unknown:
            pass
        else:
            is_done, returned = answer["acked"] == 1, time.monotonic_ns()
        self.load.jobs.acks.append(Ack(invoked, returned, grant.seq, grant.lease, is_done))
        if is_done is False and time.time_ns() // 1_000_000 < grant.until_ms - SKEW_MS:
            self.load.faults.append(f"a lease is not known any more: {grant}, {answer}")

    def finish(self) -> None:
        """Do all jobs that are left, those too whose leases have yet to end."""
        while not (self.load.is_written or self.load.is_cut.is_set()):
            self.call()
        self.call()
        end = time.monotonic() + DRAIN_S
        while self.left() and not self.load.is_cut.is_set():
            assert time.monotonic() < end, "jobs are left that nobody can claim"
            for grant in self.claim(LEASE_MS, 1000):
                self.ack(grant)
            time.sleep(10 * PAUSE_S)

    def left(self) -> bool:
        self.move()
        try:
            page, _ = self.asker.ask(
                self.node, f"/v0/topics/{QUEUE}/diff", {"from_seq": 0, "limit": 1}
            )
        except (Unknown, NotApplied):
            return True
        return bool(page["records"])
