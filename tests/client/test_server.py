"""Both faces of the client before a real server, over a socket."""

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

import msgspec
import pytest

from bench.flights import Server
from topics.client import (
    AsyncClient,
    BatchTooLarge,
    Client,
    Conflict,
    InvalidRequest,
    NewRecord,
    PartitionRequired,
    RawRecord,
    Record,
    RecordTooLarge,
    Tombstone,
    TopicFull,
    TopicNotFound,
)

from .script import collect
from .streams import Follow


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("server"))
    server.start()
    yield server
    server.end()


@pytest.fixture(params=["sync", "async"])
def do(request: pytest.FixtureRequest, server: Server) -> Callable[..., Any]:
    """Run a call with either face; an iterator's items as a list."""
    face = Client if request.param == "sync" else AsyncClient

    def do(use: Callable[[Any], Any], **options: Any) -> Any:
        return collect(face(server.url, **options), use)

    return do


_names = count()


@pytest.fixture
def name() -> str:
    return f"t{next(_names)}"


def seqs(items: list[Any]) -> list[Any]:
    return [i.seq if isinstance(i, Record) else (i.gap_from, i.gap_to, i.reason) for i in items]


def test_what_is_appended_is_read(do: Any, name: str) -> None:
    """Values, tags, nodes and meta come back as they went in. (§2, §3)"""
    own = NewRecord({"a": [1, None]}, tag="own", meta={"m": 1.5})
    answer = do(lambda c: c.append(name, "x", own, None, tag="t", node="w"))
    items = do(lambda c: c.read(name, include_tags=True))

    assert (answer.created, list(answer.seqs)) == (True, [1, 2, 3])
    told = [(r.seq, r.tag, r.node, r.data, r.meta) for r in items]
    assert told == [
        (1, "t", "w", "x", None),
        (2, "own", "w", {"a": [1, None]}, {"m": 1.5}),
        (3, "t", "w", None, None),
    ]
    assert do(lambda c: c.read(name, node="w")) == []


def test_raw_json_round_trips(do: Any, name: str) -> None:
    """JSON sent as bytes is read as the same bytes. (§0.3)"""
    raw = b'{"x":1.0e5,"n":123456789012345678901234567890,"x":2,"s":"\\u00e9"}'
    do(lambda c: c.append(name, msgspec.Raw(raw)))

    (record,) = do(lambda c: c.read(name, record_type=RawRecord))

    assert bytes(record.data) == raw


def test_many(do: Any, name: str) -> None:
    """A long input arrives whole and in order, and a rerun adds nothing. (§0.8)"""
    many = {"batch_records": 700, "key_prefix": "run-1:"}
    first = do(lambda c: c.append_many(name, range(2500), **many))
    copy_of = do(lambda c: c.append_many(name, range(2500), **many))
    items = do(lambda c: c.read(name, page_records=999))

    assert (first.batches, first.deduped, copy_of.deduped) == (4, 0, 2500)
    assert [r.data for r in items] == list(range(2500))


def test_compressed_bodies(do: Any, name: str) -> None:
    """Compression both ways changes nothing but the bytes on the wire. (§0.3)"""
    do(lambda c: c.append(name, "x" * 5000), compress=True)

    (record,) = do(lambda c: c.read(name), compress=True)

    assert record.data == "x" * 5000


def test_losses_deletions_and_recreation(do: Any, name: str) -> None:
    """A loss is a tombstone, a deletion is silent, another instance is another tombstone. (§3.3)"""
    do(lambda c: c.put_topic(name, cap_records=5))
    do(lambda c: c.append(name, *range(9), tag="t.a"))
    assert seqs(do(lambda c: c.read(name))) == [(1, 4, "cap"), 5, 6, 7, 8, 9]

    assert do(lambda c: c.delete(name, before_seq=7, match=("tag", "Glob", "t*"))).deleted == 2
    assert seqs(do(lambda c: c.read(name, from_seq=4))) == [7, 8, 9]
    assert do(lambda c: c.purge(name, filter="t.*", keep=1)).purged == 2
    assert seqs(do(lambda c: c.read(name, from_seq=4))) == [9]

    epoch = do(lambda c: c.topic(name)).epoch
    assert do(lambda c: c.delete_topic(name)).deleted is True
    do(lambda c: c.append(name, *range(3)))
    assert seqs(do(lambda c: c.read(name, from_seq=1, epoch=epoch)))[0] == (1, 3, "recreated")


def test_configs(do: Any, name: str) -> None:
    """A put replaces the config, a change keeps the rest. (§1.1)"""
    do(lambda c: c.put_topic(name, cap_records=5, durability="fsync"))
    changed = do(lambda c: c.configure_topic(name, ttl_ms=99)).config
    assert (changed.ttl_ms, changed.cap_records, changed.durability) == (99, 5, "fsync")

    changed = do(lambda c: c.configure_topic(name, durable=False)).config
    assert (changed.cap_records, changed.durability, changed.durable) == (5, "disk", False)

    replaced = do(lambda c: c.put_topic(name)).config
    assert (replaced.cap_records, replaced.ttl_ms) == (0, 0)


def test_lists(do: Any, name: str) -> None:
    """All pages of the list, by prefix. (§1.3)"""
    for n in range(3):
        do(lambda c, n=n: c.append(f"{name}:{n}", 1))

    listed = do(lambda c: c.topics(prefix=f"{name}:", page_size=1))

    assert [(t.topic, t.count) for t in listed] == [(f"{name}:{n}", 1) for n in range(3)]


@pytest.mark.parametrize(
    ("use", "kind"),
    [
        (lambda c, t: c.topic(t), TopicNotFound),
        (lambda c, t: c.append(t, 1, create=False), TopicNotFound),
        (lambda c, t: c.delete("full"), InvalidRequest),
        (lambda c, t: c.append("full", 2), TopicFull),
        (lambda c, t: c.append(t, *range(10_001)), BatchTooLarge),
        (lambda c, t: c.append(t, "x" * (1 << 20)), RecordTooLarge),
        (lambda c, t: c.append("a/b", 1), InvalidRequest),
        (lambda c, t: c.delete_topic("full", if_empty=True), Conflict),
    ],
)
def test_refusals(do: Any, name: str, use: Any, kind: type[Exception]) -> None:
    """Each refusal of the server is the class that a program would catch. (§0.6)"""
    do(lambda c: c.put_topic("full", cap_records=1, discard="reject"))
    do(lambda c: c.append("full", 1, idempotency_key="the-one"))

    with pytest.raises(kind):
        do(lambda c: use(c, name))


def test_probes(do: Any) -> None:
    """Health, readiness, metrics, limits, and who is connected: nobody waits here. (§8)"""
    assert do(lambda c: c.health()).status == "ok"
    assert do(lambda c: c.ready()).wal_replay_complete is True
    assert "topics_wal_frames_total" in do(lambda c: c.metrics())
    assert "# TYPE topics_topics gauge" in do(lambda c: c.metrics_text())
    assert do(lambda c: c.limits())["max_limit"] == 1000
    assert do(lambda c: c.clients(topic="nobody")) == []


def test_following_wakes_for_what_comes(server: Server, name: str) -> None:
    """A reader that waits at the head gets the next record without asking again. (§3)"""
    with Client(server.url) as client:
        client.append(name, 1)
        items = client.read(name, follow=True)
        first = next(items)
        appending = Thread(target=client.append, args=(name, 2))
        appending.start()
        second = next(items)
        appending.join()

    assert not isinstance(first, Tombstone)
    assert not isinstance(second, Tombstone)
    assert (first.data, second.data) == (1, 2)


def test_watching(do: Any, name: str) -> None:
    """A watch that ends anywhere is gone on with by its cursor, to the deletion of its topics. (§7)"""
    other = f"{name}:other"
    do(lambda c: c.put_topic(name, cap_records=40))
    do(lambda c: c.append(name, *range(45), tag="t"))
    do(lambda c: c.append(other, *range(5), tag="u"))
    first = Follow({name: 0, other: {"from_seq": 3}}, limit=7, stop=20)
    do(first)
    rest = Follow(name, other, limit=9, cursor=first.cursors[-1], stop=23)
    do(rest)
    do(lambda c: c.delete_topic(name))
    do(lambda c: c.delete_topic(other))
    end = Follow(name, other, lenient=True)
    do(end)

    got = first.got + rest.got
    assert [item for item in got if item.startswith(f"{other} ")] == [f"{other} 4", f"{other} 5"]
    assert [item for item in got if item.startswith(f"{name} ")] == [
        f"{name} lost 1-5 from_seq_too_old",
        *(f"{name} {seq}" for seq in range(6, 46)),
    ]
    assert end.got == []


def test_a_watch_sees_what_comes(do: Any, server: Server, name: str) -> None:
    """What is appended, and the deletion, reach a watch that has begun at the head. (§7.5)"""
    with Client(server.url) as writer:
        writer.append(name, 0)

        def act(why: Any) -> None:
            raise AssertionError(why)

        class Acting(Follow):
            def _take(self, item: Any) -> bool:
                if self.got:
                    writer.delete_topic(name)
                else:
                    writer.append(name, 2)
                return super()._take(item) or len(self.got) > 3

        follow = Acting(name, from_seq=0, node="w", match="t*", connection=act)
        writer.append(name, 1, tag="t1")
        writer.append(name, 1, tag="t1", node="w")
        writer.append(name, 1, tag="t2")
        do(follow)

    assert follow.got == [f"{name} 2", f"{name} 4", f"{name} gone"]


def test_a_client_outlives_a_restart(tmp_path: Path) -> None:
    """A client whose server is killed and comes back goes on: it tries again until it is there."""
    server = Server(tmp_path)
    server.start()
    port = server.url.rpartition(":")[2]
    with Client(server.url) as client:
        client.append("jobs", 1)
        server.kill()
        starting = Thread(target=server.start, kwargs={"port": port})
        starting.start()
        answer = client.append("jobs", 2)
        starting.join()
    server.end()

    assert (answer.first_seq, answer.deduped) == (2, False)


class Places(Follow):
    """A watch of which `got` has the partition and the seq of each record."""

    def _take(self, item: Any) -> bool:
        stops = super()._take(item)
        found = item.item
        self.got[-1] = (item.partition, found.seq) if isinstance(found, Record) else found
        return stops


def test_watching_partitions(do: Any, name: str) -> None:
    """All of them, also those that come while nobody watches; a cursor is of each, within a frame, too. (§2.1, §7)"""
    do(lambda c: c.put_topic(name, partitions=2))
    for partition in (0, 1):
        do(lambda c, to=partition: c.append(name, *range(5), partition=to))
    first = Places(name, stop=7)
    do(first)
    do(lambda c: c.put_topic(name, partitions=4))
    do(lambda c: c.append(name, *range(3), partition=3))
    rest = Places(name, cursor=first.cursors[-1], tail=True, stop=6)
    do(rest)

    everything = [(0, seq) for seq in range(1, 6)] + [(1, seq) for seq in range(1, 6)]
    assert sorted(first.got + rest.got) == everything + [(3, seq) for seq in (1, 2, 3)]

    one = Places(name, partitions=[1], from_seq=3, stop=2)
    do(one)
    assert one.got == [(1, 4), (1, 5)]
    with pytest.raises(PartitionRequired):
        do(Places(name, from_seq=3))


def test_a_watch_goes_on_over_a_kill_and_more_partitions(tmp_path: Path) -> None:
    """A topic with one partition has three when the server is there again. (§2.1, §7.4)"""
    server = Server(tmp_path)
    server.start()
    port = server.url.rpartition(":")[2]
    with Client(server.url) as client, client.watch("jobs", tail=True, lenient=True) as none:
        assert list(none) == []
        client.append("jobs", 1)
        with client.watch("jobs") as watch:
            assert next(watch).partition == 0
            server.kill()
            server.start(port=port)
            client.put_topic("jobs", partitions=3)
            client.append("jobs", 2, partition=2)
            client.append("jobs", 3, partition=0)
            found = [next(watch), next(watch)]
    server.end()

    assert sorted((each.partition, each.item.data) for each in found) == [(0, 3), (2, 2)]  # type: ignore[union-attr]
