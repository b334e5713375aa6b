"""What `topics apply` finds to change, and in which order."""

import json
from pathlib import Path
from typing import Any

import pytest

from topics.client import TopicNotFound
from topics.testing import START_MS, MemoryTopics


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "topics.yaml"


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ("jobs: {}", "type: queue -> log, the default"),
        ("wide: {partitions: 1}", "partitions: 2 -> 1"),
    ],
)
def test_what_only_a_new_topic_can_have_is_refused(
    memory: MemoryTopics, run: Any, file: Path, fields: str, why: str
) -> None:
    """Before anything is changed: the type, and fewer partitions. (§1.1)"""
    memory.client.put_topic("jobs", type="queue")
    memory.client.put_topic("wide", partitions=2)
    file.write_text(f"topics: {{other: {{}}, {fields}}}")

    done = run("apply", "-f", file)
    told = run("apply", "-f", file, "--json")

    assert (done.exit_code, told.exit_code) == (1, 1)
    assert "has to be deleted and made again" in done.stdout
    assert why in done.stdout
    assert "nothing was changed" in done.stderr
    assert json.loads(told.stdout)["changes"][-1]["action"] == "refused"
    with pytest.raises(TopicNotFound):
        memory.client.topic("other")


def test_partitions_that_are_not_named_stay(memory: MemoryTopics, run: Any, file: Path) -> None:
    """Others may let a topic grow. (§1.1)"""
    memory.client.put_topic("a", partitions=4)
    file.write_text("topics: {a: {ttl_ms: 1h}}")

    assert run("apply", "-f", file).exit_code == 0
    assert memory.client.topic("a").config.partitions == 4
    assert run("apply", "-f", file).stdout == "1 unchanged\n"


def test_a_chain_of_dead_letters_is_turned_round(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """No change closes a ring that a later one would open, in whichever order they are declared. (§0.10)"""
    queue = "type: queue, dead_letter"
    file.write_text(f"topics: {{a: {{{queue}: b}}, b: {{{queue}: c}}, c: {{type: queue}}}}")
    assert run("apply", "-f", file).exit_code == 0
    file.write_text(f"topics: {{c: {{{queue}: b}}, b: {{{queue}: a}}, a: {{type: queue}}}}")

    done = run("apply", "-f", file)

    assert done.exit_code == 0, done.stderr
    assert memory.client.topic("c").config.dead_letter == "b"


def test_a_schedule_whose_only_tick_has_been_is_not_made_again(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """The server deletes it when that has happened. (§14.1)"""
    file.write_text(f"schedules: {{s: {{topic: t, at: {START_MS - 1}, record: {{data: 1}}}}}}")

    done = run("apply", "-f", file)

    assert (done.exit_code, done.stdout) == (0, "1 unchanged\n")


def test_a_ttl_and_compaction_take_records_as_well(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """Where there was none before. (§0.10)"""
    memory.client.append("a", 1, tag="t")
    file.write_text("topics: {a: {ttl_ms: 1h, compact: true}}")

    assert "records of a by ttl_ms, compact" in run("apply", "-f", file).stderr


def test_what_the_files_do_not_name_is_deleted_on_request(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """Of the kinds they have, after a question; never a topic that a declared item uses."""
    client = memory.client
    client.put_topic("jobs", type="queue", dead_letter="dead")
    client.append("dead", 1)
    client.append("old", 1, 2)
    client.put_router("gone", "old", "older")
    client.put_router("kept", "jobs", "mirror")
    client.put_schedule("nightly", "jobs", 1, every_ms=1000)
    file.write_text(
        "topics: {jobs: {type: queue, dead_letter: dead}}\n"
        "routers: {kept: {source: jobs, dest: mirror}}"
    )

    untouched = run("apply", "-f", file)
    refused = run("apply", "-f", file, "--prune")
    done = run("apply", "-f", file, "--prune", "--yes")

    assert untouched.stdout == "2 unchanged\n"
    assert refused.exit_code == 2
    assert "- router gone\n" in refused.stdout
    assert "- topic old  with its 2 records and 1 router (gone)\n" in refused.stdout
    assert done.exit_code == 0
    assert [each.topic for each in client.topics()] == ["dead", "jobs", "mirror"]
    assert [each.router for each in client.routers()] == ["kept"]
    assert [each.schedule for each in client.schedules()] == ["nightly"]
    assert run("apply", "-f", file, "--prune").stdout == "2 unchanged\n"


def test_only_names_with_the_prefix_of_a_file_are_deleted(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """And each once, where the prefixes of two documents overlap."""
    for name in ("app:a", "app:b", "app:x:c", "other"):
        memory.client.put_topic(name)
    file.write_text("prefix: 'app:'\ntopics: {app:a: }\n---\nprefix: 'app:x:'\ntopics: {}\n")

    done = run("apply", "-f", file, "--prune", "--yes", "--json")

    rows = json.loads(done.stdout)["changes"]
    assert [row["name"] for row in rows if row["action"] == "delete"] == ["app:b", "app:x:c"]
    assert [each.topic for each in memory.client.topics()] == ["app:a", "other"]


def test_a_destination_is_free_for_another_router_at_once(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """A destination has one source: the old router goes before the new one comes. (§6.1)"""
    memory.client.put_router("old", "a", "x")
    file.write_text("routers: {new: {source: b, dest: x}}")

    done = run("apply", "-f", file, "--prune", "--yes")

    assert done.exit_code == 0, done.stderr
    assert [each.source for each in memory.client.routers()] == ["b"]


def test_a_router_that_moves_says_where_it_begins(
    memory: MemoryTopics, run: Any, file: Path
) -> None:
    """At the head of its new source. (§6.1)"""
    memory.client.put_router("r", "a", "x")
    file.write_text("routers: {r: {source: b, dest: x, preserve_tag: false}}")

    done = run("apply", "-f", file)

    assert "it begins at the head of its source" in done.stdout
    assert "preserve_tag: true -> false" in done.stdout


def test_a_topic_that_goes_while_it_is_counted_is_no_change(
    memory: MemoryTopics, run: Any, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the list of topics and the look at one, another client deleted it."""
    memory.client.put_topic("old")
    listed = [*memory.client.topics()]
    memory.client.delete_topic("old")
    monkeypatch.setattr(type(memory.client), "topics", lambda _client, prefix="": iter(listed))
    file.write_text("topics: {}")

    done = run("apply", "-f", file, "--prune", "--dry-run")

    assert (done.exit_code, done.stdout) == (0, "0 unchanged\n")
