"""Watching: the table of places, passes, loss, instances, sessions and shared frames (§7)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest

from protocol.harness import Harness, by, refusal, tagged
from protocol.viewers import Socket, Viewer, short
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.access import Caller
from topics.protocol.model.events import TailLost
from topics.protocol.model.limits import Limits
from topics.protocol.model.tags import equals
from topics.protocol.state.frames import RecordFrame
from topics.protocol.state.watched import StreamEnd
from topics.protocol.state.watches import SESSION_TTL_MS, Session, own_view


@pytest.fixture
def engine() -> Harness:
    made = Harness()
    made.put()
    return made


def test_no_story_leads_to_an_impossible_cell(engine: Harness) -> None:
    """News of a topic that is gone queue nothing, also when another takes its name. (§7.5)"""
    engine.append(1, 2)
    viewer = Viewer(engine).open()
    assert viewer.told() == ["t 1-2", "t caught up at 2"]
    engine.drop()
    assert viewer.told() == ["t deleted at 2"]
    engine.append(1)
    assert viewer.told() == []


# ---------------------------------------------------------------------- caught up


def test_caught_up_follows_the_first_drain(engine: Harness) -> None:
    """Once after connect, also where there is nothing. (§7.5)"""
    assert Viewer(engine).open().told() == ["t caught up at 0"]
    engine.append(1, 2, 3)
    viewer = Viewer(engine, limit=2).open()
    assert viewer.told() == ["t 1-2", "t 3", "t caught up at 3"]


def test_a_frame_that_reaches_the_head_is_no_backlog(engine: Harness) -> None:
    """A live stream that takes one frame at a time is not told each time. (§7.5)"""
    viewer = Viewer(engine, limit=3).open()
    viewer.told()
    engine.append(1)
    assert viewer.told() == ["t 1"]
    engine.append(2)
    engine.append(3, 4)
    assert viewer.told() == ["t 2-4"]


def test_caught_up_follows_every_later_backlog_of_more_than_one_frame(engine: Harness) -> None:
    """The transition back to live is told. (§7.5)"""
    viewer = Viewer(engine, limit=2).open()
    viewer.told()
    engine.append(1, 2, 3)
    assert viewer.told() == ["t 1-2", "t 3", "t caught up at 3"]
    engine.append(4)
    assert viewer.told() == ["t 4"]


def test_caught_up_again_after_a_reconnect(engine: Harness) -> None:
    """Each stream has a first drain. (§7.5)"""
    viewer = Viewer(engine).open()
    viewer.told()
    viewer.close()
    assert viewer.open().told() == ["t caught up at 0"]


def test_what_is_filtered_is_caught_up_with(engine: Harness) -> None:
    """Everything skipped: the cursor is at the head, and it is told where it stands. (§3.2, §4)"""
    engine.append(by("me"), by("me"))
    viewer = Viewer(engine, node="me").open()
    assert viewer.told() == ["t caught up at 2"]
    assert viewer.cursors == {"t": 2}
    engine.append(by("me"), by("you"), by("me"))
    assert viewer.told() == ["t 4"]
    assert viewer.cursors == {"t": 5}


# ---------------------------------------------------------------------- what is asked for


@pytest.mark.parametrize(
    ("begin", "expected"),
    [
        ({}, ["t 1-3"]),
        ({"from_seq": 2}, ["t 3"]),
        ({"tail": True}, []),
        ({"tail": True, "from_seq": 1}, []),
        ({"from_ts": 1_750_000_000_001}, ["t 2-3"]),
        ({"match": "a"}, ["t 1"]),
        ({"match": "b*", "from_seq": 2}, ["t 3"]),
    ],
)
def test_where_it_begins(engine: Harness, begin: dict[str, object], expected: list[str]) -> None:
    """After a seq, at a time, at the head, and only what matches. (§7.2)"""
    for tag in ("a", "b1", "b2"):
        engine.append(tagged(tag))
        engine.now_ms += 1
    viewer = Viewer(engine, topics={"t": begin}).open()
    assert viewer.told() == [*expected, "t caught up at 3"]


def test_tail_is_fixed_by_the_post(engine: Harness) -> None:
    """What is written between POST and GET is not missed. (§7.2)"""
    engine.append(1)
    viewer = Viewer(engine, topics={"t": {"tail": True}})
    engine.append(2)
    assert viewer.open().told() == ["t 2", "t caught up at 2"]


def test_a_cursor_wins_where_it_names_the_topic(engine: Harness) -> None:
    """A session that was lost goes on from the id of its last frame. (§7.2, §7.4)"""
    engine.put("u")
    for name in "tu":
        engine.append(1, 2, 3, name=name)
    old = Viewer(engine, "t", limit=2).open()
    old.frames(1)
    again = Viewer(engine, topics={"t": {}, "u": {"tail": True}}, cursor=old.id).open()
    assert again.told() == ["t 3", "t caught up at 3", "u caught up at 3"]


@pytest.mark.parametrize("cursor", ["", "nonsense", "W10", "bnVsbA", "MTI"])
def test_a_cursor_of_something_else_is_refused(engine: Harness, cursor: str) -> None:
    """To begin elsewhere than the client believes would be a silent gap. (§7.2)"""
    assert STATUSES[refusal(Viewer, engine, "t", cursor=cursor).code] == 400


@pytest.mark.parametrize("position", [-1, 1.5, "2", True, None, [], 2**70])
def test_a_cursor_whose_position_is_none_is_refused(engine: Harness, position: object) -> None:
    """A topic that it names does not begin elsewhere in silence; others are not looked at. (§7.2)"""
    named = {"t": position, "u": "anything"}
    cursor = urlsafe_b64encode(json.dumps(named).encode()).decode()
    assert STATUSES[refusal(Viewer, engine, "t", cursor=cursor).code] == 400
    engine.put("v")
    assert Viewer(engine, "v", cursor=cursor).cursors == {"v": 0}


def test_a_cursor_of_many_topics_is_whole_or_refused(engine: Harness) -> None:
    """A list that is cut short, or that holds something else than positions. (§7.2, §7.4)"""
    names = [f"many{i}" for i in range(65)]
    for name in names:
        engine.put(name)
    known = Viewer(engine, *names).posted["cursor"]
    listed = json.loads(urlsafe_b64decode(known + "=="))
    for seqs in (listed["s"][:-1], [*listed["s"][:-1], "x"], None):
        forged = urlsafe_b64encode(json.dumps({**listed, "s": seqs}).encode()).decode()
        assert STATUSES[refusal(Viewer, engine, *names, cursor=forged).code] == 400
    assert Viewer(engine, *names, cursor=known).posted["cursor"] == known


def test_a_cursor_says_nothing_of_what_it_does_not_name(engine: Harness) -> None:
    """Other topics begin where they are asked to. (§7.2)"""
    engine.append(1, 2)
    old = Viewer(engine)
    engine.put("u")
    viewer = Viewer(engine, topics={"u": {}}, cursor=old.posted["cursor"])
    assert viewer.cursors == {"u": 0}


def test_lenient_leaves_out_what_is_not_there(engine: Harness) -> None:
    """An unknown topic is 404, or is dropped; with none left the session is empty. (§7.2)"""
    assert STATUSES[refusal(Viewer, engine, "t", "nobody").code] == 404
    assert set(Viewer(engine, "t", "nobody", lenient=True).posted["topics"]) == {"t"}
    empty = Viewer(engine, "nobody", lenient=True)
    assert empty.posted["topics"] == {}
    assert Viewer(engine, "t", cursor=empty.posted["cursor"]).cursors == {"t": 0}
    assert empty.open().told() == []


def test_dedupe_node_turned_off_shows_echoes(engine: Harness) -> None:
    """The topic's config is asked at each frame, shared ones included. (§4)"""
    engine.append(by("me"), by("you"))
    assert Viewer(engine, node="me").open().told() == ["t 2", "t caught up at 2"]
    engine.put(dedupe_node=False)
    assert Viewer(engine, node="me").open().told() == ["t 1-2", "t caught up at 2"]


def test_strong_waits_for_the_sync() -> None:
    """`eventual` shows what is written, `strong` what is synced; each is caught up there. (§7.2)"""
    engine = Harness()
    engine.put(durability="disk")
    engine.auto = False
    eventual = Viewer(engine).open()
    strong = Viewer(engine, consistency="strong").open()
    assert [eventual.told(), strong.told()] == [["t caught up at 0"]] * 2
    engine.append(1, 2)
    assert [eventual.told(), strong.told()] == [[], []]
    lsn = engine.write()
    assert [eventual.told(), strong.told()] == [["t 1-2"], []]
    late = Viewer(engine, consistency="strong").open()
    assert late.told() == ["t caught up at 0"]
    engine.engine.on_synced(lsn)
    assert [eventual.told(), strong.told(), late.told()] == [[], ["t 1-2"], ["t 1-2"]]


@pytest.mark.parametrize("durability", ["ephemeral", "memory", "disk", "fsync"])
def test_both_consistencies_show_every_class(durability: str) -> None:
    """Nothing is withheld for good. (§7.2, §0.10)"""
    engine = Harness()
    engine.put(durability=durability)
    streams = [Viewer(engine, consistency=c).open() for c in ("eventual", "strong")]
    engine.append(1, 2)
    assert [v.told() for v in streams] == [["t 1-2", "t caught up at 2"]] * 2


# ---------------------------------------------------------------------- loss


def test_a_cursor_below_the_floor_is_told_on_connect(engine: Harness) -> None:
    """`from_seq_too_old`, before any record; the frame after it starts at `gap_to`. (§7.5)"""
    engine.put(cap_records=2)
    engine.append(*range(5))
    viewer = Viewer(engine).open()
    stone, records = viewer.frames(2)
    assert short(stone) == "t lost 1-3 from_seq_too_old"
    assert isinstance(records, RecordFrame)
    assert (records.from_seq, records.to_seq) == (3, 5)
    assert viewer.told() == ["t caught up at 5"]


def test_loss_on_an_open_stream_has_its_own_reason(engine: Harness) -> None:
    """A burst over the cap passes a live reader: `cap`, or `ttl`. (§3.3, §7.5)"""
    engine.put(cap_records=2)
    viewer = Viewer(engine).open()
    viewer.told()
    engine.append(*range(5))
    assert viewer.told() == ["t lost 1-3 cap", "t 4-5"]

    engine.put(ttl_ms=10)
    engine.append(6, 7)
    engine.now_ms += 100
    engine.append(8)
    assert viewer.told() == ["t lost 6-7 ttl", "t 8"]


def test_what_expires_while_it_waits_in_a_pass_is_not_shown(engine: Harness) -> None:
    """A slow client's pass may last; a record that is past its time is gone when it is chosen. (§3)"""
    engine.put("u", ttl_ms=10)
    for name in "tu":
        engine.append(1, name=name)
    viewer = Viewer(engine, "t", "u").open()
    assert viewer.told(2) == ["t 1", "t caught up at 1"]
    engine.now_ms += 100
    assert viewer.told() == ["u lost 1-1 from_seq_too_old", "u caught up at 1"]


def test_deletes_are_silent(engine: Harness) -> None:
    """The backlog, and what waits for a slow reader, without a tombstone. (§5)"""
    engine.append(*map(tagged, "abcde"))
    engine.delete(before_seq=2)
    engine.delete(match="c")
    viewer = Viewer(engine, limit=1).open()
    assert viewer.told(1) == ["t 2"]
    engine.delete(match="d")
    assert viewer.told() == ["t 5", "t caught up at 5"]


def test_a_hole_is_told_once(engine: Harness) -> None:
    """What a crash took above the floor: one tombstone, whoever comes by. (§3.3)"""
    engine.append(1, 2)
    topic = engine.topic()
    lost = TailLost(engine.now_ms, topic.topic_id, 3, 6, "crash", topic.count, topic.size_bytes)
    engine.engine.unit.emit(lost)
    topic.published_seq = topic.synced_seq = topic.head_seq
    engine.append(3)
    assert engine.state()["head_seq"] == 7

    viewer = Viewer(engine).open()
    assert viewer.told() == ["t 1-2", "t lost 3-6 crash", "t 7", "t caught up at 7"]
    inside = Viewer(engine, topics={"t": {"from_seq": 4}}).open()
    assert inside.told() == ["t lost 5-6 crash", "t 7", "t caught up at 7"]
    viewer.close()
    assert viewer.open().told() == ["t caught up at 7"]


# ---------------------------------------------------------------------- deleted, made again


def test_the_end_of_a_topic_is_terminal_for_it_alone(engine: Harness) -> None:
    """With the last head of the instance that went; the others go on. (§7.5)"""
    engine.put("u")
    viewer = Viewer(engine, "t", "u").open()
    viewer.told()
    engine.append(1, 2, 3)
    engine.drop()
    engine.append(1, name="t")
    engine.append(1, name="u")
    assert sorted(viewer.told()) == ["t deleted at 3", "u 1"]
    engine.append(2, name="t")
    assert viewer.told() == []


@pytest.mark.parametrize("durability", ["memory", "fsync"])
def test_the_last_head_counts_what_is_on_its_way(durability: str) -> None:
    """An append that is decided before the delete is acknowledged with its seqs, though no reader saw
    the records. (§7.5)"""
    engine = Harness()
    engine.put(durability=durability)
    engine.append(1)
    viewer = Viewer(engine).open()
    viewer.told()
    engine.auto = False
    engine.append(2, 3)
    engine.drop()
    assert viewer.told() == ["t deleted at 3"]


def test_a_topic_that_goes_while_nobody_listens_is_told_on_connect(engine: Harness) -> None:
    """`topic-deleted` also to a stream that opens later, each time. (§7.5)"""
    engine.append(1, 2)
    viewer = Viewer(engine)
    engine.drop()
    assert viewer.open().told() == ["t deleted at 2"]
    viewer.close()
    assert viewer.open().told() == ["t deleted at 2"]


def test_a_topic_made_again_is_told_on_the_next_connect(engine: Harness) -> None:
    """`recreated` over all of the new one, whose records follow from the earliest. (§3.3, §7.5)"""
    engine.append(*range(9))
    viewer = Viewer(engine).open()
    viewer.told()
    engine.drop()
    assert viewer.told() == ["t deleted at 9"]
    viewer.close()
    engine.put(cap_records=2)
    engine.append(1, 2, 3)
    viewer.open()
    first, second = viewer.frames(2)
    assert (short(first), short(second)) == ("t lost 1-3 recreated", "t 2-3")
    assert isinstance(second, RecordFrame)
    assert second.from_seq == 1
    assert viewer.told() == ["t caught up at 3"]
    viewer.close()
    assert viewer.open(viewer.id).told() == ["t caught up at 3"]


def test_a_position_beyond_the_head_is_of_something_else(engine: Harness) -> None:
    """`recreated`, as a read by cursor says it. (§3.3)"""
    engine.append(1, 2)
    viewer = Viewer(engine, topics={"t": {"from_seq": 7}}).open()
    assert viewer.told() == ["t lost 1-2 recreated", "t 1-2", "t caught up at 2"]


def test_recreated_that_did_not_arrive_is_told_again(engine: Harness) -> None:
    """An id from the old instance is no position in the new one, whatever the number. (§7.4)"""
    engine.append(*range(9))
    viewer = Viewer(engine, limit=3).open()
    viewer.frames(1)
    before = viewer.id
    viewer.close()
    engine.drop()
    engine.append(*range(9))
    for _ in range(2):
        # Each time all of it is pulled, and lost on its way.
        assert viewer.open(before).told(2) == ["t lost 1-9 recreated", "t 1-3"]
        after = viewer.id
        viewer.told()
        viewer.close()
    assert viewer.open(after).told(1) == ["t 4-6"]


def test_until_recreated_is_told_an_id_says_what_the_client_said(engine: Harness) -> None:
    """A frame of another topic in between must not carry the client over. (§7.4)"""
    engine.put("u", priority=1000)
    engine.append(1, 2)
    viewer = Viewer(engine, "t", "u").open()
    viewer.told()
    before = viewer.id
    viewer.close()
    engine.drop()
    engine.append(1, 2, 3)
    viewer.open(before).told()
    viewer.close()
    assert viewer.open(before).told(1) == ["u caught up at 0"]
    between = viewer.id
    viewer.close()
    assert viewer.open(between).told(1) == ["u caught up at 0"]
    assert viewer.told(2) == ["t lost 1-3 recreated", "t 1-3"]


# ---------------------------------------------------------------------- fairness


def test_a_busy_topic_holds_up_nobody(engine: Harness) -> None:
    """One frame a topic and pass, however much one of them has. (§7.6)"""
    names = [f"q{i}" for i in range(9)]
    for name in names:
        engine.append(1, name=name)
    engine.append(*range(100))
    viewer = Viewer(engine, "t", *names, limit=10).open()
    first = [frame.topic for frame in viewer.frames(19) if isinstance(frame, RecordFrame)]
    assert first == ["t", *names]

    # News of the quiet ones, while the busy one goes on: each is served within one pass.
    for name in names:
        engine.append(2, name=name)
    engine.append(*range(100))
    served = [frame.topic for frame in viewer.frames(1 + len(names))]
    assert sorted(served) == sorted(["t", *names])


def test_a_topic_that_loses_all_the_time_holds_up_nobody(engine: Harness) -> None:
    """A tombstone counts as the frame of its pass. (§7.6)"""
    engine.put(cap_records=1)
    engine.append(1, name="u")
    viewer = Viewer(engine, "t", "u").open()
    served = []
    for _ in range(4):
        engine.append(1, 2)
        served += viewer.told(1)
    assert "u 1" in served[:3]


def test_priority_orders_a_pass(engine: Harness) -> None:
    """Higher first, and within one priority as they came. (§0.10)"""
    for name, priority in (("low", -5), ("mid", 0), ("mid2", 0), ("high", 7)):
        engine.put(name, priority=priority)
        engine.append(1, 2, name=name)
    viewer = Viewer(engine, "low", "mid", "mid2", "high", limit=1).open()
    told = [line for line in viewer.told() if "caught" not in line]
    assert told == [f"{n} {s}" for s in (1, 2) for n in ("high", "mid", "mid2", "low")]


def test_a_look_that_only_skips_lets_others_on(
    engine: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One pull looks at a bounded number of rows, then asks to be asked again. (§3.2)"""
    monkeypatch.setattr("topics.protocol.state.selection.SCAN_ROWS_MAX", 10)
    engine.append(*[by("me")] * 35, by("you"))
    viewer = Viewer(engine, node="me").open()
    looks = []
    for _ in range(4):
        looks.append(engine.engine.watch_commands.next_frame(viewer.stream, engine.now_ms))
    assert looks[:3] == [None, None, None]
    assert viewer.woken == 3
    assert looks[3] is not None
    assert short(looks[3]) == "t 36"


# ---------------------------------------------------------------------- sessions


def test_a_reconnect_goes_on_and_an_id_only_rewinds(engine: Harness) -> None:
    """The session's position holds; an id moves it back and never on. (§7.4)"""
    engine.append(*range(6))
    viewer = Viewer(engine, limit=2).open()
    viewer.frames(1)
    first = viewer.id
    viewer.told()
    last = viewer.id
    viewer.close()
    engine.append(7)
    assert viewer.open().told() == ["t 7", "t caught up at 7"]
    viewer.close()
    assert viewer.open(first).told(1) == ["t 3-4"]
    viewer.close()
    assert viewer.open(last).told(1) == ["t 5-6"]


def test_the_newer_stream_takes_over(engine: Harness) -> None:
    """The older one is told 409 and gets nothing more; its end does not touch the newer. (§7.3)"""
    viewer = Viewer(engine).open()
    old, woken = viewer.stream, viewer.woken
    viewer.open()
    assert old.ended_by is StreamEnd.TAKEN_OVER
    assert viewer.woken == woken + 1
    watches = engine.engine.watches
    watches.close_session_stream(viewer.session, old, engine.now_ms)
    engine.append(1)
    assert engine.engine.watch_commands.next_frame(old, engine.now_ms) is None
    assert viewer.told() == ["t 1", "t caught up at 1"]
    assert watches.streams == {viewer.stream}


def test_a_session_without_a_stream_lives_its_time(engine: Harness) -> None:
    """`session_ttl_ms` after the last stream; one with a stream is never let go. (§7.1)"""
    idle, open_ = Viewer(engine), Viewer(engine).open()
    engine.now_ms += SESSION_TTL_MS
    Viewer(engine)
    assert idle.open() is idle
    idle.close()
    engine.now_ms += SESSION_TTL_MS + 1
    assert (
        STATUSES[
            refusal(engine.engine.watch_commands.require_session, idle.wid, engine.now_ms).code
        ]
        == 404
    )
    assert STATUSES[refusal(idle.open).code] == 404
    engine.append(1)
    assert open_.told() == ["t 1", "t caught up at 1"]
    open_.close()
    engine.now_ms += SESSION_TTL_MS
    assert open_.open() is open_


def test_what_nobody_watches_is_forgotten(engine: Harness) -> None:
    """Sessions, streams and sockets that end leave nothing behind. (§7.1)"""
    watches = engine.engine.watches
    viewer, socket = Viewer(engine).open(), Socket(engine)
    socket.subscribe("t")
    assert viewer.told() == socket.told() == ["t caught up at 0"]
    viewer.close()
    socket.close()
    engine.now_ms += SESSION_TTL_MS + 1
    watches.forget_idle(engine.now_ms)
    assert (len(watches.sessions), len(watches.streams)) == (0, 0)
    assert watches._by_topic == {}


def test_a_session_with_a_stream_costs_no_other_session_a_look(engine: Harness) -> None:
    """Of those that are due to be forgotten, only the oldest is looked at: to open ten thousand
    streams had looked at all sessions ten thousand times."""

    class Unlooked(dict[str, Session]):
        def __iter__(self) -> Any:
            raise AssertionError("all sessions were looked at")

        values = items = keys = __iter__

    watches = engine.engine.watches
    viewers = [Viewer(engine).open() for _ in range(5)]
    watches.sessions = Unlooked(watches.sessions)

    Viewer(engine).open()
    viewers[0].close()
    Viewer(engine).open()
    engine.now_ms += SESSION_TTL_MS + 1
    left = Viewer(engine)

    assert len(watches.sessions) == 7
    assert viewers[0].wid not in watches.sessions
    assert left.wid in watches.sessions


def test_bounds_on_sessions_and_connections() -> None:
    """429, and a takeover needs no further connection. (§11)"""
    engine = Harness(max_watch_sessions=2, max_sse_connections=2, max_watch_topics=2)
    for name in "abc":
        engine.put(name)
    viewers = [Viewer(engine, "a").open(), Viewer(engine, "a").open()]
    refused = [refusal(Viewer, engine, "a"), refusal(Socket, engine)]
    assert [r.detail for r in refused] == [
        {"limit": "max_watch_sessions", "max": 2},
        {"limit": "max_sse_connections", "max": 2},
    ]
    assert viewers[0].open() is viewers[0]
    viewers[1].close()
    socket = Socket(engine)
    socket.subscribe("a", "b")
    socket.subscribe("b")
    assert STATUSES[refusal(socket.subscribe, "c").code] == 400
    assert STATUSES[refusal(Viewer, engine, *"abc").code] == 400


def test_a_topic_may_have_filters_of_its_own() -> None:
    """`node` and `match` of one topic win over those of the whole watch. (§7.2)"""
    body = b"""{"node": "me", "match": "x", "topics": {
        "a": {}, "b": {"node": ["you", "they"]}, "c": {"node": [], "match": "y"}}}"""

    asked = parse_watch(body, Limits(), wid="w", lenient=False)
    views = {name: own_view(asked.view, begin) for name, begin in asked.topics.items()}

    assert {name: view.nodes for name, view in views.items()} == {
        "a": ("me",),
        "b": ("you", "they"),
        "c": (),
    }
    assert views["a"].match == views["b"].match == equals("x")
    assert views["c"].match == equals("y")


def test_a_session_without_a_stream_goes_with_its_key(engine: Harness) -> None:
    """There is no stream to end: the next reconnect finds no session. (§7.7)"""
    owner = Caller("k")
    viewer = Viewer(engine)
    engine.engine.watches.sessions[viewer.wid].owner = owner

    engine.engine.watches.revoke(owner)

    assert viewer.wid not in engine.engine.watches.sessions


def test_records_that_cannot_be_read_after_their_topic_has_gone_change_nothing(
    engine: Harness,
) -> None:
    """The stream was told that the topic was deleted: there is nothing left to try again. (§7.5)"""
    engine.append(1, 2)
    viewer = Viewer(engine).open()
    stream = viewer.stream
    frame = viewer.pull()
    assert isinstance(frame, RecordFrame)
    engine.drop()
    assert "t deleted at 2" in viewer.told()
    before = stream.watched["t"].place

    engine.engine.watches.on_unreadable(stream, frame)

    assert stream.watched["t"].place is before
    assert viewer.told() == []


def test_a_stream_that_ends_waits_for_no_copies(engine: Harness) -> None:
    """Who makes them may forget them. (§6, §7.5)"""

    class Owed:
        is_passed = False

    engine.engine.watches.copies_before = lambda topic: Owed()
    viewer = Viewer(engine).open()
    assert viewer.told() == []
    watched = viewer.session.watched["t"]
    assert isinstance(watched.copies, Owed)
    viewer.close()
    assert watched.copies is None


def test_streams_of_a_topic_that_another_node_has_end(engine: Harness) -> None:
    """A session without a stream stays as it is, and so do streams of other topics."""
    engine.put("other")
    viewer, other = Viewer(engine).open(), Viewer(engine, "other").open()
    idle = Viewer(engine)

    engine.engine.watches.on_moved(engine.topic().topic_id)
    engine.engine.watches.on_moved(1 << 40)

    assert viewer.stream.ended_by is StreamEnd.MOVED
    assert other.stream.ended_by is None
    assert idle.session.wid in engine.engine.watches.sessions
