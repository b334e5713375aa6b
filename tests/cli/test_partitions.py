"""Commands on topics of several partitions (§2.1): `--partition`, and what they show of each."""

import json
from typing import Any

import pytest

from topics.client import NewRecord
from topics.testing import MemoryTopics


@pytest.fixture
def topic(memory: MemoryTopics, run: Any) -> MemoryTopics:
    assert run("create", "t", "--partitions", 3).exit_code == 0
    memory.client.append("t", *(NewRecord(n, tag=f"k{n}", partition=n % 3) for n in range(7)))
    return memory


def read(run: Any, *arguments: Any) -> list[tuple[int, Any]]:
    """Partition and data of each line."""
    done = run("read", "t", *arguments)
    assert done.exit_code == 0, done.output
    lines = map(json.loads, done.stdout.splitlines())
    return [(line.get("$partition", 0), line["data"]) for line in lines]


def test_all_are_read_or_one(topic: MemoryTopics, run: Any) -> None:
    """A line says its partition where that is not the first; places are one partition's."""
    assert read(run) == [(0, 0), (0, 3), (0, 6), (1, 1), (1, 4), (2, 2), (2, 5)]
    assert read(run, "--limit", 4) == [(0, 0), (0, 3), (0, 6), (1, 1)]
    assert read(run, "--until", "2100-01-01")[-1] == (2, 5)
    assert read(run, "--until", "2000-01-01") == []
    assert read(run, "--partition", 1) == [(1, 1), (1, 4)]
    assert read(run, "--partition", 1, "--from", 1) == [(1, 4)]
    assert read(run, "--partition", 0, "--last", 2) == [(0, 3), (0, 6)]
    assert read(run, "--partition", 2, "--tail") == []
    assert '{"$seq":1,"$partition":2,"$ts":' in run("read", "t", "--partition", 2).stdout


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["--from", 1], 1, "name one (400 partition_required)"),
        (["--follow"], 1, "name one (400 partition_required)"),
        (["--last", 1], 2, "has 3 partitions, and --tail and --last are of one: give --partition"),
        (["--tail"], 2, "give --partition"),
        (["--partition", 3], 1, "404 partition_not_found"),
        (["--partition", 3, "--tail"], 1, "t has no partition 3"),
    ],
)
def test_a_place_is_one_partitions(
    topic: MemoryTopics, run: Any, arguments: list[Any], code: int, said: str
) -> None:
    done = run("read", "t", *arguments)
    assert (done.exit_code, said in done.stderr) == (code, True), done.stderr


def test_a_topic_with_one_takes_its_number(memory: MemoryTopics, run: Any) -> None:
    memory.client.append("t", 1)
    assert read(run, "--partition", 0, "--last", 1) == [(0, 1)]


def test_records_are_appended_to_one(topic: MemoryTopics, run: Any) -> None:
    """Or where their tags say; the summary counts partitions, and JSON has the seqs of each. (§2)"""
    done = run("append", "t", "--partition", 1, input="1\n2\n")
    assert "2 records appended to t (1 partition, " in done.stderr
    assert topic.client.topic("t").partitions[1].count == 4

    lines = '{"data": 1, "partition": 2}\n{"data": 2, "tag": "k", "$partition": 1}\n'
    done = run("append", "t", "--format", "records", "--json", input=lines)
    told = json.loads(done.stdout)
    assert (told["records"], "first_seq" in told) == (2, False)
    # `$partition` is where the record was read; its tag says where it goes.
    assert told["partitions"] == [{"partition": 2, "first_seq": 3, "last_seq": 4}]


def test_a_record_is_published_to_one(topic: MemoryTopics, run: Any) -> None:
    """Where it went is printed. (§2)"""
    assert run("publish", "t", "1", "--partition", 2).stdout == "t 3 in partition 2\n"
    assert json.loads(run("publish", "t", "1", "--partition", 2, "--json").stdout)[
        "partitions"
    ] == [{"partition": 2, "first_seq": 4, "last_seq": 4}]


def test_records_of_one_are_removed(topic: MemoryTopics, run: Any) -> None:
    """What a bound by seq hits is one partition's; a tag is looked for in all. (§5)"""
    done = run("rm", "t", "--before", 2, "--dry-run")
    assert (done.exit_code, "--before is of one: give --partition" in done.stderr) == (2, True)
    done = run("rm", "t", "--before", 2, "--partition", 1, "--yes")
    assert "1 record was removed from t" in done.stderr
    assert "6 records of t would be removed" in run("rm", "t", "--match", "k*", "--dry-run").stderr
    assert run("rm", "t", "--tag", "k0", "--yes").exit_code == 0
    assert read(run, "--partition", 0) == [(0, 3), (0, 6)]


def test_one_is_purged_or_all(topic: MemoryTopics, run: Any) -> None:
    """(§5.1)"""
    done = run("purge", "t", "--partition", 0, "--keep", 1, "--dry-run")
    assert "2 records of t, partition 0, all but the newest 1 would be removed" in done.stderr
    assert run("purge", "t", "--partition", 0, "--keep", 1, "--yes").exit_code == 0
    assert "5 records of t would be removed" in run("purge", "t", "--dry-run").stderr
    assert run("purge", "t", "*", "--yes").exit_code == 0
    assert read(run) == []


def test_all_are_drained(topic: MemoryTopics, run: Any) -> None:
    """One after the other; each line is printed before its record goes."""
    done = run("drain", "t", "--yes")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(line.get("$partition", 0), line["$seq"]) for line in lines] == [
        *((0, 1), (0, 2), (0, 3)),
        *((1, 1), (1, 2)),
        *((2, 1), (2, 2)),
    ]
    assert topic.client.topic("t").count == 0


def test_a_topic_shows_its_partitions(topic: MemoryTopics, run: Any) -> None:
    """A table behind what is said of the whole."""
    told = run("info", "t").stdout.splitlines()
    assert "partitions    3" in told
    assert [line.split() for line in told[-3:]] == [
        ["0", "3", *told[-3].split()[2:3], "1", "3"],
        ["1", "2", *told[-2].split()[2:3], "1", "2"],
        ["2", "2", *told[-1].split()[2:3], "1", "2"],
    ]
    assert len(json.loads(run("info", "t", "--json").stdout)["partitions"]) == 3
    assert "3 partitions" in run("create", "u", "--partitions", 3).stderr
