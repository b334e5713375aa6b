"""`topics completion`, and what a shell completes with it."""

from typing import Any

import click
import pytest
from click.shell_completion import ShellComplete

from topics.cli import main
from topics.testing import MemoryTopics


def offered(args: list[str], begun: str) -> list[str]:
    """What a shell would offer behind `topics ARGS BEGUN`."""
    shell = ShellComplete(main, {}, "topics", "_TOPICS_COMPLETE")
    return [item.value for item in shell.get_completions(args, begun)]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_has_its_script(run: Any, shell: str) -> None:
    """Which asks this program."""
    done = run("completion", shell)

    assert done.exit_code == 0
    assert "_TOPICS_COMPLETE" in done.stdout
    assert f"{shell}_complete" in done.stdout


def test_another_shell_is_refused(run: Any) -> None:
    """With those there are."""
    done = run("completion", "tcsh")

    assert done.exit_code == 2
    assert "bash" in done.stderr


def test_commands_and_options_are_completed() -> None:
    """Commands of a group are, too."""
    assert offered([], "wat") == ["watch"]
    assert offered(["router"], "") == ["create", "delete", "info"]
    assert "--dry-run" in offered(["rm", "chat"], "--d")


def test_names_come_from_the_server(memory: MemoryTopics) -> None:
    """By what was typed of them."""
    for name in ("jobs", "jobs-dead", "audit"):
        memory.client.put_topic(name)
    memory.client.put_router("r1", "jobs", "audit")

    assert offered(["info"], "jo") == ["jobs", "jobs-dead"]
    assert offered(["rm"], "audi") == ["audit"]
    assert offered(["router", "info"], "") == ["r1"]
    memory.client.commit_offsets("billing", {"jobs": 0})
    assert offered(["groups", "show"], "b") == ["billing"]
    memory.client.put_schedule("nightly", "jobs", 1, every_ms=1000)
    assert offered(["schedules", "run"], "n") == ["nightly"]


@pytest.mark.parametrize(
    "words",
    [["append"], ["read"], ["watch"], ["watch", "a"], ["work"], ["redrive"], ["export", "run"]]
    + [["redrive", "x", "--to"], ["router", "create", "r"], ["routers", "--dest"]]
    + [["schedules", "put", "s"], ["schedules", "list", "--topic"]]
    + [[c] for c in ("config", "delete", "drain", "info", "peek", "publish", "purge", "rm")],
    ids=" ".join,
)
def test_each_command_of_a_topic_completes_it(memory: MemoryTopics, words: list[str]) -> None:
    """Wherever the name of one stands."""
    memory.client.put_topic("jobs")

    assert offered(words, "jo") == ["jobs"]


def test_without_a_server_nothing_is_completed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And nothing is printed into the line that is being typed."""
    monkeypatch.setenv("TOPICS_URL", "http://127.0.0.1:9")

    assert offered(["info"], "jo") == []


def test_the_command_is_found_by_its_name() -> None:
    """As the scripts name it."""
    assert isinstance(main, click.Group)
