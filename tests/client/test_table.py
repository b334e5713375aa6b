"""A topic as values by key: before a script, and over the engine in memory."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from topics.client import Client, NewRecord, Record, TopicNotFound
from topics.client.table import Table
from topics.testing import MemoryTopics

from .script import Script, appended, error, ok, page, record

DAY_MS = 86_400_000
SEQS = {"head_seq": 7, "earliest_seq": 1, "count": 1, "bytes": 9}


@pytest.fixture
def client(memory_topics: MemoryTopics) -> Client:
    return memory_topics.client


def posted(script: Script) -> list[Any]:
    """Bodies of the requests that have any."""
    return [json.loads(request.content) for request in script.requests if request.content]


def steps(*uses: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Calls of a table one after the other, for both faces; what the last one gives."""

    def use(client: Any) -> Any:
        table = client.table("t")
        if isinstance(client, Client):
            return [each(table) for each in uses][-1]

        async def story() -> Any:
            return [await each(table) for each in uses][-1]

        return story()

    return use


# ---------------------------------------------------------------------- the calls


def test_a_value_is_put_and_found(face: Any) -> None:
    """It is the newest record of the tag, in a topic that is compacted where it is created. (§3.5)"""
    script = Script(appended(7, 7), ok({"records": [record(7, {"n": 1})], "epoch": "e"}))

    found = face(script).do(steps(lambda t: t.put("ada", {"n": 1}), lambda t: t.get("ada")))

    assert (found.seq, found.data) == (7, {"n": 1})
    assert script.lines[1] == "GET /v0/topics/t/latest?tag=ada"
    (sent,) = posted(script)
    assert sent["records"] == [{"data": {"n": 1}, "tag": "ada"}]
    assert sent["config"] == {"compact": True}


@pytest.mark.parametrize("code", ["record_not_found", "topic_not_found"])
def test_a_key_without_a_value(face: Any, code: str) -> None:
    """None, whether there is a table or not."""
    assert face(Script(error(404, code))).do(steps(lambda t: t.get("ada"))) is None


def test_a_table_that_is_missing_is_created_for_a_reader(face: Any) -> None:
    """By an append, which changes nothing of a topic that another process made meanwhile. (§2)"""
    done = ok({"topic": "t", "deleted": 1, **SEQS})
    script = Script(error(404, "topic_not_found"), appended(1, 1), done)

    assert face(script).do(steps(lambda t: t.create())) == 1

    assert script.lines == [
        "GET /v0/topics/t?touch=false",
        "POST /v0/topics/t?return_seqs=false",
        "POST /v0/topics/t/delete",
    ]


def test_what_is_put_under_a_key_is_waited_for(face: Any) -> None:
    """From the head that the values are known of, so that none is missed. (§3)"""
    state = ok({"topic": "t", "next_seq": 8, **SEQS, "config": {"type": "log"}})
    script = Script(
        state,
        error(404, "record_not_found"),
        page(record(8, "x", **{"$tag": "ada"}), head_seq=8, cursor=8),
    )
    held: list[Any] = []

    def first(table: Any) -> Any:
        held.append(table.changes(["ada"]))
        return held[0].next(1000)

    found = face(script).do(steps(first, lambda _t: held[0].next(60_000)))

    assert {key: one.data for key, one in found.items()} == {"ada": "x"}
    asked = posted(script)[-1]
    assert (asked["from_seq"], asked["match"], asked["wait_ms"]) == (
        7,
        ["tag", "Eq", "ada"],
        30_000,
    )


# ---------------------------------------------------------------------- the table


def test_only_the_newest_value_counts(client: Client) -> None:
    """Of each key alone."""
    table = client.table("t", decode=int)
    for key, value in (("a", 1), ("b", 2), ("a", 3)):
        table.put(key, value)

    assert [found.data for key in "ab" if (found := table.get(key))] == [3, 2]
    table.delete("a")
    table.delete("a")
    assert table.get("a") is None
    client.table("missing").delete("a")


def test_any_text_is_a_key(client: Client) -> None:
    """A key that no tag may be is stored under its digest. (§2)"""
    table = client.table("t")
    for key in ("", "ä" * 300, "a b/c"):
        table.put(key, key)

    assert [one.data for key in ("", "ä" * 300, "a b/c") if (one := table.get(key))] == [
        *("", "ä" * 300, "a b/c")
    ]


def test_a_deletion_mark_is_no_value(client: Client) -> None:
    """A record of `form: "null"`, as clients of Kafka write it. (docs/tables.md)"""
    table = client.table("t")
    table.put("a", 1)
    client.append("t", NewRecord(None, tag="a", form="null"))

    assert table.get("a") is None


def test_a_value_has_its_own_time(client: Client, memory_topics: MemoryTopics) -> None:
    """Whatever the topic keeps."""
    table = Table(client.session, "t", Record[Any], {}, lambda: memory_topics.now_ms)
    table.put("short", 1, ttl_ms=1000)
    table.put("long", 2)
    changes = table.changes(["short", "long"])
    assert changes.next(0).keys() == {"short", "long"}

    memory_topics.advance(ms=1000)

    assert table.get("short") is None
    assert table.get("long") is not None
    assert table.changes(["short", "long"]).next(0).keys() == {"long"}


def test_the_topic_keeps_values_for_as_long_as_the_longest(client: Client) -> None:
    """Its `ttl_ms` is raised and never lowered; one that keeps all stays so. (§0.10)"""

    def kept_ms(topic: str) -> int:
        return client.topic(topic).config.ttl_ms

    table = client.table("t")
    for ttl_ms, kept in ((1000, DAY_MS), (3 * DAY_MS, 3 * DAY_MS), (2 * DAY_MS, 3 * DAY_MS)):
        table.put("a", 1, ttl_ms=ttl_ms)
        assert kept_ms("t") == kept

    client.put_topic("all", ttl_ms=0)
    client.table("all").put("a", 1, ttl_ms=DAY_MS)
    assert kept_ms("all") == 0
    client.table("new", ttl_ms=0).put("a", 1, ttl_ms=DAY_MS)
    assert kept_ms("new") == 0
    assert client.topic("new").config.compact


def test_changes_of_many_keys(client: Client) -> None:
    """Keys that are asked for, until they are left out; others do not count."""
    table = client.table("t", decode=int)
    table.put("task-1", 1)
    changes = table.changes(["task-1", "task-2", "task-3"])
    assert {key: one.data for key, one in changes.next(0).items()} == {"task-1": 1}

    for key, value in (("task-2", 2), ("task-4", 4), ("other", 5), ("task-3", 3)):
        table.put(key, value)
    changes.leave_out("task-3")

    assert {key: one.data for key, one in changes.next(0).items()} == {"task-2": 2}
    assert changes.next(0) == {}


def test_a_table_that_was_made_again_is_followed(client: Client) -> None:
    """Its values are not missed, though its sequence numbers begin anew. (§3.4)"""
    table = client.table("t")
    table.put("other", 1)
    changes = table.changes(["a"])
    assert (changes.next(0), changes.next(0)) == ({}, {})

    client.delete_topic("t")
    table.put("a", 1)

    assert changes.next(0).keys() == {"a"}


def test_keys_that_have_nothing_in_common(client: Client) -> None:
    """Then all records are read."""
    table = client.table("t")
    changes = table.changes(["a", "b"])
    assert changes.next(0) == {}
    table.put("b", 1)

    assert changes.next(0).keys() == {"b"}


def test_the_record_that_created_a_table_is_gone(client: Client) -> None:
    """Nothing of it is read as a value."""
    client.table("t").create()

    assert list(client.latest_all("t")) == []


def test_a_misspelled_option_is_no_config(client: Client) -> None:
    with pytest.raises(TypeError, match="tll_ms"):
        client.table("t", tll_ms=1)  # type: ignore[call-arg]
    with pytest.raises(TopicNotFound):
        client.topic("t")
