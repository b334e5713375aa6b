"""Reads that take several requests: a topic, and lists."""

from typing import Any

import httpx
import pytest

from topics.client import (
    Client,
    Record,
    Tombstone,
    TopicNotFound,
    paging,
)
from topics.client.models import (
    Group,
    GroupOffset,
    GroupsPage,
    GroupSummary,
    RoutersPage,
    RouterSummary,
    SchedulesPage,
    ScheduleSummary,
    TopicsPage,
    TopicSummary,
)

from .script import URL, Script, error, ok, page, record


def cursors(script: Script) -> list[tuple[int, int]]:
    return [(body["from_seq"], body["limit"]) for body in script.bodies]


def seqs(items: list[Any]) -> list[int]:
    return [item.seq for item in items if isinstance(item, Record)]


def test_reading_to_the_head(face: Any) -> None:
    """Each page begins where the last one ended, until the head. (§3)"""
    script = Script(
        page(record(1), record(2), head_seq=5, cursor=2),
        page(head_seq=5, cursor=4),
        page(record(5), head_seq=5, cursor=5),
    )

    items = face(script).do(lambda c: c.read("jobs"))

    assert seqs(items) == [1, 2, 5]
    assert cursors(script) == [(0, 1000), (2, 1000), (4, 1000)]


def test_a_busy_writer_does_not_keep_a_read_going(face: Any) -> None:
    """Without follow, a read ends at the head as its first page saw it."""
    script = Script(
        page(record(1), head_seq=2, cursor=1),
        page(record(2), record(3), head_seq=9, cursor=3),
    )

    assert seqs(face(script).do(lambda c: c.read("jobs"))) == [1, 2, 3]


def test_tombstones_stand_where_the_loss_is(face: Any) -> None:
    """A loss is an item of its own, before the records that follow it. (§3.3)"""
    gap = {"gap_from": 1, "gap_to": 4, "reason": "ttl", "missed_estimate": 4}
    script = Script(page(record(5), head_seq=5, cursor=5, tombstone=gap))

    lost, kept = face(script).do(lambda c: c.read("jobs"))

    assert lost == Tombstone(gap_from=1, gap_to=4, reason="ttl", missed_estimate=4)
    assert kept.seq == 5


def test_later_pages_name_the_epoch(face: Any) -> None:
    """The cursor belongs to an instance of the topic; a new instance must show. (§3.3)"""
    script = Script(
        page(record(1), head_seq=2, cursor=1, epoch="old"),
        page(record(1), head_seq=1, cursor=1, epoch="new"),
    )

    face(script).do(lambda c: c.read("jobs"))

    assert [body.get("epoch") for body in script.bodies] == [None, "old"]


def test_a_limit_is_of_records(face: Any) -> None:
    """A read ends after so many records and asks for no more than it needs."""
    script = Script(
        page(record(1), record(2), head_seq=9, cursor=2),
        page(record(4), head_seq=9, cursor=4),
    )

    items = face(script).do(lambda c: c.read("jobs", limit=3, page_records=2))

    assert seqs(items) == [1, 2, 4]
    assert cursors(script) == [(0, 2), (2, 1)]


def test_a_limit_of_nothing(face: Any) -> None:
    """`limit=0` reads nothing, and is told all the same of a topic that is missing; without a wait,
    and for one record, because 0 on the wire would mean the default. (§3)"""
    lost = {"gap_from": 1, "gap_to": 2, "reason": "cap"}
    script = Script(page(record(3), head_seq=9, cursor=3, tombstone=lost))

    assert face(script).do(lambda c: c.read("jobs", limit=0, follow=True)) == []
    assert (script.bodies[0]["limit"], script.bodies[0]["wait_ms"]) == (1, 0)

    missing = Script(error(404, "topic_not_found"))
    with pytest.raises(TopicNotFound):
        face(missing).do(lambda c: c.read("jobs", limit=0))


def test_following_waits_at_the_head(face: Any) -> None:
    """Following long-polls at the head and goes on; the topic's deletion ends it. (§3)"""
    script = Script(
        page(record(1), head_seq=1, cursor=1),
        page(head_seq=1, cursor=1),
        page(record(2), head_seq=2, cursor=2),
        error(404, "topic_not_found"),
    )
    got: list[int] = []

    with pytest.raises(TopicNotFound):
        face(script).do(lambda c: _collect(c, got))

    assert got == [1, 2]
    assert [(b["from_seq"], b["wait_ms"]) for b in script.bodies] == [
        (0, 30_000),
        (1, 30_000),
        (1, 30_000),
        (2, 30_000),
    ]


def _collect(client: Any, got: list[int]) -> Any:
    """Read with either face, noting what came before the end."""
    items = client.read("jobs", follow=True)
    if isinstance(client, Client):
        got.extend(item.seq for item in items)
        return None

    async def each() -> None:
        async for item in items:
            got.append(item.seq)

    return each()


def test_a_loop_that_is_left_asks_no_more() -> None:
    """Leaving the loop ends the requests."""
    script = Script(page(record(1), record(2), head_seq=9, cursor=2))

    with Client(URL, transport=httpx.MockTransport(script)) as client:
        first = next(client.read("jobs", follow=True))

    assert isinstance(first, Record)
    assert len(script.requests) == 1


def test_listing_all_pages(face: Any) -> None:
    """A list is read page by page by its opaque cursor. (§0.7)"""
    one = {"topic": "a", "head_seq": 3, "earliest_seq": 1, "count": 3, "bytes": 30}
    script = Script(
        ok({"topics": [one], "next_cursor": "x=="}), ok({"topics": [{**one, "topic": "b"}]})
    )

    topics = face(script).do(lambda c: c.topics(prefix="t:", page_size=1))

    assert [t.topic for t in topics] == ["a", "b"]
    assert script.lines == [
        "GET /v0/topics?page_size=1&prefix=t%3A",
        "GET /v0/topics?page_size=1&prefix=t%3A&cursor=x%3D%3D",
    ]


def test_a_list_has_no_item_whose_name_is_none() -> None:
    """No server of this API has such names, and programs put names into paths and shells. (§1)"""
    found = ["jobs", "a:b", "", "../x", "a b", "a\x1b[2J", "zz>x", "-rf", "a" * 256, "a\n"]
    pages = paging.topics(prefix="", page_size=10)
    listed = TopicsPage(
        items=[
            TopicSummary(topic=name, head_seq=0, earliest_seq=1, count=0, bytes=0) for name in found
        ]
    )

    assert [topic.topic for topic in pages.take(listed)] == ["jobs", "a:b"]

    routers = [("r>s", "a", "b"), ("r", "a>b", "b"), ("r", "a", "b\n"), ("r;s", "a", "b")]
    known = [RouterSummary(router=r, source=s, dest=d) for r, s, d in routers]
    page = paging.routers(prefix="", source=None, dest=None, page_size=10)

    assert [router.router for router in page.take(RoutersPage(items=known))] == ["r>s"]

    schedules = [("s", "a"), ("s>t", "a"), ("s", "a#1"), ("", "a")]
    kept = [ScheduleSummary(schedule=s, topic=t) for s, t in schedules]
    of_schedules = paging.schedules(prefix="", topic=None, page_size=10)
    assert [each.topic for each in of_schedules.take(SchedulesPage(items=kept))] == ["a"]

    groups = [GroupSummary(group=name) for name in ("a/b", "", "é" * 128, "\x1b[2J")]
    of_groups = paging.groups(prefix="", page_size=10)
    assert [each.group for each in of_groups.take(GroupsPage(items=groups))] == ["a/b", "\x1b[2J"]

    offsets = [GroupOffset(topic=name, seq=1) for name in ("a", "a#1", "..")]
    of_offsets = paging.group_offsets("g", page_size=10)
    assert [each.topic for each in of_offsets.take(Group(group="g", offsets=offsets))] == ["a"]
