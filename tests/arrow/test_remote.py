"""Topics of a server as record batches: the same as those of its data directory."""

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from topics import Client, NewRecord, Tombstone, TopicsError
from topics.arrow.columns import FIELDS, schema
from topics.arrow.loss import Gap
from topics.arrow.remote import RemoteSource
from topics.arrow.source import NoSuchTopic, NotDurable, Wanted
from topics.client import Retry
from topics.testing import MemoryTopics

from .writer import as_rows, writer
from .writer import opened as local

ALL = schema(list(FIELDS))


@pytest.fixture
def memory() -> Iterator[MemoryTopics]:
    with MemoryTopics() as memory:
        yield memory


def opened(memory: MemoryTopics) -> RemoteSource:
    """One page at a time: what answers here has no threads."""
    return RemoteSource(memory.client, ahead=1)


def rows(memory: MemoryTopics, first: int = 1, last: int | None = None, **more: Any) -> Any:
    with opened(memory) as source:
        last = source.bounds("t").head_seq if last is None else last
        return as_rows(source.read("t", first, last, Wanted(**{"columns": ALL, **more})))


def paged(memory: MemoryTopics) -> list[dict[str, Any]]:
    """What a reader of all finds, in the form of `as_rows`."""
    found: list[dict[str, Any]] = []
    for item in memory.client.read("t", include_tags=True):
        if isinstance(item, Tombstone):
            found.append({"gap": (item.gap_from, item.gap_to, item.reason)})
            continue
        row = {"$seq": item.seq, "$ts": item.ts_ms, "$node": item.node, "$tag": item.tag}
        row |= {"data": item.data, "meta": item.meta}
        found.append({k: v for k, v in row.items() if v is not None or k == "data"})
    return found


@pytest.mark.parametrize("seed", range(6))
def test_a_scan_is_what_paging_is(memory: MemoryTopics, seed: int) -> None:
    """Over deleted stretches, evicted beginnings and many pages, in any size of batch. (§3)"""
    chance = random.Random(seed)
    client = memory.client
    client.put_topic("t", cap_records=4000 if seed % 2 else 0)
    for _ in range(8):
        tags = [f"t{chance.randrange(5)}" for _ in range(chance.randrange(1, 1500))]
        client.append_many("t", [NewRecord({"n": n}, tag=t) for n, t in enumerate(tags)], node="w")
        if chance.random() < 0.7:
            client.delete("t", match=("tag", "Eq", f"t{chance.randrange(5)}"))
    expected = paged(memory)

    for batch_rows in (7, 1000, 65_536):
        assert rows(memory, batch_rows=batch_rows) == expected
    t1 = [row for row in expected if row.get("$tag") == "t1" or "gap" in row]
    assert rows(memory, tag="t1") == t1
    assert rows(memory, tag_prefix="t") == expected
    assert [row for row in rows(memory, exclude_nodes=("w",)) if "gap" not in row] == []


@pytest.mark.parametrize("seed", range(6))
def test_how_far_a_number_of_bytes_reaches(memory: MemoryTopics, tmp_path: Path, seed: int) -> None:
    """By a server as by its directory: the text of what is live and wanted is added up."""
    chance = random.Random(seed)
    engine = writer(tmp_path, segment_max_records=300)
    for n in range(1500):
        tag, text = (
            chance.choice("abc"),
            "x" * chance.choice((1, 50, 20_000 if n % 100 == 0 else 9)),
        )
        meta = {"h": n} if n % 3 == 0 else {}
        memory.client.append("t", NewRecord(text, tag=tag, meta=meta))
        engine.append({"data": text, "tag": tag, "meta": meta})
    engine.seal_all()
    memory.client.delete("t", match=("tag", "Eq", "c"), before_seq=700)
    engine.delete(match="c", before_seq=700)
    wanted = Wanted(ALL, tag="a" if seed % 2 else None)
    with opened(memory) as remote, local(engine) as here:
        batches = [b for b in here.read("t", 1, 1500, wanted) if not isinstance(b, Gap)]
        live = [row for batch in batches for row in batch.to_pylist()]
        for _ in range(20):
            first, budget = (
                chance.randrange(1, 1500),
                chance.choice((0, 1, 100, 5000, 60_000, 10**7)),
            )
            used, end = 0, 1500
            for row in live:
                size = len(row["data"]) + len(row["meta"] or "")
                if row["seq"] >= first and used + size > budget:
                    end = row["seq"] - 1
                    break
                used += size if row["seq"] >= first else 0
            assert here.reach("t", first, 1500, wanted, budget) == (end, used)
            there = remote.reach("t", first, 1500, wanted, budget)
            assert there[0] == end
            assert there[1] == used or (end == 1500 and there[1] <= budget)


def test_bytes_are_verbatim(memory: MemoryTopics) -> None:
    """No parser is between the record and the column. (§0.4)"""
    text = '{"a": 1.0,  "b":1e5, "c":"\\u00fc"}'
    memory.client.append("t", msgspec.Raw(text.encode()), meta={"m": 1})

    with opened(memory) as source:
        [batch] = source.read("t", 1, 1, Wanted(schema(["data", "meta"])))
    assert batch.to_pylist() == [{"data": text, "meta": '{"m":1}'}]


def test_a_gap_is_known_before(memory: MemoryTopics) -> None:
    """A lost beginning is told with its ends within the range; a deleted one is none. (§3.3)"""
    memory.client.put_topic("t", cap_records=3)
    memory.client.append("t", *range(8))
    memory.client.delete("t", before_seq=7)

    with opened(memory) as source:
        assert source.gaps("t", 1, 8, asof_ms=0) == [Gap("t", 1, 6, "cap")]
        assert source.gaps("t", 2, 4, asof_ms=0) == [Gap("t", 2, 4, "cap")]
        assert source.gaps("t", 6, 8, asof_ms=0) == []
        assert source.seek("t", memory.now_ms + 1) == 9
        assert source.seek("t", memory.now_ms) == 7


def test_gaps_among_records_are_known_before(memory: MemoryTopics) -> None:
    """What a router's source had lost before it was copied, too; each as far as it goes. (§6)"""
    client = memory.client
    client.put_topic("t")
    client.put_topic("s", cap_records=5)
    client.put_router("r", source="s", dest="t")
    for first in (1, 101):
        client.append("t", *range(20))
        client.append("s", *range(first, first + 60))
    with opened(memory) as source:
        every = [gap for gap in source.read("t", 1, 160, Wanted(ALL)) if isinstance(gap, Gap)]
        assert len(every) == 2
        assert source.gaps("t", 1, 160, asof_ms=0) == every
        first, last = every[0].first_seq, every[0].last_seq
        assert source.gaps("t", 1, first - 1, asof_ms=0, until=160) == []
        assert source.gaps("t", 1, first, asof_ms=0, until=160) == every[:1]
        assert source.gaps("t", 1, first + 1, asof_ms=0) == [replace(every[0], last_seq=first + 1)]
        assert source.gaps("t", last, 160, asof_ms=0)[0].first_seq == last


def test_a_topic_that_was_made_anew(memory: MemoryTopics) -> None:
    """Its head is behind the range: the rest of the range is lost, and the scan ends. (§1.4)"""
    memory.client.append("t", *range(50))
    memory.client.delete_topic("t")
    memory.client.append("t", "new")

    assert rows(memory, 20, 50) == [{"gap": (20, 50, "recreated")}]


def test_a_server_that_is_a_moment_behind_is_waited_for(
    memory: MemoryTopics, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Behind a balancer another node of a cluster answers than the one that told the bounds. Nothing is left
    out; one that stays behind is an error, and no shorter table. (§5 of the cluster)"""
    memory.client.append("t", *range(50))
    waits: list[object] = []
    ask = RemoteSource._ask

    def asked(self: RemoteSource, name: str, what: dict[str, Any]) -> Any:
        if "wait_ms" in what:
            waits.append(what["wait_ms"])
            if len(waits) == 2:
                memory.client.append("t", *range(50, 60))
            what = {key: value for key, value in what.items() if key != "wait_ms"}
        return ask(self, name, what)

    monkeypatch.setattr(RemoteSource, "_ask", asked)

    assert [row["data"] for row in rows(memory, 1, 60)] == list(range(60))
    assert waits == [5000, 5000]
    with pytest.raises(TopicsError, match="does not have record 61") as behind:
        rows(memory, 1, 61)
    assert behind.value.code == "replica_behind"


def test_a_topic_that_is_made_anew_under_a_scan(memory: MemoryTopics) -> None:
    """The other instance has the same seqs by now: none of its records is taken for one of the first,
    and what was not read is lost. (§1.4)"""
    client = memory.client
    client.append_many("t", ["old"] * 5000)
    with opened(memory) as source:
        wanted = Wanted(schema(["seq", "data"]), batch_rows=1000, epoch=source.bounds("t").epoch)
        found = source.read("t", 1, 5000, wanted)
        read = [next(found)]
        client.delete_topic("t")
        client.append_many("t", ["new"] * 6000)
        read += found

    *batches, gap = read
    assert {text for batch in batches for text in batch.column("data").to_pylist()} == {'"old"'}
    through = sum(len(batch) for batch in batches)
    assert gap == Gap("t", through + 1, 5000, "recreated")


def test_a_topic_that_is_deleted_under_a_scan(memory: MemoryTopics) -> None:
    """What was not read yet is lost with it; a scan of any instance ends with an error."""
    memory.client.append_many("t", ["old"] * 5000)
    with opened(memory) as source:
        wanted = Wanted(schema(["seq"]), batch_rows=1000)
        of_epoch = replace(wanted, epoch=source.bounds("t").epoch)
        kept, any_instance = (source.read("t", 1, 5000, each) for each in (of_epoch, wanted))
        read = [next(kept)]
        next(any_instance)
        memory.client.delete_topic("t")
        read += kept
        with pytest.raises(NoSuchTopic):
            list(any_instance)

    *batches, gap = read
    assert gap == Gap("t", sum(map(len, batches)) + 1, 5000, "deleted")


def test_durable_records_of_a_server(memory: MemoryTopics) -> None:
    """Its readers see class `fsync` when it is durable; of another class no answer says so. (§2.3)"""
    memory.client.put_topic("safe", durability="fsync")
    memory.client.append("safe", 1)
    memory.client.append("t", 1)

    with RemoteSource(memory.client, ahead=1, consistency="durable") as source:
        assert source.bounds("safe").head_seq == 1
        with pytest.raises(NotDurable, match=r'"t" is of class disk: .*read it by path'):
            source.bounds("t")


def test_errors_say_what_is_wrong(memory: MemoryTopics) -> None:
    """A topic that is not there; a server that is not there."""
    with opened(memory) as source, pytest.raises(NoSuchTopic, match='topic "t" does not exist'):
        source.bounds("t")
    with opened(memory) as source, pytest.raises(NoSuchTopic):
        list(source.read("t", 1, 5, Wanted(ALL)))
    with (
        Client("http://127.0.0.1:9", retry=Retry(for_s=0)) as away,
        RemoteSource(away) as source,
        pytest.raises(TopicsError, match="127"),
    ):
        source.topics()


def test_the_floor_of_a_topic(memory: MemoryTopics) -> None:
    """What was deleted right behind an eviction is told from what was evicted. (§3.3)"""
    client = memory.client
    with opened(memory) as source:
        client.append("t", *range(12))
        assert source.evict_floor("t") <= 1
        client.put_topic("t", cap_records=4)
        client.append("t", 12)
        client.delete("t", before_seq=12)

        assert source.bounds("t").earliest_seq == 12
        assert source.evict_floor("t") == 10
        client.delete("t", before_seq=14)
        assert source.evict_floor("t") == 10


def test_another_process_can_read_the_same() -> None:
    """The address has what it needs: the URL, and the key if there is one."""
    with RemoteSource("http://127.0.0.1:4000", api_key="sesame") as source:
        assert source.address == ("http://127.0.0.1:4000", "sesame")
    with RemoteSource("http://me:pw@127.0.0.1:4000") as source:
        assert source.address == ("http://me:pw@127.0.0.1:4000", None)
