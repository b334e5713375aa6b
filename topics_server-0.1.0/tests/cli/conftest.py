"""The command line before a small server of its own, in memory and without a socket."""

import functools
import json
from collections.abc import Callable
from typing import Any

import click.testing
import httpx
import pytest

import topics.client
from topics.cli import main
from topics.testing import MemoryTopics


class Log:
    """One topic's worth of the contract: append with keys, diff, list.

    `refuse` is asked before each append and may answer in its place or raise; `lost` seqs are a
    tombstone for whoever reads from below them.
    """

    def __init__(self) -> None:
        self.records: list[dict[str, Any]] = []
        self.keys: dict[str, tuple[int, int]] = {}
        self.batches: list[dict[str, Any]] = []
        self.lost = 0
        self.refuse: Callable[[int], httpx.Response | None] = lambda _n: None
        self.topics: list[dict[str, Any]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        if request.method == "GET":
            return httpx.Response(200, json={"topics": self.topics})
        body = json.loads(request.content)
        if request.url.path.endswith("/diff"):
            return self._diff(body)
        self.batches.append(body)
        return self.refuse(len(self.batches)) or self._append(body)

    @property
    def data(self) -> list[Any]:
        return [record["data"] for record in self.records]

    def _append(self, body: dict[str, Any]) -> httpx.Response:
        key = body["idempotency_key"]
        deduped = key in self.keys
        if not deduped:
            first_seq = len(self.records) + 1
            self.records += body["records"]
            self.keys[key] = (first_seq, len(self.records))
        first_seq, last_seq = self.keys[key]
        answer = {"topic": "t", "first_seq": first_seq, "last_seq": last_seq}
        return httpx.Response(
            200, json={**answer, "head_seq": len(self.records), "deduped": deduped}
        )

    def _diff(self, body: dict[str, Any]) -> httpx.Response:
        from_seq = max(body["from_seq"], self.lost)
        last_seq = min(len(self.records), from_seq + body["limit"])
        gap = None
        if body["from_seq"] < self.lost:
            gap = {"gap_from": body["from_seq"] + 1, "gap_to": self.lost, "reason": "cap"}
        found = [
            {"$seq": seq, "$ts": 5, **self.records[seq - 1]}
            for seq in range(from_seq + 1, last_seq + 1)
        ]
        answer = {
            "records": found,
            "next_from_seq": last_seq,
            "head_seq": len(self.records),
            "earliest_seq": self.lost + 1,
            "caught_up": last_seq == len(self.records),
            "tombstone": gap,
        }
        return httpx.Response(200, json=answer)


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> Log:
    """What the commands of this test talk to."""
    log = Log()
    client = functools.partial(topics.client.Client, transport=httpx.MockTransport(log))
    monkeypatch.setattr(topics.client, "Client", client)
    return log


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Callable[..., click.testing.Result]:
    """Run `topics ARGS` with a given standard input and without `TOPICS_` variables."""
    monkeypatch.delenv("TOPICS_URL", raising=False)

    def run(*args: Any, input: str | bytes = "", **env: str) -> click.testing.Result:
        runner = click.testing.CliRunner()
        return runner.invoke(main, [str(arg) for arg in args], input=input, env=env)

    return run


@pytest.fixture
def memory(memory_topics: MemoryTopics, monkeypatch: pytest.MonkeyPatch) -> MemoryTopics:
    """The real engine in memory is what the commands of this test talk to."""
    transport = memory_topics.client.session.connections.transport
    app = httpx.ASGITransport(app=memory_topics.app)
    blocking = functools.partial(topics.client.Client, transport=transport)
    awaited = functools.partial(topics.client.AsyncClient, transport=app)
    monkeypatch.setattr(topics.client, "Client", blocking)
    monkeypatch.setattr(topics.client, "AsyncClient", awaited)
    return memory_topics


@pytest.fixture
def dead(memory: MemoryTopics) -> MemoryTopics:
    """A queue `jobs`, all of whose jobs die at their second delivery."""
    memory.client.put_topic(
        "jobs", type="queue", max_deliveries=1, dead_letter="dead", idempotency_window_ms=120_000
    )
    return memory
