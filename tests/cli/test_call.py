"""`topics call`: a job, and its result."""

import functools
import json
from typing import Any

import pytest

import topics.client
from topics.testing import MemoryTopics


@pytest.fixture
def sums(dead: MemoryTopics) -> MemoryTopics:
    """A queue whose jobs are sums, where a text is a failure."""
    config: dict[str, Any] = {"max_deliveries": 1, "dead_letter": "dead", "keep_done": 10}
    dead.client.put_topic("sums", type="queue", **config)
    dead.answer("sums", lambda job: {"sum": sum(job.data)})
    return dead


def test_the_result_is_printed(sums: MemoryTopics, run: Any) -> None:
    """As JSON, with the options of jobs. (§10.9)"""
    done = run("call", "sums", "[1, 2]", "--priority", "5", "--tag", "t", "--key", "k")
    assert (done.exit_code, json.loads(done.stdout)) == (0, {"sum": 3})

    again = run("call", "sums", "-", "--key", "k", input="[9]")
    assert json.loads(again.stdout) == {"sum": 3}
    assert run("call", "sums", "[1.0e0]").stdout == '{"sum":1.0}\n'


def test_a_job_that_fails(sums: MemoryTopics, run: Any) -> None:
    """The exit code says so, and the last line why. (§10.9)"""
    done = run("call", "sums", "a", "--text")
    assert done.exit_code == 5
    assert "failed after 1 delivery: TypeError: unsupported operand" in done.stderr


def test_a_job_that_nobody_does(
    dead: MemoryTopics, run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The call ends when its time is over, and takes the job with it. (§10.9)"""
    by_its_clock = functools.partial(topics.client.Client, clock=dead.client.session.clock)
    monkeypatch.setattr(topics.client, "Client", by_its_clock)
    dead.client.put_topic("idle", type="queue")
    done = run("call", "idle", "1", "--wait", "2s")
    assert done.exit_code == 5
    assert "job 1 of idle did not end within 2 s" in done.stderr
    assert dead.client.topic("idle").count == 0


def test_what_cannot_be_called(sums: MemoryTopics, run: Any) -> None:
    """A topic that does not exist is refused; so is what is no JSON, and a wait of nothing."""
    assert run("call", "missing", "1").exit_code == 1
    assert run("call", "sums", "{").exit_code == 2
    assert run("call", "sums", "1", "--wait", "0s").exit_code == 2
