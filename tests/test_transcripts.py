"""Conversations with the server, as text: what was asked, and what came of it.

`tests/stories.py` has the language.  With `REWRITE=1` in the environment each transcript is written
anew with what comes now, in the fields that it names: a change to review, not a proof.
"""

import os
from pathlib import Path

import pytest
from stories import Line, Names, World, differs, parse, rewritten

TRANSCRIPTS = sorted(Path(__file__).parent.glob("transcripts/*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    """The conversation goes as it is written down; the § stands in its first lines."""
    if os.environ.get("REWRITE"):
        path.write_text(rewritten(path.read_text()))
    names = Names()
    with World() as world:
        for step in parse(path.read_text()):
            found = world.do(names.put_in(step.command))
            trouble = differs(found, step.wanted, names)
            assert not trouble, f"{path.name}:{step.at}: {step.command}\n{trouble}"


def test_there_are_transcripts() -> None:
    """Nobody moved them away."""
    assert len(TRANSCRIPTS) >= 25


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_transcript_says_what_it_proves(path: Path) -> None:
    """It opens with its story and the § of the contract."""
    opening = path.read_text().partition("\n\n")[0]

    assert all(line.startswith("#") for line in opening.splitlines())
    assert "§" in opening


STORY = """# A story. (§2)

POST /v0/topics/jobs {"records": [{"data": 1}]}
201 {"seqs": [1], "epoch_of_none": 3}

# Its end.
GET /v0/topics/jobs
200 {"head_seq": 7, "config": {"type": "log"}, "queue": "<absent>"}
"""


@pytest.mark.parametrize(
    ("wanted", "trouble"),
    [
        ('200 {"a": 1, "b": [1, {"c": "x"}]}', ""),
        ('200 {"b": [1, {}]}', ""),
        ('201 {"a": 1}', "came:"),
        ('200 {"a": 2}', "200.a: 1, not 2"),
        ('200 {"a": true}', "200.a: 1, not True"),
        ('200 {"z": 1}', "200.z is missing"),
        ('200 {"b": [1]}', "200.b: [1,"),
        ('200 {"z": "<absent>"}', ""),
        ('200 {"a": "<absent>"}', "200.a is there"),
        ('200 {"b": [1, {"c": "y"}]}', "200.b[1].c: 'x', not 'y'"),
    ],
)
def test_what_is_wanted_has_to_be_there(wanted: str, trouble: str) -> None:
    """A field that is named has its value; lists are whole; what is not named may be anything."""
    found = [Line("200", {"a": 1, "b": [1, {"c": "x"}]})]

    assert differs(found, [Line.parse(wanted)], Names()).startswith(trouble)
    assert bool(differs(found, [Line.parse(wanted)], Names())) is bool(trouble)


def test_an_answer_that_nobody_wanted_is_a_difference() -> None:
    """One line more or less than the transcript has."""
    assert differs([Line("nothing")], [], Names())
    assert differs([], [Line("nothing")], Names())


def test_a_name_is_the_same_from_its_first_use_on() -> None:
    """`<wid>` is learnt from an answer, put into commands, and held against later answers."""
    names = Names()
    assert not differs([Line("200", {"wid": "w-1"})], [Line.parse('200 {"wid": "<wid>"}')], names)

    assert names.put_in("GET /v0/watch/<wid>") == "GET /v0/watch/w-1"
    assert differs([Line("200", {"wid": "w-2"})], [Line.parse('200 {"wid": "<wid>"}')], names)


def test_a_rewritten_transcript_keeps_its_story_and_its_fields() -> None:
    """Comments and commands stay; answers have the fields that they named, with today's values."""
    assert (
        rewritten(STORY)
        == """# A story. (§2)

POST /v0/topics/jobs {"records": [{"data": 1}]}
201 {"seqs": [1]}

# Its end.
GET /v0/topics/jobs
200 {"head_seq": 1, "config": {"type": "log"}, "queue": "<absent>"}
"""
    )


def test_a_line_that_is_no_command_is_refused() -> None:
    """A misspelt command is not an answer to nothing."""
    with pytest.raises(ValueError, match="line 1"):
        parse("POTS /v0/topics/jobs")
