"""Three nodes in one process, over a log in memory and directories of their own."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import orjson
from cluster.memory_log import MemoryLog
from protocol.harness import shown

from topics.protocol.cluster.rule.leading import NodeState
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.unit import Shard
from topics.protocol.driver.reply import Reply, Ticket
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome
from topics.server.cluster.node.host import ClusterHost, NodeName
from topics.server.cluster.node.runtime import ClusterRuntime
from topics.server.cluster.node.status import NodeStatus, SnapshotStatus
from topics.store.files import OsFiles
from topics.store.store import DiskStore

SHARD = Shard(b"c" * 16)
LIMITS = Limits(wal_file_bytes=1 << 20, reserve_bytes=64 << 10)
HISTORY = b"h" * 8
MESSAGE_BYTES = 64 << 10
WAIT_MS = 20_000
"""Longer than anything here takes: a wait ends when what it waits for is there."""


class Copies:
    """Implements `host.Snapshots`: the directory of another node, while nothing is under way there."""

    def __init__(self, cluster: "Nodes", node: "Node") -> None:
        self.status = SnapshotStatus()
        self._cluster, self._node = cluster, node
        self._fetched = node.path.with_name(f"{node.name}.fetched")

    async def fetch(self) -> tuple[Place, Mark]:
        for donor in self._cluster.nodes:
            member = donor.host.member
            is_still = member.is_settled and donor.runtime.driver.commit.is_written
            is_there = member.node is not None and member.state is not NodeState.ASIDE
            if donor is not self._node and is_still and is_there:
                assert member.node is not None
                shutil.rmtree(self._fetched, ignore_errors=True)
                shutil.copytree(donor.path, self._fetched)
                return member.node.anchor, member.node.mark
        raise OSError("no node is still")

    def install(self, *, is_empty: bool) -> str | None:
        aside = self._node.path.with_name(f"{self._node.name}.aside")
        self._node.path.rename(aside)
        self._fetched.rename(self._node.path)
        self.status = SnapshotStatus(taken=1)
        return str(aside)

    def abort(self) -> None:
        return


class Node:
    """One node.  `start` it; a `kill` is a stop without any of the manners of one."""

    def __init__(self, cluster: "Nodes", name: str, path: Path) -> None:
        self.cluster, self.name, self.path = cluster, name, path
        self.runtime: ClusterRuntime
        self.host: ClusterHost

    async def start(self) -> None:
        self.runtime = ClusterRuntime(
            LIMITS,
            lambda: DiskStore(
                OsFiles(str(self.path)),
                history=HISTORY,
                wal_file_bytes=LIMITS.wal_file_bytes,
                reserve_bytes=LIMITS.reserve_bytes,
            ),
        )
        self.host = ClusterHost(
            self.runtime,
            self.cluster.log,
            SHARD,
            NodeName(cluster="test", node=self.name, url=f"http://{self.name}"),
            message_bytes_max=MESSAGE_BYTES,
            snapshots=Copies(self.cluster, self),
            nodes=self.cluster.statuses,
        )
        await self.host.start()

    async def stop(self) -> None:
        await self.host.stop()
        await self.runtime.stop()

    async def lead(self) -> None:
        self.host.gained()
        assert await self.host._wait_until(lambda: self.host.leads, WAIT_MS)

    def ask(self, command: Command) -> "asyncio.Future[Any]":
        """The JSON of the answer; raises what refuses it."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def deliver(reply: Reply) -> None:
            if isinstance(reply.result, Outcome):
                answer.set_result(shown(reply.result))
            else:
                answer.set_exception(reply.result)

        try:
            found = self.runtime.submit(command, deliver)
        except Rejection as refusal:
            answer.set_exception(refusal)
        else:
            if not isinstance(found, Ticket):
                deliver(found)
        return answer

    def append(self, *datas: object, name: str = "t", key: str = "") -> "asyncio.Future[Any]":
        fields = {"idempotency_key": key} if key else {}
        body = orjson.dumps({"records": [{"data": data} for data in datas], **fields})
        command = parse_append(name, body, LIMITS, return_seqs=True, header_key=None)
        return self.ask(command)

    async def datas(self, name: str = "t") -> list[Any]:
        page = await self.ask(parse_diff(name, b'{"from_seq":0}', LIMITS))
        return [record["data"] for record in page["records"]]


class Nodes:
    """The cluster."""

    def __init__(self, path: Path, log: MemoryLog) -> None:
        self.log = log
        self.nodes = [Node(self, f"n{at}", path / f"n{at}") for at in range(3)]

    def statuses(self) -> Sequence[NodeStatus]:
        return [
            NodeStatus(
                node=node.name,
                url=f"http://{node.name}",
                role="leader" if node.host.leads else "follower",
                index=node.host.index,
                lag_units=0,
                lag_ms=0,
                kafka=f"{node.name}:9092",
            )
            for node in self.nodes
        ]


@asynccontextmanager
async def cluster(path: Path, log: MemoryLog | None = None) -> AsyncIterator[Nodes]:
    """Three nodes that follow."""
    nodes = Nodes(path, log or MemoryLog())
    for node in nodes.nodes:
        await node.start()
    try:
        yield nodes
    finally:
        for node in nodes.nodes:
            await node.stop()
