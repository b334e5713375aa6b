"""What a copy is made of: the source's text as it stands, under a `$seq` and `$ts` of its own (§6.1)."""

import json
from typing import Any

import hypothesis.strategies as st
import numpy as np
import orjson
import pytest
from hypothesis import given, settings

from protocol.harness import Harness
from topics.protocol.commit import copies as copies_module
from topics.protocol.commit.copies import SHARED_BYTES, Copies, gather, stamped
from topics.protocol.model.ports import Extent
from topics.protocol.model.records import SharedText
from topics.protocol.state.selection import ReadQuery, select

MARK = {"_mark": b'{"n":1}'}


def topic_of(*records: bytes, sealed: bool = False, together: bool = True) -> Harness:
    """A topic of records given as JSON text, in a segment or in memory."""
    harness = Harness()
    if together:
        harness.append_raw(b'{"records":[%b]}' % b",".join(records))
    else:
        for record in records:
            harness.append_raw(b'{"records":[%b]}' % record)
    if sealed:
        harness.seal_all()
    return harness


def selected(harness: Harness, from_seq: int = 0) -> list[Extent]:
    return select(harness.topic(), ReadQuery(from_seq, 1000, 1 << 20)).extents


def copied(harness: Harness, **how: Any) -> Copies:
    extents = selected(harness)
    texts: list[Any] = [run.read(spans) for run, spans in extents]
    return gather(extents, texts, **how)


def texts_of(copies: Copies, first_seq: int = 41, ts_ms: int = 1234) -> list[bytes]:
    batch = copies.render(first_seq, ts_ms)
    text = bytes(batch.text)
    ends = np.cumsum(batch.size.astype(np.int64) + 1)
    whole = [text[end - size - 1 : end - 1] for end, size in zip(ends, batch.size, strict=True)]
    assert b",".join(whole) + b"," == text
    return whole


STORED = [
    # the record as it came                            what stands behind $seq and $ts
    (b'{"data":1}', b',"data":1}'),
    (b'{"data":null,"node":"n"}', b',"$node":"n","data":null}'),
    (b'{"data":{"a" : [1, 2]},"meta":{"k" : 1 }}', b',"data":{"a" : [1, 2]},"meta":{"k" : 1 }}'),
    (b'{"data":"\xc3\xa9\xf0\x9f\x98\x80","node":"\xc3\xa9"}',
     b',"$node":"\xc3\xa9","data":"\xc3\xa9\xf0\x9f\x98\x80"}'),
    (b'{"data":"\\u00e9\\/","tag":"t","meta":{"a":{}}}', b',"data":"\\u00e9\\/","meta":{"a":{}}}'),
    (b'{"data":1e400,"node":"a\\"b"}', b',"$node":"a\\"b","data":1e400}'),
]  # fmt: skip


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(("record", "tail"), STORED)
def test_a_copy_is_the_source_s_bytes(record: bytes, tail: bytes, sealed: bool) -> None:
    """Node, data and meta are neither parsed nor built again. (§6.1)"""
    harness = topic_of(record, sealed=sealed)

    assert texts_of(copied(harness)) == [b'{"$seq":41,"$ts":1234' + tail]


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("node", [False, True])
@pytest.mark.parametrize("stamp", [None, lambda seq: MARK])
def test_a_record_alone_is_cut_as_among_others(sealed: bool, node: bool, stamp: Any) -> None:
    """Each record by itself gives what all of them together give, column by column. (§6.1)"""
    harness = topic_of(*[record for record, _ in STORED], sealed=sealed)
    how = {"node": node, "tag": node, "stamp": stamp, "hop": True}
    ((run, spans),) = selected(harness)
    ((lo, hi),) = spans

    together = gather([Extent(run, spans)], [run.read(spans)], **how)
    alone = [gather([Extent(run, [(r, r + 1)])], [run.read([(r, r + 1)])], **how)
             for r in range(lo, hi)]  # fmt: skip

    assert [bytes(tail) for tail in together.tails] == [bytes(one.tails[0]) for one in alone]
    ends = together.ends or [b""] * len(alone)
    assert ends == [(one.ends or [b""])[0] for one in alone]
    assert [together.tail_bytes(i) for i in range(len(alone))] == [
        one.tail_bytes(0) for one in alone
    ]
    for column in ("seqs", "hops", "data_size", "meta_size"):
        whole = getattr(together, column)
        parts = np.concatenate([getattr(one, column) for one in alone])
        assert (whole.tolist(), whole.dtype) == (parts.tolist(), parts.dtype)
    for texts in ("nodes", "tags"):
        whole = getattr(together, texts) or [None] * len(alone)
        assert whole == [(getattr(one, texts) or [None])[0] for one in alone]


@pytest.mark.parametrize("sealed", [False, True])
def test_all_of_them_at_once(sealed: bool) -> None:
    """One piece of text, cut where each begins; sizes and columns tell each apart. (§6.1)"""
    harness = topic_of(*(record for record, _ in STORED), sealed=sealed)

    copies = copied(harness)

    found = texts_of(copies, first_seq=99)
    assert found == [
        b'{"$seq":%d,"$ts":1234%b' % (99 + i, tail) for i, (_, tail) in enumerate(STORED)
    ]
    assert copies.seqs.tolist() == [1, 2, 3, 4, 5, 6]
    assert copies.tags == [None, None, None, None, "t", None]
    assert copies.nodes == [None, "n", None, "é", None, 'a"b']
    batch = copies.render(1, 1)
    assert batch.src_seq is copies.seqs
    assert batch.data_size.tolist() == [1, 4, 14, 8, 10, 5]
    assert batch.meta_size is not None
    assert batch.meta_size.tolist() == [0, 0, 10, 0, 8, 0]


def test_what_is_not_kept_is_left_out() -> None:
    """`preserve_node` and `preserve_tag`. (§6.1)"""
    harness = topic_of(b'{"data":1,"node":"n","tag":"t","meta":{"k":1}}')

    copies = copied(harness, node=False, tag=False)

    assert texts_of(copies) == [b'{"$seq":41,"$ts":1234,"data":1,"meta":{"k":1}}']
    assert (copies.nodes, copies.tags) == (None, None)
    kept = copied(harness, node=True, tag=False)
    assert (kept.nodes, kept.tags) == (["n"], None)


def test_deleted_rows_split_the_text_and_nothing_else() -> None:
    """A copy is made of what is live, over several runs. (§5, §6)"""
    harness = topic_of(*(b'{"data":%d}' % i for i in range(1, 9)))
    harness.seal_all()
    harness.append(9, 10)
    harness.delete(before_seq=3)
    harness.append({"data": 11, "tag": "gone"}, 12)
    harness.delete(match="gone")

    copies = copied(harness)

    assert [json.loads(text)["data"] for text in texts_of(copies)] == [3, 4, 5, 6, 7, 8, 9, 10, 12]
    assert copies.seqs.tolist() == [3, 4, 5, 6, 7, 8, 9, 10, 12]


def test_digits_of_seq_and_time_are_no_part_of_the_copy() -> None:
    """Where the source's head of a record ends depends on how long its numbers are."""
    harness = topic_of(*(b'{"data":%d,"node":"n"}' % i for i in range(1, 1002)))

    found = texts_of(copied(harness), first_seq=5)

    assert found[8] == b'{"$seq":13,"$ts":1234,"$node":"n","data":9}'
    assert found[9] == b'{"$seq":14,"$ts":1234,"$node":"n","data":10}'
    assert found[999] == b'{"$seq":1004,"$ts":1234,"$node":"n","data":1000}'


def test_the_first_few() -> None:
    """A destination may take a part of a pass."""
    harness = topic_of(b'{"data":1,"tag":"a"}', b'{"data":2,"node":"n"}', b'{"data":3}')

    part = copied(harness).first(2)

    assert (len(part), part.seqs.tolist(), part.tags, part.nodes) == (
        2,
        [1, 2],
        ["a", None],
        [None, "n"],
    )
    assert [json.loads(text)["data"] for text in texts_of(part)] == [1, 2]


def test_hops_are_counted_in_rings_only() -> None:
    """A copy within a ring is one hop farther than what it was made of. (§6.1)"""
    harness = topic_of(b'{"data":1}', b'{"data":2}')
    run = harness.topic().runs[0]
    run.columns.hops[:] = [0, 3]

    assert copied(harness, hop=True).hops.tolist() == [1, 4]
    assert copied(harness).hops.tolist() == [0, 0]


METAS = [
    # meta                              with a mark
    (b"", b'{"_mark":{"n":1}}'),
    (b"{}", b'{"_mark":{"n":1}}'),
    (b"{ }", b'{"_mark":{"n":1}}'),
    (b'{"a":1}', b'{"a":1,"_mark":{"n":1}}'),
    (b'{"a":{}}', b'{"a":{},"_mark":{"n":1}}'),
    (b'{ "a" : 1 }', b'{ "a" : 1,"_mark":{"n":1}}'),
    (b'{"a":"{"}', b'{"a":"{","_mark":{"n":1}}'),
    (b'{"_mark":2,"b":3}', b'{"b":3,"_mark":{"n":1}}'),
    (b'{"_mark":2}', b'{"_mark":{"n":1}}'),
    (b'{"a":"\\"_mark\\""}', b'{"a":"\\"_mark\\"","_mark":{"n":1}}'),
    (b'{"a":{"_mark":1}}', b'{"a":{"_mark":1},"_mark":{"n":1}}'),
    (b'{"\\u005fmark":2,"b":1}', b'{"b":1,"_mark":{"n":1}}'),
    (b'{"\\u005f" : 2}', b'{"\\u005f" : 2,"_mark":{"n":1}}'),
]


@pytest.mark.parametrize(("meta", "found"), METAS)
def test_a_mark_in_meta(meta: bytes, found: bytes) -> None:
    """Behind the client's keys, in place of one of its name, however that is written. (§6.1)"""
    assert stamped(meta, MARK) == found


@pytest.mark.parametrize("sealed", [False, True])
def test_marks_of_a_pass(sealed: bool) -> None:
    """Each copy has its own, and `meta` is as large as it says. (§6.1)"""
    harness = topic_of(
        b'{"data":1}',
        b'{"data":2,"node":"n","meta":{"k":1}}',
        b'{"data":3,"meta":{ }}',
        sealed=sealed,
    )

    copies = copied(harness, stamp=lambda seq: {"_m": b"%d" % seq})

    assert texts_of(copies) == [
        b'{"$seq":41,"$ts":1234,"data":1,"meta":{"_m":1}}',
        b'{"$seq":42,"$ts":1234,"$node":"n","data":2,"meta":{"k":1,"_m":2}}',
        b'{"$seq":43,"$ts":1234,"data":3,"meta":{"_m":3}}',
    ]
    assert copies.meta_size.tolist() == [8, 14, 8]


def test_marks_without_nodes() -> None:
    """Both at once."""
    harness = topic_of(b'{"data":[1],"node":"n","meta":{"k":1}}')

    copies = copied(harness, node=False, stamp=lambda seq: {"_m": b"1"})

    assert texts_of(copies) == [b'{"$seq":41,"$ts":1234,"data":[1],"meta":{"k":1,"_m":1}}']


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)
RECORDS = st.fixed_dictionaries(
    {"data": JSON},
    optional={
        "node": st.text(min_size=1, max_size=6),
        "tag": st.text(max_size=6),
        "meta": st.dictionaries(st.text(max_size=5) | st.just("_m"), JSON, max_size=3),
    },
)


@settings(max_examples=150, deadline=None, derandomize=True, database=None)
@given(
    st.lists(RECORDS, min_size=1, max_size=8),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.booleans(),
    st.sets(st.integers(1, 8)),
)
def test_a_copy_says_what_the_record_said(
    records: list[dict[str, Any]],
    node: bool,
    tag: bool,
    mark: bool,
    sealed: bool,
    deleted: set[int],
) -> None:
    """Whatever was written, with the options as they are; JSON is the judge. (§6.1)"""
    harness = topic_of(*(orjson.dumps(r) for r in records), sealed=sealed)
    run = harness.topic().runs[0]
    gone = [seq - 1 for seq in sorted(deleted) if seq <= len(records)]
    run.delete(np.array(gone, np.int64))
    left = [(i + 1, r) for i, r in enumerate(records) if i not in gone]
    if not left:
        assert selected(harness) == []
        return
    marks = {"_m": b'"it"'}

    copies = copied(harness, node=node, tag=tag, stamp=(lambda seq: marks) if mark else None)

    assert copies.seqs.tolist() == [seq for seq, _ in left]
    for text, (i, (_, record)) in zip(texts_of(copies, first_seq=8), enumerate(left), strict=True):
        meta = record.get("meta") or {}
        expected = {"$seq": 8 + i, "$ts": 1234, "data": record["data"]}
        if node and "node" in record:
            expected["$node"] = record["node"]
        if mark:
            expected["meta"] = {**{k: v for k, v in meta.items() if k != "_m"}, "_m": "it"}
        elif "meta" in record:
            expected["meta"] = meta
        assert json.loads(text) == expected
    tags = copies.tags or [None] * len(left)
    assert tags == [record.get("tag") if tag else None for _, record in left]


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(
    st.lists(RECORDS, min_size=1, max_size=8),
    st.integers(1, 60),
    st.booleans(),
    st.booleans(),
    st.booleans(),
)
def test_shared_text_is_the_joined_text(
    records: list[dict[str, Any]], shared_bytes: int, node: bool, mark: bool, sealed: bool
) -> None:
    """From whatever size on text is shared: text, sizes and columns of a batch are the same. (§6.1)"""
    harness = topic_of(*(orjson.dumps(r) for r in records), sealed=sealed)
    how = {"node": node, "stamp": (lambda seq: {"_m": b"%d" % seq}) if mark else None}
    joined = copied(harness, **how).render(8, 1234)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(copies_module, "SHARED_BYTES", shared_bytes)

        parted = copied(harness, **how).render(8, 1234)

    assert bytes(parted.text) == joined.text
    assert len(parted.text) == len(joined.text)
    for column in ("size", "data_size", "meta_size"):
        one, other = getattr(parted, column), getattr(joined, column)
        assert (one is None) == (other is None)
        assert one is None or (one.tolist(), one.dtype) == (other.tolist(), other.dtype)
    assert (parted.nodes, parted.tags) == (joined.nodes, joined.tags)


LARGE = b'{"data":"' + b"x" * 300_000 + b'"}'


@pytest.mark.parametrize("stamp", [None, lambda seq: MARK])
def test_a_large_record_is_referred_to(stamp: Any) -> None:
    """A copy of it has a head and an end of its own, and the source's bytes between them. (§6.1)"""
    harness = topic_of(LARGE)
    [source] = harness.topic().runs[0].views([(0, 1)]) or []

    copies = copied(harness, stamp=stamp)

    for first_seq in (41, 4100):
        text = copies.render(first_seq, 1234).text
        assert isinstance(text, SharedText)
        assert isinstance(source[0], memoryview)
        _, middle, end = text.pieces
        assert isinstance(middle, memoryview)
        assert middle.obj is source[0].obj
        assert (
            bytes(end) == (b"}," if stamp is None else b',"meta":{"_mark":{"n":1}}},')[-len(end) :]
        )
    text_bytes = len(texts_of(copies)[0])
    assert text_bytes == len(b'{"$seq":41,"$ts":1234') + copies.tail_bytes(0)


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize("records", [2, 4])
def test_a_large_record_among_others_is_copied_once(sealed: bool, records: int) -> None:
    """Whoever refers to a part of some memory holds all of it, and a file is held by nobody: the copies
    of such a record share bytes of their own. (§11)"""
    harness = topic_of(*[b'{"data":"' + b"y" * 100_000 + b'"}'] * records, sealed=sealed)

    copies = copied(harness)

    assert all(type(tail) is bytes for tail in copies.tails)
    text = copies.render(41, 1234).text
    assert isinstance(text, SharedText)
    assert [id(piece) for piece in text.pieces[1::2]] == [id(tail) for tail in copies.tails]


def test_small_neighbours_of_a_large_record_are_joined() -> None:
    """Pieces are as many as large records, and what lies between them. (§6.1)"""
    small = b'{"data":1}'
    harness = topic_of(small, small, LARGE, small, small, LARGE, small, together=False)

    text = copied(harness).render(1, 1234).text

    assert isinstance(text, SharedText)
    assert [len(piece) >= SHARED_BYTES for piece in text.pieces] == [False, True] * 2 + [False]
    assert [json.loads(text)["$seq"] for text in texts_of(copied(harness), 1)] == list(range(1, 8))
