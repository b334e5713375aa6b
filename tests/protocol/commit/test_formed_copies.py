"""Copies of records that came by Kafka: a client of Kafka's gets key, value, headers and time back, byte for byte (121)."""

import random
from typing import Any

import pytest

from protocol.consumer import batches, fetch
from protocol.decide.test_batches import sent
from protocol.durable import Durable
from topics.protocol.batches.codecs import unpacked
from topics.protocol.batches.header import HEADER_BYTES, header_of
from topics.protocol.batches.records import fields, headers_of
from topics.protocol.model.commands import AppendBatch

from ..batches.builder import NOW_MS, Record, some_records


def said(engine: Durable, name: str) -> list[Any]:
    """Of each record of a topic: key, value, headers, time."""
    found, offset = [], 0
    while offset < engine.topic(name).published_seq:
        for batch in batches(fetch(engine, offset, name=name)):
            header = header_of(batch)
            data = bytes(unpacked(header.codec, memoryview(batch)[HEADER_BYTES:], 1 << 24))
            for each in fields(data, header.records, header.last_delta + 1):
                key, value = (
                    None if size < 0 else data[at : at + size]
                    for at, size in (
                        (each.key_at, each.key_size),
                        (each.value_at, each.value_size),
                    )
                )
                time_ms = header.first_ms + each.time_delta
                found.append((key, value, headers_of(data, each.headers_at, each.headers), time_ms))
            offset = header.base_offset + header.last_delta + 1
    return found


def append(engine: Durable, name: str, records: list[Record]) -> None:
    deltas = [delta for *_, delta in records]
    engine.ask(AppendBatch(name, sent(*records, max_ms=NOW_MS + max(deltas))))


@pytest.fixture(params=[0, 1, 2, 3])
def records(request: pytest.FixtureRequest) -> list[Record]:
    dice = random.Random(request.param)
    return some_records(dice, 40)


@pytest.mark.parametrize("is_sealed", [False, True])
@pytest.mark.parametrize("keeps", [True, False])
def test_routers_pass_on_all_that_a_client_gave(
    records: list[Record], keeps: bool, is_sealed: bool
) -> None:
    """Over two hops; whether the source is in memory or in a segment."""
    engine = Durable()
    for name in ("s", "d", "e"):
        engine.put(name)
    engine.route("one", "s", "d", preserve_node=keeps)
    engine.route("two", "d", "e", preserve_node=keeps)
    append(engine, "s", records)
    append(engine, "s", records[:1])
    if is_sealed:
        sealed_all(engine)
    engine.now_ms += 5
    engine.work_off()

    wanted = said(engine, "s")
    assert len(wanted) == len(records) + 1
    assert said(engine, "d") == said(engine, "e") == wanted
    sealed_all(engine)
    assert said(engine, "e") == wanted
    stopped = engine.stop()
    assert said(stopped, "e") == wanted


def sealed_all(engine: Durable) -> None:
    """All that is in memory is in a segment."""
    engine.sealing.press()
    engine.seal()
    engine.drive(engine.schedule._checkpoint())


def test_a_tag_that_a_router_drops_is_no_key() -> None:
    engine = Durable()
    engine.put("s")
    engine.put("d")
    engine.route("r", "s", "d", preserve_tag=False)
    append(engine, "s", [(b"k", b"1", [], 0), (b"\xff", b"2", [], 0)])
    engine.work_off()
    assert [key for key, *_ in said(engine, "d")] == [None, b"\xff"]


def test_dead_letters_keep_the_headers_and_are_stamped_in_meta(records: list[Record]) -> None:
    """What the server notes is `meta` for HTTP's readers, and no header for Kafka's."""
    engine = Durable()
    engine.put("q", type="queue", max_deliveries=1, dead_letter="d", lease_ms=1000)
    append(engine, "q", records)
    wanted = said(engine, "q")
    for _ in range(3):
        engine.claim(max=100)
        engine.now_ms += 10_000
        engine.work_off()

    assert engine.state("q")["count"] == 0
    assert said(engine, "d") == wanted
    shown = engine.diff(0, name="d", limit=100)["records"]
    assert all(each["meta"]["$dead_letter_from"] == "q" for each in shown)


@pytest.mark.parametrize(
    "value", [1.5, [1], {"a": 1}, {"$base64": "a"}, {"$base64": "/w=="}, None, "x"]
)
def test_a_stamped_copy_of_any_meta_can_be_fetched_and_appended_again(value: Any) -> None:
    """What HTTP gave beside a mark is no header of Kafka's, but its JSON text."""
    engine = Durable()
    for name in ("s", "d"):
        engine.put(name)
    engine.route("r", "s", "d", guarantee="exactly_once")
    engine.append({"data": 1, "time": 7, "meta": {"a": value}}, name="s")
    engine.work_off()

    assert said(engine, "d") == said(engine, "s")
    (read,) = engine.diff(0, name="d")["records"]
    again = {"data": 1, "time": 7, "headers": read["$headers"], "meta": read["meta"]}
    engine.append(again, name="e")
    assert said(engine, "e") == said(engine, "s")


def test_readers_see_keys_and_headers_where_they_ask_for_their_like() -> None:
    """`$key` needs `include_tags`, `$headers` `include_meta`; in the topic that Kafka wrote, and in a copy. (121)"""
    engine = Durable()
    engine.put("s")
    engine.put("d")
    many = [(b"h", b"1"), (b"h", b"2")]
    engine.route("r", "s", "d")
    append(engine, "s", [(b"\xff", b"1", many, 0), (b"k", b"two", [], 0), (None, b"3", many, 0)])
    engine.work_off()

    for name in ("s", "d"):
        for tags in (False, True):
            for meta in (False, True):
                first, second, third = engine.diff(
                    0, name=name, include_tags=tags, include_meta=meta
                )["records"]
                assert ("$key" in first, "$tag" in second) == (tags, tags)
                assert ("$headers" in first, "meta" in first) == (meta, meta)
                assert "$headers" in third if meta else "$headers" not in third
                assert (first["data"], second["data"], second["$form"]) == (1, "two", "text")


@pytest.mark.parametrize("keeps", [True, False])
def test_a_node_that_a_router_drops_is_no_header(keeps: bool) -> None:
    """Of a record that HTTP appended with what a client of Kafka's has."""
    engine = Durable()
    engine.put("s")
    engine.put("d")
    engine.route("r", "s", "d", preserve_node=keeps)
    engine.append({"data": "x", "form": "text", "node": 'a"b', "time": 7}, name="s")
    engine.append({"data": 1, "node": "n"}, {"data": "y", "form": "text", "node": "n"}, name="s")
    engine.work_off()
    shown = engine.diff(0, name="d")["records"]
    assert [each.get("$node") for each in shown] == (['a"b', "n", "n"] if keeps else [None] * 3)
    assert [each[1] for each in said(engine, "d")] == [b"x", b"1", b"y"]
    assert said(engine, "d")[0][3] == 7
