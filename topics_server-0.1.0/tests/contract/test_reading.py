"""Reading: cursors, limits, filters, budgets, seeking, instances (§3, §4)."""

from typing import Any

import pytest

from .api import Api, by, tagged


def test_an_empty_topic_reads_as_caught_up(api: Api, name: str) -> None:
    """Every field of the answer is there. (§3)"""
    api.put(name)
    page = api.diff(name)
    del page["performance"]

    assert page == {
        "topic": name, "records": [], "next_from_seq": 0, "head_seq": 0, "earliest_seq": 1,
        "caught_up": True, "tombstone": None, "lag": 0, "epoch": api.state(name)["epoch"],
    }  # fmt: skip


@pytest.mark.every_server
def test_the_cursor_is_exclusive(api: Api, name: str) -> None:
    """`$seq > from_seq`; 0 reads from the earliest; at the head there is nothing. (§3)"""
    api.append(name, *range(1, 6))

    assert [api.seqs(name, cursor) for cursor in range(6)] == [
        [1, 2, 3, 4, 5], [2, 3, 4, 5], [3, 4, 5], [4, 5], [5], [],
    ]  # fmt: skip


@pytest.mark.parametrize("body", [{}, {"from_seq": None}, {"from_seq": 0, "limit": 0}])
def test_the_defaults_of_a_read(api: Api, name: str, body: dict[str, Any]) -> None:
    """From the earliest, 256 records, without tags. (§3)"""
    api.append(name, *[tagged("t")] * 300)

    page = api.ok("POST", f"/v0/topics/{name}/diff", body)

    assert [r["$seq"] for r in page["records"]] == list(range(1, 257))
    assert (page["next_from_seq"], page["caught_up"], page["lag"]) == (256, False, 44)
    assert "$tag" not in page["records"][0]


@pytest.mark.parametrize("limit", [1, 999, 1000, 1001, 2**32, 2**63, 2**64])
def test_a_limit_is_clamped(api: Api, name: str, limit: int) -> None:
    """A limit over 1000 is clamped, not refused. (§3)"""
    api.append(name, *[0] * 1001)

    assert len(api.seqs(name, limit=limit)) == min(limit, 1000)


@pytest.mark.parametrize("limit", [1, 2, 3, 7])
def test_pages_meet_without_gap_or_overlap(api: Api, name: str, limit: int) -> None:
    """Continue with `next_from_seq` until `caught_up`. (§0.7, §3)"""
    api.append(name, *range(7))

    assert [r["$seq"] for r in api.walk(name, limit=limit)] == list(range(1, 8))


def test_records_scanned_tells_how_far_it_looked(api: Api, name: str) -> None:
    """`records_scanned` is in the performance block. (§0.9)"""
    api.append(name, *[by("me")] * 10)

    assert api.diff(name)["performance"]["records_scanned"] == 10
    page = api.diff(name, node="me")
    assert (page["records"], page["performance"]["records_scanned"]) == ([], 10)


# Own echoes (§4).


def test_a_node_does_not_hear_itself(api: Api, name: str) -> None:
    """Its own records are left out, compared byte for byte, and the cursor moves past them. (§3.2,
    §4)"""
    api.append(name, by("a"), by("b"), by("a "), by("A"), {"data": 0}, by("a"))

    assert api.seqs(name, node="a") == [2, 3, 4, 5]
    page = api.diff(name, node="a", from_seq=5)
    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 6, True)
    assert page["tombstone"] is None


def test_several_own_nodes(api: Api, name: str) -> None:
    """Records whose `$node` is in the list are left out; an empty list leaves out none. (§4)"""
    api.append(name, by("a"), by("b"), by("c"), {"data": 0})

    assert api.seqs(name, node=["a", "c", "x", "a"]) == [2, 4]
    assert api.seqs(name, node=[]) == [1, 2, 3, 4]
    assert api.seqs(name, node="") == [1, 2, 3, 4]
    bad = {"node": ["a", 1]}
    assert api.refused("POST", f"/v0/topics/{name}/diff", bad) == (400, "invalid_request")


def test_a_topic_may_want_echoes(api: Api, name: str) -> None:
    """`dedupe_node: false` turns the filter off. (§4)"""
    api.put(name, dedupe_node=False)
    api.append(name, by("a"))

    assert api.seqs(name, node="a") == [1]


def test_a_page_is_filled_past_what_is_skipped(api: Api, name: str) -> None:
    """`limit` counts records returned, not records looked at. (§3.2)"""
    for _ in range(10):
        api.append(name, *[by("me")] * 9, by("you"))

    page = api.diff(name, node="me", limit=3)
    assert [r["$seq"] for r in page["records"]] == [10, 20, 30]
    assert page["next_from_seq"] == 30
    assert len(api.walk(name, node="me", limit=3)) == 10


# Tags asked for (§5's grammar).

TAGS = ["a", "a:1", "a:2", "b", "a*", "*", "é", "", None, "a:12", "A:1"]


@pytest.mark.parametrize(
    ("match", "found"),
    [
        ("a", ["a"]),
        ("a:*", ["a:1", "a:2", "a:12"]),
        ("a*", ["a", "a:1", "a:2", "a*", "a:12"]),
        ("*", [t for t in TAGS if t is not None]),
        ("", [""]),
        ("zzz", []),
        ("é*", ["é"]),
        (["tag", "Eq", "a*"], ["a*"]),
        (["tag", "Eq", "*"], ["*"]),
        (["tag", "Glob", "**"], ["*"]),
        (["tag", "Glob", "a**"], ["a*"]),
        (["tag", "Glob", "*"], [t for t in TAGS if t is not None]),
        (["tag", "Glob", "a:1*"], ["a:1", "a:12"]),
    ],
)
def test_a_read_may_ask_for_tags(api: Api, name: str, match: object, found: list[str]) -> None:
    """The grammar of a delete; records that do not match are skipped. (§3, §5)"""
    api.append(name, *({"data": t} | ({"tag": t} if t is not None else {}) for t in TAGS))

    page = api.diff(name, match=match)
    assert [r["data"] for r in page["records"]] == found
    assert (page["caught_up"], page["tombstone"]) == (True, None)
    walked = api.walk(name, match=match, limit=1)
    assert [r["data"] for r in walked] == found


BAD_MATCHES: list[Any] = [
    1, True, [], {}, ["tag"], ["tag", "Eq"], ["tag", "Eq", 1], ["tag", "Eq", "a", "b"],
    ["node", "Eq", "a"], ["tag", "eq", "a"], ["tag", "Regex", "a"], ["tag", "Glob", "a"],
    ["tag", "Glob", ""], ["tag", "Glob", "*a"], ["tag", "Glob", None], [["tag", "Eq", "a"]],
    {"tag": "a"}, ["tag", "In", ["a"]], ["Tag", "Eq", "a"],
]  # fmt: skip


@pytest.mark.parametrize("match", BAD_MATCHES, ids=repr)
@pytest.mark.parametrize("place", ["diff", "delete"])
def test_a_bad_match_is_refused(api: Api, name: str, match: object, place: str) -> None:
    """400 `invalid_request` for any other operator, and for a Glob that does not end in a star.
    (§5)"""
    api.append(name, tagged("a"))

    body = {"match": match}
    assert api.refused("POST", f"/v0/topics/{name}/{place}", body) == (400, "invalid_request")
    assert api.state(name)["count"] == 1


# Bytes (§7.2, §11).


def test_a_page_is_bounded_in_bytes(api: Api, name: str) -> None:
    """By default 1 MiB, clamped to 8 MiB; at least one record is returned. (§11)"""
    api.put(name)
    for _ in range(30):
        api.append(name, *["x" * 50_000] * 10)

    def size(**fields: Any) -> int:
        return len(api.diff(name, limit=1000, **fields)["records"])

    one = api.state(name)["bytes"] // 300
    assert one > 50_000
    assert size() in ((1 << 20) // one, (1 << 20) // one - 1)
    assert size(max_batch_bytes=1) == 1
    assert size(max_batch_bytes=one * 3 + 100) == 3
    assert size(max_batch_bytes=2**63) == size(max_batch_bytes=8 << 20)
    assert (8 << 20) // one - 1 <= size(max_batch_bytes=8 << 20) <= (8 << 20) // one
    assert size(max_batch_bytes=0) == size()


def test_a_budget_loses_nothing(api: Api, name: str) -> None:
    """Pages that end at the byte limit have no gap between them. (§3)"""
    api.append(name, *("x" * (i * 37 % 200) for i in range(60)))

    for budget in (1, 100, 257, 1000):
        found = api.walk(name, max_batch_bytes=budget)
        assert [r["$seq"] for r in found] == list(range(1, 61))


# Seeking by time.


def test_a_read_may_begin_at_a_time(api: Api, name: str) -> None:
    """The first record with `$ts >= from_ts`. (§3)"""
    for i in range(20):
        api.append(name, i, i)
    stamps = {r["$seq"]: r["$ts"] for r in api.diff(name)["records"]}

    def from_ts(ts: int) -> list[int]:
        body = {"from_ts": ts, "limit": 1000}
        page = api.ok("POST", f"/v0/topics/{name}/diff", body)
        assert (page["tombstone"], page["caught_up"]) == (None, True)
        return [r["$seq"] for r in page["records"]]

    for ts in {0, 1, *stamps.values(), *(t + 1 for t in stamps.values()), 2**53, 2**64 - 1}:
        assert from_ts(ts) == [seq for seq, t in stamps.items() if t >= ts]


def test_a_cursor_is_a_seq_or_a_time(api: Api, name: str) -> None:
    """A request with both is 400. (§3)"""
    api.put(name)
    body = {"from_seq": 0, "from_ts": 0}
    assert api.refused("POST", f"/v0/topics/{name}/diff", body) == (400, "invalid_request")


# Another instance (§3.3).


def recreated(head_seq: int, earliest_seq: int = 1) -> dict[str, object]:
    return {
        "gap_from": 1, "gap_to": head_seq, "reason": "recreated", "missed_estimate": head_seq,
        "earliest_seq": earliest_seq, "head_seq": head_seq,
    }  # fmt: skip


def test_a_cursor_above_the_head_is_of_another_instance(api: Api, name: str) -> None:
    """`recreated`, and the read continues from the earliest. (§1.4, §3.3)"""
    api.append(name, "a", "b")
    for cursor in (3, 2**53 + 1, 2**63, 2**64 - 1):
        page = api.diff(name, cursor)
        assert page["tombstone"] == recreated(2)
        assert [r["$seq"] for r in page["records"]] == [1, 2]
        assert page["next_from_seq"] == 2
    assert api.diff(name, 2)["tombstone"] is None


def test_an_epoch_tells_instances_apart_below_the_head(api: Api, name: str) -> None:
    """With `epoch` a stale cursor below the head is detected. (§3.3)"""
    api.append(name, "a", "b")
    old = api.diff(name)["epoch"]
    assert api.diff(name, 1, epoch=old)["tombstone"] is None
    api.drop(name)
    api.append(name, "c", "d", "e")

    page = api.diff(name, 1, epoch=old)
    assert page["tombstone"] == recreated(3)
    assert [r["$seq"] for r in page["records"]] == [1, 2, 3]
    assert page["epoch"] != old
    assert api.diff(name, 1, epoch="nonsense")["tombstone"] == recreated(3)
    assert api.seqs(name, 1) == [2, 3]


def test_an_empty_new_instance(api: Api, name: str) -> None:
    """The cursor is set back also if the new instance has no record yet. (§3.3)"""
    api.put(name)
    page = api.diff(name, 5)

    assert (page["tombstone"]["reason"], page["next_from_seq"]) == ("recreated", 0)
    assert page["caught_up"] is True
