"""Topics of several partitions before the engine: placed, read, deleted, and answered (§2.1)."""

import asyncio
from collections.abc import Iterator

import httpx
import pytest

from topics.client import (
    AsyncClient,
    Client,
    NewRecord,
    PartitionNotFound,
    PartitionRequired,
    RawRecord,
    Record,
    WrittenPartition,
)
from topics.client.paging import RecordPages
from topics.testing import MemoryTopics


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        memory.client.put_topic("t", partitions=3)
        yield memory


@pytest.fixture
def client(memory: MemoryTopics) -> Client:
    return memory.client


def datas(client: Client, partition: int | None = None) -> list[object]:
    return [item.data for item in client.read("t", partition=partition) if isinstance(item, Record)]


def test_a_record_names_its_partition(client: Client) -> None:
    """Or its tag decides, so that one tag has one partition; bare values share an option. (§2)"""
    done = client.append("t", NewRecord("a", partition=2), NewRecord("b", partition=0))
    assert (list(done.seqs), done.count) == ([1, 1], 2)
    assert (done.first_seq, done.last_seq, done.head_seq) == (0, 0, 0)
    assert done.partitions == [
        WrittenPartition(partition=0, first_seq=1, last_seq=1),
        WrittenPartition(partition=2, first_seq=1, last_seq=1),
    ]
    one = client.append("t", "c", "d", partition=1)
    assert (one.first_seq, one.last_seq, list(one.seqs), one.count) == (1, 2, [1, 2], 2)
    assert [datas(client, n) for n in range(3)] == [["b"], ["c", "d"], ["a"]]

    [first] = client.append("t", 1, tag="eu").partitions
    [again] = client.append("t", 2, tag="eu").partitions
    assert first.partition == again.partition
    with pytest.raises(PartitionNotFound):
        client.append("t", 1, partition=3)


def test_a_retry_is_told_the_same_places(client: Client) -> None:
    """The key remembers where each record went. (§0.8)"""
    records = [NewRecord(n, partition=n % 3) for n in range(5)]
    first = client.append("t", *records, idempotency_key="k")
    second = client.append("t", *records, idempotency_key="k")
    assert second.deduped
    assert list(second.seqs) == list(first.seqs) == [1, 1, 1, 2, 2]
    assert second.partitions == first.partitions


def test_all_partitions_are_read_one_after_the_other(client: Client) -> None:
    """Without a request more where the topic has one; a cursor, and waiting, are of one. (§3)"""
    client.append("t", *(NewRecord(n, partition=n % 3) for n in range(7)))
    assert datas(client) == [0, 3, 6, 1, 4, 2, 5]
    assert [item.data for item in client.read("t", limit=4) if isinstance(item, Record)] == [
        *(0, 3, 6),
        1,
    ]
    assert len(list(client.read("t", page_records=1))) == 7
    assert len(list(client.read("t", from_ts=0))) == 7
    assert list(client.read("t", limit=0)) == []
    for more in ({"from_seq": 1}, {"follow": True}, {"wait_ms": 5}, {"epoch": "e"}):
        with pytest.raises(PartitionRequired):
            next(iter(client.read("t", **more)))  # type: ignore[arg-type, call-overload]
    with pytest.raises(PartitionNotFound):
        list(client.read("t", partition=3))


def test_pages_say_their_partition(client: Client) -> None:
    """Which an item of a type of the caller's own cannot."""
    client.append("t", *(NewRecord(n, partition=n % 3) for n in range(4)))
    pages = RecordPages("t", RawRecord)
    assert pages.partition is None
    found = [(pages.partition, item.seq) for item in client.session.items(pages)]  # type: ignore[union-attr]
    assert found == [(0, 1), (0, 2), (1, 1), (2, 1)]
    assert not pages.has_more_partitions


def test_pages_and_diffs_are_of_a_partition(client: Client) -> None:
    """(§3, §3.4)"""
    client.append("t", "a", partition=1)
    assert [record.data for record in client.diff("t", partition=1).records] == ["a"]
    page = client.page("t", partition=1)
    assert [record.data for record in page.records] == ["a"]
    assert client.page("t", partition=1, known=page) is page
    for ask in (client.diff, client.page):
        with pytest.raises(PartitionRequired):
            ask("t")


def test_the_state_tells_of_each(client: Client) -> None:
    """Counts are sums; a topic with one has none. (§1.2)"""
    client.append("t", *(NewRecord(n, partition=2) for n in range(2)))
    state = client.topic("t")
    assert state.count == 2
    assert [(each.partition, each.head_seq, each.count) for each in state.partitions] == [
        *((0, 0, 0), (1, 0, 0)),
        (2, 2, 2),
    ]
    client.put_topic("one")
    assert client.topic("one").partitions == []


def test_a_config_that_is_changed_keeps_its_partitions(client: Client) -> None:
    """(§1.1)"""
    assert client.configure_topic("t", ttl_ms=5000).config.partitions == 3
    assert client.configure_topic("t", partitions=4).config.partitions == 4


def test_deletes_and_purges_are_of_one_or_of_all(client: Client) -> None:
    """A bound by seq is one partition's. (§5)"""
    client.append("t", *(NewRecord(n, tag=f"k{n}", partition=n % 3) for n in range(9)))
    assert client.delete("t", before_seq=3, partition=1).deleted == 2
    with pytest.raises(PartitionRequired):
        client.delete("t", before_seq=3)
    assert client.delete("t", match=("tag", "Glob", "k*"), partition=0).deleted == 3
    assert client.purge("t", keep=1, partition=2).purged == 2
    with pytest.raises(PartitionRequired):
        client.purge("t", keep=1)
    assert client.purge("t").purged == 2


def test_a_producer_and_batches_go_on(client: Client) -> None:
    """Each record has its own seq; a sum over several partitions has no span of seqs. (§2)"""
    with client.producer("t") as producer:
        sent = [producer.send(n, partition=n % 3) for n in range(6)]
    assert [each.result() for each in sent] == [1, 1, 1, 2, 2, 2]
    total = client.append_many("t", (NewRecord(n, tag=f"k{n}") for n in range(9)), batch_records=3)
    assert (total.records, total.batches, total.first_seq, total.last_seq) == (9, 3, 0, 0)
    client.put_topic("one")
    total = client.append_many("one", range(3), batch_records=1)
    assert (total.first_seq, total.last_seq) == (1, 3)


def test_the_asynchronous_client_does_the_same(memory: MemoryTopics) -> None:
    async def use() -> None:
        transport = httpx.ASGITransport(app=memory.app)
        async with AsyncClient(memory.client.session.target.url, transport=transport) as client:
            async with client.producer("t") as producer:
                sent = [await producer.send(n, partition=n % 3) for n in range(6)]
            assert [await each for each in sent] == [1, 1, 1, 2, 2, 2]
            found = [item.data async for item in client.read("t") if isinstance(item, Record)]
            assert found == [0, 3, 1, 4, 2, 5]
            assert (await client.delete("t", before_seq=2, partition=0)).deleted == 1
            assert (await client.purge("t", partition=1)).purged == 2

    asyncio.run(use())
