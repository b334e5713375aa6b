"""What each durability class keeps over a clean stop and over SIGKILL (§0.8, §0.10, §3.3)."""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from .api import Api, dumps, tagged
from .server import Server, until
from .wire import Ended, Http1, Http2, check

Start = Callable[..., Server]
LOGGED = ("memory", "disk", "fsync")
CLASSES = ("ephemeral", *LOGGED)

ENDS: dict[str, Callable[[Server], object]] = {"stop": Server.stop, "kill": Server.kill}


@pytest.fixture(params=ENDS)
def end(request: pytest.FixtureRequest) -> Callable[[Server], object]:
    return ENDS[request.param]


@pytest.fixture
def turns(is_full: bool) -> int:
    """How often a server ends and starts again: what a restart writes, a second one reads."""
    return 3 if is_full else 2


def again(server: Server, end: Callable[[Server], object]) -> Api:
    """The same server after a clean stop or a kill."""
    assert end(server) in (0, None)
    return Api(server.start().connect(Http1))


def without_times(state: dict[str, Any]) -> dict[str, Any]:
    # What the records take on the disk depends on what was sealed by then.
    skipped = ("performance", "last_read_ts", "effective_priority", "disk_bytes", "segments")
    return {key: value for key, value in state.items() if key not in skipped}


@pytest.mark.long
def test_logged_classes_keep_everything(
    private: Start, end: Callable[[Server], object], turns: int
) -> None:
    """Records byte for byte, seqs, times, deletes, floors, config, epoch; the next seq follows
    without a gap, since the kernel outlives the process. (§0.10)"""
    server = private(segment_max_records=7)
    api = Api(server.connect(Http1))
    for kind in LOGGED:
        api.put(kind, durability=kind, cap_records=20, priority=3)
        for i in range(12):
            api.append(kind, tagged(f"t{i % 3}", {"i": i}) | {"meta": {"m": 1}}, "x", node="n")
        api.delete(kind, match="t1", before_seq=20)
    for turn in range(turns):
        before = {
            kind: (without_times(api.state(kind)), api.walk(kind, include_tags=True, limit=5))
            for kind in LOGGED
        }
        api = again(server, end)
        for kind in LOGGED:
            walked = api.walk(kind, include_tags=True, limit=5)
            assert (without_times(api.state(kind)), walked) == before[kind]
            told = api.append(kind, f"turn {turn}")
            assert told["first_seq"] == before[kind][0]["next_seq"]
    server.assert_log_is_quiet()


@pytest.mark.long
def test_the_stamps_do_not_fall_over_a_restart(
    private: Start, end: Callable[[Server], object], turns: int
) -> None:
    """`$ts` never decreases within a topic. (§0.4)"""
    server = private()
    api = Api(server.connect(Http1))
    for _ in range(turns):
        for kind in CLASSES:
            api.append(kind, 1, config={"durability": kind})
        api = again(server, end)

    for kind in LOGGED:
        stamps = [r["$ts"] for r in api.diff(kind)["records"]]
        assert stamps == sorted(stamps)
        assert len(stamps) == turns


@pytest.mark.long
def test_ephemeral_records_go_and_say_so(
    private: Start, end: Callable[[Server], object], turns: int
) -> None:
    """A tombstone (`crash`) from 1 to before the new earliest; no seq is given twice; the config
    stays. (§0.10)"""
    server = private()
    api = Api(server.connect(Http1))
    api.put("e", durability="ephemeral", priority=5)
    seen = {seq for _ in range(3) for seq in api.append("e", 1, 2)["seqs"]}
    for _ in range(turns):
        highest = max(seen)
        api = again(server, end)
        page = api.diff("e", 0)
        stone = page["tombstone"]
        assert (stone["gap_from"], stone["reason"]) == (1, "crash")
        assert stone["gap_to"] >= highest
        assert stone["gap_to"] + 1 == page["earliest_seq"] == stone["earliest_seq"]
        assert (page["records"], page["caught_up"]) == ([], True)
        assert api.state("e")["config"]["priority"] == 5
        inside = api.diff("e", highest - 1)["tombstone"]
        assert (inside["gap_from"], inside["gap_to"]) == (highest, stone["gap_to"])
        fresh = api.append("e", "new")["seqs"]
        assert not seen & set(fresh)
        assert api.seqs("e", page["next_from_seq"]) == fresh
        seen |= set(fresh)


def test_a_clean_stop_records_exact_heads(private: Start) -> None:
    """After a clean stop no seq is skipped. (§0.10)"""
    server = private()
    api = Api(server.connect(Http1))
    api.append("e", 1, 2, 3, config={"durability": "ephemeral"})
    api = again(server, Server.stop)

    assert api.diff("e")["tombstone"]["gap_to"] == 3
    assert api.append("e", 4)["seqs"] == [4]


def test_switching_the_class_keeps_each_promise(
    private: Start, end: Callable[[Server], object]
) -> None:
    """Records acknowledged under the old class stay as durable as it promised, later ones have the
    new class; the ephemeral middle is one gap. (§0.10, §3.3)"""
    server = private()
    api = Api(server.connect(Http1))
    api.append("t", "a", "b")
    api.put("t", durability="ephemeral")
    api.append("t", "lost", "lost")
    api.put("t", durability="fsync")
    (last,) = api.append("t", "c")["seqs"]
    api = again(server, end)

    found = api.walk("t")
    assert [r.get("data", r.get("reason")) for r in found] == ["a", "b", "crash", "c"]
    assert (found[2]["gap_from"], found[2]["gap_to"]) == (3, last - 1)
    assert found[3]["$seq"] == last == 5
    assert api.state("t")["count"] == 3
    assert api.append("t", "d")["seqs"] == [6]


def test_an_ephemeral_tail_over_durable_records(
    private: Start, end: Callable[[Server], object]
) -> None:
    """The durable records are there, the loss of the tail is reported, and no cursor gets stuck
    before it. (§3.3)"""
    server = private()
    api = Api(server.connect(Http1))
    api.append("t", "a", "b", durable=True)
    api.put("t", durability="ephemeral")
    api.append("t", "lost")
    api = again(server, end)

    found = api.walk("t")
    assert [r.get("data", r.get("reason")) for r in found] == ["a", "b", "crash"]
    (fresh,) = api.append("t", "new")["seqs"]
    assert fresh > 3
    assert api.diff("t", 2)["tombstone"]["gap_from"] == 3
    assert api.seqs("t", 0) == [1, 2]


def test_keys_survive_with_their_records(private: Start, end: Callable[[Server], object]) -> None:
    """An idempotency key is as durable as its record's class; an ephemeral one is lost. (§0.8)"""
    server = private()
    api = Api(server.connect(Http1))
    for kind in CLASSES:
        api.append(kind, 0, config={"durability": kind})
        api.append(kind, 1, 2, idempotency_key="k")
    for _ in range(2):
        api = again(server, end)
        for kind in LOGGED:
            told = api.append(kind, 9, idempotency_key="k")
            assert (told["seqs"], told["deduped"]) == ([2, 3], True)
            assert api.seqs(kind) == [1, 2, 3]
    assert api.append("ephemeral", 9, idempotency_key="k")["deduped"] is False


def test_deletions_of_topics_and_configs_survive(
    private: Start, end: Callable[[Server], object]
) -> None:
    """A change that was answered is there, and a name that is used again is a new instance. (§1.1,
    §1.4)"""
    server = private()
    api = Api(server.connect(Http1))
    for name in ("gone", "anew", "kept"):
        api.append(name, 1, 2)
    epoch = api.state("anew")["epoch"]
    api.drop("gone")
    api.drop("anew")
    api.append("anew", "x")
    api.put("kept", ttl_ms=10**9, durability="memory")
    api = again(server, end)

    assert [t["topic"] for t in api.ok("GET", "/v0/topics")["topics"]] == ["anew", "kept"]
    assert api.state("anew")["epoch"] != epoch
    assert api.diff("anew", 1, epoch=epoch)["tombstone"]["reason"] == "recreated"
    config = api.state("kept")["config"]
    assert (config["ttl_ms"], config["durability"]) == (10**9, "memory")


def test_loss_stays_told(private: Start, end: Callable[[Server], object]) -> None:
    """Floors of caps and of expiry do not decrease over a restart. (§3.3)"""
    server = private()
    api = Api(server.connect(Http1))
    api.put("cap", cap_records=2)
    api.append("cap", *range(5))
    api.append("ttl", 1, 2)
    api.put("ttl", ttl_ms=1)
    while api.state("ttl")["count"]:
        pass
    before = {name: api.diff(name)["tombstone"] for name in ("cap", "ttl")}
    api.put("ttl")
    api = again(server, end)

    after = {name: api.diff(name)["tombstone"] for name in ("cap", "ttl")}
    assert after == before
    assert [s["reason"] for s in after.values()] == ["cap", "ttl"]


@pytest.mark.long
def test_purges_and_deletes_are_not_undone(
    private: Start, end: Callable[[Server], object], turns: int
) -> None:
    """Of hot and of sealed records alike; a second restart changes nothing. (§5)"""
    server = private(segment_max_records=10)
    api = Api(server.connect(Http1))
    for i in range(40):
        api.append("t", tagged(f"s.{i % 4}"))
    for _ in range(turns - 1):
        api = again(server, end)
        api.purge("t", filter="s.1")
        api.delete("t", before_seq=6)
        expected = [i + 1 for i in range(40) if i % 4 != 1 and i >= 5]
        assert api.seqs("t") == expected
        api = again(server, end)
        page = api.diff("t")
        assert [r["$seq"] for r in page["records"]] == expected
        assert page["tombstone"] is None
        assert api.state("t")["count"] == len(expected)


class Writer(threading.Thread):
    """Appends to one topic until the server stops; keeps what it tried and what was
    acknowledged."""

    def __init__(self, port: int, topic: str, label: str, wire: type[Http1] | type[Http2]) -> None:
        super().__init__()
        self.topic = topic
        self.tried: set[str] = set()
        self.told: dict[int, str] = {}
        self._wire = wire(port)
        self._label = label

    def run(self) -> None:
        i = 0
        while True:
            texts = [f"{self._label}/{i}/{j}" for j in range(i % 4 + 1)]
            self.tried.update(texts)
            body = {"records": [{"data": text} for text in texts]}
            json = {"content-type": "application/json"}
            try:
                self._wire.send("POST", f"/v0/topics/{self.topic}", dumps(body), json)
                answer = check(self._wire.receive())
            except (Ended, OSError):
                self._wire.reset()
                return
            assert answer.status in (200, 201), answer
            self.told |= dict(zip(answer.json["seqs"], texts, strict=True))
            i += 1


def have_written(writers: list[Writer]) -> bool:
    assert all(writer.is_alive() for writer in writers)
    return min(len(writer.told) for writer in writers) >= 8


@pytest.mark.long
def test_kills_among_writers(private: Start, is_full: bool) -> None:
    """No acknowledged record is missing, no seq is given twice, no loss is reported that did not
    happen. (§0.10)"""
    server = private(segment_max_records=64)
    told: dict[str, dict[int, str]] = {kind: {} for kind in CLASSES}
    tried: dict[str, set[str]] = {kind: set() for kind in CLASSES}
    api = Api(server.connect(Http1))
    for kind in CLASSES:
        api.put(kind, durability=kind)
    for turn in range(12 if is_full else 3):
        writers = [
            Writer(server.port, kind, f"{turn}{wire.__name__}", wire)
            for kind in CLASSES
            for wire in (Http1, Http2)
        ]
        for writer in writers:
            writer.start()
        until("some writes of each", partial(have_written, writers))
        server.kill()
        for writer in writers:
            writer.join()
            assert not told[writer.topic].keys() & writer.told.keys()
            told[writer.topic] |= writer.told
            tried[writer.topic] |= writer.tried
        server.start()
        api = Api(server.connect(Http1))
        for kind in LOGGED:
            found = {r["$seq"]: r["data"] for r in api.walk(kind, limit=1000)}
            assert list(found) == list(range(1, len(found) + 1))
            assert {seq: found[seq] for seq in told[kind]} == told[kind]
            assert set(found.values()) <= tried[kind]
            assert len(set(found.values())) == len(found)
    assert server.stop() == 0
    server.assert_log_is_quiet()
