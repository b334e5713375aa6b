"""The check of docstrings and comments that `make lint` runs."""

from prose import offenders

SOURCE = '''"""Those of all."""

# One that is a comment.
# Those of the same comment.
x = 1
"""The same, of one topic."""


def f() -> None:
    """As the server has it."""
    # A plain comment.
    # One that goes on.
    y = "Those"
'''


def test_pronouns_in_the_place_of_a_noun_are_found() -> None:
    """At the beginning of a docstring or comment, and nowhere else."""
    assert sorted(line for line, _ in offenders(SOURCE)) == [1, 3, 6, 10]


def test_a_sentence_with_its_noun_is_none() -> None:
    """Nor is a pronoun that stands further behind, or a text that is no docstring."""
    assert list(offenders('"""Decisions of those that ask."""\nx = ["Those"]\n')) == []
