"""The files of a node's store over its own port: who may read them, and what of them."""

import asyncio
from pathlib import Path

import pytest

from server.cluster.pair import a_pair, run
from topics.backup.remote import RemoteFiles, Unanswered
from topics.server.access.guard import Guard
from topics.server.access.keys import source_of
from topics.server.cluster.tokens import FORWARDED
from topics.server.http.store_files import GIVING_S, PIECE_BYTES_MAX, StoreFiles
from topics.store.files import read_at_most

ALL, SOME, READER = (letter * 32 for letter in "abc")
PIECE = "/v0/store/0000000001.wal?offset={}&size={}"
WAL = bytes(range(256)) * 8192


def filled(path: Path) -> StoreFiles:
    path.mkdir()
    (path / "topics.id").write_bytes(b"id")
    (path / "0000000001.wal").write_bytes(WAL)
    (path / "node.json").write_text("secret")
    (path / "0000000001.seg.tmp").write_bytes(b"unfinished")
    return StoreFiles(path)


def guarded() -> Guard:
    entries = (f"{ALL}:read+admin", f"{SOME}:read+admin:acme.", f"{READER}:read")
    source = source_of(",".join(entries), None)
    assert source is not None
    return Guard(source)


def test_a_node_reads_what_belongs_to_a_store_and_nothing_else(tmp_path: Path) -> None:
    """By the cluster's token, without a key. (§6)"""

    async def story() -> None:
        async with a_pair(guarded) as pair:
            node = pair.follower
            files = node.exchange.files = filled(tmp_path / "store")
            remote = RemoteFiles(node.url, {FORWARDED.decode(): node.peers.token.decode()})
            assert await asyncio.to_thread(remote.names) == ["0000000001.wal", "topics.id"]
            file = await asyncio.to_thread(remote.open, "0000000001.wal")
            found = await asyncio.to_thread(read_at_most, file, len(WAL), 0)
            assert found == WAL
            for name in ("node.json", "0000000001.seg.tmp", "..%2Fnode.json", "0000000002.wal"):
                with pytest.raises(FileNotFoundError):
                    await asyncio.to_thread(remote.open, name)
            assert files.taken == 0
            await asyncio.to_thread(remote.finish)
            assert files.taken == 1
            assert files.sent_bytes >= len(WAL)
            remote.close()

    run(story())


def test_a_key_that_may_not_read_everything_reads_no_file(tmp_path: Path) -> None:
    """The files hold every topic's records. (§0.2)"""

    async def story() -> None:
        async with a_pair(guarded) as pair:
            node = pair.follower
            node.exchange.files = filled(tmp_path / "store")

            async def names(headers: dict[str, str]) -> list[str]:
                remote = RemoteFiles(node.url, headers)
                try:
                    return await asyncio.to_thread(remote.names)
                finally:
                    remote.close()

            assert await names({"authorization": f"Bearer {ALL}"}) != []
            for headers, told in (
                ({}, "401"),
                ({"authorization": f"Bearer {'d' * 32}"}, "401"),
                ({FORWARDED.decode(): "0" * 32}, "401"),
                ({"authorization": f"Bearer {READER}"}, "lacks the scope admin"),
                ({"authorization": f"Bearer {SOME}"}, "may not touch every topic"),
            ):
                with pytest.raises(Unanswered, match=told):
                    await names(headers)

    run(story())


@pytest.mark.parametrize("query", ["", "?offset=0", "?offset=-1&size=1", "?offset=a&size=1"])
def test_a_piece_has_a_place_and_a_size(tmp_path: Path, query: str) -> None:
    async def story() -> None:
        async with a_pair() as pair:
            pair.follower.exchange.files = filled(tmp_path / "store")
            path = f"/v0/store/0000000001.wal{query}"
            assert (await pair.follower.ask("GET", path)).status == 400

    run(story())


def test_a_piece_is_bounded(tmp_path: Path) -> None:
    """However much is asked for, one megabyte is in memory; behind the end there is nothing."""

    async def story() -> None:
        async with a_pair() as pair:
            pair.follower.exchange.files = filled(tmp_path / "store")
            piece = await pair.follower.ask("GET", PIECE.format(5, 1 << 40))
            assert piece.body == WAL[5 : 5 + PIECE_BYTES_MAX]
            assert piece.headers["x-topics-size"] == str(len(WAL))
            beyond = await pair.follower.ask("GET", PIECE.format(len(WAL), 10))
            assert beyond.body == b""

    run(story())


def test_a_store_that_is_not_there_says_so(tmp_path: Path) -> None:
    """While another one takes its place, for instance."""

    async def story() -> None:
        async with a_pair() as pair:
            node = pair.follower
            node.exchange.files = StoreFiles(tmp_path / "none")
            assert (await node.ask("GET", "/v0/store")).code == (503, "not_ready")
            assert (await node.ask("POST", "/v0/store")).status == 404
            assert (await node.ask("GET", "/v0/stores")).status == 404
            assert (await pair.leader.ask("GET", "/v0/store")).status == 404

    run(story())


def test_it_is_known_whether_somebody_copies_the_store(tmp_path: Path) -> None:
    """From the first piece on, until all is there or nothing is asked for any more."""

    async def story() -> None:
        async with a_pair() as pair:
            filled(tmp_path / "store")
            now_s = [0.0]
            node = pair.follower
            files = node.exchange.files = StoreFiles(tmp_path / "store", lambda: now_s[0])
            await node.ask("GET", "/v0/store")
            assert not files.is_giving  # a list is no copy
            await node.ask("GET", PIECE.format(0, 10))
            assert files.is_giving
            now_s[0] = GIVING_S
            assert not files.is_giving
            await node.ask("GET", PIECE.format(0, 10))
            assert files.is_giving
            await node.ask("GET", "/v0/store", None, "x-topics-whole: 1")
            assert not files.is_giving
            assert files.taken == 1

    run(story())
