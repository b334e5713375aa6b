"""`topics topics`: what there is, for people and for programs."""

import json
from typing import Any

JOBS = {"topic": "jobs", "head_seq": 480231, "earliest_seq": 3, "count": 1130, "bytes": 2310912}


def test_topics_as_a_table(log: Any, run: Any) -> None:
    """The list as a table for people; a long name is not cut."""
    log.topics = [JOBS, {**JOBS, "topic": "a" * 255}]

    done = run("topics")

    assert done.exit_code == 0
    assert done.stdout.splitlines()[1].split() == ["jobs", "1,130", "2,310,912", "3", "480,231"]
    assert "a" * 255 in done.stdout


def test_topics_as_json(log: Any, run: Any) -> None:
    """The list for programs: one object a line."""
    log.topics = [JOBS, {**JOBS, "topic": "b"}]

    rows = [json.loads(line) for line in run("topics", "--json").stdout.splitlines()]

    assert [row["topic"] for row in rows] == ["jobs", "b"]
    assert rows[0]["count"] == 1130


def test_topics_of_a_queue(memory: Any, run: Any) -> None:
    """Nothing that the server lists is left out: the kinds of topics, and jobs that are delayed."""
    memory.client.put_topic("audit", durability="fsync")
    memory.client.put_topic("jobs", type="queue")
    memory.client.append("jobs", *range(6))
    claimed = memory.client.claim("jobs", node="w", max=3)
    memory.client.nack("jobs", claimed.jobs[0], node="w", delay_ms=9000)

    header, audit, jobs = run("topics").stdout.splitlines()
    assert header.split()[-4:] == ["ready", "in", "flight", "delayed"]
    assert audit.split()[0] == "audit"
    assert jobs.split()[-3:] == ["3", "2", "1"]

    rows = [json.loads(line) for line in run("topics", "--json").stdout.splitlines()]
    assert [(r["topic"], r["type"], r["durability"]) for r in rows] == [
        ("audit", "log", "fsync"),
        ("jobs", "queue", "disk"),
    ]
    assert rows[1]["queue"]["delayed"] == 1
