"""Topic commands: create, configure, show, list and delete (§1)."""

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from protocol.harness import START_MS, Harness, refusal
from protocol.workers import queue
from topics.protocol.decide.topics import PRIORITY_HALF_LIFE_MS
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.statuses import STATUSES
from topics.protocol.model.access import Caller
from topics.protocol.model.commands import DescribeTopics, GetTopic, ListTopics, PutTopic
from topics.protocol.model.config import TopicConfig
from topics.protocol.model.errors import ErrorCode
from topics.protocol.model.events import TopicConfigured
from topics.protocol.model.fetched import TopicsDescribed
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import TopicPut, TopicShown, TopicsListed
from topics.protocol.model.permission import permitted


def test_a_put_creates_and_then_replaces_the_whole_config() -> None:
    """A field that the second one leaves out is at its default again. (§1.1)"""
    engine = Harness()
    first = engine.put(cap_records=5, ttl_ms=1000)
    second = engine.put(ttl_ms=2000)

    assert (first["created"], second["created"]) == (True, False)
    config = engine.state()["config"]
    assert (config["cap_records"], config["ttl_ms"]) == (0, 2000)


def test_a_put_in_the_place_of_a_config_overwrites_no_other() -> None:
    """Whoever changes a part of a config puts it whole, and another may have changed it meanwhile. (§8)"""
    engine = Harness()
    old, others, mine = TopicConfig(), TopicConfig(ttl_ms=1), TopicConfig(ttl_ms=2)

    def put(config: TopicConfig, previous: TopicConfig | None) -> TopicPut:
        found = engine.ask(PutTopic("t", config, True, previous=previous))
        assert isinstance(found, TopicPut)
        return found

    assert refusal(put, mine, old).code is ErrorCode.TOPIC_NOT_FOUND
    assert put(old, None).created
    assert put(others, old).config == others
    for previous in (old, None):
        found = put(mine, previous)
        assert (found.created, found.config) == (False, others)
    assert engine.topic().config == others
    assert put(mine, others).config == engine.topic().config == mine


def test_an_identical_put_is_no_event() -> None:
    """It changes nothing, so nothing is logged for it. (§1.1)"""
    engine = Harness()
    engine.put(cap_records=5)
    engine.events.clear()

    assert engine.put(cap_records=5)["created"] is False
    assert engine.events == []
    engine.put(cap_records=6)
    assert [type(event) for event in engine.events] == [TopicConfigured]


def test_the_type_of_a_topic_stays() -> None:
    """Left out it is kept; another one is 409, and the config is as before. (§1.1)"""
    engine = queue(cap_records=5)
    refused = refusal(engine.put, "q", type="log", cap_records=9)
    assert (STATUSES[refused.code], refused.code.code) == (409, "topic_exists_incompatible")
    assert engine.state("q")["config"]["cap_records"] == 5

    engine.put("q", cap_records=7)
    config = engine.state("q")["config"]
    assert (config["type"], config["cap_records"]) == ("queue", 7)


def test_a_tightened_cap_evicts_at_once() -> None:
    """All but as many as fit, and a reader is told; `reject` evicts nothing. (§0.10, §1.1)"""
    engine = Harness()
    engine.append(*"abcd")
    engine.put(cap_records=1, discard="reject")
    assert engine.seqs() == [1, 2, 3, 4]
    engine.put(cap_records=3)
    assert engine.datas("t") == [(1, 1, "cap"), "b", "c", "d"]


def test_a_config_without_caps_evicts_nothing() -> None:
    """A cap of 0 is none, of records as of bytes. (§0.10)"""
    engine = Harness()
    engine.append(*"abcd")
    engine.put(ttl_ms=1000)
    assert engine.seqs() == [1, 2, 3, 4]
    engine.put(cap_records=9)
    engine.put(cap_bytes=9000)
    assert engine.datas("t") == ["a", "b", "c", "d"]


def test_a_listing_goes_on_rightly_whatever_came_and_went() -> None:
    """A page begins behind the name that the one before ended with, though that one is gone. (§1.3)"""
    engine = Harness()
    for name in ("a:1", "a:3", "a:5", "b"):
        engine.put(name)
    page = engine.listing("a:", 2)
    assert [each["topic"] for each in page["topics"]] == ["a:1", "a:3"]

    engine.drop("a:3")
    engine.put("a:2")
    engine.put("a:4")
    rest = engine.listing("a:", 2, "a:3")
    assert [each["topic"] for each in rest["topics"]] == ["a:4", "a:5"]
    assert engine.listing("a:", 2, "a:5")["topics"] == []


def test_a_delete_is_for_good_and_may_be_repeated() -> None:
    """What is created under the name again is another instance, with no record and seqs from 1.
    (§1.4)"""
    engine = Harness()
    engine.append("a", "b")
    epoch = engine.state()["epoch"]
    assert engine.drop()["deleted"] is True
    assert STATUSES[refusal(engine.state).code] == 404
    assert engine.drop()["deleted"] is False

    assert engine.append("c")["seqs"] == [1]
    assert engine.state()["epoch"] != epoch
    assert engine.datas("t") == ["c"]


def test_a_delete_if_empty_spares_what_holds_a_record() -> None:
    """409 with the count; a record whose time is over does not count. (§1.4)"""
    engine = Harness()
    engine.put(ttl_ms=100)
    engine.append("a")
    refused = refusal(engine.drop, if_empty=True)
    assert (STATUSES[refused.code], refused.code.code) == (409, "topic_not_empty")
    assert refused.detail == {"topic": "t", "count": 1}
    assert engine.seqs() == [1]

    engine.now_ms += 101
    assert engine.drop(if_empty=True)["deleted"] is True


@pytest.mark.parametrize(
    ("half_lives", "shown"), [(0, 1000), (1, 500), (2, 250), (20, 0), (10_000, 0)]
)
def test_an_automatic_priority_fades(half_lives: int, shown: int) -> None:
    """1000 for a topic that was read just now, half of it a minute later. (§0.10)"""
    engine = Harness()
    engine.append("a")
    assert engine.state()["effective_priority"] == 0
    engine.diff()
    engine.now_ms += half_lives * PRIORITY_HALF_LIFE_MS

    assert engine.state()["effective_priority"] == shown
    engine.put(priority=7)
    assert engine.state()["effective_priority"] == 7
    engine.put(auto_priority=False)
    assert engine.state()["effective_priority"] == 0


def test_a_look_that_touches_counts_as_a_read_and_logs_nothing() -> None:
    """`last_read` is in memory alone, so that reading writes nothing. (§1.2)"""
    engine = Harness()
    engine.put()
    engine.events.clear()
    engine.ask(GetTopic("t", touch=False))
    assert engine.topic().last_read_ms is None
    engine.ask(GetTopic("t"))
    assert engine.topic().last_read_ms == START_MS
    assert engine.events == []


@pytest.mark.parametrize("touch", [True, False])
def test_a_listing_counts_as_a_read_of_those_listed_where_it_is_asked_to(touch: bool) -> None:
    """Of the page alone, and at no other time: a page that shows all topics every second would raise
    the priority of each. (§1.3)"""
    engine = Harness()
    for name in ("a", "b", "c"):
        engine.put(name)
    engine.now_ms += 5

    engine.ask(ListTopics("", 2, "", touch))

    read_ms = [engine.topic(name).last_read_ms for name in ("a", "b", "c")]
    assert read_ms == ([engine.now_ms, engine.now_ms, None] if touch else [None] * 3)


# Callers (§0.2).


@settings(max_examples=60)
@given(
    st.sets(st.from_regex(r"[ab][ab.]{0,3}", fullmatch=True), max_size=12),
    st.lists(st.from_regex(r"[ab][ab.]{0,2}", fullmatch=True), min_size=1, max_size=3),
    st.sampled_from(["", "a", "b", "ab", "a.", "c"]),
    st.integers(1, 4),
)
def test_pages_of_a_key_hold_its_names_once(
    names: set[str], prefixes: list[str], prefix: str, size: int
) -> None:
    """In order, whatever the size of the pages and however its prefixes overlap. (§0.2, §1.3)"""
    engine = Harness()
    for name in names:
        engine.put(name)
    caller = Caller("k", prefixes=tuple(prefixes))

    listed, after = list[str](), ""
    while True:
        page = engine.ask(ListTopics(prefix, size, after, caller=caller))
        assert isinstance(page, TopicsListed)
        listed += [topic.figures.name for topic in page.topics]
        assert len(page.topics) <= size
        if page.after is None:
            break
        assert len(page.topics) == size
        after = page.after

    assert listed == [n for n in sorted(names) if n.startswith(prefix) and caller.covers(n)]


def test_a_list_shows_a_write_once_it_may_be_shown() -> None:
    """What was said of the topic before, while the write was on its way, is not said again. (§1.3)"""
    engine = Harness(auto=False)
    engine.put(durability="fsync")
    engine.write()
    engine.sync()
    engine.append("a")

    def head_seq() -> int:
        page = engine.ask(ListTopics("", 1, ""))
        assert isinstance(page, TopicsListed)
        return page.topics[0].figures.head_seq

    assert head_seq() == 0
    engine.write()
    assert head_seq() == 0
    engine.sync()
    assert head_seq() == 1


def test_a_write_that_configures_is_the_admins() -> None:
    """Where it would make the topic; otherwise its config is not applied, and needs nothing. (§2)"""
    engine = Harness()
    body = b'{"records":[{"data":1}],"config":{"ttl_ms":5}}'
    command = parse_append("t", body, Limits(), return_seqs=True, header_key=None)
    writer = permitted(command, Caller("w", frozenset({"write"})))
    plain = msgspec.structs.replace(writer, is_configuring=False)

    assert refusal(engine.ask, writer).code is ErrorCode.FORBIDDEN
    assert engine.engine.state.topics == {}
    absent = msgspec.structs.replace(writer, create=False)
    assert refusal(engine.ask, absent).code is ErrorCode.TOPIC_NOT_FOUND
    engine.ask(plain)
    engine.ask(writer)
    assert engine.topic("t").head_seq == 2


def test_the_name_of_a_dead_letter_topic_is_told_to_whom_it_may_concern() -> None:
    """A key for other names sees the queue's config without it. (§0.2)"""
    engine = Harness()
    engine.put("a:q", type="queue", dead_letter="b:dead")

    for prefixes, told in ((("a:",), None), (("a:", "b:"), "b:dead"), ((), "b:dead")):
        asked = GetTopic("a:q", touch=False, caller=Caller("k", prefixes=prefixes))
        shown = engine.ask(asked)
        assert isinstance(shown, TopicShown)
        assert shown.view.config.dead_letter == told


def described(engine: Harness, **fields: object) -> tuple[list[str], str | None]:
    found = engine.ask(DescribeTopics(**fields))  # type: ignore[arg-type]
    assert isinstance(found, TopicsDescribed)
    assert found.history == "0" * 16
    assert all(engine.topic(each.name).epoch == each.epoch for each in found.topics)
    return [each.name for each in found.topics], found.next_after


def test_topics_are_described_by_names_by_epochs_or_page_by_page() -> None:
    """What is not there is left out, as is what the caller may not see. (§0.2)"""
    engine = Harness()
    for name in ("a", "b", "c"):
        engine.put(name)
    epoch = engine.topic("b").epoch
    assert described(engine, names=["c", "x", "a"]) == (["c", "a"], None)
    gone = epoch.replace("-2", "-9")
    assert described(engine, epochs=[epoch, gone, "f" * 16 + "-2"]) == (["b"], None)
    assert described(engine, after="", page_size=2) == (["a", "b"], "b")
    assert described(engine, after="b", page_size=2) == (["c"], None)
    inner = Caller("k", prefixes=("c",))
    assert described(engine, after="", page_size=2, caller=inner) == (["c"], None)
    assert described(engine, epochs=[epoch], caller=inner) == ([], None)


def test_a_description_tells_the_bytes_of_the_records() -> None:
    """As many as the topic's state does. (§1.2)"""
    engine = Harness()
    engine.put()
    engine.append(1)
    found = engine.ask(DescribeTopics(names=["t"]))
    assert isinstance(found, TopicsDescribed)
    assert found.topics[0].size_bytes == engine.state()["bytes"] > 0
