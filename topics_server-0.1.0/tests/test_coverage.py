"""`make coverage` holds the core and the store at 100 %: each exception to it says why."""

import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PYPROJECT = (ROOT / "pyproject.toml").read_text()
SETTINGS = tomllib.loads(PYPROJECT)["tool"]["coverage"]
REASON = re.compile(r"# pragma: no (cover|branch) - (?P<why>\S.{9,})$")


def sources() -> list[Path]:
    return sorted(
        path for each in SETTINGS["run"]["source"] for path in (ROOT / each).rglob("*.py")
    )


def exceptions() -> list[tuple[str, str]]:
    """(place, line) of every line of the measured packages that is left out."""
    return [
        (f"{path.relative_to(ROOT)}:{at}", line.strip())
        for path in sources()
        for at, line in enumerate(path.read_text().splitlines(), 1)
        if re.search(r"#\s*pragma\b", line, re.IGNORECASE)
    ]


@pytest.mark.parametrize(("place", "line"), exceptions())
def test_every_exception_says_why(place: str, line: str) -> None:
    """In its own line, in words; a pragma that is spelled otherwise, or says nothing, is none."""
    assert REASON.search(line), place


def test_every_rule_says_why() -> None:
    """Rules that leave out lines of a kind have a comment each; there is no other list."""
    report = SETTINGS["report"]
    assert not {"exclude_lines", "omit", "partial_branches", "partial_also"} & set(report)
    assert not {"omit", "include"} & set(SETTINGS["run"])
    rules = PYPROJECT.partition("exclude_also = [\n")[2].partition("\n]")[0].splitlines()

    assert len(rules) == len(report["exclude_also"])
    assert all(re.search(r"""["'],  # \S.{9,}$""", rule) for rule in rules)


def test_all_of_both_packages_is_measured() -> None:
    """Branches too, and nothing below all of them passes."""
    assert SETTINGS["run"]["branch"] is True
    assert SETTINGS["report"]["fail_under"] == 100
    assert SETTINGS["run"]["source"] == ["topics/protocol", "topics/store"]
    assert len(sources()) > 100
    assert len(exceptions()) < 20, "an exception is for what no test can reach"


@pytest.mark.parametrize(
    "line",
    [
        "case A():  # pragma: no branch",
        "case A():  # pragma: no cover - why",
        "case A():  # pragma: no cover: it cannot happen",
        "case A():  #pragma: no cover - it cannot happen",
    ],
)
def test_a_reason_is_more_than_a_pragma(line: str) -> None:
    assert not REASON.search(line)
