"""Loss is always reported: caps, TTL, and how they combine with deletes (§0.10, §3.3)."""

from typing import Any

import pytest

from .api import Api, by, tagged
from .server import until


def stone(first: int, last: int, reason: str, earliest: int, head: int) -> dict[str, Any]:
    return {
        "gap_from": first, "gap_to": last, "reason": reason, "missed_estimate": last - first + 1,
        "earliest_seq": earliest, "head_seq": head,
    }  # fmt: skip


def test_a_cap_is_exact_right_after_the_write(api: Api, name: str) -> None:
    """`count <= cap_records`, the oldest are evicted, the gap has both ends. (§0.10, §3.3)"""
    api.put(name, cap_records=3)
    for i in range(1, 8):
        api.append(name, i)
        state = api.state(name)
        assert (state["count"], state["earliest_seq"]) == (min(i, 3), max(i - 2, 1))

    for cursor in range(8):
        page = api.diff(name, cursor)
        lost = cursor + 1 < 5
        assert page["tombstone"] == (stone(cursor + 1, 4, "cap", 5, 7) if lost else None)
        assert [r["$seq"] for r in page["records"]] == list(range(max(5, cursor + 1), 8))


def test_the_state_tells_what_was_lost_lately(api: Api, name: str) -> None:
    """By reason, with the time of the last loss; a delete is none. (§1.2, §3.3)"""
    api.put(name, cap_records=3)
    api.append(name, *range(5))
    api.delete(name, before_seq=4)
    (lost,) = api.state(name)["lost_24h"]

    assert (lost["reason"], lost["records"]) == ("cap", 2)
    assert lost["last_ts"] == api.diff(name)["records"][0]["$ts"]


def test_a_batch_larger_than_the_cap_keeps_its_end(api: Api, name: str) -> None:
    """A batch evicts its own first records, too; all its seqs are given. (§0.10)"""
    api.put(name, cap_records=3)
    api.append(name, 0)
    assert api.append(name, *range(1, 10))["seqs"] == list(range(2, 11))

    assert api.diff(name)["tombstone"] == stone(1, 7, "cap", 8, 10)
    assert api.seqs(name) == [8, 9, 10]
    assert api.state(name)["count"] == 3


def test_a_byte_cap_is_in_the_measure_of_bytes(api: Api, name: str) -> None:
    """`bytes <= cap_bytes` right after the write. (§0.10)"""
    api.append(f"{name}x", "x" * 100)
    one = api.state(f"{name}x")["bytes"]
    for cap, kept in ((3 * one - 1, 2), (3 * one, 3), (3 * one + 1, 3)):
        topic = f"{name}:{cap}"
        api.put(topic, cap_bytes=cap)
        for _ in range(5):
            api.append(topic, "x" * 100)
        assert api.state(topic)["bytes"] == kept * one
        assert api.diff(topic)["tombstone"] == stone(1, 5 - kept, "cap", 6 - kept, 5)


def test_the_newest_record_is_never_evicted_by_its_own_write(api: Api, name: str) -> None:
    """A record larger than the whole cap stays as the only one. (§0.10)"""
    api.put(name, cap_bytes=10)
    api.append(name, "small", "x" * 1000)

    assert api.seqs(name) == [2]
    api.append(name, "y")
    assert api.seqs(name) == [3]


def test_the_first_cap_that_is_hit_evicts(api: Api, name: str) -> None:
    """Either cap, of records or of bytes, evicts. (§0.10)"""
    api.put(name, cap_records=2, cap_bytes=1000)
    api.append(name, 1, 2, 3)
    assert api.seqs(name) == [2, 3]
    api.append(name, "x" * 960)
    assert api.seqs(name) == [4]


def test_a_tightened_cap_takes_what_is_there(api: Api, name: str) -> None:
    """Existing records are evicted; a looser cap restores none. (§1.1)"""
    api.append(name, *range(10))
    api.put(name, cap_records=4)
    assert api.seqs(name) == [7, 8, 9, 10]
    api.put(name)
    assert api.diff(name)["tombstone"] == stone(1, 6, "cap", 7, 10)
    api.append(name, 11)
    assert api.seqs(name) == [7, 8, 9, 10, 11]


def test_deleted_records_do_not_count_towards_caps(api: Api, name: str) -> None:
    """Nor do deleted records cause a tombstone when live ones are evicted later. (§0.10)"""
    api.put(name, cap_records=3)
    api.append(name, tagged("a"), tagged("b"), tagged("c"))
    api.delete(name, match="b")
    api.append(name, tagged("d"))
    assert api.seqs(name) == [1, 3, 4]
    assert api.diff(name)["tombstone"] is None

    api.append(name, tagged("e"))
    assert api.diff(name)["tombstone"] == stone(1, 2, "cap", 3, 5)
    assert api.diff(name, 1)["tombstone"] is None
    assert api.seqs(name, 1) == [3, 4, 5]


def test_deletes_never_raise_a_tombstone_and_never_hide_one(api: Api, name: str) -> None:
    """Loss below the floor is reported; deletes between floor and first live record are not. (§3.3,
    §5)"""
    api.put(name, cap_records=5)
    api.append(name, *range(8))
    api.delete(name, before_seq=7)

    for cursor, told in ((0, stone(1, 6, "cap", 7, 8)), (2, stone(3, 6, "cap", 7, 8)), (3, None)):
        page = api.diff(name, cursor)
        assert page["tombstone"] == told
        assert [r["$seq"] for r in page["records"]] == [7, 8]
    api.delete(name, before_seq=9)
    page = api.diff(name, 0)
    assert page["tombstone"] == stone(1, 8, "cap", 9, 8)
    assert (page["records"], page["caught_up"], page["next_from_seq"]) == ([], True, 8)


def test_a_tombstone_comes_with_the_records_behind_it(api: Api, name: str) -> None:
    """One tombstone a response, and the next page continues after it. (§3.3)"""
    api.put(name, cap_records=4)
    api.append(name, *range(10))
    page = api.diff(name, 1, limit=2)

    assert page["tombstone"] == stone(2, 6, "cap", 7, 10)
    assert ([r["$seq"] for r in page["records"]], page["next_from_seq"]) == ([7, 8], 8)
    page = api.diff(name, 8, limit=2)
    assert (page["tombstone"], page["caught_up"]) == (None, True)


def test_filters_do_not_hide_loss(api: Api, name: str) -> None:
    """The floor is checked before tags and nodes. (§3.3, §4)"""
    api.put(name, cap_records=2)
    api.append(name, *(by("me") | tagged("t") for _ in range(5)))

    for fields in ({"node": "me"}, {"match": "other"}):
        page = api.diff(name, 0, **fields)
        assert page["tombstone"] == stone(1, 3, "cap", 4, 5)
        assert (page["records"], page["next_from_seq"]) == ([], 5)


# Time to live.


def expired(api: Api, name: str, count: int) -> None:
    until("expiry", lambda: api.state(name)["count"] == count)


def test_what_has_expired_is_told(api: Api, name: str) -> None:
    """Expired records are reported with the reason `ttl`, also without a write. (§0.10, §3.3)"""
    api.put(name, ttl_ms=20)
    api.append(name, 1, 2, 3)
    expired(api, name, 0)

    page = api.diff(name)
    assert page["tombstone"] == stone(1, 3, "ttl", 4, 3)
    assert (page["records"], page["caught_up"]) == ([], True)
    state = api.state(name)
    assert (state["earliest_seq"], state["bytes"], state["next_seq"]) == (4, 0, 4)
    assert api.append(name, 4)["seqs"] == [4]


def test_relaxing_a_ttl_revives_nothing(api: Api, name: str) -> None:
    """Floors never decrease within an instance. (§0.10)"""
    api.append(name, 1, 2)
    api.put(name, ttl_ms=1)
    expired(api, name, 0)
    api.put(name)
    api.append(name, 3)

    assert api.diff(name)["tombstone"] == stone(1, 2, "ttl", 3, 3)
    assert api.seqs(name) == [3]


def test_a_put_of_a_ttl_expires_at_once(api: Api, name: str) -> None:
    """Older records are gone with the response; younger ones stay. (§1.1)"""
    first = api.append(name, "old") and api.diff(name)["records"][0]["$ts"]
    until("later", lambda: api.append(f"{name}x", 0) and ts_of(api, f"{name}x") > first + 400)
    api.append(name, "young")
    api.put(name, ttl_ms=400)
    assert api.diff(name)["tombstone"] == stone(1, 1, "ttl", 2, 2)


def ts_of(api: Api, name: str) -> int:
    return int(api.diff(name, api.state(name)["head_seq"] - 1)["records"][0]["$ts"])


def test_the_expiry_of_what_was_deleted_is_silent(api: Api, name: str) -> None:
    """The floor does not move for records that were deleted on request. (§3.3)"""
    api.append(name, 1, 2)
    api.delete(name, before_seq=3)
    # From here on, so that they are deleted before they expire at any load.
    api.put(name, ttl_ms=30)
    api.append(f"{name}x", 0)
    written = ts_of(api, f"{name}x")
    until("later", lambda: api.append(f"{name}x", 0) and ts_of(api, f"{name}x") > written + 40)

    page = api.diff(name)
    assert (page["tombstone"], page["next_from_seq"]) == (None, 2)


def test_both_causes_are_mixed(api: Api, name: str) -> None:
    """A gap with evicted and expired records has the reason `mixed`. (§3.3)"""
    api.put(name, cap_records=2)
    api.append(name, 1, 2, 3)
    api.put(name, cap_records=2, ttl_ms=1)
    expired(api, name, 0)

    assert api.diff(name)["tombstone"] == stone(1, 3, "mixed", 4, 3)
    assert api.diff(name, 1)["tombstone"] == stone(2, 3, "ttl", 4, 3)


def test_expired_records_make_room(api: Api, name: str) -> None:
    """Expired records free space in a topic that refuses when it is full. (§0.10)"""
    api.put(name, cap_records=1, discard="reject", ttl_ms=20)
    api.append(name, 1)
    path, body = f"/v0/topics/{name}", {"records": [{"data": 2}]}

    until("room", lambda: api.ask("POST", path, body).status == 200)


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_loss_is_told_in_every_class(api: Api, name: str, durability: str) -> None:
    """Caps, deletes and reads work the same in every durability class. (§0.10)"""
    api.put(name, durability=durability, cap_records=3)
    api.append(name, *(tagged(f"t{i}") for i in range(5)))
    api.delete(name, match="t3")

    page = api.diff(name)
    assert page["tombstone"] == stone(1, 2, "cap", 3, 5)
    assert [r["$seq"] for r in page["records"]] == [3, 5]
    assert api.purge(name, keep=1)["purged"] == 1
    assert api.drop(name)["deleted"] is True
