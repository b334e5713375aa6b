"""Records that were stored as text, as Kafka's clients get them."""

import random
from collections.abc import Sequence
from typing import Any

import pytest

from topics.protocol.batches.from_text import batch_of_text
from topics.protocol.batches.header import HEADER_BYTES, checked_header, header_of
from topics.protocol.batches.records import fields, headers_of
from topics.protocol.batches.to_text import text_of
from topics.protocol.model.marks import Mark
from topics.protocol.model.records import FORMED, HAS_HEADERS, Batch
from topics.protocol.model.render import render_batch
from topics.protocol.state.hot_run import HotRun

from . import builder
from .builder import NOW_MS, batch, records_of, some_records


def run_of(*batches: Batch) -> HotRun:
    run = HotRun(41)
    for each in batches:
        run.append(each)
    return run


def written(count: int = 3, **given: Any) -> Batch:
    datas = given.pop("datas", [b'{"n": %d}' % nth for nth in range(count)])
    return render_batch(datas, first_seq=41, ts_ms=NOW_MS, **given)


def in_64_bits(number: int) -> int:
    """As clients of Kafka add: beyond the greatest number comes the least."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def given_back(run: HotRun, spans: Sequence[tuple[int, int]] | None = None) -> list[Any]:
    """(offset, key, value, headers, time) of each record of a run, out of a batch of them."""
    spans = spans or [(0, run.count)]
    texts = run.read(spans)
    assert texts is not None
    data = bytes(batch_of_text(run, spans, texts, leader_epoch=3))
    header = checked_header(data)
    assert (header.leader_epoch, header.codec) == (3, 0)
    assert header.last_delta == spans[-1][1] - spans[0][0] - 1
    raw = data[HEADER_BYTES:]
    found = [
        (
            header.base_offset + f.offset,
            None if f.key_size < 0 else raw[f.key_at : f.key_at + f.key_size],
            None if f.value_size < 0 else raw[f.value_at : f.value_at + f.value_size],
            headers_of(raw, f.headers_at, f.headers),
            in_64_bits(header.first_ms + f.time_delta),
        )
        for f in fields(raw, header.records, header.last_delta + 1)
    ]
    assert header.max_ms == max(each[-1] for each in found)
    return found


def test_a_record_is_its_data_its_tag_and_its_time() -> None:
    run = run_of(written(tags=["a.1", None, "a.1"]))

    assert given_back(run) == [
        (40, b"a.1", b'{"n": 0}', [], NOW_MS),
        (41, None, b'{"n": 1}', [], NOW_MS),
        (42, b"a.1", b'{"n": 2}', [], NOW_MS),
    ]


def test_what_is_left_out_is_a_gap() -> None:
    """Deleted records, and what stands in several batches and spans."""
    later = render_batch([b"3", b"4"], first_seq=44, ts_ms=NOW_MS + 9)
    run = run_of(written(), later)

    found = given_back(run, [(0, 1), (2, 4)])

    assert [(each[0], each[2], each[4]) for each in found] == [
        (40, b'{"n": 0}', NOW_MS),
        (42, b'{"n": 2}', NOW_MS),
        (43, b"3", NOW_MS + 9),
    ]


def test_meta_and_node_are_headers() -> None:
    """A string is its text, anything else its JSON text."""
    metas = [b'{"s": "Gr\\u00f6\\u00dfe", "n": 1.0e2, "o": {"a": [1]}, "z": null}', None, b"{}"]
    run = run_of(written(metas=metas, nodes=["w-1", "w-1", None]))

    assert [each[3] for each in given_back(run)] == [
        [
            (b"s", "Größe".encode()),
            (b"n", b"1.0e2"),
            (b"o", b'{"a": [1]}'),
            (b"z", b"null"),
            (b"topics.node", b"w-1"),
        ],
        [(b"topics.node", b"w-1")],
        [],
    ]


@pytest.mark.parametrize("seed", range(5))
def test_what_came_by_kafka_is_given_back_as_it_came(seed: int) -> None:
    """Key, value, headers and time of records of every kind, once they are text. (§3)"""
    sent = some_records(random.Random(seed), 60)
    data = batch(records_of(sent), len(sent))
    made, _ = text_of(
        header_of(data), data[HEADER_BYTES:], first_seq=41, ts_ms=NOW_MS, tag_bytes_max=256
    )

    found = given_back(run_of(made))

    expected = [
        (40 + nth, key, value, list(headers), NOW_MS + delta)
        for nth, (key, value, headers, delta) in enumerate(sent)
    ]
    assert found == expected


def test_a_header_of_any_bytes_comes_back() -> None:
    sent: list[builder.Record] = [
        (b"k", b"1", [(b"\xff", b"a"), (b"g", None)], 0),
        (b"k", b"1", [(b"g", b"\xfe"), (b"g", b"")], 0),
        (b"k", b"1", [(b"g", b'{"$base64"')], 0),
    ]
    data = batch(records_of(sent), len(sent))
    made, _ = text_of(header_of(data), data[61:], first_seq=41, ts_ms=NOW_MS, tag_bytes_max=9)

    assert [each[3] for each in given_back(run_of(made))] == [list(each[2]) for each in sent]


@pytest.mark.parametrize(
    "member",
    [b'{"$base64": "a"}', b'{"$base64":"\\u00e9"}', b'{"$base64":7}', b'{"a":1e999}', b"[1e999]"],
)
def test_a_member_of_meta_that_is_no_header_of_kafkas_is_its_text(member: bytes) -> None:
    """Whatever HTTP wrote can be fetched: a batch that cannot be made would stop every consumer before it."""
    marks = [Mark(b',"$form":"text"', FORMED)]
    run = run_of(written(datas=[b'"x"'], metas=[b'{"a":%b}' % member], marks=marks))

    assert [each[2:4] for each in given_back(run)] == [(b"x", [(b"a", member)])]


def test_a_stored_list_of_headers_may_hold_any_json() -> None:
    """As an older version made it of `meta`."""
    head = b',"$time":7,"$headers":[["a",1.5],["b",{"$base64":"a"}],["c",null]]'
    run = run_of(written(1, marks=[Mark(head, FORMED | HAS_HEADERS)]))

    assert given_back(run)[0][3] == [(b"a", b"1.5"), (b"b", b'{"$base64":"a"}'), (b"c", None)]


@pytest.mark.parametrize("time_ms", [-(1 << 63), -1, 0, (1 << 63) - 1])
def test_any_time_of_64_bits_comes_back(time_ms: int) -> None:
    run = run_of(written(1, marks=[Mark(b',"$time":%d' % time_ms, FORMED)]))

    assert [each[4] for each in given_back(run)] == [time_ms]


def test_a_row_without_text_is_no_record() -> None:
    """Its flag was lost, and what it was had been deleted before. (FORMAT.md)"""
    run = run_of(written(3))
    run.columns.size[1] = 0

    assert [each[0] for each in given_back(run)] == [40, 42]
