"""Words that are no commands, and which commands they may have meant."""

from typing import Any

import click
import pytest

from topics.cli import COMMANDS, all_commands, main
from topics.cli.suggestions import KIN, WORDS, sentence, suggested


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("ls", "'topics topics'"),
        ("list", "'topics topics'"),
        ("LIST_TOPICS", "'topics topics'"),
        ("create-topic jobs", "'topics create'"),
        ("produce jobs", "'topics publish' or 'topics append'"),
        ("consume jobs", "'topics read --follow' or 'topics watch'"),
        ("pub jobs 1", "'topics publish'"),
        ("sub jobs", "'topics watch'"),
        ("queues", "'topics topics'"),
        ("creat jobs", "'topics create'"),
        ("Read jobs", "'topics read'"),
        ("subscrbe jobs", "'topics watch'"),
        ("schedules ls", "'topics schedules list'"),
        ("schedules create s", "'topics schedules put'"),
        ("router rm r", "'topics router delete'"),
        ("groups describe g", "'topics groups show'"),
        ("cluster statsu", "'topics cluster status'"),
        ("keys add", "'topics keys new'"),
    ],
)
def test_a_word_that_is_no_command_is_answered_with_the_command(
    run: Any, typed: str, meant: str
) -> None:
    """By a similar spelling, or as the word of another tool; the exit code is that of a misuse."""
    done = run(*typed.split())

    assert done.exit_code == 2
    assert f"Did you mean {meant}" in done.stderr
    assert "Traceback" not in done.output


def test_a_word_like_no_command_is_answered_without_a_guess(run: Any) -> None:
    """The usage names the help."""
    done = run("zzzzzz")

    assert done.exit_code == 2
    assert "No such command 'zzzzzz'." in done.stderr
    assert "Did you mean" not in done.stderr


def test_an_option_before_the_command_is_answered_with_its_place(run: Any) -> None:
    """A group has no options of its own but the help; one that is misspelt is answered by its spelling."""
    before, misspelt = run("--url", "http://a", "topics"), run("--hepl")

    assert (before.exit_code, misspelt.exit_code) == (2, 2)
    assert "Options follow the command, as in 'topics read jobs --url URL'." in before.stderr
    assert "Options follow the command" not in misspelt.stderr


def test_what_was_typed_steers_no_terminal(run: Any) -> None:
    """Control characters of a pasted word are spelled out."""
    done = run("ls\x1b[2J")

    assert done.exit_code == 2
    assert "\x1b" not in done.stderr


def test_every_suggestion_is_a_command_with_such_options() -> None:
    """None of them leads to the next error, and none hides a command that exists."""
    known = all_commands()
    for word, lines in WORDS.items():
        assert word not in COMMANDS
        for line in lines:
            words = line.split()
            if line in ("--help", "--version"):
                continue
            name = " ".join(words[:2]) if " ".join(words[:2]) in known else words[0]
            options = {text for option in known[name].params for text in option.opts}
            assert {each for each in words if each.startswith("--")} <= options, line


def test_no_group_has_two_commands_of_one_meaning() -> None:
    """Else a word would be answered with the first of them. `schedules run` and `pause` are apart."""
    for command in all_commands().values():
        if isinstance(command, click.Group):
            for row in KIN:
                assert len(set(row) & set(command.commands)) <= 1, (command.name, row)


def test_the_sentence_lists_all_that_may_be_meant() -> None:
    """As they are typed."""
    assert sentence("x", "topics", ("a", "b --c", "d")) == (
        "No such command 'x'. Did you mean 'topics a', 'topics b --c' or 'topics d'?"
    )
    assert suggested("tail", main.list_commands(click.Context(main)), is_top=False) == ()
