"""The newest record of a tag, and of each tag with a prefix."""

from typing import Any

import pytest

from topics import Record
from topics.client import KeyRequired, RecordNotFound
from topics.testing import MemoryTopics

from .script import Script, error, ok, record


def test_the_newest_record_of_a_tag(face: Any) -> None:
    """One call, and one record. (§3.5)"""
    script = Script(ok({"records": [record(5, {"a": 1})], "epoch": "e"}))
    found = face(script).do(lambda c: c.latest("prices", "EUR/x", include_meta=False))
    assert (found.seq, found.data) == (5, {"a": 1})
    assert script.lines == ["GET /v0/topics/prices/latest?tag=EUR%2Fx&include_meta=false"]


def test_a_tag_that_no_record_has(face: Any) -> None:
    script = Script(error(404, "record_not_found"))
    with pytest.raises(RecordNotFound):
        face(script).do(lambda c: c.latest("prices", "EUR"))


def test_the_newest_of_each_tag_page_by_page(face: Any) -> None:
    """As long as there is a cursor. (§3.5)"""
    script = Script(
        ok({"records": [record(5, 1), record(7, 2)], "epoch": "e", "next_cursor": "c1"}),
        ok({"records": [record(6, 3)], "epoch": "e"}),
    )
    found = face(script).do(lambda c: c.latest_all("prices", "E", record_type=Record[int]))
    assert [each.seq for each in found] == [5, 7, 6]
    first = "GET /v0/topics/prices/latest?prefix=E&limit=1000"
    assert script.lines == [first, f"{first}&cursor=c1"]


def test_a_compacted_topic_in_memory() -> None:
    """`topics.testing` has all of it. (docs/testing.md)"""
    with MemoryTopics() as topics:
        client = topics.client
        client.put_topic("prices", compact=True)
        client.append("prices", 1, 2, tag="EUR")
        client.append("prices", 3, tag="USD")
        assert client.latest("prices", "EUR").data == 2
        assert {r.tag: r.data for r in client.latest_all("prices")} == {"EUR": 2, "USD": 3}
        with pytest.raises(KeyRequired):
            client.append("prices", 4)
        topics.advance(ms=60_000)
        assert client.topic("prices").count == 2
        told = client.metrics()
        assert told["topics_compaction_passes_total"] == 1
        assert told["topics_compaction_records_deleted_total"] == 1
