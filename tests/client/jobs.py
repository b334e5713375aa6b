"""A small queue that knows §10, and both faces of a worker before it.

The queue's clock stands still unless a test moves it.  `said` is what came, as a test compares it:
`claim 2`, `ack 7`, `nack 7 +1000`, `extend 7`; `skip` stands before what came too late.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx

from topics.client import Client, HeldJob

from .script import Script, error, ok

NODE = "w1"


@dataclass
class Kept:
    """A job as the queue keeps it."""

    seq: int
    data: Any
    more: dict[str, Any] = field(default_factory=dict)
    deliveries: int = 0
    lease_id: str = ""
    node: str = ""
    until_ms: int = 0
    """When it can be claimed: the end of its lease, or of its delay."""


class Queue:
    """`jobs` with a job for each of `data`.

    `before` is asked at each request, with the action and its body, and may answer in the queue's
    place, raise, or do what a test wants done at that moment.
    """

    def __init__(self, *data: Any, lease_ms: int = 30_000, **more: Any) -> None:
        self.jobs = {seq: Kept(seq, one, more) for seq, one in enumerate(data, 1)}
        self.lease_ms = lease_ms
        self.now_ms = 1_748_450_000_000
        self.said: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.leases = 0
        self.before: Callable[[str, dict[str, Any]], httpx.Response | None] = lambda _a, _b: None

    def __call__(self, request: httpx.Request) -> httpx.Response:
        action = request.url.path.rpartition("/")[2]
        body = json.loads(request.content) if request.content else {}
        if request.method == "GET":
            return self.before("state", body) or self._state()
        self.bodies.append(body)
        found: httpx.Response = self.before(action, body) or getattr(self, f"_{action}")(body)
        return found

    @property
    def ready(self) -> list[Kept]:
        return [job for job in self.jobs.values() if job.until_ms <= self.now_ms]

    @property
    def in_flight(self) -> int:
        return sum(job.until_ms > self.now_ms and job.node != "" for job in self.jobs.values())

    def steal(self, seq: int) -> None:
        """The job's lease ran out, and another node has it."""
        self._lease(self.jobs[seq], "thief", 10**12)

    def _lease(self, job: Kept, node: str, lease_ms: int) -> None:
        self.leases += 1
        job.deliveries += 1
        job.lease_id, job.node, job.until_ms = (
            f"lease_{self.leases}",
            node,
            self.now_ms + lease_ms,
        )

    def _state(self) -> httpx.Response:
        config = {"type": "queue", "lease_ms": self.lease_ms}
        seqs = {"head_seq": 9, "earliest_seq": 1, "next_seq": 10}
        return ok({"topic": "jobs", **seqs, "count": 0, "bytes": 0, "config": config})

    def _claim(self, body: dict[str, Any]) -> httpx.Response:
        lease_ms = body.get("lease_ms", self.lease_ms)
        found = self.ready[: body["max"]]
        for job in found:
            self._lease(job, body["node"], lease_ms)
        self.said.append(f"claim {len(found)}")
        claimed = [
            {
                "$seq": job.seq,
                "$ts": 5,
                "data": job.data,
                "lease_id": job.lease_id,
                "deadline": job.until_ms,
                "deliveries": job.deliveries,
                **job.more,
            }
            for job in found
        ]
        return ok({"topic": "jobs", "claimed": claimed, "ready": len(self.ready)})

    def _ack(self, body: dict[str, Any]) -> httpx.Response:
        ours, skipped = self._fenced(body, "ack")
        for job in ours:
            del self.jobs[job.seq]
        return self._counted("acked", ours, skipped)

    def _nack(self, body: dict[str, Any]) -> httpx.Response:
        ours, skipped = self._fenced(body, "nack", f" +{body['delay_ms']}")
        for job in ours:
            job.until_ms, job.node = self.now_ms + body["delay_ms"], ""
        return self._counted("nacked", ours, skipped)

    def _extend(self, body: dict[str, Any]) -> httpx.Response:
        ours, skipped = self._fenced(body, "extend")
        for job in ours:
            job.until_ms = self.now_ms + body["lease_ms"]
        deadlines = {str(job.seq): job.until_ms for job in ours}
        return self._counted("extended", ours, skipped, deadlines=deadlines)

    def _fenced(self, body: dict[str, Any], action: str, more: str = "") -> tuple[list[Kept], Any]:
        """The jobs that are leased under these ids, and the seqs of the others."""
        ours, skipped = [], []
        for seq, lease_id in zip(body["seqs"], body["lease_ids"], strict=True):
            job = self.jobs.get(seq)
            if job is not None and (job.node, job.lease_id) == (body["node"], lease_id):
                ours.append(job)
                self.said.append(f"{action} {seq}{more}")
            else:
                skipped.append(seq)
                self.said.append(f"skip {action} {seq}")
        return ours, skipped

    def _counted(
        self, verb: str, ours: list[Kept], skipped: list[int], **more: Any
    ) -> httpx.Response:
        counts = {"ready": len(self.ready), "in_flight": self.in_flight}
        return ok({"topic": "jobs", verb: len(ours), "skipped": skipped, **counts, **more})


class Before(Script):
    """A face's script that is no list of answers but a queue; pauses take no time."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._queue = queue

    def __call__(self, request: httpx.Request) -> httpx.Response:
        given = self._queue(request)
        # A copy: httpx binds a response to the face that took it.
        return httpx.Response(given.status_code, headers=given.headers, content=given.content)


class InContext:
    """Works through the queue with `with job:`, calling `act` with each; stops with `stop` jobs.

    `held` are the jobs that were handed out, as they are when it is over."""

    def __init__(
        self, act: Callable[[Any], Any] = lambda _job: None, *, stop: int = -1, **options: Any
    ) -> None:
        self.act, self.stop = act, stop
        self.options = {"node": NODE, "drain": True, "lease_ms": 30_000, **options}
        self.held: list[HeldJob[Any]] = []

    def __call__(self, client: Any) -> Any:
        work = client.work("jobs", **self.options)
        return self._sync(work) if isinstance(client, Client) else self._async(work)

    def _sync(self, work: Any) -> Any:
        with work:
            for job in work:
                self.held.append(job)
                with job:
                    self.act(job)
                if len(self.held) == self.stop:
                    break
        return self.held

    async def _async(self, work: Any) -> Any:
        async with work:
            async for job in work:
                self.held.append(job)
                async with job:
                    self.act(job)
                if len(self.held) == self.stop:
                    break
        return self.held


class Handled:
    """Works through a queue with a handler; `errors` is what it was told of failures."""

    def __init__(
        self,
        act: Callable[[Any], Any] = lambda _job: None,
        *,
        queue: str = "jobs",
        **options: Any,
    ) -> None:
        self.act, self.queue = act, queue
        self.options = {"node": NODE, "drain": True, "lease_ms": 30_000, **options}
        self.errors: list[tuple[int, Exception]] = []
        self.held: list[HeldJob[Any]] = []

    def __call__(self, client: Any) -> Any:
        def on_error(job: Any, error: Exception) -> None:
            self.errors.append((job.seq, error))

        def handler(job: Any) -> Any:
            self.held.append(job)
            return self.act(job)

        async def awaited(job: Any) -> Any:
            return handler(job)

        call = handler if isinstance(client, Client) else awaited
        return client.work(self.queue, call, on_error=on_error, **self.options)


def gone() -> httpx.Response:
    return error(404, "topic_not_found")
