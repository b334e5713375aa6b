"""A follower shows what the engine shows, at every position of the log."""

import ast
import inspect
import random
from typing import Any

import orjson
import pytest
from server.readers.writing import LIMITS, Writer, appended, begun, deleted, put
from sim.files import SimFiles
from store.followers import Followers

from protocol.harness import text_of as payload_of
from protocol.viewers import short
from topics.protocol.driver.follower import Follower, Shown, Strayed
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.faces.http.routers import parse_put_router
from topics.protocol.faces.http.schedules import parse_put_schedule
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.commands import (
    Append,
    Begin,
    CommitOffsets,
    DeleteTopic,
    ReadPage,
    View,
)
from topics.protocol.model.errors import Corrupt, Rejection
from topics.protocol.model.groups import OffsetCommit
from topics.protocol.model.moment import Moment
from topics.protocol.model.outcomes import Outcome, Parked, StablePage
from topics.protocol.state import state
from topics.protocol.state.frames import Frame
from topics.protocol.state.hot_memory import freeze
from topics.protocol.state.hot_run import HotRun
from topics.protocol.state.topic import RESERVE_FIRST
from topics.store.layout import log_name

NAMES = ("disk", "memory", "fsync", "late", "short", "small", "quick")
CONFIGS: dict[str, dict[str, object]] = {
    "disk": {"durability": "disk"},
    "memory": {"durability": "memory"},
    "fsync": {"durability": "fsync"},
    "late": {"durability": "disk", "dedupe_node": True},
    "short": {"durability": "disk", "ttl_ms": 40_000},
    "small": {"durability": "disk", "cap_records": 7},
    "quick": {"durability": "ephemeral"},
}


def text_of(found: Outcome | Parked | Exception) -> object:
    """What a client would be sent, but for how long it took."""
    if isinstance(found, Rejection):
        return found.code, found.message
    assert isinstance(found, Outcome)
    text = payload_of(found)
    return text if not isinstance(found, StablePage) else (text, found.tag)


def asked(engine: Any, name: str, now_ms: int, **fields: object) -> object:
    command = parse_diff(name, orjson.dumps(fields), LIMITS)
    try:
        found = engine.submit(command, token=object(), moment=Moment(now_ms, lambda _: 0))
    except Rejection as refusal:
        found = refusal
    return text_of(found)


def page_of(engine: Any, name: str, now_ms: int, **fields: Any) -> object:
    """A page for caches, with its tag."""
    asks = {"from_seq": 0, "limit": 40, "budget_bytes": 1 << 20, "epoch": None, **fields}
    command = ReadPage(topic=name, include_tags=True, include_meta=True, **asks)
    try:
        found = engine.submit(command, token=object(), moment=Moment(now_ms, lambda _: 0))
    except Rejection as refusal:
        found = refusal
    return text_of(found)


def a_step(writer: Writer, dice: random.Random) -> None:
    name = dice.choice(NAMES)
    match dice.choice("aaaaaadddtppsmkx"):
        case "a":
            many = dice.choice((1, 1, 2, 5, 40))
            tags = {"tag": dice.choice(("red", "green"))} if dice.random() < 0.3 else {}
            body = dice.choice((10, 10, 200, 3000)) * "x"
            writer.do(appended(name, *[f"{body}{i}" for i in range(many)], **tags))
        case "d":
            topic = writer.driver.engine.state.topics.get(name)
            head = 1 if topic is None else topic.head_seq
            if dice.random() < 0.5:
                writer.do(deleted(name, before_seq=dice.randint(1, head + 1)))
            else:
                writer.do(deleted(name, match="red"))
        case "t":
            writer.advance(dice.choice((1, 300, 20_000, 70_000)))
        case "p":
            given = name if dice.random() < 0.7 else dice.choice(NAMES)
            writer.do(put(name, **CONFIGS[given]))
        case "s":
            writer.is_slow = not writer.is_slow
            if not writer.is_slow:
                writer.sync_now()
        case "m":
            writer.advance(200)
            writer.driver.nudge()
            writer.settle()
        case "k" if dice.random() < 0.3:
            writer.do(DeleteTopic(name, False))
        case _:
            writer.sync_now()


@pytest.mark.parametrize("seed", range(30))
def test_a_follower_answers_as_the_engine_does(seed: int) -> None:
    """Whatever is written, deleted, evicted, expired, sealed, and whichever log files are dropped:
    a follower at a position answers each read byte for byte as the engine does there, pages for caches
    with their tags (§3.4), in every class that is logged; and so does one that begins at any
    moment."""
    dice = random.Random(seed)
    files = SimFiles()
    writer = Writer(files)
    for name in NAMES:
        writer.do(put(name, **CONFIGS[name]))
    follower = begun(writer, files)
    served = 0
    for _ in range(60):
        for _ in range(dice.choice((1, 1, 3, 10))):
            a_step(writer, dice)
        if dice.random() < 0.05:
            follower = begun(writer, files)
        shown = writer.shown
        try:
            while not follower.follow(shown, dice.choice((1, 100, 1 << 20))):
                pass
        except FileNotFoundError:
            # It slept through two turns of the log, and what it needs is retired.
            needed = log_name(follower._store._position.file_number + 1)
            assert needed < min(name for name in files.tree() if name.endswith(".wal"))
            follower = begun(writer, files)
        for name in NAMES:
            topic = follower.state.topics.get(name)
            if topic is not None and not follower.is_whole(topic):
                continue
            head = 0 if topic is None else topic.head_seq
            for from_seq in {0, dice.randint(0, head + 1), head}:
                asks: dict[str, object] = {"from_seq": from_seq, "include_tags": True}
                if dice.random() < 0.3:
                    asks["match"] = "red"
                ours = asked(writer.driver.engine, name, writer.now_ms, **asks)
                assert asked(follower.engine, name, writer.now_ms, **asks) == ours
                ours = page_of(writer.driver.engine, name, writer.now_ms, from_seq=from_seq)
                assert page_of(follower.engine, name, writer.now_ms, from_seq=from_seq) == ours
                served += 1
    assert served > 400
    names = list(files.tree())
    assert writer.disk.stats.rotations_total > 2
    assert any(name.endswith(".seg") for name in names)
    assert "0000000001.wal" not in names


def test_a_write_is_shown_to_those_who_wait_and_watch() -> None:
    """A long poll in a follower is answered with the page that shows it, no sooner. (§3.4)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", durability="fsync"))
    follower = begun(writer, files)
    asks = orjson.dumps({"from_seq": 0, "wait_ms": 1000})
    poll = parse_diff("t", asks, LIMITS)
    moment = Moment(writer.now_ms, lambda _: 0)
    assert isinstance(follower.engine.submit(poll, token="poll", moment=moment), Parked)
    writer.is_slow = True
    writer.do(appended("t", "a"))
    assert follower.follow(writer.shown)
    assert not follower.engine.unit.wakes

    writer.sync_now()

    assert follower.follow(writer.shown)
    (wake,) = follower.engine.take_wakes()
    assert wake.token == "poll"
    assert b'"head_seq":1' in text_of(wake.result)  # type: ignore[operator]


@pytest.mark.parametrize("is_slow", [False, True])
def test_the_last_head_of_a_topic_is_that_of_the_engine(is_slow: bool) -> None:
    """However many of its last records are applied in one stretch with the delete, shown or not.
    (§7.5)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", durability="fsync"))
    follower = begun(writer, files)
    heads: list[int] = []
    for engine in (writer.driver.engine, follower.engine):
        watch = parse_watch(b'{"topics": {"t": {}}}', LIMITS, wid="wid_a", lenient=False)
        engine.submit(watch, token="watch", moment=Moment(writer.now_ms, lambda _: 0))
    writer.is_slow = is_slow
    writer.do(appended("t", 1, 2, 3))
    writer.do(DeleteTopic("t", False))
    writer.sync_now()

    assert follower.follow(writer.shown)

    for engine in (writer.driver.engine, follower.engine):
        (watched,) = engine.watches.sessions["wid_a"].watched.values()
        heads.append(watched.last_head_seq)
    assert heads == [3, 3]


def test_topics_that_the_log_does_not_have_whole_are_refused() -> None:
    """`ephemeral` now, or when some of its records were written."""
    files = SimFiles()
    writer = Writer(files)
    moved: list[int] = []
    for name, durability in (("quick", "ephemeral"), ("was", "ephemeral"), ("a", "disk")):
        writer.do(put(name, durability=durability))
    follower = begun(writer, files)
    follower._moved = moved.append
    writer.do(appended("was", 1))
    writer.do(put("was", durability="disk"))
    writer.do(appended("a", 1))
    follower.follow(writer.shown, 1 << 20)

    topics = follower.state.topics
    served = {name for name in topics if follower.is_whole(topics[name])}

    assert served == {"a"}
    writer.do(put("a", durability="ephemeral"))
    follower.follow(writer.shown, 1 << 20)
    assert topics["a"].topic_id in moved
    assert not follower.is_whole(topics["a"])


def test_an_ephemeral_topic_whose_numbers_wait_for_a_sync_is_passed_over() -> None:
    """The log has numbers that it reserved and none of its records: what the engine shows of it is
    nothing that a follower could show less of. (§10)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("quick", durability="ephemeral"))
    follower = begun(writer, files)
    [quick] = follower.state.by_id
    many = (RESERVE_FIRST + 1) * [0]
    writer.is_slow = True
    writer.do(appended("quick", *many))
    held = writer.shown
    assert held.held == {quick: 0}
    follower.follow(held)
    writer.sync_now()
    writer.is_slow = False
    writer.do(appended("quick", 1))
    writer.is_slow = True
    writer.do(appended("quick", *many * 2))
    held = writer.shown
    assert held.held == {quick: len(many) + 1}
    follower.follow(held)
    writer.sync_now()

    assert follower.follow(writer.shown)


def test_a_destination_may_lack_copies_while_they_are_owed() -> None:
    """A client that wrote to a source finds the copies in the destination. (§6)"""
    files = SimFiles()
    writer = Writer(files)
    for name in ("source", "dest"):
        writer.do(put(name))
    writer.do(parse_put_router("r", b'{"source": "source", "dest": "dest"}'))
    writer.do(appended("source", 1))
    follower = begun(writer, files)
    topics = follower.state.topics
    assert not follower.may_lack_copies(topics["dest"])
    assert topics["dest"].published_seq == 1

    topics["source"].head_seq += 1  # as if a write were there whose copies are not

    assert follower.may_lack_copies(topics["dest"])
    assert not follower.may_lack_copies(topics["source"])


def test_a_ttl_that_changed_while_records_expired_here_is_a_new_beginning() -> None:
    """They may live in the engine: what was shown cannot be squared with that. (§0.10)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", ttl_ms=1000))
    writer.do(appended("t", 1))
    follower = begun(writer, files)
    writer.do(put("t", ttl_ms=0))
    asked(follower.engine, "t", writer.now_ms + 5000, from_seq=0)

    with pytest.raises(Corrupt, match="expired here"):
        follower.follow(writer.shown)


def test_a_page_that_is_kept_does_not_outlive_a_record_that_expires_here_first() -> None:
    """A record may expire here a moment before an event comes whose counters still have it.  A page
    that was kept before is not found again by them. (§0.10)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", ttl_ms=1000))
    writer.do(appended("t", 0))
    writer.advance(500)
    writer.do(appended("t", *range(1, 100)))
    follower = begun(writer, files)
    for _ in range(3):
        asked(follower.engine, "t", writer.now_ms, from_seq=0, limit=50)
    assert follower.engine.reads.recent.held_bytes
    late_ms = writer.now_ms + 600
    asked(follower.engine, "t", late_ms, from_seq=90)

    writer.do(appended("t", 100))

    assert follower.follow(writer.shown)
    found = asked(follower.engine, "t", late_ms, from_seq=0, limit=50)
    assert b'"data":0' not in found  # type: ignore[operator]
    assert b'"data":1}' in found  # type: ignore[operator]


def test_large_runs_are_freed_once_they_are_sealed() -> None:
    """They refer to text in log files, which the engine has unlinked by then: whoever keeps the runs
    keeps the files open. (§5)"""
    files = SimFiles()
    writer = Writer(files, wal_file_bytes=1 << 20)
    writer.do(put("t", durability="disk"))
    follower = begun(writer, files)
    writer.do(appended("t", *["x" * 40_000] * 8))
    assert follower.follow(writer.shown, 1 << 20)
    topic = follower.state.topics["t"]
    large = [run for run in topic.runs if run.memory_bytes >= 256 << 10]
    assert large
    writer.advance(70_000)
    writer.driver.nudge()
    writer.settle()
    assert follower.follow(writer.shown, 1 << 20)
    assert not set(map(id, topic.runs)) & set(map(id, large))
    assert list(follower.state.memory.buried) == large

    while follower.free_some():
        pass

    assert not follower.state.memory.buried


@pytest.mark.parametrize("by", ["delete", "cap"])
def test_what_the_engine_dropped_in_part_is_dropped_here(by: str) -> None:
    """The engine freezes a run to seal it, and drops it when its records are gone; here it is a part of
    a longer one. Its text must not stay: an erasure waits for that. (§5)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", durability="disk"))
    writer.do(appended("t", *["x" * 20_000] * 3))
    follower = begun(writer, files)
    freeze(writer.driver.engine.state.topics["t"])
    writer.do(appended("t", *["y" * 20_000] * 2))
    writer.do(
        put("t", durability="disk", cap_records=2) if by == "cap" else deleted("t", before_seq=4)
    )

    for wait_ms in (1000, 61_000, 1000, 1000):
        writer.advance(wait_ms)
        writer.driver.nudge()
        writer.settle()
        while not follower.follow(writer.shown):
            pass

    while follower.free_some():
        pass
    runs = [(run.first_seq, run.count) for run in writer.driver.engine.state.topics["t"].runs]
    assert [(run.first_seq, run.count) for run in follower.state.topics["t"].runs] == runs
    assert runs == [(4, 2)]
    assert follower.state.memory.total_bytes == 0
    assert not follower.state.memory.buried


def test_the_end_of_a_run_is_dropped_with_its_begin() -> None:
    """The engine dropped each part when it was dead; here no event names the second."""
    files = SimFiles()
    writer = Writer(files, wal_file_bytes=1 << 20)
    writer.do(put("t", durability="disk"))
    writer.do(appended("t", 1, 2, 3))
    follower = begun(writer, files)
    freeze(writer.driver.engine.state.topics["t"])
    writer.do(appended("t", 4, 5))
    runs: list[list[int]] = []
    for before_seq, wait_ms in ((4, 300), (6, 61_000)):
        writer.do(deleted("t", before_seq=before_seq))
        writer.driver.nudge()
        writer.advance(wait_ms)
        while not follower.follow(writer.shown):
            pass
        runs.append([run.first_seq for run in writer.driver.engine.state.topics["t"].runs])
    assert runs == [[4], []]
    assert not list(writer.driver.engine.state.topics["t"].runs)
    assert not list(follower.state.topics["t"].runs)
    writer.do(appended("t", "z"))
    assert follower.follow(writer.shown)
    at_ms = writer.now_ms
    page = {"from_seq": 0, "limit": 10}
    assert asked(follower.engine, "t", at_ms, **page) == asked(
        writer.driver.engine, "t", at_ms, **page
    )


def test_what_is_released_is_freed_while_it_follows() -> None:
    """A part each time it looks, though nothing comes."""
    files = SimFiles()
    writer = Writer(files)
    follower = begun(writer, files)
    memory = follower.state.memory
    memory.buried.extend(HotRun(n) for n in range(3))

    assert follower.follow(follower.shown)

    assert not memory.buried


@pytest.mark.parametrize(
    ("durability", "is_power_cut"),
    [("ephemeral", False), ("memory", True), ("disk", True)],
)
def test_a_follower_begins_after_a_loss(durability: str, is_power_cut: bool) -> None:
    """What was lost is an event of the log, as any other. (§0.10)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", durability=durability))
    for n in range(3):
        writer.do(appended("t", n, n))
    after = files.cut(random.Random(3)) if is_power_cut else files.kill()
    again = Writer(after)
    again.do(put("other"))

    follower = begun(again, after)

    topic = again.driver.engine.state.topics["t"]
    assert topic.head_seq > topic.count
    assert follower.state.topics["t"].count == topic.count


def test_what_a_follower_does_without_stands_in_for_it() -> None:
    """Keys and images: every method that applying an event may call is there."""
    text = ast.parse(inspect.getsource(state))
    used: dict[str, set[str]] = {"keys": set(), "images": set()}
    for node in ast.walk(text):
        if isinstance(node, ast.Call) and isinstance(at := node.func, ast.Attribute):
            owner = at.value
            if isinstance(owner, ast.Attribute) and owner.attr in used:
                used[owner.attr].add(at.attr)
    kept = begun(Writer(files := SimFiles()), files).state
    assert {name for name in used["keys"] if not hasattr(kept.keys, name)} == set()
    assert {name for name in used["images"] if not hasattr(kept.images, name)} == set()
    assert "lose_volatile" in used["keys"]


def test_groups_schedules_and_appends_to_partitions_pass_a_follower_by() -> None:
    """It keeps neither keys nor images, and goes on behind what has them."""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", partitions=2))
    follower = begun(writer, files)

    body = {"records": [{"data": 1, "partition": 0}, {"data": 2, "partition": 1}]}
    text = orjson.dumps({**body, "idempotency_key": "once"})
    writer.do(parse_append("t", text, LIMITS, return_seqs=True, header_key=None))
    writer.do(CommitOffsets("g", [OffsetCommit("t#1", 1)]))
    yearly = {"topic": "t", "record": {"data": 1}, "cron": "0 0 1 1 *"}
    writer.do(parse_put_schedule("s", orjson.dumps(yearly)))
    assert follower.follow(writer.shown)

    assert [each.count for each in follower.state.topics["t"].partitions] == [1, 1]
    assert follower.state.groups.names == ["g"]
    assert follower.state.schedules.names == ["s"]


def test_partitions_join_the_watches_of_a_follower() -> None:
    """With the event that adds them; what is written to them is shown when it is. (§2.1, §7)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", durability="fsync"))
    follower = begun(writer, files)
    woken: list[int] = []
    stream = follower.streams.socket(lambda: woken.append(1))
    stream.add({"t": Begin()}, View(10, 1 << 20), writer.now_ms)

    def told() -> list[str]:
        found = []
        while (frame := stream.next_frame(writer.now_ms)) is not None:
            assert isinstance(frame, Frame)
            found.append(short(frame))
        return found

    assert told() == ["t caught up at 0"]
    writer.do(put("t", durability="fsync", partitions=2))
    writer.is_slow = True
    writer.do(to_partition("t", 1))
    woken.clear()
    assert follower.follow(writer.shown)
    assert woken
    assert told() == ["t#1 caught up at 0"]

    writer.sync_now()

    assert follower.follow(writer.shown)
    assert told() == ["t#1 1"]
    assert [follower.name_of(each.topic_id) for each in follower.state.topics["t"].partitions] == [
        "t",
        "t#1",
    ]


def to_partition(name: str, partition: int) -> Append:
    text = orjson.dumps({"records": [{"data": 1, "partition": partition}]})
    return parse_append(name, text, LIMITS, return_seqs=True, header_key=None)


def expiring(count: int) -> tuple[Writer, Follower]:
    """A topic of which one record expires a millisecond from the first ends on; the 50th is red."""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", durability="disk", ttl_ms=40_000))
    for n in range(1, count + 1):
        writer.do(appended("t", n, **({"tag": "red"} if n == 50 else {})))
        writer.advance(1)
    follower = begun(writer, files)
    writer.advance(40_000 - count)
    return writer, follower


def test_another_config_of_a_topic_whose_records_expire_ends_no_reader() -> None:
    """Between the decision and here a record expired, by the same `ttl_ms`; with a shorter one it would
    have as well. (§0.9)"""
    for config in ({"ttl_ms": 40_000, "cap_records": 5000}, {"ttl_ms": 30_000}):
        writer, follower = expiring(100)
        writer.do(put("t", durability="disk", **config))
        asked(follower.engine, "t", writer.now_ms + 1, from_seq=5)
        assert follower.state.topics["t"].count == 99
        assert follower.follow(writer.shown)
    writer, follower = expiring(100)
    writer.do(put("t", durability="disk", ttl_ms=90_000))
    asked(follower.engine, "t", writer.now_ms + 1, from_seq=5)
    with pytest.raises(Corrupt, match="expired here"):
        follower.follow(writer.shown)


def test_a_page_that_is_kept_has_no_deleted_record() -> None:
    """Not where as many expired here before as were deleted, so that the counts are as they were. (§5)"""
    writer, follower = expiring(100)
    writer.do(deleted("t", match="red"))  # decided with 100 records
    now_ms, asks = writer.now_ms + 1, {"from_seq": 40, "limit": 40}
    for _ in range(3):
        before = asked(follower.engine, "t", now_ms, **asks)
    assert b'"$seq":50,' in before  # type: ignore[operator]
    first_live = follower.state.topics["t"].first_live_seq()

    assert follower.follow(writer.shown)

    assert b'"$seq":50,' not in asked(follower.engine, "t", now_ms, **asks)  # type: ignore[operator]
    assert follower.state.topics["t"].first_live_seq() == first_live


def test_a_topic_that_is_not_whole_from_its_beginning_is_told() -> None:
    """Somebody may watch an earlier topic of its name. (§7.5)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("t", durability="disk"))
    follower = begun(writer, files)
    moved: list[int] = []
    follower._moved = moved.append
    writer.do(DeleteTopic("t", False))
    writer.do(put("t", durability="ephemeral"))
    writer.do(put("u", durability="memory"))

    assert follower.follow(writer.shown)

    assert moved == [follower.state.topics["t"].topic_id]


def test_a_page_that_was_decided_is_read_from_a_file_that_goes_meanwhile() -> None:
    """Before a segment is unlinked a follower learns that it goes, and opens what it still reads."""
    files = SimFiles()
    writer = Writer(files, followers=Followers(dropping=lambda: follower.follow(writer.shown)))
    writer.do(put("t"))
    follower = begun(writer, files)
    writer.do(appended("t", "a", "b"))
    writer.advance(LIMITS.segment_max_age_ms + 1)
    writer.driver.nudge()
    writer.settle()
    (segment,) = [name for name in files.tree() if name.endswith(".seg")]
    assert follower.follow(writer.shown)
    segments = follower._store._segments
    before, segments._open_max = segments._open_max, 0  # others need the descriptors
    asks = orjson.dumps({"from_seq": 0})
    moment = Moment(writer.now_ms, lambda _: 0)
    diff = parse_diff("t", asks, LIMITS)
    page = follower.engine.submit(diff, token="read", moment=moment)
    segments._open_max = before

    writer.do(deleted("t", before_seq=2, erase=True))
    writer.advance(1000)
    writer.driver.nudge()
    writer.settle()

    assert segment not in files.names()
    assert b'"data":"b"' in text_of(page)  # type: ignore[operator]


def test_text_is_found_in_a_log_file_that_has_no_name_any_more() -> None:
    """An erasure may take it away while a follower is behind. (§5)"""
    files = SimFiles()
    writer = Writer(files, wal_file_bytes=1 << 20)
    writer.do(put("t", durability="disk"))
    follower = begun(writer, files)
    writer.do(appended("t", 1))
    assert follower.follow(writer.shown)
    writer.do(appended("t", "x" * 40_000))
    for name in [name for name in files.tree() if name.endswith(".wal")]:
        follower._store._files.unlink(name)

    assert follower.follow(writer.shown)

    assert b"x" * 40_000 in asked(follower.engine, "t", writer.now_ms)  # type: ignore[operator]


def test_names_are_those_of_the_topics_that_are_there() -> None:
    """By name and by id; and a session is served where all of its topics are whole. (§7.3)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("a"))
    writer.do(put("quick", durability="ephemeral"))
    follower = begun(writer, files)
    topic = follower.topic("a")
    assert topic is not None
    assert (follower.name_of(topic.topic_id), follower.name_of(99)) == ("a", None)
    assert follower.note_read(topic, writer.now_ms) == topic.topic_id
    assert topic.last_read_ms == writer.now_ms
    for wid, names, is_served in (("wid_a", b'"a": {}', True), ("wid_b", b'"quick": {}', False)):
        watch = parse_watch(b'{"topics": {%b}}' % names, LIMITS, wid=wid, lenient=False)
        follower.engine.submit(watch, token=wid, moment=Moment(writer.now_ms, lambda _: 0))
        assert follower.serves_session(wid) is is_served
    assert not follower.serves_session("wid_none")


def test_a_page_that_cannot_name_what_waits_is_not_shown() -> None:
    """More topics wait for a sync than it has room for; the next one is. (§10)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("a"))
    follower = begun(writer, files)
    writer.do(appended("a", 1))
    shown = writer.shown
    assert not follower.follow(Shown(shown.number, shown.batch, None, shown.timing))
    assert follower.follow(writer.shown)


def test_who_showed_more_than_the_engine_shows_begins_anew() -> None:
    """What a client has seen would be unseen. (§0.10)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("a", durability="fsync"))
    writer.do(appended("a", 1, 2))
    follower = begun(writer, files)
    [topic_id] = follower.state.by_id
    writer.do(appended("a", 3))
    shown = writer.shown
    with pytest.raises(Strayed, match="shows less"):
        follower.follow(Shown(shown.number, shown.batch, {topic_id: 1}, shown.timing))


def test_a_destination_whose_copies_wait_for_a_sync_may_lack_them() -> None:
    """They are here, and are not to be shown yet. (§6)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("source"))
    writer.do(put("dest", durability="fsync"))
    writer.do(parse_put_router("r", b'{"source": "source", "dest": "dest"}'))
    follower = begun(writer, files)
    writer.is_slow = True
    writer.do(appended("source", 1))
    assert follower.follow(writer.shown, 1 << 20)
    dest = follower.topic("dest")
    assert dest is not None
    assert dest.published_seq < dest.head_seq
    assert follower.may_lack_copies(dest)
    writer.sync_now()


def test_dead_letters_change_the_queue_that_they_came_from() -> None:
    """What the queue shows is what the engine shows of it. (§10.9)"""
    files = SimFiles()
    writer = Writer(files)
    writer.do(put("dead"))
    writer.do(put("jobs", type="queue", max_deliveries=1, dead_letter="dead", lease_ms=1000))
    follower = begun(writer, files)
    writer.do(appended("jobs", 1))
    claim = parse_claim("jobs", b'{"node": "w"}', LIMITS)
    writer.do(claim)
    writer.advance(2000)
    writer.do(claim)
    assert follower.follow(writer.shown, 1 << 20)
    ours = asked(writer.driver.engine, "dead", writer.now_ms, from_seq=0)
    assert asked(follower.engine, "dead", writer.now_ms, from_seq=0) == ours
    jobs = follower.topic("jobs")
    assert jobs is not None
    assert jobs.count == 0


def test_a_follower_restores_what_a_checkpoint_has() -> None:
    """Without the keys of writes, which it keeps none of, of topics of every class and of routers."""
    files = SimFiles()
    writer = Writer(files)
    for name, config in CONFIGS.items():
        writer.do(put(name, **config))
        writer.do(appended(name, 1))
    writer.do(parse_put_router("r", b'{"source": "disk", "dest": "memory"}'))
    before = begun(writer, files)
    body = orjson.dumps({"records": [{"data": 1}]})
    for key in ("one", "two"):
        keyed = parse_append("disk", body, LIMITS, return_seqs=True, header_key=key)
        writer.do(keyed)
    assert before.follow(writer.shown, 1 << 20)
    assert before.state.keys.count == 0
    writer.do(put("quick", durability="disk"))
    writer.do(put("disk", idempotency_window_ms=1000))
    writer.do(DeleteTopic("late", False))
    writer.driver.drain()
    writer.driver.stop(lambda _: None)  # which leaves a checkpoint
    writer.settle()
    writer = Writer(files)
    follower = begun(writer, files)
    assert list(follower.refs()) == list(follower.state.refs())
    assert follower.state.keys.count == 0
    writer.do(parse_put_router("r", b'{"source": "disk", "dest": "small"}'))
    writer.do(DeleteTopic("disk", False))
    assert follower.follow(writer.shown, 1 << 20)
