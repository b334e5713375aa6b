"""`topics redrive`: dead letters back in their queue, each once, whatever was cut short."""

from typing import Any

import msgspec
import pytest

from topics.client import NewRecord, RawRecord
from topics.testing import MemoryTopics

from .burials import bury


def raw(memory: MemoryTopics, topic: str) -> list[bytes]:
    """The records of a topic as they are served, without seq and time."""
    items = memory.client.read(topic, record_type=RawRecord, include_tags=True)
    kept = [msgspec.structs.replace(item, seq=0, ts_ms=0) for item in items]  # type: ignore[type-var]
    return [msgspec.json.encode(record) for record in kept]


def test_letters_go_back_as_they_were(dead: MemoryTopics, run: Any) -> None:
    """Data byte for byte, tag, node, and the meta that was the user's; then they are deleted. (§10.6)"""
    bury(
        dead,
        NewRecord(
            msgspec.Raw(b'{"x":1.0e5}'), tag="a:1", node="web", meta=msgspec.Raw(b'{"m":2.50}')
        ),
        "plain",
    )
    bury(dead, 3)

    done = run("redrive", "dead", "--to", "jobs")

    assert (done.exit_code, done.stderr) == (0, "3 letters were moved from dead to jobs\n")
    assert done.stdout == ""
    assert raw(dead, "jobs") == [
        b'{"$seq":0,"$ts":0,"$node":"web","$tag":"a:1","data":{"x":1.0e5},"meta":{"m":2.50}}',
        b'{"$seq":0,"$ts":0,"data":"plain"}',
        b'{"$seq":0,"$ts":0,"data":3}',
    ]
    assert raw(dead, "dead") == []


def test_letters_at_every_limit_can_be_appended_again(dead: MemoryTopics, run: Any) -> None:
    """What the server adds to their meta counts in no limit: by `read` and `append`, and by `drain`; back
    in the queue they are what they were. (§2, §10.6)"""
    meta = {f"k{n}": "x" * 200 for n in range(63)}
    meta["rest"] = "x" * (16_384 - len(msgspec.json.encode({**meta, "rest": ""})))
    data = "x" * ((1 << 20) - 16_384 - 2)
    bury(dead, NewRecord(data, tag="t" * 256, node="n" * 128, meta=meta))

    lines = run("read", "dead", "--tags").stdout
    for text, topic in ((lines, "copy"), (run("drain", "dead", "--yes").stdout, "drained")):
        done = run("append", topic, "--format", "records", input=text)
        assert done.exit_code == 0, done.stderr
    assert raw(dead, "copy") == raw(dead, "drained")
    assert b'"$dead_letter_from":"jobs"' in raw(dead, "copy")[0]

    assert run("redrive", "drained", "--to", "jobs").exit_code == 0
    (item,) = dead.client.read("jobs", include_tags=True)
    assert (item.data, item.meta, item.tag, item.node) == (data, meta, "t" * 256, "n" * 128)  # type: ignore[union-attr]


def test_a_rehearsal_changes_nothing(dead: MemoryTopics, run: Any) -> None:
    """--dry-run prints the letters and touches neither topic."""
    bury(dead, "a", "b", tag="t\n1")
    before = raw(dead, "dead")

    done = run("redrive", "dead", "--to", "jobs", "--dry-run")

    assert (done.exit_code, done.stderr) == (0, "2 would be moved from dead to jobs\n")
    assert done.stdout.splitlines()[0] == "dead 1 -> jobs t\\n1 (deliveries: 1)"
    assert raw(dead, "dead") == before
    assert raw(dead, "jobs") == []


@pytest.mark.parametrize(
    ("match", "moved"), [("a:*", ["a:1", "a:2"]), ("a:2", ["a:2"]), ("*", ["a:1", "b", "a:2"])]
)
@pytest.mark.parametrize("kind", ["log", "queue"])
def test_some_of_them(
    dead: MemoryTopics, run: Any, kind: str, match: str, moved: list[str]
) -> None:
    """--match moves the letters of some tags, and leaves the others as they are. (§5)"""
    dead.client.put_topic("dead", type=kind)
    bury(dead, *(NewRecord(tag, tag=tag) for tag in ("a:1", "b", "a:2")), NewRecord("none"))

    assert run("redrive", "dead", "--to", "jobs", "--match", match).exit_code == 0

    tags = [record.tag for record in dead.client.read("jobs", include_tags=True)]  # type: ignore[union-attr]
    left = [record.data for record in dead.client.read("dead")]  # type: ignore[union-attr]
    assert tags == moved
    assert left == [data for data in ("a:1", "b", "a:2", "none") if data not in moved]


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_letters_that_are_named(dead: MemoryTopics, run: Any, kind: str) -> None:
    """--seq moves these and no other; one that is not there is told, and the code is 1. (§10.6)"""
    dead.client.put_topic("dead", type=kind)
    bury(dead, *"abcd")
    named = ("redrive", "dead", "--to", "jobs", "--seq", 4, "--seq", 2, "--seq", 2)

    rehearsed = run(*named, "--dry-run")
    done = run(*named)
    again = run(*named, "--seq", 1)

    assert rehearsed.stdout.splitlines() == [
        "dead 2 -> jobs (deliveries: 1)",
        "dead 4 -> jobs (deliveries: 1)",
    ]
    assert rehearsed.stderr == "2 would be moved from dead to jobs\n"
    assert (done.exit_code, done.stderr) == (0, "2 letters were moved from dead to jobs\n")
    assert (again.exit_code, again.stderr.splitlines()) == (
        1,
        [
            "1 letter was moved from dead to jobs",
            "topics: dead: 2 are not there, or are leased or delayed",
        ],
    )
    assert [record.data for record in dead.client.read("jobs")] == ["b", "d", "a"]  # type: ignore[union-attr]
    assert [record.data for record in dead.client.read("dead")] == ["c"]  # type: ignore[union-attr]


def test_dead_letters_in_a_queue(dead: MemoryTopics, run: Any) -> None:
    """Where the dead letters are a queue, what others hold stays. (§10.6)"""
    dead.client.put_topic("dead", type="queue")
    bury(dead, *range(45))
    (held,) = dead.client.claim("dead", node="someone").jobs

    rehearsed = run("redrive", "dead", "--to", "jobs", "--dry-run")
    assert rehearsed.stderr.splitlines() == [
        "topics: dead: 1 of them are leased or delayed, and would stay",
        "45 would be moved from dead to jobs",
    ]

    done = run("redrive", "dead", "--to", "jobs")

    assert done.exit_code == 0
    assert done.stderr.splitlines() == [
        "topics: dead: 1 more are leased or delayed: move them when that is over",
        "44 letters were moved from dead to jobs",
    ]
    assert [record.data for record in dead.client.read("jobs")] == list(range(1, 45))  # type: ignore[union-attr]
    assert raw(dead, "jobs")[0] == b'{"$seq":0,"$ts":0,"data":1}'
    assert dead.client.ack("dead", held, node="someone").acked == 1
    assert dead.client.topic("dead").count == 0


def test_what_is_refused_stays(dead: MemoryTopics, run: Any) -> None:
    """Where the queue takes no more, what it took is moved, the rest stays, and the code is 1."""
    bury(dead, *"abcd")
    config = {"cap_records": 2, "discard": "reject", "max_deliveries": 1, "dead_letter": "dead"}
    dead.client.put_topic("jobs", type="queue", **config)

    done = run("redrive", "dead", "--to", "jobs")

    assert done.exit_code == 1
    assert done.stderr.endswith("2 letters were moved from dead to jobs\n")
    assert [record.data for record in dead.client.read("jobs")] == ["a", "b"]  # type: ignore[union-attr]
    assert [record.data for record in dead.client.read("dead")] == ["c", "d"]  # type: ignore[union-attr]


def test_losses_are_told(dead: MemoryTopics, run: Any) -> None:
    """Letters that a cap took before they could be moved are told before anything is. (§3.3)"""
    dead.client.put_topic("dead", cap_records=2)
    bury(dead, *range(5))

    done = run("redrive", "dead", "--to", "jobs", "--dry-run")

    assert done.exit_code == 0
    assert done.stderr.startswith("topics: records 1 to 3 of dead are lost (cap)\n")


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["dead", "--to", "dead"], 2),
        (["dead", "--to", "log"], 2),
        (["dead"], 2),
        (["dead", "--to", "jobs", "--seq", "0"], 2),
        (["dead", "--to", "jobs", "--seq", "1", "--match", "a"], 2),
        (["dead", "--to", "missing"], 1),
        (["missing", "--to", "jobs"], 1),
    ],
    ids=str,
)
def test_mistakes(dead: MemoryTopics, run: Any, args: list[str], code: int) -> None:
    """A queue that is none, or not there, is told before anything is moved; none is made."""
    dead.client.put_topic("log")
    bury(dead, "a")

    done = run("redrive", *args)

    assert (done.exit_code, "Traceback" in done.stderr) == (code, False)
    assert sorted(topic.topic for topic in dead.client.topics()) == ["dead", "jobs", "log"]
    assert dead.client.topic("dead").count == 1
