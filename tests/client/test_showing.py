"""What a prompt and a notebook show of clients, pages and records: little, and nothing that acts."""

import asyncio
from typing import Any

import msgspec

from topics.client import (
    AsyncClient,
    Client,
    Diff,
    Job,
    JobInfo,
    RawRecord,
    Record,
    RecordHead,
    StablePage,
    Tombstone,
)
from topics.client.models import LatestPage
from topics.testing import MemoryTopics


def page(*records: Any, **more: Any) -> Diff[Any]:
    seqs = {"next_from_seq": 9, "head_seq": 9, "earliest_seq": 1, "caught_up": True}
    return Diff(records=list(records), **seqs, **more)


def test_clients() -> None:
    """The server, or the nodes, without passwords."""
    client = Client(["http://u:p@a.test/base", "https://b.test:1"])
    assert repr(client) == "<Client http://a.test, https://b.test:1>"
    client.close()
    assert repr(client) == "<Client http://a.test, https://b.test:1, closed>"
    assert repr(AsyncClient("http://a.test")) == "<AsyncClient http://a.test>"


def test_what_a_client_makes() -> None:
    """Its topics, and the name of a worker; of many topics the first."""
    with Client("http://a.test") as client:
        assert repr(client.watch("jobs", ["audit"])) == "<Watch of jobs, audit>"
        many = client.watch([f"t{n}" for n in range(1005)])
        assert repr(many) == "<Watch of t0, t1, t2, t3, t4 and 1,000 more>"
        many.close()
        assert repr(many).endswith(" more, closed>")
        assert repr(client.work("jobs", node="w\n1")) == "<Work of jobs by w\\n1>"
        producer = client.producer("jobs")
        assert repr(producer) == "<Producer of jobs>"
        producer.close()
        assert repr(producer) == "<Producer of jobs, closed>"


def test_what_an_async_client_makes() -> None:
    """Likewise."""

    async def shown() -> list[str]:
        async with AsyncClient("http://a.test") as client:
            return [
                repr(client.watch("jobs")),
                repr(client.work("jobs", node="w")),
                repr(client.producer("jobs")),
            ]

    assert asyncio.run(shown()) == [
        "<AsyncWatch of jobs>",
        "<AsyncWork of jobs by w>",
        "<AsyncProducer of jobs>",
    ]


def test_records() -> None:
    """Fields that say nothing are left out."""
    assert repr(Record(seq=1, ts_ms=2, data=3)) == "Record(seq=1, ts_ms=2, data=3)"
    raw = RawRecord(seq=1, ts_ms=2, data=msgspec.Raw(b"3"), tag="t")
    assert repr(raw).startswith("RawRecord(seq=1, ts_ms=2, tag='t', data=")
    assert repr(RecordHead(seq=1, ts_ms=2)) == "RecordHead(seq=1, ts_ms=2)"
    job = Job(seq=1, ts_ms=2, data=3, lease_id="l", deadline_ms=4, deliveries=1)
    assert "priority" not in repr(job)
    assert repr(JobInfo(seq=1, state="done", result=2)) == "JobInfo(seq=1, state='done', result=2)"


def test_pages() -> None:
    """How many records, which, and what was lost."""
    one, two = Record(seq=4, ts_ms=2, data=3), Record(seq=7, ts_ms=2, data=3)
    lost = Tombstone(gap_from=1, gap_to=3, reason="cap")
    assert repr(page(one, two)) == "<Diff: 2 records, seq 4 to 7>"
    assert repr(page(one, tombstone=lost)) == "<Diff: 1 record, seq 4 to 4, 1 to 3 lost (cap)>"
    assert repr(page()) == "<Diff: 0 records>"
    assert repr(StablePage(records=[one], next_from_seq=4)) == "<StablePage: 1 record, seq 4 to 4>"
    assert repr(LatestPage(records=[one], epoch="e")) == "<LatestPage: 1 record, seq 4 to 4>"


def test_a_table_of_a_page(memory_topics: MemoryTopics) -> None:
    """Columns that have something, the first records, each text escaped and cut."""
    client = memory_topics.client
    client.append("t", "<script>alert(1)</script>", "x" * 200, "\x1b[2J", tag="a&b")
    client.append("t", *range(30))

    shown = client.diff("t", include_tags=True)._repr_html_()

    assert shown.startswith("<p>Diff: 33 records, seq 1 to 33</p><table>")
    assert "<th>seq</th><th>ts_ms</th><th>tag</th><th>data</th>" in shown
    assert "<td>a&amp;b</td><td>&lt;script&gt;alert(1)&lt;/script&gt;</td>" in shown
    assert f"<td>{'x' * 120}…</td>" in shown
    assert "\x1b" not in shown
    assert (shown.count("<tr>"), shown.endswith("<p>13 more</p>")) == (21, True)


def test_a_table_of_what_is_not_decoded() -> None:
    """The JSON as it is stored; records without data have no column of it."""
    raw = RawRecord(seq=1, ts_ms=2, data=msgspec.Raw(b'{"a": 1}'))
    assert "<td>{&quot;a&quot;: 1}</td>" in page(raw)._repr_html_()
    assert "data" not in page(RecordHead(seq=1, ts_ms=2))._repr_html_()
    assert page()._repr_html_() == "<p>Diff: 0 records</p>"
    latest = LatestPage(records=[raw], epoch="e")
    assert latest._repr_html_().startswith("<p>LatestPage: 1 record")
    stable = StablePage(records=[raw], next_from_seq=1)
    assert stable._repr_html_().startswith("<p>StablePage: 1 record")
