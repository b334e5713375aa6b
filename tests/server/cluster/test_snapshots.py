"""Another node's store in the place of this one's, over real servers and a real broker. (§6)"""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from cluster.memory_log import MemoryLog

from bench.flights import Server
from tests import brokers, nodes
from tests.nodes import NodeServer, NodeServers
from topics.backup.proof import prove
from topics.protocol.cluster.place import place_of
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.server.cluster.kafka.library import AdminClient, OffsetSpec, TopicPartition
from topics.server.cluster.node.directory import COMING, COPIES, STORE, NodeDirectory
from topics.server.cluster.snapshots import Donor, NodeSnapshots
from topics.server.http.store_files import StoreFiles
from topics.store.files import OsFiles

from .node.test_life import append, datas
from .nodes import HISTORY, SHARD, cluster
from .pair import Pair, a_pair, run

PATIENCE_SECONDS = 20
"""Bounds a hang."""
TEXT = "x" * 8000


def donor(path: Path) -> tuple[Path, Place]:
    """The store of a node that goes on running, and leads: what it had when the test copied it."""
    found: list[Place] = []

    async def story() -> None:
        async with cluster(path, MemoryLog()) as nodes:
            first = nodes.nodes[0]
            await first.lead()
            await first.append(*range(50))
            node = first.host.member.node
            assert node is not None
            found.append(node.anchor)

    run(story())
    return path / "n0", found[0]


class Taker:
    """A node's directory, and what takes snapshots into it."""

    def __init__(
        self, path: Path, pair: Pair, sources: Sequence[Donor], *, may_begin: bool = False
    ) -> None:
        path.mkdir(exist_ok=True)
        self.path, self.sources = path, list(sources)
        self.snapshots = NodeSnapshots(
            path, SHARD, HISTORY, lambda: self.sources, lambda: pair.leader.peers.token,
            may_begin=may_begin,
        )  # fmt: skip

    def install(self, *, is_empty: bool = False) -> str | None:
        return self.snapshots.install(is_empty=is_empty)

    @property
    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.path.iterdir())

    def place(self) -> tuple[Place, Mark]:
        return place_of(prove(OsFiles(self.path / STORE)).place, SHARD)


def test_another_nodes_store_takes_the_place_of_this_ones(tmp_path: Path) -> None:
    """What was there is kept beside it, under a name of its own, each time. (§2, §6)"""
    store, place = donor(tmp_path / "other")

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.exchange.files = StoreFiles(store)
            taker = Taker(tmp_path / "node", pair, [Donor("n1", pair.leader.url)])
            for number in (1, 2):
                (taker.path / STORE).mkdir(exist_ok=True)
                (taker.path / STORE / "mine").write_text(str(number))

                offered, mark = await taker.snapshots.fetch()
                assert taker.snapshots.status.taking
                assert (offered.index, offered.chain) == (place.index, place.chain)
                assert (taker.path / STORE / "mine").exists()  # nothing has changed yet
                aside = taker.install()

                assert aside == str(taker.path / f"store.aside-{number}")
                assert (Path(aside) / "mine").read_text() == str(number)
                assert taker.place() == (offered, mark)
            assert taker.names == ["store", "store.aside-1", "store.aside-2"]
            status = taker.snapshots.status
            assert (status.taken, status.taking, status.set_aside) == (2, False, aside)

    run(story())


def test_a_store_that_never_had_data_is_not_kept(tmp_path: Path) -> None:
    store, _ = donor(tmp_path / "other")

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.exchange.files = StoreFiles(store)
            taker = Taker(tmp_path / "node", pair, [Donor("n1", pair.leader.url)])
            (taker.path / STORE).mkdir()
            await taker.snapshots.fetch()
            assert taker.install(is_empty=True) is None
            assert taker.names == ["store"]

    run(story())


def test_a_kill_between_the_two_renames_is_mended_by_the_next_start(tmp_path: Path) -> None:
    """There is no store then, and a whole one beside its place. (§6)"""
    store, place = donor(tmp_path / "other")

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.exchange.files = StoreFiles(store)
            taker = Taker(tmp_path / "node", pair, [Donor("n1", pair.leader.url)])
            directory = NodeDirectory(taker.path, "c")
            directory.belong(SHARD.cluster)
            directory.close()
            await taker.snapshots.fetch()
            assert (taker.path / COMING / "topics.id").exists()

            NodeDirectory(taker.path, "c").close()

            assert taker.place()[0].index == place.index
            assert not (taker.path / COMING).exists()
            # A store that is not whole is none.
            (taker.path / STORE).rename(taker.path / COMING)
            (taker.path / COMING / "topics.id").unlink()
            NodeDirectory(taker.path, "c").close()
            assert not (taker.path / STORE).exists()
            taker.snapshots.clean()
            assert taker.names == ["node.json"]

    run(story())


def test_who_gives_nothing_is_followed_by_the_next(tmp_path: Path) -> None:
    """Each once, and then from the beginning; the reason is told."""
    store, _ = donor(tmp_path / "other")

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.exchange.files = StoreFiles(store)
            gone, good = Donor("gone", "http://127.0.0.1:1"), Donor("n1", pair.leader.url)
            taker = Taker(tmp_path / "node", pair, [gone, good])

            with pytest.raises(OSError, match="node gone: "):
                await taker.snapshots.fetch()
            assert "node gone: " in (taker.snapshots.status.trouble or "")
            assert (await taker.snapshots.fetch())[0].index > 0
            with pytest.raises(OSError, match="node gone: "):
                await taker.snapshots.fetch()
            taker.sources.clear()
            with pytest.raises(OSError):
                await taker.snapshots.fetch()

    run(story())


def test_without_anybody_a_log_that_is_whole_is_read_from_its_beginning(tmp_path: Path) -> None:
    """Once: where it turns out to be trimmed, only a snapshot helps."""

    async def story() -> None:
        async with a_pair() as pair:
            taker = Taker(tmp_path / "node", pair, [], may_begin=True)
            (taker.path / STORE).mkdir()
            assert await taker.snapshots.fetch() == (
                Place.before_all(SHARD), Mark(Place.before_all(SHARD)),
            )  # fmt: skip
            assert taker.install() is None
            assert taker.names == ["store"]
            with pytest.raises(OSError):
                await taker.snapshots.fetch()

    run(story())


def test_a_stop_does_not_wait_for_a_snapshot(tmp_path: Path) -> None:
    """What is fetched fails, and its copies are there for the next start."""
    store, _ = donor(tmp_path / "other")

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.exchange.files = StoreFiles(store)
            taker = Taker(tmp_path / "node", pair, [Donor("n1", pair.leader.url)])
            taker.snapshots.abort()
            with pytest.raises(OSError):
                await taker.snapshots.fetch()
            assert not (taker.path / COMING / "topics.id").exists()
            assert COPIES in taker.names
            await asyncio.sleep(0)

    run(story())


@pytest.fixture(scope="module")
def servers() -> Iterator[NodeServers]:
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    session = {"TOPICS_CLUSTER_SESSION_MS": "2000"}
    with brokers.running() as kafka, nodes.running(kafka.bootstrap, **session) as found:
        yield found


def trim(servers: NodeServers) -> int:
    """Let the log begin at its last two records, by which the nodes know it; returns that offset."""
    bootstrap = servers.nodes[0]._environment["TOPICS_CLUSTER_KAFKA"]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    asked = admin.list_offsets({TopicPartition("topics.log", 0): OffsetSpec.latest()})
    [end] = [found.result(PATIENCE_SECONDS).offset for found in asked.values()]
    partition = TopicPartition("topics.log", 0, end - 2)
    for result in admin.delete_records([partition]).values():
        result.result(PATIENCE_SECONDS)
    return int(end - 2)


def apart(servers: NodeServers) -> tuple[NodeServer, NodeServer]:
    """A node that follows, and another one."""
    leader = servers.leader()
    follower = next(node for node in servers.nodes if node is not leader)
    return follower, leader


def wait_for(node: NodeServer, name: str) -> None:
    """Until this stands in the node's directory."""
    until = time.monotonic() + PATIENCE_SECONDS
    while not (node.data_dir / name).exists():
        assert time.monotonic() < until, (node.ask("/v0/cluster"), node.out)
        time.sleep(0.001)


@pytest.mark.kafka
def test_a_node_joins_behind_a_log_that_was_trimmed(servers: NodeServers) -> None:
    """It takes a snapshot of a node that goes on running, however often it is killed meanwhile, and
    serves what was in the log and what follows."""
    third, other = apart(servers)
    third.kill()
    shutil.rmtree(third.data_dir)
    written = [f"{number}{TEXT}" for number in range(4000)]
    for at in range(0, len(written), 100):
        append(other, "t", *written[at : at + 100])
    trim(servers)

    third.start()
    wait_for(third, "store.copies")
    third.kill()
    third.start()
    wait_for(third, "store.coming")
    third.kill()
    third.start()
    third.wait_ready()

    position = append(other, "t", "last")["x-topics-position"]
    assert datas(third, "t", **{"x-topics-position": position}) == [*written, "last"]
    assert not list(third.data_dir.glob("store.*"))
    status = third.ask("/v0/cluster")
    assert status["snapshot"]["taken"] == 1
    assert sum(node.ask("/v0/cluster")["snapshot"]["served"] for node in servers.nodes) >= 1


@pytest.mark.kafka
def test_a_node_that_was_away_too_long_sets_its_store_aside(servers: NodeServers) -> None:
    """The log was trimmed past it; it says where what it had is, and shows what the others have."""
    third, other = apart(servers)
    third.kill()
    for number in range(5):
        append(other, "t", f"away {number}")
    trim(servers)

    third.start()
    third.wait_ready()

    position = append(other, "t", "back")["x-topics-position"]
    found = datas(third, "t", **{"x-topics-position": position})
    assert found == datas(other, "t", **{"x-topics-position": position})
    aside = third.data_dir / "store.aside-1"
    assert (aside / "topics.id").exists()
    assert third.ask("/v0/cluster")["snapshot"]["set_aside"] == str(aside)
    assert str(aside) in third.out


@pytest.mark.kafka
def test_a_node_is_backed_up_by_its_url_and_restored_as_a_single_server(
    servers: NodeServers, tmp_path: Path
) -> None:
    """While it runs, whether it leads or not; the records are all there, in a history of its own."""
    third, other = apart(servers)
    position = append(other, "t", "to be kept")["x-topics-position"]
    written = datas(third, "t", **{"x-topics-position": position})
    assert "to be kept" in written
    for number, node in enumerate((third, other)):
        dest, data = tmp_path / f"backups-{number}", tmp_path / f"data-{number}"
        for command in (
            ["backup", "--url", node.url, str(dest)],
            ["backup", "--url", node.url, str(dest)],
            ["backup", "--verify", str(dest)],
            ["restore", str(dest), str(data)],
            ["inspect", str(data)],
        ):
            ran = subprocess.run(
                [sys.executable, "-m", "topics", *command], capture_output=True, check=False
            )
            assert ran.returncode == 0, ran.stderr
        assert prove(OsFiles(data)).records >= len(written)


@pytest.mark.kafka
def test_a_single_server_becomes_a_cluster(servers: NodeServers, tmp_path: Path) -> None:
    """Its first node shows the records under the same epoch, and the second, which is empty, does after
    a snapshot, though the log is whole: what was adopted is not in it. The same Kafka takes no second
    cluster of that name. (§6, decision 100)"""
    bootstrap = servers.nodes[0]._environment["TOPICS_CLUSTER_KAFKA"]
    also = {"TOPICS_CLUSTER_SESSION_MS": "2000", "TOPICS_CLUSTER_NAME": "adopted"}
    made = NodeServers(tmp_path, bootstrap, 1, **also)
    first, second, third = made.nodes
    server = Server(tmp_path)
    server.start()
    try:
        with server.client() as client:
            client.append_many("t", range(100))
            epoch = client.topic("t").epoch
    finally:
        server.end()
    server.data_dir.rename(first.data_dir)
    shutil.copytree(first.data_dir, third.data_dir)

    def adopted(node: NodeServer, **environment: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [sys.executable, "-m", "topics", "cluster", "adopt", str(node.data_dir)],
            capture_output=True, check=False, text=True,
            env={**os.environ, "TOPICS_CLUSTER_NAME": "adopted", **environment},
        )  # fmt: skip

    assert adopted(first, TOPICS_CLUSTER_KAFKA=bootstrap).returncode == 0
    try:
        first.start()
        first.wait_ready()
        made.leader()
        second.start()
        second.wait_ready()
        position = append(second, "t", "after")["x-topics-position"]
        for node in (first, second):
            body = {"from_seq": 50, "epoch": epoch}
            page, _ = node.ask_with_headers(
                "/v0/topics/t/diff", body, headers={"x-topics-position": position}
            )
            assert page["tombstone"] is None
            assert [r["data"] for r in page["records"]] == [*range(50, 100), "after"]
        assert second.ask("/v0/cluster")["snapshot"]["taken"] == 1

        refused = adopted(third, TOPICS_CLUSTER_KAFKA=bootstrap)
        assert refused.returncode == 2
        assert 'cluster "adopted" exists already' in refused.stderr
        # Without the setting the first start finds out.
        assert adopted(third, TOPICS_CLUSTER_KAFKA="").returncode == 0
        third.start()
        assert third.wait_end() == 2
        assert "were adopted for a new cluster" in third.out
    finally:
        made.stop()
