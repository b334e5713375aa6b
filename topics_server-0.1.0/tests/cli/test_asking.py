"""Nothing is destroyed unasked."""

from io import StringIO
from typing import Any

import pytest

from topics.cli.asking import confirm
from topics.cli.exits import REFUSED, UNUSABLE, Stop


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_script_has_to_say_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a terminal there is nobody to ask."""
    monkeypatch.setattr("sys.stdin", StringIO("y\n"))

    with pytest.raises(Stop, match="--yes") as refused:
        confirm("This deletes t", yes=False)
    assert refused.value.code == UNUSABLE
    confirm("This deletes t", yes=True)


@pytest.mark.parametrize(("typed", "goes_on"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_a_person_is_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], typed: str, goes_on: bool
) -> None:
    """On standard error, so that output can be piped; no answer is a no."""
    monkeypatch.setattr("sys.stdin", Terminal(typed))
    ended: Any = None
    try:
        confirm("This deletes t", yes=False)
    except Stop as stop:
        ended = stop.code

    assert (ended is None) == goes_on
    assert ended in (None, REFUSED)
    told = capsys.readouterr()
    assert told.out == ""
    assert told.err.startswith("This deletes t. Go on? [y/N]")
