"""Routers' commands, and what readers of a destination find (§6): stories over one engine."""

from typing import Any

import orjson
import pytest
from msgspec.structs import replace

from protocol.harness import START_MS, Harness, by, refusal, tagged
from topics.protocol.decide.forwarding import ROOM_RETRY_MS, ROOM_WAIT_MS
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import DeleteRouter, GetRouter
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits


@pytest.fixture
def engine() -> Harness:
    """Topics s and d, and router r from one to the other."""
    harness = Harness()
    harness.put("s")
    harness.put("d")
    harness.route()
    return harness


def rejection(call: Any, *args: Any, **named: Any) -> tuple[int, str, Any]:
    refused = refusal(call, *args, **named)
    return STATUSES[refused.code], refused.code.code, refused.detail


# -- commands ------------------------------------------------------------------------------


def test_a_router_is_told_with_its_defaults() -> None:
    """201 and every field; an identical PUT is 200, another one too. (§6.1)"""
    engine = Harness()
    expected = {
        "router": "a->b",
        "source": "a",
        "dest": "b",
        "preserve_node": True,
        "preserve_tag": True,
        "filter": None,
        "allow_cycle": False,
        "guarantee": "at_least_once",
    }

    assert engine.route("a->b", "a", "b") == {**expected, "created": True}
    before = len(engine.events)
    assert engine.route("a->b", "a", "b") == {**expected, "created": False}
    assert len(engine.events) == before

    changed = engine.route("a->b", "a", "b", filter="x*", preserve_node=False)
    assert (changed["created"], changed["filter"]) == (False, ["tag", "Glob", "x*"])
    assert engine.router("a->b") == {
        **expected,
        "filter": ["tag", "Glob", "x*"],
        "preserve_node": False,
        "forwarded_total": 0,
        "cursor": 0,
        "lag": 0,
        "blocked": None,
        "lost_total": 0,
        "loss": None,
    }


def test_both_ends_are_made_with_the_router() -> None:
    """An absent source is created, an absent destination unless `create_dest` is false. (§6.1)"""
    engine = Harness()
    assert rejection(engine.route, create_dest=False) == (404, "topic_not_found", {"topic": "d"})
    assert engine.listing()["topics"] == []

    engine.route()

    assert [t["topic"] for t in engine.listing()["topics"]] == ["d", "s"]
    engine.route("r2", "s2", "d2")
    assert engine.state("s2")["config"]["durability"] == "disk"


def test_both_ends_are_made_or_none() -> None:
    """Limits count what would be made; routers before topics. (§11)"""
    engine = Harness(max_topics=3, max_routers=1)
    engine.put("a")
    engine.put("b")
    assert rejection(engine.route) == (429, "throttled", {"limit": "max_topics", "max": 3})
    assert len(engine.listing()["topics"]) == 2

    engine.route("r", "a", "d")

    refused = rejection(engine.route, "r2", "x", "y", create_dest=False)
    assert refused == (429, "throttled", {"limit": "max_routers", "max": 1})
    assert engine.route("r", "a", "d")["created"] is False
    assert engine.route("r", "a", "b")["created"] is False


def test_a_destination_has_one_source(engine: Harness) -> None:
    """§6: fan-in is 409; a second router of the same source is none."""
    engine.route("r2")
    engine.put("other")

    detail = {"reason": "router_dest_fan_in", "topic": "d", "source": "s"}
    refused = rejection(engine.route, "r3", "other", "d")
    assert refused == (409, "topic_exists_incompatible", detail)
    absent = rejection(engine.route, "r3", "absent", "d")
    assert absent == (409, "topic_exists_incompatible", detail)
    assert rejection(engine.route, "r", "other", "d")[1] == "topic_exists_incompatible"
    engine.unroute("r2")
    assert engine.route("r", "other", "d")["source"] == "other"


def test_a_ring_has_to_be_asked_for(engine: Harness) -> None:
    """§6.1: 409 with the ring's names; a router that is part of one cannot take it back."""
    engine.route("on", "d", "e")

    refused = rejection(engine.route, "back", "e", "s")
    assert refused == (409, "router_cycle", {"cycle": ["e", "s", "d", "e"]})
    assert rejection(engine.router, "back")[1] == "router_not_found"
    engine.route("back", "e", "s", allow_cycle=True)
    assert rejection(engine.route, "back", "e", "s")[1] == "router_cycle"
    assert engine.route()["created"] is False
    assert rejection(engine.route, preserve_tag=False)[1] == "router_cycle"


BAD = [
    b"{}",
    b'{"source":"s"}',
    b'{"dest":"d"}',
    b'{"source":null,"dest":"d"}',
    b'{"source":5,"dest":"d"}',
    b'{"source":"s","dest":["d"]}',
    b'{"source":"s","dest":"s"}',
    b'{"source":"s","dest":"s","allow_cycle":true}',
    b'{"source":"s/t","dest":"d"}',
    b'{"source":"s","dest":"a->b"}',
    b'{"source":"s","dest":""}',
    b'{"source":"s","dest":"d","filter":["tag","Regex","x"]}',
    b'{"source":"s","dest":"d","filter":["tag","Glob","x"]}',
    b'{"source":"s","dest":"d","filter":["node","Eq","x"]}',
    b'{"source":"s","dest":"d","filter":["tag","Eq"]}',
    b'{"source":"s","dest":"d","filter":["tag","Eq",1]}',
    b'{"source":"s","dest":"d","filter":{"tag":"x"}}',
    b'{"source":"s","dest":"d","filter":[]}',
    b'{"source":"s","dest":"d","filter":7}',
    b'{"source":"s","dest":"d","preserve_node":"yes"}',
    b'{"source":"s","dest":"d","create_dest":1}',
    b'{"source":"s","dest":"d","allow_cycle":"no"}',
    b'{"source":"s","dest":"d","guarantee":"at_most_once"}',
    b'[]',
    b'',
]  # fmt: skip


@pytest.mark.parametrize("body", BAD)
def test_a_body_that_says_no_router(body: bytes) -> None:
    """§6.1: 400, naming the place."""
    with pytest.raises(Rejection) as refused:
        parse_put_router("r", body)
    assert STATUSES[refused.value.code] == 400


LONG_FILTERS = [
    (["tag", "Eq", "x" * 8], 200),
    (["tag", "Eq", "x" * 9], 400),
    (["tag", "Glob", "x" * 8 + "*"], 200),
    (["tag", "Glob", "x" * 9 + "*"], 400),
    ("x" * 8 + "*", 200),
    ("é" * 5, 400),
]


@pytest.mark.parametrize(("asked", "status"), LONG_FILTERS)
def test_a_filter_is_as_short_as_a_tag(asked: Any, status: int) -> None:
    """It is kept with its router, logged and listed, so its length has a limit: that of what it
    can match. (§6.1, §11)"""
    body = orjson.dumps({"source": "s", "dest": "d", "filter": asked})
    limits = Limits(max_tag_bytes=8)

    if status == 200:
        assert parse_put_router("r", body, limits).config.filter is not None
    else:
        refused = refusal(parse_put_router, "r", body, limits)
        assert STATUSES[refused.code] == 400
        assert "$.filter" in refused.message


FILTERS = [
    (None, None),
    ("x", ("tag", "Eq", "x")),
    ("x*", ("tag", "Glob", "x*")),
    (["tag", "Eq", "x*"], ("tag", "Eq", "x*")),
    (["tag", "Glob", "*"], ("tag", "Glob", "*")),
]


@pytest.mark.parametrize(("asked", "kept"), FILTERS)
def test_a_filter_is_spelled_out(asked: Any, kept: Any) -> None:
    """A bare string is Glob where it ends in `*`, else Eq (§5), and is told as a tuple."""
    engine = Harness()
    engine.route(filter=asked)
    found = engine.router()["filter"]
    assert found == (None if kept is None else list(kept))


def test_lists_go_by_name_in_pages(engine: Harness) -> None:
    """§6.3: prefix, source, dest, page_size; the cursor is where the page ended."""
    engine.route("q", "s", "e")
    engine.route("r.1", "s", "f")
    engine.route("r.2", "f", "g")

    def names(**asked: Any) -> list[str]:
        return [router["router"] for router in engine.routers(**asked)["routers"]]

    assert names() == ["q", "r", "r.1", "r.2"]
    assert names(prefix="r.") == ["r.1", "r.2"]
    assert names(source="s") == ["q", "r", "r.1"]
    assert names(dest="g") == ["r.2"]
    assert names(source="s", dest="g") == []
    assert names(page_size=2) == ["q", "r"]
    assert "next_cursor" in engine.routers(page_size=3)
    assert "next_cursor" not in engine.routers(page_size=4)
    assert names(page_size=2, after="r") == ["r.1", "r.2"]
    assert names(after="r.0") == ["r.1", "r.2"]
    engine.append(1, name="s")
    engine.work_off()
    assert engine.routers(prefix="q")["routers"] == [
        {
            "router": "q",
            "source": "s",
            "dest": "e",
            "guarantee": "at_least_once",
            "forwarded_total": 1,
            "filter": None,
            "lag": 0,
            "blocked": None,
        }
    ]


def test_deleting_a_router_is_idempotent(engine: Harness) -> None:
    """§6.4."""
    assert engine.unroute() == {"router": "r", "deleted": True}
    assert engine.unroute() == {"router": "r", "deleted": False}
    assert rejection(engine.router) == (404, "router_not_found", {"router": "r"})


# -- what a destination shows --------------------------------------------------------------


def test_a_reader_of_the_copies_reads_its_own_writes(engine: Harness) -> None:
    """Nothing was worked off by then. (§6)"""
    engine.append(1, 2, name="s")
    assert engine.engine.has_work()

    assert engine.datas() == [1, 2]
    engine.append(3, name="s")
    assert engine.state("d")["head_seq"] == 3
    engine.append(4, name="s")
    assert (engine.router()["forwarded_total"], engine.router()["lag"]) == (4, 0)
    engine.append(tagged("t", 5), name="s")
    assert engine.delete("d", match="t")["deleted"] == 1
    engine.append(6, name="s")
    assert engine.purge("d")["purged"] == 5
    assert engine.state("s")["count"] == 6


def test_copies_are_records_of_their_own(engine: Harness) -> None:
    """Fresh `$seq` and `$ts`; node, tag, data and meta as they were. (§6.1)"""
    engine.append("direct", name="d")
    engine.append({"data": {"a": 1}, "node": "n", "tag": "t", "meta": {"k": 1}}, name="s")
    engine.now_ms += 500

    found = engine.diff(1, name="d", include_tags=True)["records"]

    assert found == [
        {
            "$seq": 2,
            "$ts": START_MS + 500,
            "$node": "n",
            "$tag": "t",
            "data": {"a": 1},
            "meta": {"k": 1},
        }
    ]
    engine.append(2, name="s")
    assert engine.datas() == ["direct", {"a": 1}, 2]


def test_what_was_there_before_the_router_is_not_copied() -> None:
    """It starts at its source's head. (§6)"""
    engine = Harness()
    engine.append("old", name="s")
    engine.route()
    engine.append("new", name="s")

    assert engine.datas() == ["new"]
    assert engine.router()["cursor"] == 2


def test_a_filter_goes_by_columns_and_skips_in_silence(engine: Harness) -> None:
    """§6.1; the router is not behind for what it does not copy."""
    engine.route(filter=["tag", "Glob", "a.*"])
    engine.append(tagged("a.1", 1), tagged("b", 2), 3, tagged("a.", 4), name="s")
    engine.append(tagged("b", 5), name="s")

    assert engine.datas() == [1, 4]
    router = engine.router()
    assert (router["cursor"], router["lag"], router["forwarded_total"]) == (5, 0, 2)


def test_options_apply_to_what_follows(engine: Harness) -> None:
    """A change first forwards what was written under the old config. (§6.1)"""
    engine.append(by("n", 1), name="s")
    engine.route(preserve_node=False, preserve_tag=False)
    engine.append({"data": 2, "node": "n", "tag": "t"}, name="s")

    first, second = engine.diff(name="d", include_tags=True)["records"]

    assert (first["data"], first["$node"]) == (1, "n")
    assert set(second) == {"$seq", "$ts", "data"}


def test_another_end_starts_at_the_source_s_head(engine: Harness) -> None:
    """What was owed to the old destination arrives there. (§6.1)"""
    engine.append(1, name="s")
    engine.route(dest="e")
    engine.append(2, name="s")

    assert (engine.datas("d"), engine.datas("e")) == ([1], [2])
    engine.append("before", name="s2")
    engine.route(source="s2", dest="e")
    engine.append(3, name="s2")
    engine.append("no more", name="s")
    assert engine.datas("e") == [2, 3]
    assert engine.router()["forwarded_total"] == 3


def test_a_deleted_router_forwards_no_more(engine: Harness) -> None:
    """What was written before the deletion arrives, what comes after does not. (§6.4)"""
    engine.append(1, name="s")
    engine.unroute()
    engine.append(2, name="s")
    engine.work_off()

    assert engine.datas() == [1]


@pytest.mark.parametrize("gone", ["s", "d"])
def test_routers_go_with_either_end(engine: Harness, gone: str) -> None:
    """§1.4: and what was written to a source that goes is copied first."""
    engine.append(1, name="s")

    assert engine.drop(gone)["routers_removed"] == ["r"]
    assert rejection(engine.router)[1] == "router_not_found"
    engine.work_off()
    if gone == "s":
        assert engine.datas() == [1]
    else:
        assert rejection(engine.state, "d")[0] == 404
    engine.put(gone)
    engine.append(2, name="s")
    engine.work_off()
    assert engine.state("d")["count"] == (1 if gone == "s" else 0)


def test_a_delete_in_the_source_takes_no_copy_back(engine: Harness) -> None:
    """And what was deleted before it was copied is not copied. (§6, §5)"""
    engine.append(tagged("a", 1), name="s")
    engine.work_off()
    engine.append(tagged("a", 2), tagged("b", 3), name="s")
    engine.delete("s", match="a")

    assert engine.datas() == [1, 3]
    assert engine.router()["lost_total"] == 0


def test_a_chain_forwards_copies(engine: Harness) -> None:
    """A reader at its end reads what was written at its beginning. (§6)"""
    engine.route("r2", "d", "e")
    engine.route("r3", "e", "f", filter="t")
    engine.append(tagged("t", 1), tagged("u", 2), name="s")
    engine.append("direct", name="d")

    assert engine.datas("f") == [1]
    assert engine.datas("e") == ["direct", 1, 2]


def test_a_large_backlog_is_copied_in_order(engine: Harness) -> None:
    """More than a pass and a slice; each pass is one entry of the log. (§6)"""
    engine.auto = False
    for i in range(7):
        engine.append(*range(i * 1000, i * 1000 + 1000), name="s")
    engine.sync()
    engine.auto = True

    engine.work_off()

    assert engine.datas() == list(range(7000))
    assert engine.state("d")["head_seq"] == 7000


@pytest.mark.parametrize("sealed", [False, True])
def test_exactly_once_stamps_a_key_on_each_copy(engine: Harness, sealed: bool) -> None:
    """§6.1: stable source identity in `meta._topics_router`, beside the client's keys."""
    engine.route(guarantee="exactly_once")
    engine.auto = False
    engine.append({"data": 1, "meta": {"mine": [1]}}, 2, name="s")
    if sealed:
        engine.seal_all()
    engine.sync()
    engine.auto = True

    first, second = engine.diff(name="d")["records"]

    epoch = engine.topic("s").epoch
    stamp = {"source": "s", "epoch": epoch, "seq": 1, "key": f"r@{epoch}:1"}
    assert first["meta"] == {"mine": [1], "_topics_router": stamp}
    assert second["meta"] == {"_topics_router": {**stamp, "seq": 2, "key": f"r@{epoch}:2"}}


def test_a_copy_of_a_copy_has_the_last_stamp(engine: Harness) -> None:
    """`meta._topics_router` is reserved for the router that wrote the record. (§6.1)"""
    engine.route("r2", "d", "e", guarantee="exactly_once")
    engine.append({"data": 1, "meta": {"_topics_router": "mine", "a": 1}}, name="s")

    (found,) = engine.diff(name="e")["records"]

    assert found["meta"]["a"] == 1
    assert found["meta"]["_topics_router"]["source"] == "d"


# -- rings ---------------------------------------------------------------------------------


def ring(*names: str, **fields: object) -> Harness:
    engine = Harness()
    for source, dest in zip(names, (*names[1:], names[0]), strict=True):
        engine.route(f"{source}->{dest}", source, dest, allow_cycle=True, **fields)
    return engine


@pytest.mark.parametrize("names", ["ab", "abc", "abcde"])
@pytest.mark.parametrize("node", [None, "n"])
def test_a_ring_converges_and_is_quiet(names: str, node: str | None) -> None:
    """Every topic gets every record once, whoever wrote it, and then nothing moves. (§6.1, §4)"""
    engine = ring(*names)
    for name in names:
        engine.append(by(node, f"{name}1"), by(node, f"{name}2"), name=name)

    engine.work_off()

    everything = sorted(f"{name}{i}" for name in names for i in (1, 2))
    assert [sorted(engine.datas(name)) for name in names] == [everything] * len(names)
    before = len(engine.events)
    engine.work_off()
    assert len(engine.events) == before
    assert all(engine.router(name)["lag"] == 0 for name in [f"{names[0]}->{names[1]}"])


def test_a_pair_of_masters_shows_each_the_other_s(engine: Harness) -> None:
    """A node never reads its own records, wherever they have been. (§4, §6)"""
    engine = ring("a", "b")
    for i in range(3):
        engine.append(by("n1", ["n1", i]), name="a")
        engine.append(by("n2", ["n2", i]), name="b")

    assert engine.datas("a", node="n1") == [["n2", i] for i in range(3)]
    assert engine.datas("b", node="n2") == [["n1", i] for i in range(3)]


def test_a_record_leaves_a_ring_by_a_branch_and_begins_anew_there() -> None:
    """Hops are of the ring: a second ring behind a branch carries the copies all the way."""
    engine = ring("a", "b")
    engine.route("out", "b", "c")
    engine.route("c->e", "c", "e")
    engine.append("x", name="a")

    engine.work_off()

    assert (engine.datas("c"), engine.datas("e")) == (["x"], ["x"])
    assert engine.topic("c").runs[0].columns.hops.tolist() == [0]
    assert engine.topic("b").runs[0].columns.hops.tolist() == [1]


def test_filters_in_a_ring_stop_what_they_stop() -> None:
    """§6.1."""
    engine = ring("a", "b", "c", filter="x*")
    engine.append(tagged("x1", 1), tagged("y", 2), name="a")
    engine.append(tagged("x2", 3), name="c")

    engine.work_off()

    assert engine.datas("a") == [1, 2, 3]
    assert sorted(engine.datas("b")) == [1, 3]
    assert sorted(engine.datas("c")) == [1, 3]


def test_a_loss_goes_round_a_ring_once() -> None:
    """A hole, like a record, stops where it came from. (§3.3, §6.1)"""
    engine = ring("a", "b", "c")
    engine.put("a", cap_records=1)
    engine.auto = False
    engine.append(1, 2, 3, 4, name="a")
    engine.sync()
    engine.auto = True

    engine.work_off()

    assert engine.datas("b") == [(1, 3, "source_trim"), 4]
    assert engine.datas("c") == [(1, 3, "source_trim"), 4]
    assert engine.datas("a") == [(1, 3, "cap"), 4]
    assert engine.state("a")["head_seq"] == 4
    assert not engine.engine.has_work()


# -- loss ----------------------------------------------------------------------------------


def lose_some(engine: Harness, cap: int = 2) -> None:
    """Three written and copied, then five of which the source keeps `cap`."""
    engine.append(1, 2, 3, name="s")
    engine.work_off()
    engine.put("s", cap_records=cap)
    engine.auto = False
    engine.append(4, 5, 6, 7, 8, name="s")
    engine.sync()
    engine.auto = True


def test_what_a_source_lost_is_a_gap_of_the_same_size(engine: Harness) -> None:
    """§3.3 `source_trim`: the destination says so in the order, `GET` router too."""
    lose_some(engine)

    assert engine.datas() == [1, 2, 3, (4, 6, "source_trim"), 7, 8]
    assert engine.state("d")["head_seq"] == 8
    router = engine.router()
    loss = {"gap_from": 4, "gap_to": 6, "reason": "cap", "ts": START_MS}
    assert (router["lost_total"], router["loss"]) == (3, loss)
    assert (router["forwarded_total"], router["cursor"], router["lag"]) == (5, 8, 0)


def test_what_was_deleted_is_no_loss(engine: Harness) -> None:
    """A gap that is only deleted stays silent, also next to one that is not. (§3.3)"""
    lose_some(engine)
    engine.auto = False
    engine.delete("s", before_seq=8)
    engine.sync()
    engine.auto = True

    assert engine.datas() == [1, 2, 3, (4, 6, "source_trim"), 8]


def test_time_loses_too(engine: Harness) -> None:
    """§3.3: `reason` of the source is what `GET` router tells."""
    engine.put("s", ttl_ms=100)
    engine.auto = False
    engine.append(1, 2, name="s")
    engine.sync()
    engine.now_ms += 60
    engine.append(3, name="s")
    engine.sync()
    engine.now_ms += 60
    engine.auto = True

    assert engine.datas() == [(1, 2, "source_trim"), 3]
    assert engine.router()["loss"]["reason"] == "ttl"


def test_a_gap_is_passed_on(engine: Harness) -> None:
    """Through a chain it is the same gap. (§3.3)"""
    engine.route("r2", "d", "e")
    lose_some(engine)

    assert engine.datas("e") == [1, 2, 3, (4, 6, "source_trim"), 7, 8]
    assert engine.router("r2")["loss"]["reason"] == "source_trim"


def test_what_was_filtered_out_is_not_lost_later(engine: Harness) -> None:
    """The cursor had passed it. (§6.1)"""
    engine.route(filter="t")
    engine.append(1, 2, 3, name="s")
    engine.work_off()
    engine.put("s", cap_records=1)
    engine.append(tagged("t", 4), name="s")

    assert engine.datas() == [4]
    assert engine.router()["lost_total"] == 0


def test_seqs_behind_a_gap_go_on(engine: Harness) -> None:
    """A gap larger than any reservation; no seq is given twice, and all of it is shown. (§0.7)"""
    engine.auto = False
    for _ in range(4):
        engine.append(*range(1000), name="s")
    engine.sync()
    engine.put("s", cap_records=1)
    engine.sync()
    engine.auto = True
    engine.work_off()
    engine.append("own", name="d")

    assert engine.datas() == [(1, 3999, "source_trim"), 999, "own"]
    assert engine.state("d")["head_seq"] == 4001


def test_a_gap_that_is_not_shown_yet_is_no_gap() -> None:
    """A reader of class `fsync` is told of it with the records around it. (§0.10)"""
    engine = Harness()
    engine.put("s")
    engine.put("d", durability="fsync")
    engine.route()
    lose_some(engine)
    engine.engine.work_off(engine.moment)
    engine.write()

    engine.auto = False
    page = engine.diff(3, name="d")
    assert (page["tombstone"], page["next_from_seq"], page["lag"]) == (None, 3, 0)
    engine.sync()
    page = engine.diff(3, name="d")
    assert page["tombstone"]["gap_to"] == 6
    assert [record["data"] for record in page["records"]] == [7, 8]


# -- destinations that refuse --------------------------------------------------------------


@pytest.fixture
def blocked(engine: Harness) -> Harness:
    """A destination that holds two and takes no more; the router is blocked behind them."""
    engine.put("d", cap_records=2, discard="reject")
    engine.append(1, 2, 3, 4, name="s")
    engine.work_off()
    return engine


def test_a_full_destination_holds_the_cursor(blocked: Harness) -> None:
    """§6.1: what fits is copied, the rest waits, the source goes on taking writes."""
    assert blocked.datas() == [1, 2]
    router = blocked.router()
    assert (router["cursor"], router["lag"]) == (2, 2)
    assert router["blocked"] == {
        "code": "topic_full",
        "message": 'topic "d" is full: cap_records is 2',
        "since": START_MS,
        "retry_ms": 50,
    }
    assert blocked.append(5, name="s")["head_seq"] == 5
    assert blocked.routers()["routers"][0]["blocked"]["code"] == "topic_full"


def test_it_tries_again_with_a_pause_that_doubles(blocked: Harness) -> None:
    """§6.1: 50 ms to 5 s, and it is nobody's business until then."""
    pauses = []
    for _ in range(9):
        at_ms = blocked.engine.alarm_ms()
        assert at_ms is not None
        assert not blocked.engine.has_work()
        pauses.append(at_ms - blocked.now_ms)
        blocked.now_ms = at_ms
        blocked.work_off()

    assert pauses == [50, 100, 200, 400, 800, 1600, 3200, 5000, 5000]
    assert blocked.router()["blocked"]["since"] == START_MS
    assert blocked.datas() == [1, 2]


ROOM = {
    "a delete": lambda engine: engine.delete("d", before_seq=2),
    "a purge": lambda engine: engine.purge("d", keep=1),
    "a larger cap": lambda engine: engine.put("d", cap_records=3, discard="reject"),
    "another policy": lambda engine: engine.put("d", cap_records=9),
}


@pytest.mark.parametrize("room", ROOM)
def test_room_lets_it_go_on_at_once(blocked: Harness, room: str) -> None:
    """§6.1: nothing lost, nothing twice."""
    ROOM[room](blocked)
    blocked.work_off()
    assert blocked.state("d")["head_seq"] > 2
    blocked.put("d", cap_records=100, discard="reject")
    blocked.work_off()

    assert blocked.datas()[-3:] == [2, 3, 4]
    assert blocked.router()["blocked"] is None
    assert blocked.router()["forwarded_total"] == 4
    assert blocked.engine.alarm_ms() is None


def test_time_makes_room_too(blocked: Harness) -> None:
    """Expired records free room, which the next try finds. (§0.10)"""
    blocked.put("d", cap_records=2, discard="reject", ttl_ms=1000)
    blocked.work_off()
    blocked.now_ms += 2000
    blocked.work_off()

    assert blocked.datas() == [(1, 2, "ttl"), 3, 4]


@pytest.mark.parametrize("cap", ["cap_records", "cap_bytes"])
def test_a_pass_larger_than_a_cap_goes_through_in_parts(engine: Harness, cap: str) -> None:
    """A consumer that deletes what it has read gets everything, in order. (§6.1)"""
    engine.put("d", discard="reject", **{cap: 40 if cap == "cap_records" else 1700})
    engine.append(*range(1000), name="s")

    found: list[int] = []
    while len(found) < 1000:
        engine.work_off()
        page = engine.datas()
        assert page
        found += page
        engine.delete("d", before_seq=engine.state("d")["head_seq"] + 1)

    assert found == list(range(1000))
    assert engine.router()["forwarded_total"] == 1000


def test_a_quota_blocks_the_router(engine: Harness) -> None:
    """Copies count against quotas. (§11)"""
    engine = Harness(max_total_bytes=400)
    engine.route()
    engine.append("x" * 250, name="s")
    engine.work_off()

    assert engine.router()["blocked"]["code"] == "throttled"
    engine.delete("s", before_seq=1)
    assert engine.datas() == []


def test_a_full_disk_blocks_it_and_reads_do_not_wait(engine: Harness) -> None:
    """A read in such a state shows what is there. (§6)"""
    engine.append(1, name="s")
    engine.room_bytes = 0

    assert engine.datas() == []
    assert engine.router()["blocked"]["code"] == "throttled"
    engine.room_bytes = 1 << 40
    engine.now_ms += 60
    engine.work_off()
    assert engine.datas() == [1]


def test_a_full_disk_blocks_what_only_passes_over_records(engine: Harness) -> None:
    """A cursor takes room in the log too."""
    engine.route(filter="t")
    engine.append(1, tagged("t", 2), name="s")
    engine.append(3, name="s")
    engine.work_off()
    engine.append(4, name="s")
    engine.room_bytes = 0

    engine.work_off()

    assert engine.router()["blocked"]["code"] == "throttled"
    assert engine.router()["lag"] == 1
    engine.room_bytes = 1 << 40
    engine.now_ms += 60
    engine.work_off()
    assert (engine.router()["blocked"], engine.router()["lag"]) == (None, 0)


def test_a_router_waits_for_log_that_is_being_prepared(engine: Harness) -> None:
    """It is not blocked, and a read of its destination waits with it. (§6, §0.6)"""
    engine.append(1, name="s")
    engine.room_bytes = 0
    asked: list[int] = []
    engine.engine.unit.ask_room = lambda need_bytes: asked.append(need_bytes) is None
    engine.work_off()

    assert asked
    router = engine.engine.state.routers.by_name["r"]
    assert router.blocked is None
    assert engine.engine.alarm_ms() == engine.now_ms + ROOM_RETRY_MS
    barrier = engine.engine.barrier_for(parse_diff("d", b"{}", engine.engine.limits))
    assert barrier is not None
    assert not barrier.is_passed
    looks = len(asked)
    engine.work_off()
    assert len(asked) == looks, "it looks again before its time"

    engine.room_bytes = 1 << 40
    engine.now_ms += ROOM_RETRY_MS
    engine.work_off()
    engine.sync()
    assert barrier.is_passed
    assert engine.datas() == [1]
    assert engine.engine.alarm_ms() is None


def test_a_router_that_waited_for_a_second_is_blocked_and_says_what_is_missing(
    engine: Harness,
) -> None:
    """Not the disk: the log's next file. (§0.6)"""
    engine.append(1, name="s")
    engine.room_bytes = 0
    engine.engine.unit.ask_room = lambda need_bytes: True
    engine.work_off()
    router = engine.engine.state.routers.by_name["r"]
    for _ in range(ROOM_WAIT_MS // ROOM_RETRY_MS):
        assert router.blocked is None
        engine.now_ms += ROOM_RETRY_MS
        engine.work_off()

    blocked = engine.router()["blocked"]
    assert blocked["code"] == "throttled"
    assert "the log's next file is not ready" in blocked["message"]
    engine.room_bytes = 1 << 40
    engine.now_ms += 60
    engine.work_off()
    assert engine.datas() == [1]


def test_a_router_that_passes_over_records_waits_as_well_and_may_be_deleted(
    engine: Harness,
) -> None:
    """A cursor takes room in the log too; what is gone waits for nothing."""
    engine.route(filter="t")
    engine.append(1, name="s")
    engine.room_bytes = 0
    engine.engine.unit.ask_room = lambda need_bytes: True
    engine.work_off()
    router = engine.engine.state.routers.by_name["r"]
    assert (router.blocked, router.cursor) == (None, 0)

    engine.room_bytes = 1 << 40
    engine.now_ms += ROOM_RETRY_MS
    engine.work_off()
    assert router.cursor == 1
    assert engine.engine.alarm_ms() is None
    engine.append(2, name="s")
    engine.room_bytes = 0
    engine.work_off()
    assert engine.engine.alarm_ms() is not None
    engine.engine.state.routers.by_id.pop(router.router_id)
    engine.now_ms += ROOM_RETRY_MS
    engine.engine.router_commands._forwarding.step(engine.moment)
    assert engine.engine.alarm_ms() is None


def test_a_write_that_waits_for_log_names_the_log(engine: Harness) -> None:
    """429 that passes by itself says "disk" of disks only. (§0.6, §11)"""
    engine.room_bytes = 0
    engine.engine.unit.ask_room = lambda need_bytes: True

    rejection = refusal(engine.append, 1, name="s")

    assert "the log's next file is not ready" in rejection.message
    assert rejection.detail == {"retry_after_ms": 100}
    assert engine.engine.unit.wants_sync


def test_a_blocked_router_does_not_hold_up_its_siblings(blocked: Harness) -> None:
    """Each router has a cursor of its own. (§6)"""
    blocked.route("r2", "s", "e")
    blocked.append(5, name="s")

    assert blocked.datas("e") == [5]
    assert blocked.router()["lag"] == 3


def test_what_is_lost_while_it_is_blocked_is_told(blocked: Harness) -> None:
    """§3.3: the source's retention is reflected, not hidden."""
    blocked.put("s", cap_records=1)
    blocked.put("d", cap_records=9, discard="reject")
    blocked.work_off()

    assert blocked.datas() == [1, 2, (3, 3, "source_trim"), 4]


# -- classes -------------------------------------------------------------------------------

CLASSES = ("ephemeral", "memory", "disk", "fsync")


@pytest.mark.parametrize("dest", CLASSES)
@pytest.mark.parametrize("source", CLASSES)
def test_every_class_forwards_to_every_class(source: str, dest: str) -> None:
    """Copies honour the destination's class. (§0.10, §6)"""
    engine = Harness()
    engine.put("s", durability=source)
    engine.put("d", durability=dest)
    engine.route(guarantee="exactly_once")
    engine.append(1, 2, name="s")
    engine.append(3, name="s")

    assert engine.datas() == [1, 2, 3]
    assert engine.router()["cursor"] == 3
    logged = [e for e in engine.events if type(e).__name__ == "RecordsAppended"]
    dest_id = engine.topic("d").topic_id
    copies = sum(len(e.batch) for e in logged if e.topic_id == dest_id)
    assert copies == (0 if dest == "ephemeral" else 3)


def test_nothing_is_copied_that_is_not_shown() -> None:
    """A router reads what any reader reads: in class `fsync`, what a sync has covered. (§0.10)"""
    engine = Harness(auto=False)
    engine.put("s", durability="fsync")
    engine.put("d", durability="fsync")
    engine.route()
    engine.sync()
    engine.append(1, name="s")
    engine.write()
    engine.engine.work_off(engine.moment)
    assert (engine.engine.has_work(), engine.router()["cursor"]) == (False, 0)

    engine.sync()
    engine.engine.work_off(engine.moment)
    engine.write()
    assert engine.state("d")["head_seq"] == 0
    engine.sync()
    assert engine.state("d")["head_seq"] == 1


def test_after_a_failed_write_nothing_is_owed(engine: Harness) -> None:
    """Read-only: reads go on with what is there. (§0.6)"""
    engine.append(1, name="s")
    engine.engine.on_failed()

    assert not engine.engine.has_work()
    assert engine.engine.alarm_ms() is None
    assert engine.datas() == []
    assert rejection(engine.route, "r2", "s", "e")[0] == 503


# -- watching ------------------------------------------------------------------------------


def test_a_parked_reader_of_the_copies_wakes(engine: Harness) -> None:
    """§3: a long poll on a derived topic."""
    assert engine.wait(0, "d") is None
    engine.append(1, name="s")
    engine.work_off()

    (woken,) = engine.woken()
    assert [record["data"] for record in woken["records"]] == [1]


def test_copies_in_a_queue_are_jobs(engine: Harness) -> None:
    """A claim finds what was just written to the source; an ack there lets a blocked router go
    on. (§6, §10)"""
    engine.put("q", type="queue", cap_records=2, discard="reject")
    engine.route("r2", "s", "q")
    engine.append(1, 2, 3, name="s")

    assert engine.claimed("q", max=10) == [1, 2]
    assert engine.router("r2")["blocked"]["code"] == "topic_full"
    engine.ack(1, name="q")
    assert engine.claimed("q", max=10) == [3]


def test_a_router_between_topics_of_others_is_outside() -> None:
    """403 for a key that may not have both of its ends, whatever the router is called. (§0.2)"""
    engine = Harness()
    for name in ("a:s", "b:d"):
        engine.put(name)
    engine.route("a:r", "a:s", "b:d")
    caller = Caller("k", prefixes=("a:",))

    for command in (GetRouter("a:r", caller=caller), DeleteRouter("a:r", caller=caller)):
        assert STATUSES[refusal(engine.ask, command).code] == 403
    assert engine.router("a:r")["cursor"] == 0


def test_the_source_of_others_is_not_named_in_a_refusal() -> None:
    """409 says that the destination has a source; which, to whom that may concern. (§6.1)"""
    engine = Harness()
    for name in ("a:s", "a:d", "b:s"):
        engine.put(name)
    engine.route("b:r", "b:s", "a:d")
    asked = parse_put_router("a:r", b'{"source":"a:s","dest":"a:d"}')

    for prefixes, told in ((("a:",), None), ((), "b:s")):
        command = replace(asked, caller=Caller("k", prefixes=prefixes))
        refused = refusal(engine.ask, command)
        assert STATUSES[refused.code] == 409
        assert (refused.detail or {}).get("source") == told
        assert ("b:s" in refused.message) is (told is not None)


def test_copies_that_are_held_back_are_not_made() -> None:
    """The log is to be sealed first; then they go on where they were. (§6.1)"""
    engine = Harness()
    for name in ("s", "d"):
        engine.put(name)
    engine.route()
    engine.append(1, name="s")

    assert engine.engine.has_work()
    assert not engine.engine.has_work(may_copy=False)
    engine.engine.work_off(engine.moment, may_copy=False)
    engine.sync()
    assert engine.engine.state.routers.by_name["r"].cursor == 0
    engine.work_off()

    assert engine.datas() == [1]


def test_a_record_without_a_key_blocks_a_router_into_a_compacted_topic() -> None:
    """Records before it are copied, and it says why; it goes on where the topic takes the record. (§2, §6.1)"""
    engine = Harness()
    engine.put("s")
    engine.put("d", compact=True)
    engine.route()
    engine.append(tagged("a", 1), tagged("b", 2), 3, tagged("c", 4), name="s")
    engine.work_off()
    assert engine.datas() == [1, 2]
    assert engine.router()["blocked"]["code"] == "key_required"
    engine.put("d")
    engine.work_off()
    assert engine.datas() == [1, 2, 3, 4]
    assert engine.router()["blocked"] is None
