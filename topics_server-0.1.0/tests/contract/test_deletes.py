"""Deletes and purges: silent and at a point in time (§5, ADR-10)."""

from typing import Any

import pytest

from .api import Api, by, tagged


def left(answer: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in answer.items() if k != "performance"}


def test_deleting_below_a_seq(api: Api, name: str) -> None:
    """`$seq < before_seq`; the answer is the state after it. (§5)"""
    api.append(name, *"abcde")
    size = api.state(name)["bytes"] // 5

    told = left(api.delete(name, before_seq=4))

    assert told == {
        "topic": name, "deleted": 3, "earliest_seq": 4, "head_seq": 5, "count": 2, "bytes": 2 * size,
    }  # fmt: skip
    assert api.seqs(name) == [4, 5]


@pytest.mark.parametrize(
    ("before_seq", "kept"),
    [
        (0, [1, 2, 3]), (1, [1, 2, 3]), (2, [2, 3]), (3, [3]), (4, []), (5, []), (2**53 + 1, []),
        (2**63, []), (2**64 - 1, []),
    ],
)  # fmt: skip
def test_before_seq_at_its_ends(api: Api, name: str, before_seq: int, kept: list[int]) -> None:
    """`before_seq` is exclusive, and limited to the head when the request is applied. (§5)"""
    api.append(name, 1, 2, 3)

    assert api.delete(name, before_seq=before_seq)["deleted"] == 3 - len(kept)
    assert api.seqs(name) == kept
    assert api.append(name, 4)["seqs"] == [4]
    assert api.seqs(name) == [*kept, 4]


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ({"match": "x:1"}, [1, 5]),
        ({"match": ["tag", "Eq", "x:1"]}, [1, 5]),
        ({"match": "x:*"}, [1, 2, 5]),
        ({"match": ["tag", "Glob", "x:*"]}, [1, 2, 5]),
        ({"match": "*"}, [1, 2, 3, 5]),
        ({"match": "x:1", "before_seq": 5}, [1]),
        ({"match": "x:*", "before_seq": 2}, [1]),
        ({"match": "x:*", "before_seq": 0}, []),
        ({"match": "nothing"}, []),
        ({"match": "x"}, []),
        ({"before_seq": 3, "match": None}, [1, 2]),
    ],
)
def test_deleting_by_tag(api: Api, name: str, body: dict[str, Any], gone: list[int]) -> None:
    """`before_seq` and `match` together are ANDed; a record without a tag never matches. (§5)"""
    api.append(name, tagged("x:1"), tagged("x:2"), tagged("y"), {"data": 0}, tagged("x:1"))

    assert api.delete(name, **body)["deleted"] == len(gone)
    assert api.seqs(name) == [seq for seq in range(1, 6) if seq not in gone]


@pytest.mark.parametrize("body", [{}, {"before_seq": None}, {"match": None, "before_seq": None}])
def test_a_delete_needs_something_to_delete_by(api: Api, name: str, body: dict[str, Any]) -> None:
    """400; an empty body does not mean all records. (§5)"""
    api.append(name, 1)

    assert api.refused("POST", f"/v0/topics/{name}/delete", body) == (400, "invalid_request")
    assert api.seqs(name) == [1]


def test_a_delete_is_point_in_time(api: Api, name: str) -> None:
    """A record with the same tag that is appended after the delete stays. (§5)"""
    api.append(name, tagged("t"))
    assert api.delete(name, match="t")["deleted"] == 1
    api.append(name, tagged("t"))

    assert api.seqs(name) == [2]
    assert api.delete(name, match="t", before_seq=2)["deleted"] == 0


def test_a_delete_is_idempotent(api: Api, name: str) -> None:
    """Records that are already deleted are not counted again. (§5)"""
    api.append(name, *[tagged("t")] * 4)

    counts = [
        api.delete(name, **body)["deleted"]
        for body in ({"before_seq": 3}, {"before_seq": 3}, {"match": "t"}, {"match": "t"})
    ]
    assert counts == [2, 0, 2, 0]


def test_a_deleted_gap_is_silent(api: Api, name: str) -> None:
    """From any cursor: no tombstone, the cursor moves past it. (§3.2, §3.3, §5)"""
    api.append(name, *(tagged("odd" if i % 2 else "even") for i in range(1, 9)))
    api.delete(name, before_seq=3)
    api.delete(name, match="odd")

    for cursor in range(9):
        page = api.diff(name, cursor)
        assert page["tombstone"] is None
        assert [r["$seq"] for r in page["records"]] == [s for s in (4, 6, 8) if s > cursor]
        assert page["caught_up"] is True
    api.delete(name, match="even")
    page = api.diff(name, 0)
    assert (page["records"], page["tombstone"], page["next_from_seq"]) == ([], None, 8)
    assert page["earliest_seq"] == 9


def test_earliest_seq_is_the_first_live_record(api: Api, name: str) -> None:
    """It moves past deleted records, too, and never decreases. (§0.10, §1.2)"""
    api.append(name, *(tagged(f"t{i}") for i in range(1, 6)))
    earliest = []
    for tag in ("t2", "t3", "t1", "t5", "t4"):
        earliest.append(api.delete(name, match=tag)["earliest_seq"])

    assert earliest == [1, 1, 4, 4, 6]


def test_a_delete_reaches_every_reader_at_once(api: Api, name: str) -> None:
    """State, list, metrics and reads agree. (§5)"""
    api.append(name, *range(10))
    told = api.delete(name, before_seq=6)
    state = api.state(name)
    (item,) = api.ok("GET", f"/v0/topics?prefix={name}")["topics"]

    for key in ("earliest_seq", "head_seq", "count", "bytes"):
        assert told[key] == state[key] == item[key]


# Purge.

SUBJECTS = ["a", "a.b", "a.b.c", "a.c", "b.a", None, "a.b"]


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        ({}, [1, 2, 3, 4, 5, 6, 7]),
        ({"seq": None, "keep": None, "filter": None}, [1, 2, 3, 4, 5, 6, 7]),
        ({"seq": 0}, []),
        ({"seq": 1}, []),
        ({"seq": 4}, [1, 2, 3]),
        ({"seq": 8}, [1, 2, 3, 4, 5, 6, 7]),
        ({"seq": 2**64 - 1}, [1, 2, 3, 4, 5, 6, 7]),
        ({"keep": 0}, [1, 2, 3, 4, 5, 6, 7]),
        ({"keep": 1}, [1, 2, 3, 4, 5, 6]),
        ({"keep": 6}, [1]),
        ({"keep": 7}, []),
        ({"keep": 2**64 - 1}, []),
        ({"filter": "a"}, [1]),
        ({"filter": "a.b"}, [2, 7]),
        ({"filter": "a.*"}, [2, 4, 7]),
        ({"filter": "*.a"}, [5]),
        ({"filter": "*"}, [1]),
        ({"filter": "*.*"}, [2, 4, 5, 7]),
        ({"filter": "a.>"}, [2, 3, 4, 7]),
        ({"filter": ">"}, [1, 2, 3, 4, 5, 7]),
        ({"filter": "*.>"}, [2, 3, 4, 5, 7]),
        ({"filter": "a.*.c"}, [3]),
        ({"filter": "a.*.>"}, [3]),
        ({"filter": "nothing"}, []),
        ({"filter": "a.b", "seq": 7}, [2]),
        ({"filter": "a.b", "keep": 1}, [2]),
        ({"filter": "a.b", "keep": 0}, [2, 7]),
        ({"filter": "a.b", "keep": 2}, []),
        ({"filter": ">", "keep": 3}, [1, 2, 3]),
        ({"filter": ">", "seq": 0}, []),
    ],
)
def test_what_a_purge_takes(api: Api, name: str, body: dict[str, Any], gone: list[int]) -> None:
    """`seq` is exclusive, `keep` the newest that match, `filter` a subject; without a field: all.
    (ADR-10)"""
    api.append(name, *({"data": s} | ({"tag": s} if s else {}) for s in SUBJECTS))

    told = api.purge(name, **body)
    state = api.state(name)

    assert left(told) == {
        "success": True, "purged": len(gone), "topic": name,
        **{key: state[key] for key in ("head_seq", "earliest_seq", "count", "bytes")},
    }  # fmt: skip
    page = api.diff(name)
    assert [r["$seq"] for r in page["records"]] == [s for s in range(1, 8) if s not in gone]
    assert page["tombstone"] is None


@pytest.mark.parametrize(
    "body",
    [
        {"seq": 1, "keep": 1}, {"seq": 0, "keep": 0}, {"filter": ""}, {"filter": "."},
        {"filter": "a."}, {"filter": ".a"}, {"filter": "a..b"}, {"filter": "a*"}, {"filter": "*a"},
        {"filter": "a.b*"}, {"filter": ">.a"}, {"filter": "a.>.b"}, {"filter": "a>"},
        {"filter": "**"}, {"filter": ">>"}, {"filter": "*>"}, {"filter": ["a"]}, {"keep": -1},
        {"seq": 1.5}, {"filters": "a"}, {"before_seq": 1}, {"match": "a"},
    ],
    ids=repr,
)  # fmt: skip
def test_a_bad_purge_is_refused(api: Api, name: str, body: dict[str, Any]) -> None:
    """400, and every record is still there. (ADR-10)"""
    api.append(name, tagged("a"), tagged("b"))

    assert api.refused("POST", f"/v0/topics/{name}/purge", body) == (400, "invalid_request")
    assert api.seqs(name) == [1, 2]


def test_purges_of_several_subjects(api: Api, name: str) -> None:
    """To keep N of each, purge with each filter. (ADR-10)"""
    api.append(name, *(tagged(f"s{i % 3}") for i in range(12)))
    for i in range(3):
        assert api.purge(name, filter=f"s{i}", keep=1)["purged"] == 3

    assert api.seqs(name) == [10, 11, 12]


def test_keep_counts_live_records(api: Api, name: str) -> None:
    """Deleted records do not count among the newest. (ADR-10)"""
    api.append(name, *range(6))
    api.append(name, tagged("x"))
    api.delete(name, match="x")

    assert api.purge(name, keep=2)["purged"] == 4
    assert api.seqs(name) == [5, 6]


def test_nodes_play_no_part_in_deletes(api: Api, name: str) -> None:
    """Deletes select by tag and seq only. (§5)"""
    api.append(name, by("n"), by("n"))

    assert api.delete(name, match="n")["deleted"] == 0
    body = {"before_seq": 9, "node": "n"}
    assert api.refused("POST", f"/v0/topics/{name}/delete", body) == (400, "invalid_request")
