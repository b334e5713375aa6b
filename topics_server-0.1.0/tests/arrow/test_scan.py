"""Scans: which seqs they go over, and what is done about loss."""

import re
import warnings
from pathlib import Path
from typing import Any

import pytest
from protocol.durable import Durable

import topics.arrow
from topics.arrow import DataLoss, DataLossWarning, Gap, NoSuchTopic
from topics.arrow.local import LocalSource
from topics.arrow.scan import Range, resolve

from .writer import opened, writer


@pytest.fixture
def engine(tmp_path: Path) -> Durable:
    """A topic of seqs 4 to 9 behind an eviction, seq 6 deleted; and two small ones."""
    engine = writer(tmp_path / "data")
    engine.put(cap_records=5)
    tags = {6: "gone"}
    engine.append(*({"data": n, "tag": tags.get(n, "t")} for n in range(1, 9)))
    engine.delete(match=["tag", "Eq", "gone"])
    engine.append("a", name="a.one")
    engine.append("b", name="a.two")
    engine.store.idle()
    return engine


def datas(found: Any) -> list[str]:
    return [row["data"] for batch in found for row in batch.to_pylist()]


def scan(engine: Durable, *topic: str, **more: Any) -> list[str]:
    return datas(topics.arrow.scan(engine.files.path, *topic, **more))


def test_the_lost_beginning_is_a_loss(engine: Durable) -> None:
    """`earliest` is seq 1: a scan that would leave something out says so, and how to go on. (§3.3)"""
    with pytest.raises(DataLoss, match=r'"t" lost 3 seqs, 1..3, reason cap; to go on') as caught:
        topics.arrow.scan(engine.files.path, "t")
    assert caught.value.gaps == (Gap("t", 1, 3, "cap"),)

    assert scan(engine, "t", start="earliest-retained") == ["4", "5", "7", "8"]
    with pytest.warns(DataLossWarning, match=re.escape("1..3")):
        assert scan(engine, "t", loss="warn") == ["4", "5", "7", "8"]


def test_loss_is_a_row_where_it_is_asked_for(engine: Durable) -> None:
    """One tombstone for a gap, none for what was deleted. (§3.3, §5)"""
    rows = [
        r for b in topics.arrow.scan(engine.files.path, "t", loss="rows") for r in b.to_pylist()
    ]

    assert [(row["_kind"], row["seq"]) for row in rows] == [
        ("tombstone", 3),
        *(("record", seq) for seq in (4, 5, 7, 8)),
    ]
    assert rows[0]["_gap"] == {"from": 1, "to": 3, "reason": "cap", "missed": 3}
    assert rows[0]["data"] is None
    assert rows[1]["_gap"] is None


def test_a_scan_has_ends(engine: Durable) -> None:
    """The first seq is read, the end is not, as Kafka's ending offset is not."""
    with opened(engine) as source:
        epoch = source.bounds("t").epoch
        assert resolve(source, "t", 5, 8) == Range("t", epoch, 5, 7)
        assert resolve(source, "t", "latest", "latest") == Range("t", epoch, 9, 8)
        assert resolve(source, "t", 5, 10**9) == Range("t", epoch, 5, 8)
        for start, end in [(0, 8), ("latst", 8), (1, "earliest"), (1, 0)]:
            with pytest.raises(ValueError, match=r"neither a seq from 1 on nor"):
                resolve(source, "t", start, end)
    assert scan(engine, "t", start=5, end=8) == ["5", "7"]
    assert scan(engine, "t", start={"t": 7}) == ["7", "8"]
    assert scan(engine, "t", start="latest") == []


def test_topics_are_named_or_match(engine: Durable) -> None:
    """A name that is not there is an error; a pattern takes what there is."""
    assert scan(engine, pattern=r"a\..*") == ['"a"', '"b"']
    assert scan(engine, pattern="none") == []
    assert datas(topics.arrow.scan(engine.files.path, ["a.two", "a.one"])) == ['"b"', '"a"']
    with pytest.raises(NoSuchTopic, match='topic "tt" does not exist'):
        scan(engine, "tt")
    with pytest.raises(ValueError, match="give topics, or a pattern"):
        scan(engine)
    with pytest.raises(ValueError, match=r"pattern '[(]':"):
        scan(engine, pattern="(")


def test_a_source_stays_open_for_its_owner(engine: Durable) -> None:
    """What a caller opened the caller closes; it can be followed."""
    with opened(engine) as source:
        assert datas(topics.arrow.scan(source, "a.one")) == ['"a"']
        engine.append("c", name="a.one")
        engine.store.idle()
        assert datas(topics.arrow.scan(source, "a.one")) == ['"a"']
        source.refresh()
        assert datas(topics.arrow.scan(source, "a.one")) == ['"a"', '"c"']


def test_a_reader_far_behind_finds_its_way(engine: Durable) -> None:
    """The log that a source followed may be gone by the time it looks again."""
    with LocalSource(engine.files.path) as source:
        for round_ in range(6):
            engine.append(f"more {round_}", name="a.one")
            engine.seal_all()
            engine.finish_checkpoint(engine.begin_checkpoint())
        engine.store.idle()
        source.refresh()
        assert len(datas(topics.arrow.scan(source, "a.one"))) == 7


def test_other_libraries_take_it(engine: Durable) -> None:
    """A reader is a `pyarrow.RecordBatchReader`: a table, columns as asked."""
    with warnings.catch_warnings():
        table = topics.arrow.reader(
            engine.files.path, "t", columns=["data", "seq"], start="earliest-retained"
        ).read_all()
    assert table.to_pydict() == {"data": ["4", "5", "7", "8"], "seq": [4, 5, 7, 8]}


def test_a_wrong_argument_is_told_at_once(engine: Durable) -> None:
    """Before anything is read."""
    for wrong in ({"loss": "skip"}, {"columns": ["x"]}, {"tag": "a", "tag_prefix": "b"}):
        with pytest.raises(ValueError):
            topics.arrow.scan(engine.files.path, "t", **wrong)
    with pytest.raises(ValueError, match="batch_rows 0 is below 1"):
        topics.arrow.scan(engine.files.path, "t", batch_rows=0)


def test_what_is_only_written_is_asked_for(engine: Durable) -> None:
    """`visible` has it, the default does not, and a source that is open has its own answer."""
    engine.auto = False
    engine.append("new", name="a.one")
    engine.write()

    assert scan(engine, "a.one") == ['"a"']
    assert scan(engine, "a.one", consistency="visible") == ['"a"', '"new"']
    with pytest.raises(ValueError, match="'quick' is none of durable, visible"):
        scan(engine, "a.one", consistency="quick")
    with opened(engine) as source, pytest.raises(ValueError, match="this one is open"):
        topics.arrow.scan(source, "a.one", consistency="visible")
