"""`topics jobs list | show | promote | retry | cancel`."""

import json
from typing import Any

import pytest

from topics.client import JobNotFound
from topics.testing import MemoryTopics


@pytest.fixture
def shop(dead: MemoryTopics) -> MemoryTopics:
    """Job 1 done, 2 dead, 3 delayed, 4 held, 5 fresh."""
    client = dead.client
    client.put_topic("jobs", type="queue", dead_letter="dead", keep_done=10)
    client.append_many("jobs", range(5))
    jobs = client.claim("jobs", node="w", max=4).jobs
    client.ack("jobs", jobs[0], node="w", result={"n": 1})
    client.nack("jobs", jobs[1], node="w", dead=True, reason="broken")
    client.nack("jobs", jobs[2], node="w", delay_ms=60_000, reason="no\nnet")
    return dead


def test_the_list(shop: MemoryTopics, run: Any) -> None:
    """Each with where it is, and why; as lines, or as JSON. (§10.9)"""
    done = run("jobs", "list", "jobs")
    lines = [line.split() for line in done.stdout.splitlines()[1:]]
    assert [line[:3] for line in lines] == [
        ["3", "delayed", "1"],
        ["4", "leased", "1"],
        ["5", "ready", "0"],
    ]
    assert "no\\nnet" in done.stdout
    done = run("jobs", "list", "jobs", "--state", "dead")
    assert done.stdout.splitlines()[1].endswith("dead 1")
    found = json.loads(run("jobs", "list", "jobs", "--state", "done", "--json").stdout)
    assert (found["seq"], found["result"]) == (1, {"n": 1})
    assert len(run("jobs", "list", "jobs", "--limit", "2", "--json").stdout.splitlines()) == 2
    assert run("jobs", "list", "missing").exit_code == 1


def test_one_job(shop: MemoryTopics, run: Any) -> None:
    """What came of it, and why it was given back. (§10.9)"""
    done = run("jobs", "show", "jobs", "3")
    rows = dict(line.split(maxsplit=1) for line in done.stdout.splitlines())
    assert (rows["job"], rows["state"], rows["deliveries"]) == ("3", "delayed", "1")
    assert rows["reason"].endswith("w  no\\nnet")
    assert '{"n":1}' in run("jobs", "show", "jobs", "1").stdout
    assert "dead letter" in run("jobs", "show", "jobs", "2").stdout
    assert json.loads(run("jobs", "show", "jobs", "5", "--json").stdout)["state"] == "ready"
    assert run("jobs", "show", "jobs", "99").exit_code == 1
    with pytest.raises(JobNotFound):
        shop.client.job("jobs", 99)


@pytest.mark.parametrize("action", ["promote", "retry"])
def test_jobs_are_made_ready(shop: MemoryTopics, run: Any, action: str) -> None:
    """One, or all that are delayed. (§10.9)"""
    what = {"promote": "promoted", "retry": "tried again"}[action]
    done = run("jobs", action, "jobs", "--dry-run")
    assert done.stderr == f"1 job would be {what}\n"
    done = run("jobs", action, "jobs", "3")
    assert (done.exit_code, done.stderr) == (0, f"1 job was {what}\n")
    assert run("jobs", action, "jobs").stderr == f"0 jobs were {what}\n"
    assert run("jobs", action, "jobs", "4").exit_code == 1
    assert run("jobs", action, "jobs", "4", "--match", "a").exit_code == 2


def test_a_dead_job_comes_back(shop: MemoryTopics, run: Any) -> None:
    """As a new one. (§10.9)"""
    found = json.loads(run("jobs", "retry", "jobs", "2", "--json").stdout)
    assert (found["matched"], found["done"]) == (1, 1)
    assert shop.client.topic("dead").count == 0
    assert shop.client.job("jobs", 6).state == "ready"


def test_jobs_are_cancelled(shop: MemoryTopics, run: Any) -> None:
    """The jobs that the command names, and only with consent. (§10.9)"""
    assert run("jobs", "cancel", "jobs").exit_code == 2
    asked = run("jobs", "cancel", "jobs", "--state", "ready")
    assert (asked.exit_code, "This deletes 1 job of jobs" in asked.stderr) == (2, True)
    done = run("jobs", "cancel", "jobs", "--state", "ready", "--yes")
    assert done.stderr == "1 job was cancelled\n"
    assert run("jobs", "cancel", "jobs", "3", "--yes").exit_code == 0
    assert run("jobs", "cancel", "jobs", "4", "--yes").exit_code == 1
    assert [job.seq for job in shop.client.jobs("jobs")] == [4]
