"""The runtime of a cluster's node: the cluster's time, and one driver after another."""

import asyncio
from pathlib import Path

from topics.server.cluster.node.runtime import ClusterRuntime
from topics.server.service.shell import Phase
from topics.store.files import OsFiles
from topics.store.store import DiskStore

from ..nodes import HISTORY, LIMITS, WAIT_MS, cluster


def test_a_node_is_ready_before_while_and_after_its_store_is_opened_anew(tmp_path: Path) -> None:
    """Requests come all the time: a read is served by the engine of the moment."""

    async def lives() -> None:
        async with cluster(tmp_path) as nodes:
            first, second, _ = nodes.nodes
            await first.lead()
            await first.append("a")
            driver, store = first.runtime.driver, first.runtime.store
            await second.lead()
            assert await first.host._wait_until(lambda: first.runtime.driver is not driver, WAIT_MS)

            assert first.runtime.phase is Phase.READY
            assert first.runtime.store is not store
            assert first.runtime.engine is first.runtime.driver.engine
            assert await first.datas() == ["a"]

    asyncio.run(asyncio.wait_for(lives(), 60))


def test_a_nodes_time_is_the_clusters(tmp_path: Path) -> None:
    """Not that of its own clock, which it leads by. (§4)"""

    async def lives() -> None:
        async with cluster(tmp_path) as nodes:
            first, second, _ = nodes.nodes
            assert second.runtime.now_ms == 0
            await first.lead()
            await first.append("a")
            assert await second.host.wait_for(first.host.index, WAIT_MS)

            said_ms = first.runtime.engine.state.now_ms
            assert second.runtime.now_ms == said_ms
            second.runtime.not_before(said_ms + 3_600_000)
            assert second.runtime.clock_ms < said_ms + 60_000

    asyncio.run(asyncio.wait_for(lives(), 60))


def test_a_clean_stop_leaves_a_checkpoint_with_the_place(tmp_path: Path) -> None:
    """The next start replays nothing, and reads on."""

    async def lives() -> None:
        async with cluster(tmp_path) as nodes:
            leader = nodes.nodes[0]
            await leader.lead()
            await leader.append("a")
            index = leader.host.index
            await leader.stop()

            await leader.start()

            assert leader.host.index == index
            assert list(leader.path.glob("*.ckpt"))
            assert await leader.datas() == ["a"]

    asyncio.run(asyncio.wait_for(lives(), 60))


def test_a_node_answers_before_it_knows_whose_data_it_has_to_have(tmp_path: Path) -> None:
    """It is attached to the loop at once, so that probes are served; the store comes when the cluster
    is known, and the start keeps what the server has set until then."""

    async def lives() -> None:
        opened: list[str] = []

        def store(name: str) -> DiskStore:
            opened.append(name)
            return DiskStore(OsFiles(str(tmp_path / name)), history=HISTORY)

        runtime = ClusterRuntime(LIMITS, lambda: store("unknown"))
        runtime.attach()
        assert await runtime.zip_in_thread(lambda: 1) == 1
        soon: list[object] = []
        runtime.end_turns_by(soon.append)

        runtime.prepare(lambda: store("known"))
        runtime.opened = lambda driver: driver.start()
        await runtime.start()
        await runtime.wait_ready()

        assert runtime.engine is runtime.driver.engine
        assert opened == ["unknown", "known"]
        assert not (tmp_path / "unknown").exists()
        assert runtime._soon == soon.append
        await runtime.stop()

    asyncio.run(asyncio.wait_for(lives(), 60))
