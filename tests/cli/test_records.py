"""`topics publish`, `rm`, `purge`, `peek` and `drain`."""

import functools
import json
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

import topics.client
from topics.cli.records import subject
from topics.client import NewRecord, RawRecord, Record
from topics.protocol.model.errors import Rejection
from topics.protocol.model.tags import parse_subject
from topics.testing import MemoryTopics


def live(memory: MemoryTopics, topic: str) -> list[Any]:
    return [item.data for item in memory.client.read(topic) if isinstance(item, Record)]


def test_a_record_is_sent_byte_for_byte(memory: MemoryTopics, run: Any) -> None:
    """With its tag, writer and meta; where it went is printed. (§3.1)"""
    done = run(
        "publish", "jobs", '{"x": 1.0e5}', "--tag", "a:1", "--node", "w", "--meta", '{"k":1}'
    )

    assert (done.exit_code, done.stdout) == (0, "jobs 1; jobs was created\n")
    (record,) = memory.client.read("jobs", record_type=RawRecord, include_tags=True)
    assert isinstance(record, RawRecord)
    assert bytes(record.data) == b'{"x": 1.0e5}'
    assert (record.tag, record.node, bytes(record.meta)) == ("a:1", "w", b'{"k":1}')


def test_text_from_a_pipe(memory: MemoryTopics, run: Any) -> None:
    """Its last line break is the pipe's."""
    done = run("publish", "hosts", "-", "--text", input='he said "hi"\n')

    assert done.exit_code == 0
    assert live(memory, "hosts") == ['he said "hi"']


@pytest.mark.parametrize("data", ["hello", "{", "", "{} {}", '1},{"data":2', "\udcff", "1\udcff"])
def test_what_is_no_json_is_refused_before_it_is_sent(
    memory: MemoryTopics, run: Any, data: str
) -> None:
    """With the way to send it."""
    done = run("publish", "jobs", data)

    assert done.exit_code == 2
    assert "--text" in done.stderr


def test_json_that_python_has_no_number_for(memory: MemoryTopics, run: Any) -> None:
    """A server keeps any number, and any nesting that it follows. (§0.3)"""
    deep = "[" * 700 + "]" * 700
    for data in ("1e999", "1" * 5000, deep):
        assert run("publish", "jobs", data).exit_code == 0

    records = memory.client.read("jobs", record_type=RawRecord)
    assert [bytes(r.data).decode() for r in records] == ["1e999", "1" * 5000, deep]


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (["\udcff", "--text"], "is not text"),
        (["1", "--tag", "\udcff"], "is not text"),
        (["1", "--meta", "[1]"], "--meta is no JSON object"),
        (["1", "--meta", '{},"tag":"x"'], "--meta is no JSON"),
    ],
    ids=repr,
)
def test_what_can_be_no_part_of_a_record(
    memory: MemoryTopics, run: Any, args: list[str], told: str
) -> None:
    """Is refused in one line, and nothing is sent."""
    done = run("publish", "jobs", *args)

    assert done.exit_code == 2
    assert told in done.stderr
    assert list(memory.client.topics()) == []


def test_the_same_key_appends_once(memory: MemoryTopics, run: Any) -> None:
    """And says so. (§3.4)"""
    for _ in range(2):
        done = run("publish", "jobs", "1", "--key", "k")

    assert done.stdout == "jobs 1, which was there already\n"
    assert live(memory, "jobs") == [1]


def test_no_topic_is_made_where_none_is_wanted(memory: MemoryTopics, run: Any) -> None:
    """A typing error in a script does not make a topic."""
    done = run("publish", "jbos", "1", "--no-create")

    assert done.exit_code == 1
    assert "jbos" in done.stderr


@pytest.fixture
def chat(memory: MemoryTopics) -> MemoryTopics:
    rooms = [NewRecord(n, tag=f"room-{n % 2}:{n}") for n in range(1, 9)]
    memory.client.append("chat", *rooms, NewRecord(9))
    return memory


@pytest.mark.parametrize(
    ("args", "hit", "left"),
    [
        (["--match", "room-1:*"], 4, [2, 4, 6, 8, 9]),
        (["--match", "room-1:3"], 1, [1, 2, 4, 5, 6, 7, 8, 9]),
        (["--tag", "room-1:*"], 0, [1, 2, 3, 4, 5, 6, 7, 8, 9]),
        (["--before", "4"], 3, [4, 5, 6, 7, 8, 9]),
        (["--before", "100"], 9, []),
        (["--before", "4", "--match", "room-1:*"], 2, [2, 4, 5, 6, 7, 8, 9]),
    ],
)
def test_records_are_removed_and_were_counted_before(
    chat: MemoryTopics, run: Any, args: list[str], hit: int, left: list[int]
) -> None:
    """The dry run says what the run removes; a tag is taken as it is, a match is a pattern. (§5)"""
    word = "record" if hit == 1 else "records"
    told = run("rm", "chat", *args, "--dry-run", "--json")
    assert json.loads(told.stdout) == {"topic": "chat", "records": hit, "dry_run": True}
    shown = run("rm", "chat", *args, "--dry-run")
    assert shown.stderr == f"{hit} {word} of chat would be removed\n"
    assert live(chat, "chat") == [*range(1, 10)]

    refused = run("rm", "chat", *args)
    assert refused.exit_code == 2
    assert live(chat, "chat") == [*range(1, 10)]

    done = run("rm", "chat", *args, "--yes")
    verb = "was" if hit == 1 else "were"
    assert (done.exit_code, done.stderr) == (0, f"{hit} {word} {verb} removed from chat\n")
    assert live(chat, "chat") == left


def test_an_erasure(chat: MemoryTopics, run: Any) -> None:
    """The command ends when the bytes are gone. (§5)"""
    done = run("rm", "chat", "--before", "4", "--erase", "--yes")

    assert done.stderr == "3 records were removed from chat, and the bytes are erased\n"
    assert live(chat, "chat") == [4, 5, 6, 7, 8, 9]


def test_an_erasure_in_a_cluster(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It says until when the cluster's log has the bytes. (§5)"""

    def answer(request: httpx.Request) -> httpx.Response:
        counts = {"head_seq": 3, "earliest_seq": 4, "count": 0, "bytes": 0}
        if request.method == "GET":
            return httpx.Response(200, json={"topic": "t", **counts, "next_seq": 4, "config": {}})
        until = {"deleted": 3, "log_retained_until": 86_400_000}
        return httpx.Response(200, json={"topic": "t", **counts, **until})

    client = functools.partial(topics.client.Client, transport=httpx.MockTransport(answer))
    monkeypatch.setattr(topics.client, "Client", client)

    done = run("rm", "t", "--before", "9", "--erase", "--yes")

    assert done.stderr.splitlines()[1].startswith(
        "the log of the cluster has dropped them by 1970-01-0"
    )


@pytest.mark.parametrize("args", [[], ["--tag", "a", "--match", "b"]])
def test_rm_has_to_be_told_which(chat: MemoryTopics, run: Any, args: list[str]) -> None:
    """All of them is `purge`."""
    assert run("rm", "chat", *args, "--yes").exit_code == 2
    assert len(live(chat, "chat")) == 9


def test_a_topic_is_purged_but_for_the_newest(memory: MemoryTopics, run: Any) -> None:
    """By a pattern over the tag's tokens. (§5.1)"""
    for n, tag in enumerate(["a.x", "a.y", "a.x", "b.x"]):
        memory.client.append("orders", NewRecord(n, tag=tag))

    told = "2 records of orders whose tag a.* matches, all but the newest 1"
    refused = run("purge", "orders", "a.*", "--keep", "1")
    shown = run("purge", "orders", "a.*", "--keep", "1", "--dry-run")
    done = run("purge", "orders", "a.*", "--keep", "1", "--yes")

    assert refused.exit_code == 2
    assert f"This removes {told}, without a trace" in refused.stderr
    assert shown.stderr == f"{told} would be removed\n"
    assert done.stderr == "2 records were removed from orders\n"
    assert live(memory, "orders") == [2, 3]


@pytest.mark.parametrize(
    ("args", "hit"),
    [
        ([], 9),
        (["--keep", "2"], 7),
        (["--keep", "20"], 0),
        (["--before", "4"], 3),
        ([">"], 8),
        (["*", "--before", "4"], 3),
        (["room-1:3"], 1),
    ],
)
def test_a_purge_hits_what_its_dry_run_counts(
    chat: MemoryTopics, run: Any, args: list[str], hit: int
) -> None:
    """Untagged records are hit by no filter. (§5.1)"""
    shown = run("purge", "chat", *args, "--dry-run", "--json")
    assert json.loads(shown.stdout) == {"topic": "chat", "records": hit, "dry_run": True}
    assert len(live(chat, "chat")) == 9

    done = run("purge", "chat", *args, "--yes", "--json")

    assert json.loads(done.stdout)["purged"] == hit
    assert len(live(chat, "chat")) == 9 - hit


def test_a_purge_by_seq_keeps_no_number(chat: MemoryTopics, run: Any) -> None:
    """The server would refuse it, too. (§5.1)"""
    assert run("purge", "chat", "--keep", "1", "--before", "4", "--yes").exit_code == 2
    assert len(live(chat, "chat")) == 9


TOKENS = st.sampled_from(["a", "b", "a:b", "*", ">", "."])


@given(st.lists(TOKENS, min_size=1).map(".".join), st.text("ab:.\n", min_size=1, max_size=8))
def test_a_filter_counts_what_the_server_hits(pattern: str, tag: str) -> None:
    """Of every filter that the server takes. (§5.1)"""
    try:
        asked = parse_subject(pattern)
    except Rejection:
        return
    hit = asked.lower <= tag.encode() and asked.accepts(tag.encode())

    assert (subject(pattern).fullmatch(tag) is not None) == hit


def test_a_look_at_a_queue_leases_nothing(memory: MemoryTopics, run: Any) -> None:
    """Jobs under a lease are shown, too."""
    memory.client.put_topic("jobs", type="queue")
    memory.client.append("jobs", *range(5))
    memory.client.claim("jobs", node="w")

    done = run("peek", "jobs", "-n", "3")

    assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == [0, 1, 2]
    counts = memory.client.topic("jobs").queue
    assert counts is not None
    assert (counts.ready, counts.in_flight) == (4, 1)


def test_a_queue_is_drained(memory: MemoryTopics, run: Any) -> None:
    """Each job is printed as a read prints it, and acked; a job that another worker has stays."""
    memory.client.put_topic("jobs", type="queue")
    memory.client.append("jobs", 1, NewRecord(2, tag="t", node="n", meta={"k": 2.50}))
    memory.client.append("jobs", 3)
    memory.client.claim("jobs", node="w")

    done = run("drain", "jobs", "--yes")

    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["data"] for line in lines] == [2, 3]
    assert (lines[0]["$tag"], lines[0]["$node"], lines[0]["meta"]) == ("t", "n", {"k": 2.5})
    assert done.stderr == "2 records were drained from jobs\n"
    assert memory.client.topic("jobs").count == 1


def test_a_job_of_kafka_s_clients_is_drained_as_it_is_read(memory: MemoryTopics, run: Any) -> None:
    """With its form, key, time and headers, so that `append --format records` makes the same job again. (§2)"""
    memory.client.put_topic("jobs", type="queue")
    headers = [("trace", "1"), ("none", None), ("raw", {"$base64": "AAE="})]
    memory.client.append(
        "jobs",
        NewRecord("AAEC", form="base64", key="/w==", time=1234, headers=headers),
        NewRecord("hi", form="text", tag="t"),
        NewRecord(None, form="null", tag="u"),
        NewRecord(1, headers=[], meta={}),
    )
    read = run("read", "jobs", "--tags").stdout

    drained = run("drain", "jobs", "--yes").stdout

    assert drained == read
    assert run("append", "again", "--format", "records", input=drained).exit_code == 0
    again = [json.loads(line) for line in run("read", "again", "--tags").stdout.splitlines()]
    lines = [json.loads(line) for line in drained.splitlines()]
    assert again == [{**line, "$ts": each["$ts"]} for line, each in zip(lines, again, strict=True)]


def test_a_log_is_drained_to_where_its_head_was(memory: MemoryTopics, run: Any) -> None:
    """In pieces, each removed after it is printed."""
    memory.client.append("log", *range(1200))

    done = run("drain", "log", "--yes")

    assert [json.loads(line)["data"] for line in done.stdout.splitlines()] == [*range(1200)]
    assert done.stderr == "1,200 records were drained from log\n"
    assert memory.client.topic("log").count == 0


def test_a_drain_has_to_be_meant(memory: MemoryTopics, run: Any) -> None:
    """Nothing is printed or removed without --yes in a script."""
    memory.client.append("log", 1)

    done = run("drain", "log")

    assert (done.exit_code, done.stdout) == (2, "")
    assert memory.client.topic("log").count == 1


def test_a_drain_is_rehearsed(memory: MemoryTopics, run: Any) -> None:
    """Of a queue, jobs under a lease would stay."""
    memory.client.put_topic("jobs", type="queue")
    memory.client.append("jobs", 1, 2, 3)
    memory.client.claim("jobs", node="w")

    done = run("drain", "jobs", "--dry-run")

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "2 records of jobs would be printed and removed\n"
    assert memory.client.topic("jobs").count == 3
