"""Composite ids: what a client keeps of its watch comes back as what it was, and no more (§7.4)."""

import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.faces.http.test_sse import JSON, VIEW
from protocol.harness import Harness
from protocol.viewers import Viewer
from topics.protocol.model import cursor
from topics.protocol.model.cursor import Listed, Remembered, composite, positions_in
from topics.protocol.state.frames import TombstoneFrame
from topics.protocol.state.watched import Watched


def watching(count: int, seq: int = 7) -> list[Watched]:
    return [Watched(f"t{i}", i + 1, seq + i, VIEW) for i in range(count)]


def names_of(watched: list[Watched]) -> list[str]:
    return [each.name for each in watched]


def parse_composite(text: str, names: list[str]) -> Remembered:
    found = cursor.parse_composite(text, names)
    assert found is not None
    return found


def plain(frame_id: bytes) -> Any:
    return json.loads(urlsafe_b64decode(frame_id + b"=="))


@pytest.mark.parametrize("count", [0, 1, 63, 64, 65, 256])
def test_an_id_comes_back_as_what_it_was(count: int) -> None:
    """base64url without padding, small enough for a header. (§7.4)"""
    watched = watching(count)
    frame_id = composite(watched)
    assert not frame_id.strip(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
    known = parse_composite(frame_id.decode(), names_of(watched))
    assert known == Remembered({each.name: each.cursor for each in watched})


def test_up_to_64_topics_the_id_is_the_documented_map() -> None:
    """Beyond it a list in the session's order, with a digest of its names. (§7.4)"""
    assert plain(composite(watching(64))) == {f"t{i}": 7 + i for i in range(64)}
    assert set(plain(composite(watching(65)))) == {"d", "s"}
    far = [Watched(f"topic-{i}", 1, 2**63, VIEW) for i in range(256)]
    assert len(composite(far)) < 8000


def test_an_id_tells_an_instance_where_there_was_an_earlier_one() -> None:
    """In both forms; without one it keeps the documented shape. (§7.4)"""
    for count in (3, 70):
        watched = watching(count)
        watched[1].is_heir = True
        known = parse_composite(composite(watched).decode(), names_of(watched))
        assert {name: at for name, at in known.instances.items() if at} == {"t1": 2}
        assert known.positions["t1"] == 8
    assert plain(composite(watching(2))) == {"t0": 7, "t1": 8}


def test_an_id_of_another_session_says_nothing_of_this_one() -> None:
    """Other names, another order, another number of them. (§7.4)"""
    many = watching(65)
    frame_id = composite(many).decode()
    names = names_of(many)
    assert parse_composite(frame_id, names[::-1]) == Remembered()
    assert parse_composite(frame_id, names[:-1]) == Remembered()
    assert parse_composite(composite(watching(3)).decode(), ["t2", "u"]).positions == {"t2": 9}


def test_an_id_is_of_the_first_partitions_of_a_session() -> None:
    """Partitions that a topic got since stand behind them; a list is as good as a map. (§7.4)"""
    for count in (3, 65):
        before = watching(count)
        known = parse_composite(composite(before).decode(), [*names_of(before), "t1#1", "t0#2"])
        assert known == Remembered({each.name: each.cursor for each in before})


def test_an_id_tells_instances_before_and_after_more_partitions() -> None:
    """A map of few topics, and the list that follows where there are more. (§7.4)"""
    few = watching(64)
    few[1].is_heir = True
    names = [*names_of(few), "t1#1"]
    known = parse_composite(composite(few).decode(), names)
    assert (known.positions["t1"], known.instances["t1"], known.instances.get("t1#1")) == (
        8,
        2,
        None,
    )

    many = [*few, Watched("t1#1", 65, 3, VIEW)]
    known = parse_composite(composite(many).decode(), names)
    assert (known.positions["t1#1"], known.instances["t1"]) == (3, 2)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"t": 1, "t#3": 2}, {"t": 1, "t#3": 2}),
        ({"t#0": 4}, {"t": 4}),
        ({"u": 1, "u#1": "x", "t#999": 0}, {"t#999": 0}),
        ({"t#": 1}, None),
        ({"t#x": 1}, None),
        ({"t#01": 1}, None),
        ({"t#1000": 1}, None),
        ({"t#1": -1}, None),
        ({"t#1": True}, None),
    ],
)
def test_a_map_names_partitions(given: Any, expected: Any) -> None:
    """`orders#3` is the third behind the first; something else is a mistake, and no place to begin. (§7.2)"""
    assert cursor.parse_cursor(encoded(given), {"t"}) == expected
    assert cursor.positions_of(given, {"t"}) == expected


def test_a_map_is_of_the_topics_that_it_names() -> None:
    """A session of 64 topics that becomes one of 65 goes on where it was in each of them. (§7.4)"""
    watched = watching(64)
    frame_id = composite(watched).decode()
    names = [*names_of(watched), "more"]

    places = {each.name: each.cursor for each in watched}
    assert parse_composite(frame_id, names) == Remembered(places)
    assert cursor.parse_cursor(frame_id, names) == places


def test_a_list_of_other_topics_begins_no_session() -> None:
    """Its positions are lost, and a session that begins at the head instead would skip records in
    silence: it is no id for these topics. (§7.4)"""
    watched = watching(66)
    names = names_of(watched)
    frame_id = composite(watched).decode()

    listed = cursor.parse_cursor(frame_id, names)
    assert isinstance(listed, Listed)
    assert listed.over([*names, "t1#1"]) == {each.name: each.cursor for each in watched}
    for others in (names[::-1], names[:-1], names[:3], ["more", *names]):
        assert listed.over(others) is None
        assert cursor.parse_composite(frame_id, others) == Remembered()
    # A list that is too short is none of ours either.
    digest = plain(composite(watched))["d"]
    short = cursor.parse_cursor(encoded({"d": digest, "s": [1] * 65}), names)
    assert isinstance(short, Listed)
    assert short.over(names) is None
    for seqs in (None, 7, [1, "x"], [-1], [True]):
        assert cursor.parse_cursor(encoded({"d": digest, "s": seqs}), names) is None


def encoded(value: Any) -> str:
    return urlsafe_b64encode(json.dumps(value).encode()).decode()


FORGED = st.one_of(
    st.text(max_size=40),
    JSON.map(encoded),
    st.dictionaries(
        st.sampled_from(["t0", "t1", "~", "d", "s"]),
        st.integers(-5, 2**70) | st.booleans() | st.floats() | st.text() | st.lists(st.integers()),
    ).map(encoded),
)


def test_an_id_of_this_server_says_its_positions() -> None:
    """A list says none, as it has no names; nor does what is no id. (§7.4, §8.9)"""
    assert positions_in(composite(watching(2))) == {"t0": 7, "t1": 8}
    heir = Watched("t", 2, 5, VIEW, is_heir=True)
    assert positions_in(composite([heir])) == {"t": 5}
    assert positions_in(composite(watching(65))) == {}
    assert positions_in(b"nonsense") == {}


@given(forged=FORGED)
def test_a_forged_id_moves_nothing_forward_and_raises_nothing(forged: str) -> None:
    """It can rewind to where the records are anyway, and no more. (§7.4)"""
    engine = Harness()
    for name in ("t0", "t1"):
        engine.append(1, 2, 3, name=name)
    viewer = Viewer(engine, "t0", "t1", limit=2).open()
    viewer.frames(2)
    before = viewer.cursors
    viewer.close()
    viewer.open(forged)

    assert all(viewer.cursors[name] <= before[name] for name in before)
    frames = viewer.frames()
    assert not any(isinstance(frame, TombstoneFrame) for frame in frames)
    assert viewer.cursors == {"t0": 3, "t1": 3}


@given(
    positions=st.dictionaries(st.sampled_from(["t0", "t1"]), st.integers(0, 2**64)),
    instances=st.lists(st.integers(0, 9) | st.text()) | st.none(),
)
def test_a_forged_instance_only_begins_again(positions: dict[str, int], instances: Any) -> None:
    """At worst everything is told once more, and said to be. (§7.4)"""
    engine = Harness()
    for name in ("t0", "t1"):
        engine.put(name)
    viewer = Viewer(engine, "t0", "t1")
    engine.drop("t0")
    for name in ("t0", "t1"):
        engine.append(1, 2, 3, name=name)
    viewer.open().told()
    viewer.close()
    viewer.open(encoded({**positions, "~": instances}))
    told = viewer.told()
    assert sum("lost" in line for line in told) <= 1
    assert viewer.cursors == {"t0": 3, "t1": 3}
