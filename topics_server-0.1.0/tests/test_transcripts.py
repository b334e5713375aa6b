"""Conversations with the server, as text: commands and their results.

`tests/stories.py` defines the language.  With `REWRITE=1` in the environment each transcript is
rewritten with its present results, in the fields that it names; review the difference against the
contract.
"""

import os
from pathlib import Path

import pytest
from stories import Line, Names, World, differs, parse, rewritten

TRANSCRIPTS = sorted(Path(__file__).parent.glob("transcripts/*.txt"))


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    """Every command has the results that are written below it."""
    if os.environ.get("REWRITE"):
        path.write_text(rewritten(path.read_text()))
    names = Names()
    with World() as world:
        for step in parse(path.read_text()):
            found = world.do(names.put_in(step.command))
            trouble = differs(found, step.wanted, names)
            assert not trouble, f"{path.name}:{step.at}: {step.command}\n{trouble}"


def test_there_are_transcripts() -> None:
    """The folder was not moved or emptied."""
    assert len(TRANSCRIPTS) >= 25


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_a_transcript_says_what_it_proves(path: Path) -> None:
    """It begins with a comment that cites the contract."""
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
    """Named fields are compared, lists as a whole; other fields are not compared."""
    found = [Line("200", {"a": 1, "b": [1, {"c": "x"}]})]

    assert differs(found, [Line.parse(wanted)], Names()).startswith(trouble)
    assert bool(differs(found, [Line.parse(wanted)], Names())) is bool(trouble)


def test_the_number_of_results_is_compared() -> None:
    """A result too many or too few is a difference."""
    assert differs([Line("nothing")], [], Names())
    assert differs([], [Line("nothing")], Names())


def test_a_name_is_the_same_from_its_first_use_on() -> None:
    """`<wid>` is bound by a result, replaced in commands, and compared with later results."""
    names = Names()
    assert not differs([Line("200", {"wid": "w-1"})], [Line.parse('200 {"wid": "<wid>"}')], names)

    assert names.put_in("GET /v0/watch/<wid>") == "GET /v0/watch/w-1"
    assert differs([Line("200", {"wid": "w-2"})], [Line.parse('200 {"wid": "<wid>"}')], names)


def test_a_rewritten_transcript_keeps_its_story_and_its_fields() -> None:
    """Comments and commands stay; results keep their fields and get their present values."""
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
    """A misspelt command is not taken for a result."""
    with pytest.raises(ValueError, match="line 1"):
        parse("POTS /v0/topics/jobs")
