"""Records as text: verbatim, one line, columns that point into it, projections (§0.3, §0.4, §3)."""

import json
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from topics.protocol.model.render import project, render_batch
from topics.protocol.state.hot_run import HotRun

TS = 1_748_450_001_000
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(exclude_categories=["Cs"])),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text("ab$\n"), inner, max_size=3)
    ),
    max_leaves=8,
)
NAMES = st.none() | st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
RECORDS = st.lists(
    st.tuples(VALUES, NAMES, NAMES, st.none() | st.dictionaries(st.text("xy"), VALUES, max_size=2)),
    min_size=1,
    max_size=6,
)
LAYOUTS = st.sampled_from([None, 0, 1, "\t"])


def dumps(value: Any, indent: Any = None) -> bytes:
    return json.dumps(value, indent=indent, ensure_ascii=False).encode()


def one_line(text: bytes) -> bytes:
    return text.replace(b"\n", b" ").replace(b"\r", b" ")


@given(RECORDS, LAYOUTS, st.booleans(), st.integers(1, 2**53))
@example([([1], None, None, {"x": [2]}), ([], "n", "t", None)], 1, False, 7)
def test_any_records_render_as_they_are(
    records: list[Any], indent: Any, shared_node: bool, first_seq: int
) -> None:
    """The object of §0.4, data and meta byte for byte, on one line, sizes and columns right."""
    datas = [dumps(data, indent) for data, *_ in records]
    nodes = records[0][1] if shared_node else [node for _, node, *_ in records]
    tags = [tag for _, _, tag, _ in records]
    metas = [None if m is None else dumps(m, indent) for *_, m in records]
    batch = render_batch(datas, first_seq=first_seq, ts_ms=TS, nodes=nodes, tags=tags, metas=metas)

    assert b"\n" not in batch.text
    assert b"\r" not in batch.text
    run = HotRun(first_seq)
    run.append(batch)
    offset = 0
    for row, (data, own, _, meta) in enumerate(records):
        size = int(batch.size[row])
        text = batch.text[offset : offset + size]
        assert batch.text[offset + size : offset + size + 1] == b","
        expected = {"$seq": first_seq + row, "$ts": TS}
        node = records[0][1] if shared_node else own
        if node is not None:
            expected["$node"] = node
        shown = json.loads(text)
        assert list(shown) == [*expected, "data", *(["meta"] if meta is not None else [])]
        assert shown == expected | {"data": data} | ({"meta": meta} if meta is not None else {})
        raw = metas[row]
        tail = b"}" if raw is None else b',"meta":' + one_line(raw) + b"}"
        end = size - len(tail)
        assert text[end - int(batch.data_size[row]) : end] == one_line(datas[row])
        if raw is not None:
            assert text.endswith(b',"meta":' + one_line(raw) + b"}")
        assert bytes(run.read([(row, row + 1)])[0]) == text
        offset += size + 1
    assert offset == len(batch.text)


@given(RECORDS, st.booleans(), st.booleans(), st.booleans(), st.data())
def test_any_projection_cuts_the_same_text(
    records: list[Any], tags: bool, meta: bool, data: bool, draw: st.DataObject
) -> None:
    """With `$tag`, without meta, without data: the rest is untouched. (§3, §7.2)"""
    run = HotRun(1)
    batch = render_batch(
        [dumps(d) for d, *_ in records],
        first_seq=1,
        ts_ms=TS,
        nodes=[n for _, n, *_ in records],
        tags=[t for _, _, t, _ in records],
        metas=[None if m is None else dumps(m) for *_, m in records],
    )
    run.append(batch)
    lo = draw.draw(st.integers(0, len(records) - 1))
    hi = draw.draw(st.integers(lo + 1, len(records)))
    spans = [(lo, hi)]

    (text,) = project(run, spans, run.read(spans), tags=tags, meta=meta, data=data)

    expected = []
    for seq, (value, node, tag, headers) in enumerate(records[lo:hi], lo + 1):
        shown: dict[str, Any] = {"$seq": seq, "$ts": TS}
        shown |= {} if node is None else {"$node": node}
        shown |= {"$tag": tag} if tags and tag is not None else {}
        shown |= {"data": value} if data else {}
        shown |= {"meta": headers} if meta and headers is not None else {}
        expected.append(shown)
    assert json.loads(b"[" + bytes(text) + b"]") == expected
    assert [list(r) for r in json.loads(b"[" + bytes(text) + b"]")] == [list(r) for r in expected]


@given(VALUES, LAYOUTS, NAMES, NAMES)
@example([1], 1, None, None)
def test_the_short_way_of_one_record_is_the_long_way(
    value: Any, indent: Any, node: str | None, tag: str | None
) -> None:
    """One record without meta is rendered apart; to the same bytes and columns. (§2)"""
    data = dumps(value, indent)
    one = render_batch([data], first_seq=7, ts_ms=TS, nodes=node, tags=[tag])
    two = render_batch([data, b"0"], first_seq=7, ts_ms=TS, nodes=node, tags=[tag, None])

    assert two.text.startswith(one.text)
    assert (int(one.size[0]), int(one.data_size[0])) == (int(two.size[0]), int(two.data_size[0]))
    assert (one.nodes, one.ts_ms) == (two.nodes, two.ts_ms)


def test_a_row_without_text_is_no_record() -> None:
    """Neither in the short way nor in the long one; its insert is not another's."""
    run = HotRun(1)
    run.append(render_batch([b"1", b"2"], first_seq=1, ts_ms=TS))
    run.columns.size[0] = 0
    for data in (True, False):
        inserts = iter([b',"n":1', b',"n":2'])
        text = b"".join(map(bytes, run.read([(0, 2)]) or ()))
        [shown] = project(run, [(0, 2)], [text], tags=False, meta=True, data=data, inserts=inserts)
        assert [each["n"] for each in json.loads(b"[%b]" % shown)] == [2]
