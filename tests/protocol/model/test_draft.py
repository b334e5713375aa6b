"""Drafts: text that was rendered for other seqs and another time than it gets. (§2, §0.4)"""

from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from topics.protocol.model import draft as module
from topics.protocol.model.draft import Draft, draft_of
from topics.protocol.model.records import Batch
from topics.protocol.model.render import render_batch

from .test_render import LAYOUTS, RECORDS, TS, dumps

SEQS = st.integers(1, 30) | st.integers(90, 1005) | st.integers(1, 2**53)


def parts_of(records: list[Any], indent: Any, shared_node: bool) -> dict[str, Any]:
    metas = [None if m is None else dumps(m, indent) for *_, m in records]
    return {
        "datas": [dumps(data, indent) for data, *_ in records],
        "nodes": records[0][1] if shared_node else [node for _, node, *_ in records],
        "metas": None if metas.count(None) == len(metas) else metas,
    }


def drafted(parts: dict[str, Any], first_seq: int, ts_ms: int, pauses: list[int]) -> Draft:
    return draft_of(**parts, first_seq=first_seq, ts_ms=ts_ms, pause=lambda: pauses.append(1))


def assert_equal(batch: Batch | None, expected: Batch) -> None:
    assert batch is not None
    assert bytes(batch.text) == expected.text
    assert len(batch.text) == len(expected.text)
    assert (batch.ts_ms, batch.nodes, batch.tags) == (
        expected.ts_ms,
        expected.nodes,
        expected.tags,
    )
    for own, other in (
        (batch.size, expected.size),
        (batch.data_size, expected.data_size),
        (batch.meta_size, expected.meta_size),
    ):
        assert (own is None) == (other is None)
        assert own is None or (own.dtype == np.uint32 and own.tolist() == other.tolist())  # type: ignore[union-attr]


@given(RECORDS, LAYOUTS, st.booleans(), SEQS, SEQS, st.integers(0, 5000), st.integers(1, 90))
@example([([1], None, None, None)] * 6, 1, False, 11, 13, 1, 40)
def test_a_draft_becomes_what_is_rendered_at_once(
    records: list[Any],
    indent: Any,
    shared_node: bool,
    guess: int,
    first_seq: int,
    later_ms: int,
    piece_bytes: int,
) -> None:
    """However wrong the guess, and in however many pieces; or it says that the numbers have other
    lengths.  A draft that was refused is decided once more."""
    parts = parts_of(records, indent, shared_node)
    tags = [tag for _, _, tag, _ in records]
    pauses: list[int] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "PIECE_BYTES", piece_bytes)
        patch.setattr(module, "STEP", 2)
        draft = drafted(parts, guess, TS, pauses)
    for seq, ts_ms in ((first_seq, TS + later_ms), (guess, TS), (first_seq, TS + 2 * later_ms)):
        expected = render_batch(**parts, first_seq=seq, ts_ms=ts_ms, tags=tags)
        batch = draft.batch(seq, ts_ms, parts["nodes"], tags)
        lengths = [len(str(number)) for number in range(seq, seq + len(records))]
        guessed = [len(str(number)) for number in range(guess, guess + len(records))]
        if seq == guess or lengths == guessed == lengths[:1] * len(lengths):
            assert_equal(batch, expected)
        elif lengths != guessed:
            assert batch is None
    assert len(pauses) >= len(records) // 2


def test_a_draft_across_a_power_of_ten_keeps_its_place() -> None:
    """Seqs from 98 on have two digits, then three: the time stands elsewhere in each."""
    datas = [b"%d" % n for n in range(1200)]
    parts = {"datas": datas, "nodes": None, "metas": None}
    draft = drafted(parts, 98, TS, [])
    expected = render_batch(**parts, first_seq=98, ts_ms=TS + 1234)
    assert_equal(draft.batch(98, TS + 1234, None, None), expected)
    assert draft.batch(97, TS, None, None) is None
    assert draft.batch(10_000, TS, None, None) is None


def test_a_time_of_another_length_is_no_drafts() -> None:
    parts = {"datas": [b"1", b"2"], "nodes": None, "metas": None}
    assert drafted(parts, 1, 999, []).batch(1, 1000, None, None) is None
