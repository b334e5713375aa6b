"""Long polls: what wakes them, and what does not (§3)."""

from collections.abc import Callable
from typing import Any

import pytest

from .api import Api, by, dumps, tagged
from .server import DEADLINE_S
from .wire import Wire, check

FOREVER_MS = 30_000
"""Longer than any test may take: a read that is answered was woken."""
assert FOREVER_MS <= DEADLINE_S * 1000


@pytest.fixture
def waiting(wires: Callable[[], Wire]) -> Callable[..., Callable[[], Any]]:
    """Sends a read that waits, and returns how to get its answer."""

    def begin(name: str, **fields: object) -> Callable[[], Any]:
        wire = wires()
        json = {"content-type": "application/json"}
        # The answer to what was asked before it shows that the server has read so far.
        wire.send("POST", f"/v0/topics/{name}/diff", dumps({"from_seq": 0}), json)
        assert check(wire.receive()).status == 200
        wire.send("POST", f"/v0/topics/{name}/diff", dumps({"wait_ms": FOREVER_MS} | fields), json)
        return lambda: check(wire.receive())

    return begin


Begin = Callable[..., Callable[[], Any]]


def parked(api: Api, name: str) -> None:
    """Give the waiting request the time of one more exchange to arrive; if it arrives later, it
    finds the record that would have woken it."""
    api.state(name)


@pytest.mark.every_server
def test_a_record_wakes(api: Api, name: str, waiting: Begin) -> None:
    """It returns that record, in classes that wait for a sync and in those that do not. (§3)"""
    for i, durability in enumerate(("ephemeral", "memory", "disk", "fsync")):
        topic = f"{name}:{i}"
        api.put(topic, durability=durability)
        answer = waiting(topic, from_seq=0)
        parked(api, topic)
        api.append(topic, "x", "y")

        page = answer().json
        assert [r["$seq"] for r in page["records"]] == [1, 2]
        assert (page["caught_up"], page["head_seq"], page["tombstone"]) == (True, 2, None)


def test_what_is_there_is_not_waited_for(api: Api, name: str, waiting: Begin) -> None:
    """A read that has records or a tombstone to return does not wait. (§3)"""
    api.append(name, 1)
    assert waiting(name, from_seq=0)().json["next_from_seq"] == 1
    api.put(name, ttl_ms=1)
    while api.state(name)["count"]:
        pass
    assert waiting(name, from_seq=0)().json["tombstone"]["reason"] == "ttl"
    assert waiting(name, from_seq=5)().json["tombstone"]["reason"] == "recreated"


def test_own_echoes_do_not_wake(api: Api, name: str, waiting: Begin) -> None:
    """A read wakes for a record that it may return, and its cursor has passed the others. (§3,
    §4)"""
    api.put(name)
    answer = waiting(name, from_seq=0, node="me")
    parked(api, name)
    api.append(name, by("me"), by("me"))
    api.append(name, by("me"))
    api.append(name, by("you"))

    page = answer().json
    assert [r["$seq"] for r in page["records"]] == [4]
    assert page["next_from_seq"] == 4


def test_other_tags_do_not_wake(api: Api, name: str, waiting: Begin) -> None:
    """A record that the filter leaves out does not wake a read. (§3)"""
    api.put(name)
    answer = waiting(name, from_seq=0, match="a:*")
    parked(api, name)
    api.append(name, tagged("b"))
    api.append(name, {"data": 0})
    api.append(name, tagged("a:1"))

    assert [r["$seq"] for r in answer().json["records"]] == [3]


def test_loss_wakes(api: Api, name: str, waiting: Begin) -> None:
    """A batch of which a cap keeps only the end wakes a read with a tombstone. (§3.3)"""
    api.put(name, cap_records=2)
    answer = waiting(name, from_seq=0)
    parked(api, name)
    api.append(name, *range(5))

    page = answer().json
    assert (page["tombstone"]["gap_from"], page["tombstone"]["gap_to"]) == (1, 3)
    assert [r["$seq"] for r in page["records"]] == [4, 5]


def test_the_end_of_the_topic_wakes(api: Api, name: str, waiting: Begin) -> None:
    """404, also if the name is created again at once. (§1.4, §3)"""
    api.append(name, 1)
    answer = waiting(name, from_seq=1)
    parked(api, name)
    api.drop(name)
    api.append(name, 1, 2)

    told = answer()
    assert told.status in (404, 200)
    if told.status == 404:
        assert told.code == "topic_not_found"
    else:
        assert [r["$seq"] for r in told.json["records"]] == [2]


def test_a_wait_that_finds_nothing_ends(api: Api, name: str) -> None:
    """With an empty page, and the cursor past the skipped records. (§3)"""
    api.append(name, by("me"))
    page = api.diff(name, 0, node="me", wait_ms=1)

    assert (page["records"], page["next_from_seq"], page["caught_up"]) == ([], 1, True)


def test_all_who_wait_are_answered(api: Api, name: str, waiting: Begin) -> None:
    """Every waiting read is answered from its own cursor, on a connection of its own. (§3)"""
    api.append(name, 1)
    answers = [waiting(name, from_seq=1) for _ in range(20)]
    parked(api, name)
    api.append(name, 2)

    assert [[r["$seq"] for r in a().json["records"]] for a in answers] == [[2]] * 20


@pytest.mark.every_server
def test_who_has_gone_is_forgotten(api: Api, name: str, wires: Callable[[], Wire]) -> None:
    """A client that disconnects while it waits leaves nothing behind. (§3)"""
    api.put(name)
    for _ in range(20):
        wire = wires()
        body = dumps({"wait_ms": FOREVER_MS})
        wire.send("POST", f"/v0/topics/{name}/diff", body, {"content-type": "application/json"})
        wire.reset()

    api.append(name, 1)
    assert api.seqs(name) == [1]


def test_the_end_of_a_job(api: Api, name: str, wires: Callable[[], Wire]) -> None:
    """Who waits for a job is answered by the ack that ends it, with its result. (§10.9)"""
    api.put(name, type="queue")
    api.append(name, 1, 2)
    api.ask("POST", f"/v0/topics/{name}/claim", {"node": "w", "max": 2})
    wire = wires()
    wire.send("GET", f"/v0/topics/{name}/jobs/1", b"", {})
    assert check(wire.receive()).json["state"] == "leased"
    wire.send("GET", f"/v0/topics/{name}/jobs/1?wait_ms={FOREVER_MS}", b"", {})
    parked(api, name)
    api.ask("POST", f"/v0/topics/{name}/ack", {"node": "w", "seqs": [2]})
    api.ask("POST", f"/v0/topics/{name}/ack", {"node": "w", "seqs": [1], "result": {"a": 1}})

    job = check(wire.receive()).json
    assert (job["state"], job["result"]) == ("done", {"a": 1})
    wire.send("GET", f"/v0/topics/{name}/jobs/1?wait_ms=1", b"", {})
    assert check(wire.receive()).json["state"] == "done"


def test_a_job_that_does_not_end_in_time(api: Api, name: str) -> None:
    """It is shown as it is. (§10.9)"""
    api.put(name, type="queue")
    api.append(name, 1)
    assert api.ask("GET", f"/v0/topics/{name}/jobs/1?wait_ms=1").json["state"] == "ready"
