"""`topics apply`: topics, routers and schedules as files."""

import json
from pathlib import Path
from typing import Any

import pytest

from topics.cli import apply
from topics.client import TopicNotFound
from topics.testing import MemoryTopics

ALL = """
topics:
  jobs:
    type: queue
    lease_ms: 2m
    max_deliveries: 3
    dead_letter: jobs-dead
    rate: 100/1s
    backoff: {base_ms: 5s}
  jobs-dead: {type: queue}
  audit: {durability: fsync, ttl_ms: 90d, cap_bytes: 10GiB, auto_create: off}
  plain:
routers:
  orders-audit: {source: orders, dest: audit, filter: "eu.*"}
schedules:
  report:
    topic: jobs
    cron: 0 6 * * 1-5
    tz: Europe/Berlin
    record: {data: {make: report, at: 12:30}, tag: daily, unique: report}
  probe: {topic: plain, every_ms: 30s, record: {data: null}, paused: true}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "topics.yaml"
    path.write_text(ALL)
    return path


def test_what_a_file_declares_is_made(memory: MemoryTopics, run: Any, file: Path) -> None:
    """Topics first, each behind its dead letters; units are those of `topics create`. (§1.1, §6.1, §14.1)"""
    done = run("apply", "-f", file)

    assert done.exit_code == 0, done.stderr
    assert done.stderr == "7 changes made\n"
    heads = [line for line in done.stdout.splitlines() if line.startswith("+")]
    assert [line.split("  ")[0] for line in heads] == [
        "+ topic jobs-dead",
        "+ topic jobs",
        "+ topic audit",
        "+ topic plain",
        "+ router orders-audit",
        "+ schedule report",
        "+ schedule probe",
    ]
    assert done.stdout.endswith("7 to create, 0 unchanged\n")
    jobs = memory.client.topic("jobs").config
    assert (jobs.type, jobs.lease_ms, jobs.dead_letter) == ("queue", 120_000, "jobs-dead")
    assert jobs.rate is not None
    assert (jobs.rate.max, jobs.rate.per_ms) == (100, 1000)
    audit = memory.client.topic("audit").config
    assert (audit.durability, audit.cap_bytes, audit.auto_create) == ("fsync", 10 << 30, False)
    assert memory.client.router("orders-audit").filter == ("tag", "Glob", "eu.*")
    report = memory.client.schedule("report")
    assert (report.tz, report.record.data) == ("Europe/Berlin", {"make": "report", "at": "12:30"})
    assert memory.client.schedule("probe").paused


def test_applied_again_nothing_changes(memory: MemoryTopics, run: Any, file: Path) -> None:
    """And `--exit-code` tells a pipeline so."""
    assert run("apply", "-f", file, "--dry-run", "--exit-code").exit_code == 6
    assert run("apply", "-f", file, "--dry-run").exit_code == 0
    with pytest.raises(TopicNotFound):
        memory.client.topic("jobs")
    assert run("apply", "-f", file).exit_code == 0

    again = run("apply", "-f", file)
    rehearsed = run("apply", "-f", file, "--dry-run", "--exit-code")

    assert (again.exit_code, again.stdout, again.stderr) == (0, "7 unchanged\n", "")
    assert (rehearsed.exit_code, rehearsed.stdout) == (0, "7 unchanged\n")


@pytest.mark.parametrize(
    "record",
    [
        '{data: 1, headers: [[a, b], [c, null], [a, {"$base64": "/w=="}], [{"$base64": "/w=="}, d]]}',
        "{data: 1, headers: []}",
        "{data: 1, headers: [[a, b]], meta: {c: d}}",
        "{data: 1, headers: [[a, b]], meta: null}",
        '{data: "/w==", form: base64, key: "/w==", time: -5}',
    ],
)
def test_a_record_as_kafka_has_them_settles(
    memory: MemoryTopics, run: Any, tmp_path: Path, record: str
) -> None:
    """Headers are shown as `meta`, too, where it has no other. (§2, §14.1)"""
    file = tmp_path / "topics.yaml"
    file.write_text(
        f"topics: {{log: }}\nschedules:\n  s: {{topic: log, every_ms: 30s, record: {record}}}\n"
    )
    assert run("apply", "-f", file).exit_code == 0

    again = run("apply", "-f", file)

    assert (again.exit_code, again.stdout, again.stderr) == (0, "2 unchanged\n", "")


@pytest.mark.parametrize(
    "headers", ["5", "[a]", "[[a]]", "[[{b: c}, d]]", '[[{"$base64": "?"}, d]]', "[[1, d]]"]
)
def test_headers_that_are_none_are_refused_by_the_server(
    memory: MemoryTopics, run: Any, tmp_path: Path, headers: str
) -> None:
    """With where they stand. (§2)"""
    file = tmp_path / "topics.yaml"
    record = f"{{data: 1, headers: {headers}}}"
    file.write_text(f"schedules:\n  s: {{topic: log, every_ms: 30s, record: {record}}}\n")

    done = run("apply", "-f", file)

    assert done.exit_code == 1
    assert "record.headers" in done.stderr


def test_a_field_that_left_the_file_is_the_default_again(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """The plan says which, and from which value; what did not change is not printed. (§1.1)"""
    run("apply", "-f", file)
    file.write_text(ALL.replace("    lease_ms: 2m\n", "").replace('"eu.*"', "us"))

    done = run("apply", "-f", file)

    assert done.stdout == (
        f"~ topic jobs  ({file}:3)\n"
        "    lease_ms: 2m -> 30s, the default\n"
        f"~ router orders-audit  ({file}:13)\n"
        '    filter: ["tag", "Glob", "eu.*"] -> ["tag", "Eq", "us"]\n'
        "2 to change, 5 unchanged\n"
    )
    assert memory.client.topic("jobs").config.lease_ms == 30_000


def test_changes_as_one_object(memory: MemoryTopics, run: Any, file: Path) -> None:
    """For programs: fields from and to, as numbers."""
    memory.client.put_topic("plain", cap_records=5)

    rehearsed = json.loads(run("apply", "-f", file, "--dry-run", "--json").stdout)
    made = json.loads(run("apply", "-f", file, "--json").stdout)

    assert (rehearsed["pending"], rehearsed["made"], made["made"]) == (7, 0, 7)
    assert rehearsed["changes"] == made["changes"]
    (plain,) = [change for change in made["changes"] if change["name"] == "plain"]
    assert plain == {
        "kind": "topics",
        "name": "plain",
        "action": "change",
        "fields": {"cap_records": {"from": 5, "to": 0}},
        "place": f"{file}:12",
    }


def test_what_takes_records_away_is_asked_for(memory: MemoryTopics, run: Any, file: Path) -> None:
    """A smaller cap or ttl evicts at once; of an empty topic it takes nothing. (§0.10)"""
    file.write_text("topics: {full: {cap_records: 2}, empty: {cap_records: 2}}")
    memory.client.append("full", 1, 2, 3)
    memory.client.put_topic("empty")

    refused = run("apply", "-f", file)
    kept = memory.client.topic("full").count
    done = run("apply", "-f", file, "--yes")

    assert refused.exit_code == 2
    assert "This deletes records of full by cap_records: give --yes" in refused.stderr
    assert "empty" not in refused.stderr
    assert (kept, done.exit_code, memory.client.topic("full").count) == (3, 0, 2)
    file.write_text("topics: {full: {cap_records: 9}, empty: {cap_records: 9}}")
    assert run("apply", "-f", file).exit_code == 0  # wider


def test_a_refusal_of_the_server_names_the_line(memory: MemoryTopics, run: Any, file: Path) -> None:
    """And how many changes were made before it; the same file goes on from there."""
    file.write_text("topics:\n  a:\n  b: {result_ttl_ms: 0}\n")

    done = run("apply", "-f", file)

    assert done.exit_code == 1
    assert f"{file}:3: topic b: " in done.stderr
    assert "1 of 2 changes made before" in done.stderr
    assert memory.client.topic("a").count == 0


def test_what_the_server_keeps_otherwise_is_named(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """A text of Kafka's, which the server spells in one way. (§0.10)"""
    file.write_text("topics:\n  a: {kafka_configs: {delete.retention.ms: '0500'}}\n")

    done = run("apply", "-f", file)

    assert done.exit_code == 0
    assert f"{file}:2: topic a: the server keeps kafka_configs as" in done.stderr
    assert '{"delete.retention.ms": "500"}' in done.stderr


@pytest.mark.parametrize(
    ("options", "code", "message"),
    [
        ([], 2, "topics: the plan was not read to its end; nothing was changed\n"),
        (["--dry-run"], 0, ""),
        (["--dry-run", "--exit-code"], 6, ""),
    ],
)
def test_a_plan_that_nobody_reads_is_not_carried_out(
    memory: MemoryTopics,
    run: Any,
    file: Path,
    monkeypatch: pytest.MonkeyPatch,
    options: list[str],
    code: int,
    message: str,
) -> None:
    """`topics apply -f topics.yaml | head -1` does not end as if the changes were made."""
    show = apply._print_change

    def print_first(change: Any) -> None:
        show(change)
        raise BrokenPipeError

    monkeypatch.setattr(apply, "_print_change", print_first)
    monkeypatch.setattr(apply, "abandon", lambda stream: None)

    done = run("apply", "-f", file, *options)

    assert (done.exit_code, done.stderr) == (code, message)
    assert list(memory.client.topics()) == []


def test_others_delete_meanwhile(
    memory: MemoryTopics, run: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and the deletion of what files do not name: it is as it was to be."""
    memory.client.put_topic("old")
    memory.client.put_topic("older")
    memory.client.put_router("r", "a", "b")
    memory.client.put_schedule("s", "a", 1, every_ms=1000)
    make = apply._make

    def delete_first(client: Any, plan: Any) -> None:
        memory.client.delete_router("r")
        memory.client.delete_schedule("s")
        memory.client.delete_topic("old")
        make(client, plan)

    monkeypatch.setattr(apply, "_make", delete_first)

    done = run("apply", "-f", file, "--prune", "--yes")

    assert done.exit_code == 0, done.stderr
    assert run("apply", "-f", file, "--prune", "--dry-run", "--exit-code").exit_code == 0


def test_a_topic_that_was_empty_is_deleted_only_if_it_is(
    memory: MemoryTopics, run: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The question counted its records: 0. (§1.4)"""
    memory.client.put_topic("old")
    make = apply._make

    def append_first(client: Any, plan: Any) -> None:
        memory.client.append("old", 1)
        make(client, plan)

    monkeypatch.setattr(apply, "_make", append_first)

    done = run("apply", "-f", file, "--prune", "--yes")

    assert done.exit_code == 1
    assert "topic old: " in done.stderr
    assert memory.client.topic("old").count == 1
