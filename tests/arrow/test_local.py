"""Topics of a data directory as record batches, read while an engine writes it."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from protocol.durable import Durable

from topics.arrow.columns import FIELDS, schema
from topics.arrow.local import LocalSource
from topics.arrow.loss import Gap
from topics.arrow.source import NoSuchTopic, NotReadable, Wanted
from topics.protocol.model.errors import Corrupt, Unusable
from topics.store.witness import Witness

from .writer import as_rows, opened, read_all, writer

ALL = schema(list(FIELDS))


def rows(engine: Durable, first: int = 1, last: int = 1 << 40, **more: Any) -> Any:
    wanted = Wanted(**{"columns": ALL, **more})
    with opened(engine) as source:
        return as_rows(source.read("t", first, last, wanted))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "data"


ODD = [
    {"data": {"a": "ü€𝄞", "b": [1.0, 1e5, 2**63, None]}},
    {"data": None},
    {"data": "", "tag": "x", "node": "n-1"},
    {"data": [[[]]], "meta": {"k": {"deep": "}"}}},
    {"data": {"$seq": 1, "meta": {"data": '},"meta":{'}}, "meta": {"m": ',"data":'}},
    {"data": "x" * 100_000, "tag": "täg"},
    {"data": 0, "node": "n-2", "meta": {}},
]


@pytest.mark.parametrize("is_sealed", [False, True])
def test_every_record_is_there_as_it_was_appended(path: Path, is_sealed: bool) -> None:
    """A scan has what paging from 0 has: text verbatim, strings, times, absent fields null. (§3)"""
    engine = writer(path)
    engine.put(ttl_ms=0)
    engine.append(*ODD)
    engine.append(*({"data": {"n": n}, "tag": f"t{n % 7}"} for n in range(300)))
    if is_sealed:
        engine.seal_all()

    assert rows(engine) == read_all(engine)


def test_data_is_verbatim(path: Path) -> None:
    """Numbers and spaces stay as they were sent: no parser was between. (§0.4)"""
    engine = writer(path)
    engine.append_raw(b'{"records":[{"data":{"a": 1.0,  "b":1e5, "c":18446744073709551616}}]}')

    with opened(engine) as source:
        [batch] = source.read("t", 1, 1, Wanted(schema(["data"])))
    assert batch.schema.names == ["data"]
    assert batch.column("data").to_pylist() == ['{"a": 1.0,  "b":1e5, "c":18446744073709551616}']


def _lives(seed: int) -> Iterator[tuple[random.Random, int]]:
    chance = random.Random(seed)
    for step in range(60):
        yield chance, step


@pytest.mark.parametrize("seed", range(8))
def test_a_scan_is_what_paging_is(path: Path, seed: int) -> None:
    """Whatever was appended, deleted, evicted, sealed or restarted before: same records. (§3, §5)"""
    engine = writer(path, segment_max_records=64)
    engine.put(cap_records=400 if seed % 2 else 0)
    for chance, _ in _lives(seed):
        match chance.randrange(6):
            case 0 | 1:
                many = chance.randrange(1, 90)
                tags = [f"tag-{chance.randrange(30)}" for _ in range(many)]
                engine.append(*({"data": [n, tag], "tag": tag} for n, tag in enumerate(tags)))
            case 2 if engine.state()["head_seq"]:
                engine.delete(match=["tag", "Eq", f"tag-{chance.randrange(30)}"])
            case 3:
                engine.delete(before_seq=max(engine.state()["earliest_seq"] + 5, 1))
            case 4:
                engine.seal_all()
            case 5:
                engine = engine.kill() if chance.random() < 0.5 else engine.stop()
    wanted = {"batch_rows": random.Random(seed).choice([1, 7, 65_536])}

    expected = read_all(engine)

    assert rows(engine, **wanted) == expected
    head = engine.state()["head_seq"]
    cuts = sorted(random.Random(seed).sample(range(1, head + 2), min(5, head)))
    parts = [
        row
        for first, last in zip([1, *cuts], [*(cut - 1 for cut in cuts), head], strict=True)
        for row in rows(engine, first=first, last=last, **wanted)
    ]
    assert [row for row in parts if "gap" not in row] == [r for r in expected if "gap" not in r]


def test_a_tag_is_found_by_its_column(path: Path) -> None:
    """By name or by prefix, in sealed and in unsealed records. (§5.1)"""
    engine = writer(path)
    for part in range(2):
        engine.append(*({"data": n, "tag": f"{'ab'[n % 2]}-{n % 3}"} for n in range(30)))
        if not part:
            engine.seal_all()
    every = read_all(engine)

    assert rows(engine, tag="a-0") == [r for r in every if r["$tag"] == "a-0"]
    assert rows(engine, tag_prefix="b-") == [r for r in every if r["$tag"][0] == "b"]
    assert rows(engine, tag="none") == []


def test_a_node_is_left_out(path: Path) -> None:
    """As a reader leaves out its own writes. (§3.4)"""
    engine = writer(path)
    engine.append({"data": 1, "node": "a"}, {"data": 2, "node": "b"}, {"data": 3})

    assert [r["data"] for r in rows(engine, exclude_nodes=("a", "z"))] == [2, 3]


def test_what_has_expired_is_judged_by_the_clock_given(path: Path) -> None:
    """A replay passes the same time and sees the same records; the gap has them. (§0.10, §3.3)"""
    engine = writer(path)
    engine.put(ttl_ms=1000)
    engine.append(1, 2)
    engine.now_ms += 600
    engine.append(3)
    now_ms = engine.now_ms

    with opened(engine) as source:
        assert [r["data"] for r in as_rows(source.read("t", 1, 9, Wanted(ALL, asof_ms=now_ms)))]
        later = Wanted(ALL, asof_ms=now_ms + 500)
        assert as_rows(source.read("t", 1, 9, later))[0] == {"gap": (1, 2, "ttl")}
        assert [r.get("data") for r in as_rows(source.read("t", 1, 9, later))] == [None, 3]
        assert source.gaps("t", 1, 3, asof_ms=now_ms) == []
        assert source.gaps("t", 1, 3, asof_ms=now_ms + 500) == [Gap("t", 1, 2, "ttl")]
        assert source.gaps("t", 2, 3, asof_ms=now_ms + 5000) == [Gap("t", 2, 3, "ttl")]


def test_eviction_is_a_gap_and_a_delete_is_none(path: Path) -> None:
    """Loss is told with its ends and its reason; what was asked to go is silent. (§3.3, §5)"""
    engine = writer(path)
    engine.put(cap_records=3)
    engine.append(1, 2, 3, {"data": 4, "tag": "gone"}, 5)
    engine.delete(match=["tag", "Eq", "gone"])

    with opened(engine) as source:
        bounds = source.bounds("t")
        assert (bounds.earliest_seq, bounds.head_seq) == (3, 5)
        assert source.gaps("t", 1, 5, asof_ms=engine.now_ms) == [Gap("t", 1, 2, "cap")]
        assert source.gaps("t", 2, 2, asof_ms=engine.now_ms) == [Gap("t", 2, 2, "cap")]
        assert source.gaps("t", 3, 5, asof_ms=engine.now_ms) == []
        assert source.topics() == ["t"]


def test_a_time_is_found(path: Path) -> None:
    """The first record at or after a time; behind the head where there is none. (§3.1)"""
    engine = writer(path)
    engine.append(1, 2)
    engine.now_ms += 1000
    engine.append(3)

    with opened(engine) as source:
        now_ms = engine.now_ms
        found = [
            source.seek("t", at) for at in (0, now_ms - 1000, now_ms - 999, now_ms, now_ms + 1)
        ]
    assert found == [1, 1, 3, 3, 4]


def test_an_ephemeral_topic_is_refused(path: Path) -> None:
    """Its records are in no file: an empty answer would be a wrong one."""
    engine = writer(path)
    engine.put(durability="ephemeral")
    engine.append(1)

    with opened(engine) as source, pytest.raises(NotReadable, match='topic "t" is ephemeral'):
        source.bounds("t")
    with opened(engine) as source, pytest.raises(NoSuchTopic, match='topic "u" does not exist'):
        source.bounds("u")


def test_a_topic_that_was_made_anew(path: Path) -> None:
    """A range of the instance before it is lost, whatever seqs the topic has by now. (§1.4)"""
    engine = writer(path)
    engine.append(1, 2, 3)
    epoch = engine.state()["epoch"]
    assert rows(engine, epoch=epoch) == read_all(engine)
    engine.drop()
    engine.append(*range(10))

    assert rows(engine, 2, 3, epoch=epoch) == [{"gap": (2, 3, "recreated")}]
    assert rows(engine, 3, 2, epoch=epoch) == []


def written(engine: Durable, **put: Any) -> None:
    """From here on what is appended is in the log, and synced when the test says so."""
    engine.put(**put)
    engine.store.idle()
    engine.auto = False


def heads(engine: Durable) -> tuple[int, int]:
    """What a source shows of the topic: what is durable, and what is visible."""
    found = []
    for consistency in ("durable", "visible"):
        with LocalSource(engine.files.path, consistency=consistency) as source:  # type: ignore[arg-type]
            head_seq = source.bounds("t").head_seq
            seqs = [row["$seq"] for row in as_rows(source.read("t", 1, head_seq, Wanted(ALL)))]
            assert seqs == list(range(1, head_seq + 1))
            found.append(head_seq)
    return found[0], found[1]


def test_what_is_written_is_visible_and_not_durable(path: Path) -> None:
    """By `visible` a source shows what the server shows; by default what no crash takes back. (§0.6)"""
    engine = writer(path)
    written(engine)
    engine.append(1, 2, 3)
    assert heads(engine) == (0, 0)
    engine.write()

    assert heads(engine) == (0, 3)
    assert engine.topic().published_seq == 3
    engine.sync()
    assert heads(engine) == (3, 3)


def test_class_fsync_is_visible_when_it_is_durable(path: Path) -> None:
    """No reader of such a topic sees what a power loss could take back, whatever it asks for. (§2.3)"""
    engine = writer(path)
    written(engine, durability="fsync")
    engine.append(1, 2, 3)
    engine.write()

    assert heads(engine) == (0, 0)
    assert engine.topic().published_seq == 0


def test_a_class_that_is_written_only_promises_nothing_yet(path: Path) -> None:
    """While a change of class waits for its sync, records wait as the stricter class has it."""
    engine = writer(path)
    written(engine, durability="fsync")
    engine.append(1)
    engine.put(durability="disk")
    engine.append(2)
    engine.write()

    assert heads(engine) == (0, 0)
    engine.sync()
    assert heads(engine) == (2, 2)


def test_no_seq_is_visible_before_it_is_reserved_durably(path: Path) -> None:
    """A power loss takes an unsynced reservation back, and its seqs would be other records'."""
    engine = writer(path)
    written(engine)
    reserved = engine.topic().reserved_durably
    assert reserved
    engine.append(*range(reserved - 5))
    engine.write()
    engine.append(*range(20))
    engine.write()

    assert engine.topic().head_seq == reserved + 15
    assert heads(engine) == (0, reserved)


def test_a_topic_is_visible_when_its_creation_is_durable(path: Path) -> None:
    """Another topic could have its name after a power loss, so a stream must not know it yet."""
    engine = writer(path)
    engine.append(0)
    written(engine)
    engine.append(1, name="new")
    engine.write()

    with LocalSource(path, consistency="visible") as source:
        assert source.topics() == ["t"]
        with pytest.raises(NoSuchTopic, match='"new"'):
            source.bounds("new")
        engine.sync()
        source.refresh()
        assert source.topics() == ["new", "t"]
        assert source.bounds("new").head_seq == 1


def test_a_server_that_never_rests(path: Path) -> None:
    """Each sync covers what a source applied some looks ago, and never all of it: the source shows
    that, and does not wait until nothing more is written."""
    engine = writer(path)
    written(engine, durability="fsync")
    witness = Witness(engine.files, bytes.fromhex(engine.store.instance_id))
    batches = []
    with LocalSource(path, consistency="visible") as source:
        for n in range(1, 40):
            engine.append(n)
            engine.write()
            source.refresh()
            position = source._store.position
            assert position is not None
            batches.append(position.batch)
            if n > 3:
                witness.note(batches[-3])
                source.refresh()
                assert source.bounds("t").head_seq == n - 2
    witness.close()


@pytest.mark.parametrize("seed", range(6))
def test_a_visible_source_follows_the_server(path: Path, seed: int) -> None:
    """A source that stays open shows what a fresh one shows, never less than what is durable, never more
    than there is; and all that the server shows once nothing waits."""
    engine = writer(path, segment_max_records=64)
    chance = random.Random(seed)
    written(engine)
    with LocalSource(path, consistency="visible") as source:
        for _ in range(60):
            match chance.randrange(5):
                case 0 | 1:
                    engine.append(*range(chance.randrange(1, 300)))
                case 2:
                    engine.delete(before_seq=max(engine.topic().head_seq - 50, 1))
                case 3:
                    engine.sync()
                case 4:
                    engine.put(durability=chance.choice(["disk", "fsync", "memory"]))
            engine.write()
            if chance.random() < 0.6:
                source.refresh()
                durable, visible = (
                    seen.bounds("t").head_seq
                    for seen in (LocalSource(path), LocalSource(path, consistency="visible"))
                )
                shown = source.bounds("t").head_seq
                assert durable <= shown <= visible <= engine.topic().head_seq
        engine.sync()
        source.refresh()
        assert source.bounds("t").head_seq == engine.topic().published_seq
        assert as_rows(source.read("t", 1, 1 << 40, Wanted(ALL))) == read_all(engine)


def test_damage_is_an_error_that_names_the_place(path: Path) -> None:
    """A flipped bit in sealed text fails the scan, with file and offset; nothing is skipped."""
    engine = writer(path)
    engine.append(*("x" * 1000 for _ in range(50)))
    engine.seal_all()
    [segment] = path.glob("*.seg")
    raw = bytearray(segment.read_bytes())
    raw[-5000] ^= 4
    segment.write_bytes(raw)

    with opened(engine) as source, pytest.raises(Corrupt, match=r"\.seg") as caught:
        list(source.read("t", 1, 50, Wanted(ALL)))
    assert caught.value.offset > 0


def test_a_column_that_is_not_there(path: Path) -> None:
    """A misspelt column is an error with the right names."""
    with pytest.raises(ValueError, match='no column "dat"; there are topic, seq'):
        schema(["dat"])


def test_the_types_are_those_that_spark_takes() -> None:
    """Strings with 32-bit offsets, microseconds in UTC, signed integers, every field nullable."""
    assert [field.type for field in ALL] == [
        pa.string(),
        pa.int64(),
        pa.timestamp("us", tz="UTC"),
        *[pa.string()] * 4,
    ]
    assert all(field.nullable for field in ALL)


def test_another_directory_at_the_same_path_is_followed(path: Path, tmp_path: Path) -> None:
    """A restored copy takes the place of the directory: an open source shows that one from then on,
    and does not go on with files that nobody writes any more."""
    engine = writer(path)
    engine.append(*range(10))
    engine.store.idle()
    other = writer(tmp_path / "other")
    other.append(*range(3))
    other.store.idle()

    with LocalSource(path) as source:
        before = source.bounds("t")
        path.rename(tmp_path / "old")
        (tmp_path / "other").rename(path)
        source.refresh()

        after = source.bounds("t")
        assert (before.head_seq, after.head_seq) == (10, 3)
        assert before.epoch != after.epoch
        assert as_rows(source.read("t", 1, 1 << 40, Wanted(ALL))) == read_all(other)


def test_a_directory_that_is_gone_is_said_each_time(path: Path, tmp_path: Path) -> None:
    """Also to a reader that asks again; and the source goes on when the directory is back."""
    engine = writer(path)
    engine.append(0)
    engine.store.idle()

    with LocalSource(path) as source:
        path.rename(tmp_path / "away")
        for _ in range(2):
            with pytest.raises(Unusable, match="No such file"):
                source.refresh()
        (tmp_path / "away").rename(path)
        source.refresh()
        assert source.bounds("t").head_seq == 1
