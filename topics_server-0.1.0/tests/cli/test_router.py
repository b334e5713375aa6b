"""`topics router create | info | delete`."""

import json
from typing import Any

import pytest

from topics.client import NewRecord, RouterNotFound
from topics.testing import MemoryTopics


def test_a_router_is_made_and_described(memory: MemoryTopics, run: Any) -> None:
    """What it copies, and how far it is. (§6)"""
    memory.client.put_topic("orders")
    made = run("router", "create", "r", "orders", "audit", "--filter", "eu.*", "--exactly-once")
    memory.client.append("orders", NewRecord(1, tag="eu.1"), NewRecord(2, tag="us.1"))
    shown = run("router", "info", "r").stdout.splitlines()

    assert (made.exit_code, made.stderr) == (0, "r was created: orders -> audit\n")
    assert "copies      orders -> audit" in shown
    assert "filter      eu.*" in shown
    assert "guarantee   exactly_once" in shown
    assert "forwarded   1" in shown
    assert json.loads(run("router", "info", "r", "--json").stdout)["cursor"] == 2


def test_the_same_again_changes_nothing(memory: MemoryTopics, run: Any) -> None:
    """And says so."""
    memory.client.put_topic("a")
    run("router", "create", "r", "a", "b")

    again = run("router", "create", "r", "a", "b")

    assert (again.exit_code, again.stderr) == (0, "r is as asked: a -> b\n")


def test_a_router_is_deleted_and_its_copies_stay(memory: MemoryTopics, run: Any) -> None:
    """Asked before, and not by a dry run."""
    memory.client.put_topic("a")
    memory.client.put_router("r", "a", "b")
    memory.client.append("a", 1)

    told = json.loads(run("router", "delete", "r", "--dry-run", "--json").stdout)
    assert (told["router"], told["dry_run"]) == ("r", True)
    shown = run("router", "delete", "r", "--dry-run")
    refused = run("router", "delete", "r")
    assert shown.stderr == "r (a -> b) would be deleted\n"
    assert refused.exit_code == 2
    assert memory.client.router("r").source == "a"

    done = run("router", "delete", "r", "--yes")
    assert (done.exit_code, done.stderr) == (0, "r was deleted\n")
    with pytest.raises(RouterNotFound):
        memory.client.router("r")
    assert memory.client.topic("b").count == 1


def test_a_destination_is_not_made_where_that_is_not_wanted(memory: MemoryTopics, run: Any) -> None:
    """The server's refusal, and 1."""
    memory.client.put_topic("a")

    done = run("router", "create", "r", "a", "nowhere", "--no-create")

    assert done.exit_code == 1
    assert "nowhere" in done.stderr
