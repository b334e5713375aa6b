"""Watches of topics with several partitions: where each begins, what an id is of, and topics that get more (§2.1, §7)."""

from typing import Any

import orjson
import pytest

from protocol.harness import START_MS, Harness, refusal
from protocol.viewers import Socket, Viewer
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.faces.http.watch import parse_watch
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import Begin
from topics.protocol.model.permission import permitted


def write(engine: Harness, partition: int, *datas: object, name: str = "t", **more: object) -> None:
    records = [{"data": data, "partition": partition, **more} for data in datas]
    engine.append(*records, name=name)


def grow(engine: Harness, count: int, name: str = "t") -> None:
    engine.put(name, partitions=count)


@pytest.fixture
def engine() -> Harness:
    """A topic of three partitions: one record, two, and none."""
    engine = Harness()
    engine.put(partitions=3)
    write(engine, 0, "a")
    write(engine, 1, "b", "c")
    return engine


ALL = ["t#0 1", "t#1 1-2", "t#2 caught up at 0"]


# ---------------------------------------------------------------------- what is watched


def test_a_watch_of_a_topic_is_of_all_its_partitions(engine: Harness) -> None:
    """Each frame says which it is of, and the answer where the session stands in each. (§2.1, §7.5)"""
    viewer = Viewer(engine)

    told = viewer.posted["topics"]["t"]
    assert (told["from_seq"], told["head_seq"]) == (0, 1)
    assert [(each["partition"], each["head_seq"]) for each in told["partitions"]] == [
        (0, 1),
        (1, 2),
        (2, 0),
    ]
    assert len({each["epoch"] for each in told["partitions"]}) == 3
    assert sorted(viewer.open().told()) == sorted(
        [*ALL, "t#0 caught up at 1", "t#1 caught up at 2"]
    )
    write(engine, 2, "d")
    write(engine, 0, "e")
    assert sorted(viewer.told()) == ["t#0 2", "t#2 1"]
    assert viewer.cursors == {"t": 2, "t#1": 2, "t#2": 1}


def test_a_socket_watches_all_partitions(engine: Harness) -> None:
    """And lets go of all of them at once. (§7.7)"""
    socket = Socket(engine)
    socket.subscribe("t")
    assert sorted(socket.told()) == sorted([*ALL, "t#0 caught up at 1", "t#1 caught up at 2"])
    shares = engine.engine.watches.byte_shares

    socket.subscribe("t", begin=Begin(tail=True))
    assert len(socket.told()) == 3
    write(engine, 1, "d")
    assert socket.unsubscribe("t")

    assert (socket.told(), socket.stream.watched, shares.used) == ([], {}, 0)
    assert not socket.unsubscribe("t")


def test_partitions_can_be_chosen(engine: Harness) -> None:
    """A worker that reads some of them; `from_seq` is of the one that is chosen. (§7.2)"""
    some = Viewer(engine, topics={"t": {"partitions": [2, 1, 1]}})
    assert list(some.cursors) == ["t#1", "t#2"]
    one = Viewer(engine, topics={"t": {"partitions": [1], "from_seq": 1}})
    assert [each["partition"] for each in one.posted["topics"]["t"]["partitions"]] == [1]
    assert one.open().told() == ["t#1 2", "t#1 caught up at 2"]

    refused = refusal(Viewer, engine, topics={"t": {"partitions": [0, 3]}})
    assert (refused.code.code, refused.detail) == (
        "partition_not_found",
        {"topic": "t", "partition": 3},
    )
    assert STATUSES[refusal(Viewer, engine, topics={"t": {"partitions": [1000]}}).code] == 400
    assert STATUSES[refusal(Viewer, engine, topics={"t": {"partitions": []}}).code] == 400
    lenient = Viewer(engine, topics={"t": {"partitions": [0, 3]}}, lenient=True)
    assert list(lenient.cursors) == ["t"]


def test_a_topic_with_one_partition_says_nothing_of_it() -> None:
    """Its answers and frames are those of a topic that never heard of partitions. (§2.1)"""
    engine = Harness()
    engine.append("a")
    for begin in ({}, {"partitions": [0]}):
        viewer = Viewer(engine, topics={"t": begin})
        assert list(viewer.posted["topics"]["t"]) == [
            "from_seq",
            "head_seq",
            "earliest_seq",
            "epoch",
        ]
        assert viewer.open().told() == ["t 1", "t caught up at 1"]


@pytest.mark.parametrize("name", ["t#1", "t#0", "t#9", "#"])
def test_a_partition_is_no_topic(engine: Harness, name: str) -> None:
    """What the engine calls it is a name for `cursor` alone. (§7.2)"""
    assert refusal(Viewer, engine, name).code.code == "topic_not_found"
    assert refusal(Socket(engine).subscribe, name).code.code == "topic_not_found"
    assert not Viewer(engine, name, lenient=True).cursors


def test_a_key_s_prefixes_judge_the_public_name(engine: Harness) -> None:
    """Which `cursor` and `partitions` do not go around. (§0.2)"""
    body = orjson.dumps({"topics": {"t": {"partitions": [1]}}, "cursor": {"t#1": 1, "u#1": 1}})
    command = parse_watch(body, engine.limits, wid="w", lenient=False)

    assert permitted(command, Caller("mine", prefixes=("t",))).topics.keys() == {"t"}
    refused = refusal(permitted, command, Caller("other", prefixes=("u",)))
    assert STATUSES[refused.code] == 403


def test_one_place_is_of_one_partition(engine: Harness) -> None:
    """A seq of which it is not said whose would leave out records of the others. (§2.1)"""
    for call in (
        lambda: Viewer(engine, topics={"t": {"from_seq": 1}}),
        lambda: Socket(engine).subscribe("t", begin=Begin(from_seq=1)),
    ):
        refused = refusal(call)
        assert (refused.code.code, refused.detail) == (
            "partition_required",
            {"topic": "t", "partitions": 3},
        )
    assert Viewer(engine, topics={"t": {"from_seq": 1, "tail": True}}).cursors["t#1"] == 2


def test_times_heads_and_filters_are_looked_for_in_each(engine: Harness) -> None:
    """`from_ts`, `tail`, `match` and `node`, of the watch or of the topic. (§7.2)"""
    engine.now_ms += 1000
    write(engine, 1, "late", tag="x", node="me")
    write(engine, 2, "later", tag="y", node="you")

    def told(**begin: object) -> list[str]:
        frames = Viewer(engine, topics={"t": begin}).open().told()
        return sorted(each for each in frames if "caught" not in each)

    assert told(from_ts=START_MS + 500) == ["t#1 3", "t#2 1"]
    assert told(tail=True) == []
    assert told(match="y") == ["t#2 1"]
    assert told(node="me") == ["t#0 1", "t#1 1-2", "t#2 1"]
    strong = Viewer(engine, consistency="strong").open()
    assert sorted(each for each in strong.told() if "caught" not in each)[1] == "t#1 1-3"


def test_loss_is_told_of_the_partition_that_lost() -> None:
    """A cap is a partition's. (§3.3)"""
    engine = Harness()
    engine.put(partitions=2, cap_records=2)
    write(engine, 1, *range(5))

    told = Viewer(engine).open().told()

    assert [each for each in told if each.startswith("t#1")] == [
        "t#1 lost 1-3 from_seq_too_old",
        "t#1 4-5",
        "t#1 caught up at 5",
    ]


# ---------------------------------------------------------------------- bounds


def test_partitions_count_as_topics_do() -> None:
    """In the number of a watch, at once as a whole. (§7.2, §11)"""
    engine = Harness(max_watch_topics=4)
    engine.put(partitions=3)
    engine.put("u", partitions=2)
    socket = Socket(engine)
    socket.subscribe("t")

    for call in (lambda: Viewer(engine, "t", "u"), lambda: socket.subscribe("u")):
        refused = refusal(call)
        assert STATUSES[refused.code] == 400
        assert "at most 4 topics, each partition counted as one" in refused.message
    assert Viewer(engine, topics={"t": {}, "u": {"partitions": [1]}})
    socket.subscribe("t")  # which takes the place of those
    assert not Viewer(engine, "none", lenient=True).cursors


def test_partitions_count_in_memory() -> None:
    """A session of many is refused before it is made. (§11)"""
    engine = Harness(max_watch_bytes=3000)
    engine.put(partitions=6)

    refused = refusal(Viewer, engine)

    assert refused.detail is not None
    assert refused.detail["limit"] == "max_watch_bytes"
    assert engine.engine.watches.byte_shares.used == 0


def test_what_a_topic_gets_later_is_let_in_and_given_back() -> None:
    """To refuse it would lose records in silence: a bound is for what a client asks. (§7.2, §11)"""
    engine = Harness(max_watch_topics=2, max_watch_bytes=2000)
    engine.put(partitions=2)
    viewer, socket = Viewer(engine).open(), Socket(engine)
    assert STATUSES[refusal(socket.subscribe, "t").code] == 429
    viewer.told()

    grow(engine, 9)

    assert len(viewer.told()) == 7
    shares = engine.engine.watches.byte_shares
    assert shares.used == viewer.session.memory_bytes > 2000
    viewer.close()
    engine.engine.watches.forget(viewer.session)
    assert shares.used == 0


# ---------------------------------------------------------------------- a topic gets more


def test_new_partitions_join_a_live_stream(engine: Harness) -> None:
    """From their first records, with a `caught-up` of their own. (§2.1)"""
    viewer, socket = Viewer(engine).open(), Socket(engine)
    socket.subscribe("t")
    viewer.told()
    socket.told()
    grow(engine, 5)
    assert viewer.woken
    assert socket.woken
    write(engine, 4, "x", "y")

    for stream in (viewer, socket):
        assert sorted(stream.told()) == [
            "t#3 caught up at 0",
            "t#4 1-2",
            "t#4 caught up at 2",
        ]
    write(engine, 3, "z")
    assert viewer.told() == socket.told() == ["t#3 1"]


def test_a_topic_that_had_one_partition_begins_to_say_which() -> None:
    """The frame that other streams had without a number is made anew. (§7.5)"""
    engine = Harness()
    engine.append("a")
    first, second = Viewer(engine).open(), Viewer(engine).open()
    assert first.told() == ["t 1", "t caught up at 1"]
    second.told()
    engine.append("b")
    assert first.told() == ["t 2"]

    grow(engine, 2)

    assert sorted(second.told()) == ["t#0 2", "t#1 caught up at 0"]
    engine.drop()
    assert sorted(second.told()) == ["t#0 deleted at 2", "t#1 deleted at 0"]


def test_chosen_partitions_stay_those(engine: Harness) -> None:
    """A worker that reads the first gets no other; what it gets says which it is. (§7.2)"""
    engine.put("u")
    viewer = Viewer(engine, topics={"u": {"partitions": [0]}, "t": {"partitions": [0, 2]}}).open()
    viewer.told()
    grow(engine, 2, "u")
    grow(engine, 4)
    write(engine, 0, 1, name="u")
    write(engine, 1, 1, name="u")
    write(engine, 3, 1)
    assert viewer.told() == ["u#0 1"]
    assert viewer.open().told()[0] == "u#0 caught up at 1"
    assert sorted(viewer.cursors) == ["t", "t#2", "u"]


def test_partitions_that_came_while_nobody_listened(engine: Harness) -> None:
    """The next stream of the session has them, also behind an id from before. (§7.4)"""
    viewer = Viewer(engine).open()
    viewer.told()
    kept = viewer.id
    viewer.close()
    grow(engine, 4)
    write(engine, 3, "x")
    write(engine, 1, "d")

    told = viewer.open(kept).told()

    assert [each for each in told if "caught" not in each] == ["t#1 3", "t#3 1"]
    assert viewer.cursors == {"t": 1, "t#1": 3, "t#2": 0, "t#3": 1}


def test_a_new_session_goes_on_from_an_id_from_before(engine: Harness) -> None:
    """Over a restart, say: what came with the new partitions is not lost, wherever the topic was to begin. (§7.2)"""
    kept = Viewer(engine, topics={"t": {"tail": True}}).id
    grow(engine, 4)
    write(engine, 3, "x")

    for begin in ({}, {"tail": True}, {"from_seq": 1}):
        again = Viewer(engine, topics={"t": begin}, cursor=kept)
        assert again.cursors == {"t": 1, "t#1": 2, "t#2": 0, "t#3": 0}


def test_a_new_session_goes_on_from_places_by_name(engine: Harness) -> None:
    """A map, for clients that keep positions themselves; a socket takes the same. (§7.2, §7.7)"""
    viewer = Viewer(engine, cursor={"t#1": 1, "t#0": 1, "t#7": 3, "u": 5})
    assert viewer.cursors == {"t": 1, "t#1": 1, "t#2": 0}
    socket = Socket(engine)
    socket.subscribe("t", begin=Begin(at={0: 1, 1: 1}))
    assert {name: each.cursor for name, each in socket.stream.watched.items()} == viewer.cursors
    for cursor in ({"t#x": 1}, {"t": -1}, {"t#1": "1"}):
        assert STATUSES[refusal(Viewer, engine, cursor=cursor).code] == 400


def many(engine: Harness, count: int = 64) -> list[str]:
    for nth in range(count):
        engine.put(f"s{nth:02}")
    return [f"s{nth:02}" for nth in range(count)]


def test_an_id_that_was_a_map_holds_where_it_would_be_a_list() -> None:
    """A session of 64 topics of which some get more partitions, one after the other. (§7.4)"""
    engine = Harness()
    names = many(engine)
    viewer = Viewer(engine, *names).open()
    viewer.told()
    was_map = viewer.id
    grow(engine, 2, names[5])
    viewer.told()
    was_list = viewer.id
    assert len(was_list) < len(was_map)
    grow(engine, 2, names[3])
    grow(engine, 3, names[5])
    viewer.told()
    now = viewer.id
    for name in (names[3], names[5], names[9]):
        engine.append(*({"data": 1, "partition": 0} for _ in range(2)), name=name)
    write(engine, 1, 1, name=names[5])
    viewer.told()

    for kept in (was_map, was_list, now):
        again = Viewer(engine, *names, cursor=kept)
        # In the order in which they joined, whoever was there to see it.
        assert list(again.cursors) == [*names, "s05#1", "s03#1", "s05#2"] == list(viewer.cursors)
        assert set(again.cursors.values()) == {0}
        told = [each for each in viewer.open(kept).told() if "caught" not in each]
        assert sorted(told) == ["s03#0 1-2", "s05#0 1-2", "s05#1 1", "s09 1-2"]
    refused = refusal(Viewer, engine, *names[1:], names[0], cursor=was_list)
    assert STATUSES[refused.code] == 400
    assert STATUSES[refusal(Viewer, engine, *names, "more", cursor=was_list).code] == 400


def test_a_list_is_of_the_partitions_that_were_chosen() -> None:
    """And leniently of the topics that are there no more, too. (§7.4)"""
    engine = Harness()
    names = many(engine)
    grow(engine, 3, names[0])
    topics: dict[str, Any] = {name: {} for name in names}
    topics[names[0]] = {"partitions": [1, 2]}
    viewer = Viewer(engine, topics=topics).open()
    viewer.told()
    assert list(viewer.cursors) == ["s00#1", *names[1:], "s00#2"]
    write(engine, 2, 1, name=names[0])
    kept = viewer.id
    viewer.told()

    assert Viewer(engine, topics=topics, cursor=kept).cursors["s00#2"] == 0
    assert Viewer(engine, topics=topics, cursor=viewer.id).cursors["s00#2"] == 1
    engine.drop(names[9])
    again = Viewer(engine, topics=topics, cursor=viewer.id, lenient=True)
    assert (again.cursors["s00#2"], len(again.cursors)) == (1, 64)


def test_what_a_session_would_begin_beyond(engine: Harness) -> None:
    """A replica that lacks a topic, a partition or a record waits before it decides. (§8.7)"""
    found = engine.engine

    def beyond(topics: Any, cursor: Any = None) -> bool:
        body = orjson.dumps({"topics": topics, "cursor": cursor})
        return found.is_beyond(parse_watch(body, engine.limits, wid="w", lenient=False))

    assert not beyond({"t": {}})
    assert not beyond({"t": {}}, {"t": 1, "t#1": 2})
    assert not beyond({"t": {"partitions": [1], "from_seq": 2}})
    assert beyond({"none": {}})
    assert beyond({"t": {"partitions": [3]}})
    assert beyond({"t": {"from_seq": 2}})
    assert beyond({"t": {}}, {"t#1": 3})
    assert beyond({"t": {}}, {"t#3": 0})
    names = many(engine, 65)
    listed = Viewer(engine, *names).id
    all_of_them: dict[str, Any] = {name: {} for name in names}
    assert not beyond(all_of_them, listed)
    assert beyond({**all_of_them, "t": {}}, listed)
    assert not found.begins_beyond({"t": Begin(at={1: 2})})
    assert found.begins_beyond({"t": Begin(at={1: 3})})


# ---------------------------------------------------------------------- a topic is made again


def remake(engine: Harness, count: int) -> None:
    engine.drop()
    engine.put(partitions=count)
    for partition in range(count):
        write(engine, partition, "new")


def test_a_topic_is_deleted_with_all_partitions(engine: Harness) -> None:
    """Each says so, with its last head; nothing comes of the next topic of that name before the next stream. (§7.5)"""
    viewer = Viewer(engine).open()
    viewer.told()
    remake(engine, 4)

    assert sorted(viewer.told()) == ["t#0 deleted at 1", "t#1 deleted at 2", "t#2 deleted at 0"]
    assert viewer.told() == []


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        (1, ["t 1", "t lost 1-1 recreated", "t#1 deleted at 2", "t#2 deleted at 0"]),
        (
            2,
            [
                "t#0 1",
                "t#0 lost 1-1 recreated",
                "t#1 1",
                "t#1 lost 1-1 recreated",
                "t#2 deleted at 0",
            ],
        ),
        (
            5,
            [
                *(f"t#{n} {what}" for n in (0, 1, 2) for what in ("1", "lost 1-1 recreated")),
                "t#3 1",
                "t#4 1",
            ],
        ),
    ],
)
def test_a_topic_is_made_again_with_other_partitions(
    engine: Harness, count: int, expected: list[str]
) -> None:
    """The next stream tells it of each, and has those that there were none of before. (§7.5)"""
    viewer = Viewer(engine).open()
    viewer.told()
    before = viewer.id
    remake(engine, count)
    viewer.told()

    told = [each for each in viewer.open().told() if "caught" not in each]

    assert sorted(told) == expected
    again = [each for each in viewer.open(before).told() if "caught" not in each]
    assert sorted(again) == expected  # until an id from behind it comes
    told = [each for each in viewer.open(viewer.id).told() if "caught" not in each]
    assert told == [each for each in expected if "deleted" in each]


def test_a_topic_that_is_made_again_between_two_looks(engine: Harness) -> None:
    """It has more partitions than the stream knew when it was opened. (§7.5)"""
    viewer = Viewer(engine).open()
    remake(engine, 4)

    told = [each for each in viewer.told() if "caught" not in each]

    assert "t#3 1" in told
    assert "t#0 lost 1-1 recreated" in told


def test_an_earlier_topic_of_a_live_stream_gets_nothing(engine: Harness) -> None:
    """Another one grows, and the stream looks for what it lacks: not for what it has heard the end of. (§7.5)"""
    engine.put("u")
    viewer = Viewer(engine, "t", "u").open()
    viewer.told()
    engine.drop()
    viewer.told()
    engine.put(partitions=4)
    write(engine, 3, "new")
    grow(engine, 2, "u")

    assert viewer.told() == ["u#1 caught up at 0"]
