"""`topics latest`: the newest record of a tag, or of each."""

import json
from typing import Any

from topics.client import NewRecord
from topics.testing import MemoryTopics


def test_a_tag_and_all_of_them(memory: MemoryTopics, run: Any) -> None:
    """One line each, as `topics read` prints them. (§3.5)"""
    client = memory.client
    client.append("prices", 1, {"n": 2.50}, tag="EUR", meta={"m": 1})
    client.append("prices", 3, tag="USD")

    done = run("latest", "prices", "EUR")
    assert done.exit_code == 0, done.output
    line = json.loads(done.stdout)
    assert (line["$seq"], line["$tag"], line["meta"]) == (2, "EUR", {"m": 1})
    assert run("latest", "prices", "EUR", "--data").stdout == '{"n":2.5}\n'
    lines = run("latest", "prices", "--no-meta").stdout.splitlines()
    assert [json.loads(line)["$seq"] for line in lines] == [2, 3]
    assert "meta" not in lines[0]
    assert run("latest", "prices", "--prefix", "U", "--data").stdout == "3\n"


def test_a_record_of_several_partitions_is_printed_with_its_own(
    memory: MemoryTopics, run: Any
) -> None:
    """As `topics read` has it: without the partition its seq would name another record. (§2.1, §3.5)"""
    records = [NewRecord(n, tag=f"k.{n}", partition=n % 3) for n in range(6)]
    memory.client.append("prices", *records, config={"partitions": 3})

    lines = [json.loads(line) for line in run("latest", "prices").stdout.splitlines()]
    assert {(line["data"], line.get("$partition", 0)) for line in lines} == {
        (n, n % 3) for n in range(6)
    }
    assert json.loads(run("latest", "prices", "k.5").stdout)["$partition"] == 2
    rows = run("latest", "prices", "--csv", "partition,seq,data").stdout.splitlines()
    assert sorted(rows[1:]) == ["0,1,0", "0,2,3", "1,1,1", "1,2,4", "2,1,2", "2,2,5"]


def test_what_is_not_there(memory: MemoryTopics, run: Any) -> None:
    """And what says two things. (§0.6)"""
    memory.client.append("prices", 1, tag="EUR")
    done = run("latest", "prices", "USD")
    assert done.exit_code == 1
    assert "(404 record_not_found)" in done.stderr
    done = run("latest", "prices", "EUR", "--prefix", "U")
    assert "exclude each other" in done.stderr
