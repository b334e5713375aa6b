"""`topics schedules list | put | get | rm | run | pause | resume`."""

import json
from typing import Any

import pytest
from msgspec import Raw

from topics.testing import START_MS, MemoryTopics

HOUR_MS = 3_600_000


def listed(run: Any, *words: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in run("schedules", *words, "--json").stdout.splitlines()]


def test_a_schedule_is_put_and_shown(memory: MemoryTopics, run: Any) -> None:
    """DATA goes byte for byte; the same again is as asked. (§14)"""
    words = ("schedules", "put", "report", "jobs", '{"n": 1.50}', "--cron", "0 6 * * 1-5")
    words += ("--tz", "Europe/Berlin", "--tag", "eu", "--meta", '{"a": 1}', "--queue")

    done, again = run(*words), run(*words)

    assert done.stderr.startswith("report was created; next: 2025-06-16T")
    assert again.stderr.startswith("report is as asked; next: ")
    memory.client.run_schedule("report")
    shown = run("schedules", "get", "report").stdout
    for line in (
        *("schedule    report", "topic       jobs", "when        0 6 * * 1-5 Europe/Berlin"),
        *("missed      one", "made        jobs 1", "fired       1", 'data        {"n":1.5}'),
    ):
        assert line in shown
    [job] = memory.client.claim("jobs", node="w").jobs
    assert (job.tag, job.meta["a"], job.meta["$schedule"]) == ("eu", 1, "report")


def test_a_number_that_no_float_holds_is_shown_as_a_number(memory: MemoryTopics, run: Any) -> None:
    """In a schedule's record, and in what a worker said of a job."""
    run("schedules", "put", "s", "jobs", '{"x": 1e400}', "--every", "1m", "--queue")
    memory.client.run_schedule("s")
    [job] = memory.client.claim("jobs", node="w").jobs
    memory.client.ack("jobs", [job], node="w", result=Raw(b"1e400"))

    for words in ("schedules get s", "jobs show jobs 1"):
        shown = run(*words.split(), "--json").stdout
        assert ("1E+400" in shown, '"1E+400"' in shown) == (True, False), words
    assert 'data        {"x":1E+400}' in run("schedules", "get", "s").stdout
    assert "result        1E+400" in run("jobs", "show", "jobs", 1).stdout


def test_a_job_of_a_schedule_has_options(memory: MemoryTopics, run: Any) -> None:
    """The options of `publish`, for the job of each tick; a log takes none. (§14.1)"""
    words = ("schedules", "put", "tidy", "jobs", "1", "--every", "1m", "--group", "eu")
    words += ("--priority", "7", "--delay", "2s", "--expires", "1h", "--unique", "t", "--replace")

    assert "is a log" in run(*words).stderr
    run(*words, "--unique-for", "1m", "--queue")

    shown = run("schedules", "get", "tidy").stdout
    for line in (
        *("priority    7", "delay_ms    2000", "expires_ms  3600000", "group       eu"),
        'unique      {"key":"t","on_conflict":"replace","for_ms":60000}',
    ):
        assert line in shown
    memory.advance(ms=60_000)
    [job] = memory.client.jobs("jobs")
    assert (job.state, job.priority, job.group) == ("delayed", 7, "eu")
    assert "unique key" in run(*words[:-3], "--replace").stderr


def test_a_list(memory: MemoryTopics, run: Any) -> None:
    """With a command and without; when each is next, what it did last, and what blocks it."""
    memory.client.put_topic("full", cap_records=1, discard="reject")
    memory.client.append("full", 1)
    run("schedules", "put", "probe", "checks", '"probe"', "--every", "1h", "--missed", "none")
    run("schedules", "put", "stuck", "full", "text", "--text", "--every", "1h")
    run("schedules", "put", "off", "jobs", "1", "--every", "90s", "--paused")
    memory.advance(ms=HOUR_MS)

    head, off, probe, stuck = run("schedules").stdout.splitlines()

    columns = ["schedule", "topic", "when", "next", "last", "fired", "missed", "blocked"]
    assert head.split() == columns
    assert off.split()[:6] == ["off", "jobs", "every", "1m30s", "paused", "never"]
    assert probe.split()[:4] == ["probe", "checks", "every", "1h"]
    assert stuck.split()[-1] == "topic_full"
    assert "blocked     topic_full: " in run("schedules", "get", "stuck").stdout
    assert [each["schedule"] for each in listed(run, "--topic", "jobs")] == ["off"]
    assert [each["schedule"] for each in listed(run, "list", "--prefix", "p")] == ["probe"]
    assert listed(run, "--prefix", "p")[0]["next_at"] == START_MS + 2 * HOUR_MS


def test_once_at_a_time(memory: MemoryTopics, run: Any) -> None:
    """A time with a zone, or so long from now; and no tick after `--until`."""
    run("schedules", "put", "launch", "jobs", "1", "--at", "2099-01-01T00:00:00+00:00")
    run("schedules", "put", "soon", "jobs", "1", "--every", "1h", "--until", "2099-01-01")

    launch, soon = listed(run)

    assert (launch["at"], launch["next_at"]) == (4_070_908_800_000, 4_070_908_800_000)
    assert soon["until"] > START_MS
    assert "until       2099-01-01T00:00:00" in run("schedules", "get", "soon").stdout
    memory.client.delete_schedule("launch")
    far = json.loads(run("schedules", "put", "x", "jobs", "1", "--at", "30d", "--json").stdout)
    assert far["at"] > START_MS
    assert "when        at 20" in run("schedules", "get", "x").stdout


def test_a_run_says_where_the_record_is(memory: MemoryTopics, run: Any) -> None:
    memory.client.put_topic("jobs", partitions=2)
    run("schedules", "put", "s", "jobs", "1", "--every", "1h", "--partition", "1")

    assert run("schedules", "run", "s").stdout == "jobs#1 1\n"
    assert json.loads(run("schedules", "run", "s", "--json").stdout)["seq"] == 2


def test_a_pause_and_its_end(memory: MemoryTopics, run: Any) -> None:
    """Twice is as once."""
    run("schedules", "put", "s", "jobs", "1", "--every", "1h")

    assert run("schedules", "pause", "s").stderr == "s is paused\n"
    assert run("schedules", "pause", "s").stderr == "s was paused\n"
    assert run("schedules", "resume", "s").stderr.startswith("s is not paused; next: 2025-")
    assert json.loads(run("schedules", "resume", "s", "--json").stdout)["changed"] is False


def test_a_schedule_is_deleted_once_that_is_meant(memory: MemoryTopics, run: Any) -> None:
    """`--dry-run` says what would go; without `--yes` a script is asked for it."""
    run("schedules", "put", "s", "jobs", "1", "--every", "1h")

    told = json.loads(run("schedules", "rm", "s", "--dry-run", "--json").stdout)
    assert told == {"schedule": "s", "fired": 0, "dry_run": True}
    assert "would be deleted" in run("schedules", "rm", "s", "--dry-run").stderr
    assert run("schedules", "rm", "s").exit_code == 2
    assert run("schedules", "rm", "s", "--yes").stderr == "s was deleted\n"
    assert run("schedules", "rm", "s", "--yes").exit_code == 1
    run("schedules", "put", "s", "jobs", "1", "--every", "1h")
    assert json.loads(run("schedules", "rm", "s", "--yes", "--json").stdout)["deleted"]


@pytest.mark.parametrize(
    ("words", "what"),
    [
        ((), "one of --cron, --every and --at"),
        (("--cron", "* * * * *", "--every", "5m"), "one of --cron, --every and --at"),
        (("--every", "often"), "is not a duration"),
        (("--at", "soon"), "neither a duration"),
        (("--every", "1m", "--missed", "some"), "none"),
        (("--every", "1m", "--meta", "{"), "--meta is no JSON"),
    ],
)
def test_what_is_wrong_is_said(
    memory: MemoryTopics, run: Any, words: tuple[str, ...], what: str
) -> None:
    done = run("schedules", "put", "s", "jobs", "1", *words)
    assert done.exit_code == 2
    assert what in done.stderr


def test_what_the_server_refuses_is_told(memory: MemoryTopics, run: Any) -> None:
    """A topic that no tick makes; an expression that is none."""
    done = run("schedules", "put", "s", "jobs", "1", "--every", "1m", "--no-create")
    assert done.exit_code == 1
    assert "jobs" in done.stderr
    done = run("schedules", "put", "s", "jobs", "1", "--cron", "61 * * * *")
    assert (done.exit_code, "cron" in done.stderr) == (1, True)
