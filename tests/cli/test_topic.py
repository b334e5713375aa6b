"""`topics create`, `config`, `info` and `delete`."""

import json
from typing import Any

import pytest

from topics.cli.fields import CLEARED
from topics.cli.topic import names_one
from topics.client import TopicNotFound
from topics.testing import MemoryTopics


def test_a_topic_is_made_with_its_config(memory: MemoryTopics, run: Any) -> None:
    """What is not given is the default. (§2)"""
    done = run("create", "jobs", "--type", "queue", "--ttl-ms", "2d", "--no-auto-create",
               "--dead-letter", "dead", "--cap-bytes", "1GiB")  # fmt: skip

    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == ("jobs was created: queue, disk, ttl 2d, at most 1GiB\n")
    config = memory.client.topic("jobs").config
    assert (config.type, config.ttl_ms, config.auto_create) == ("queue", 172_800_000, False)
    assert (config.dead_letter, config.cap_bytes, config.cap_records) == ("dead", 1 << 30, 0)


def test_a_topic_that_exists_is_left_as_it_is(memory: MemoryTopics, run: Any) -> None:
    """A PUT would give it the defaults of everything that is not said. (§2)"""
    memory.client.put_topic("jobs", cap_records=5)

    refused = run("create", "jobs", "--ttl-ms", "1d")
    content = run("create", "jobs", "--ttl-ms", "1d", "--exist-ok")
    told = run("create", "jobs", "--exist-ok", "--json")
    assert json.loads(told.stdout)["config"]["cap_records"] == 5

    assert (refused.exit_code, content.exit_code) == (1, 0)
    assert "`topics config jobs KEY=VALUE` changes it" in refused.stderr
    config = memory.client.topic("jobs").config
    assert (config.cap_records, config.ttl_ms) == (5, 0)


def test_a_value_that_is_none_is_refused_before_anything_is_sent(
    memory: MemoryTopics, run: Any
) -> None:
    """By the name of its option, and with what it may be."""
    done = run("create", "jobs", "--durability", "disc")

    assert done.exit_code == 2
    assert "one of ephemeral, memory, disk, fsync" in done.stderr
    with pytest.raises(TopicNotFound):
        memory.client.topic("jobs")


def test_some_fields_are_changed_and_the_others_kept(memory: MemoryTopics, run: Any) -> None:
    """And the config in force is printed as it could be typed."""
    memory.client.put_topic("jobs", cap_records=5, priority=2)

    done = run("config", "jobs", "ttl_ms=1h", "priority=", "auto_create=off")

    assert done.exit_code == 0
    lines = done.stdout.splitlines()
    assert {"cap_records=5", "ttl_ms=1h", "priority=", "auto_create=off"} <= set(lines)
    assert not any(line.startswith("durable=") for line in lines)  # beside durability=disk
    assert memory.client.topic("jobs").config.cap_records == 5
    assert run("config", "jobs").stdout == done.stdout
    assert json.loads(run("config", "jobs", "--json").stdout)["ttl_ms"] == 3_600_000


@pytest.mark.parametrize(
    ("args", "is_named"),
    [
        ([], False),
        (["--json"], False),
        (["--data-dir", "/srv/t"], False),
        (["--port=1"], False),
        (["jobs"], True),
        (["--json", "jobs"], True),
        (["--url", "http://h", "jobs", "a=b"], True),
        (["--url=http://h", "jobs"], True),
        (["--url", "http://h"], False),
        (["--help"], True),
        (["--", "jobs"], True),
    ],
)
def test_config_without_a_topic_is_what_it_was(run: Any, args: list[str], is_named: bool) -> None:
    """The settings of the server, with a hint at the new name."""
    assert names_one(args) == is_named
    if not is_named and "--url" not in args:
        done = run("config", *args)
        assert done.exit_code == 0
        assert "`topics settings` now" in done.stderr
        assert "data_dir" in done.stdout.lower()


def test_the_state_of_a_queue(memory: MemoryTopics, run: Any) -> None:
    """Counts, seqs, jobs. (§10.7)"""
    memory.client.put_topic("jobs", type="queue")
    memory.client.append("jobs", 1, 2, 3)
    memory.client.claim("jobs", node="w")

    lines = run("info", "jobs").stdout.splitlines()

    told = dict(line.split(maxsplit=1) for line in lines if len(line.split()) == 2)
    assert told["records"] == "3"
    assert told["ready"] == "2"
    assert "in flight     1" in lines
    assert "seqs          1 to 3" in lines
    assert json.loads(run("info", "jobs", "--json").stdout)["queue"]["in_flight"] == 1


def test_the_state_of_a_queue_whose_jobs_wait_and_expire(memory: MemoryTopics, run: Any) -> None:
    """What waits for its group is ready, and what nobody claimed in time is counted. (§10.7)"""
    assert run("create", "q", "--type", "queue", "--order", "group").exit_code == 0
    memory.client.append("q", 1, expires_ms=5)
    memory.advance(ms=10)
    memory.client.append("q", 2, 3, 4, group="g")
    memory.client.claim("q", node="w")

    lines = run("info", "q").stdout.splitlines()

    at = lines.index("ready         2")
    assert lines[at + 1] == "blocked       2 of the ready wait for their group"
    assert "expired       1 were not claimed in time" in lines
    assert "order=group" in run("config", "q").stdout.splitlines()
    assert run("config", "q", "order=").exit_code == 0
    assert "blocked" not in run("info", "q").stdout


def test_the_config_of_a_queue_with_a_pace(memory: MemoryTopics, run: Any) -> None:
    """Every field is shown as it is typed, so that what is shown makes the same queue. (§0.10)"""
    pace = (
        "--rate",
        "5/2s",
        "--backoff",
        "base_ms:1s,max_ms:1h,jitter:0.5",
        "--max-in-flight",
        "7",
    )
    kept = ("--group-max-in-flight", "2", "--result-ttl-ms", "2h", "--keep-done", "9", "--fair")
    run("create", "q", "--type", "queue", *pace, *kept)

    lines = run("config", "q").stdout.splitlines()

    assert {"rate=5/2s", "max_in_flight=7", "keep_done=9", "result_ttl_ms=2h"} <= set(lines)
    assert "backoff=base_ms:1s,max_ms:1h,factor:2.0,jitter:0.5" in lines
    run("create", "copy")
    changes = [line for line in lines if not line.startswith(("type=", "partitions="))]
    assert run("config", "copy", *changes).stdout.splitlines()[1:] == lines[1:]
    cleared = [f"{name}=" for name in CLEARED]
    assert {*cleared} <= {*run("config", "q", *cleared).stdout.splitlines()}


def test_the_state_of_an_empty_log(memory: MemoryTopics, run: Any) -> None:
    """No seqs, and no jobs."""
    memory.client.put_topic("audit")

    lines = run("info", "audit").stdout.splitlines()

    assert "seqs          none" in lines
    assert "last write    never" in lines
    assert "on disk       0 bytes in 0 segments" in lines
    assert "lost in 24 h  nothing" in lines
    assert not [line for line in lines if line.startswith("ready")]


def test_what_a_topic_lost_lately(memory: MemoryTopics, run: Any) -> None:
    """By reason; a crash's loss is known by numbers, which need not have been records. (§3.3)"""
    memory.client.put_topic("ring", cap_records=2)
    memory.client.append("ring", 1, 2, 3)
    assert "lost in 24 h  1 record by cap" in run("info", "ring").stdout.splitlines()

    memory.client.put_topic("ring", cap_records=2, ttl_ms=60_000)
    memory.advance(ms=60_001)
    assert "lost in 24 h  1 record by cap, 2 records by ttl" in run("info", "ring").stdout
    assert [
        each["reason"] for each in json.loads(run("info", "ring", "--json").stdout)["lost_24h"]
    ] == [
        "cap",
        "ttl",
    ]


def test_a_topic_goes_with_its_records_and_routers(memory: MemoryTopics, run: Any) -> None:
    """What would go is said first; a script has to say yes."""
    memory.client.append("a", 1, 2)
    memory.client.put_router("r", "a", "b")

    shown = run("delete", "a", "--dry-run")
    told = run("delete", "a", "--dry-run", "--json")
    assert json.loads(told.stdout) == {"topic": "a", "records": 2, "dry_run": True}
    refused = run("delete", "a")
    kept = memory.client.topic("a").count
    done = run("delete", "a", "--yes")

    assert shown.stderr == "a and its 2 records and 1 router would be deleted\n"
    assert (refused.exit_code, kept) == (2, 2)
    assert "This deletes a and its 2 records and 1 router: give --yes" in refused.stderr
    assert done.exit_code == 0
    with pytest.raises(TopicNotFound):
        memory.client.topic("a")


def test_a_topic_that_is_not_there(memory: MemoryTopics, run: Any) -> None:
    """The server's refusal, and 1."""
    for command in ("info", "config", "delete"):
        done = run(command, "nowhere")
        assert done.exit_code == 1
        assert "nowhere" in done.stderr
