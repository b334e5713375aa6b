"""Conversations with the server, as text: what was asked, and what the answer has to hold.

A transcript in `tests/transcripts/` is requests, each with the answer that must follow: a status and
JSON of which every field has to be in the answer, lists whole.  `WAIT n` moves the clock.
"""

import json
from pathlib import Path
from typing import Any

import pytest
from server.exchange.test_exchange import Desk, document

TRANSCRIPTS = sorted(Path(__file__).parent.glob("transcripts/*.txt"))


def holds(answer: Any, wanted: Any, where: str) -> None:
    """Fail where `answer` lacks something of `wanted`."""
    if isinstance(wanted, dict):
        assert isinstance(answer, dict), f"{where}: {answer!r} is no object"
        for key, value in wanted.items():
            assert key in answer, f"{where}: {key} is missing in {answer}"
            holds(answer[key], value, f"{where}.{key}")
    elif isinstance(wanted, list):
        assert isinstance(answer, list), f"{where}: {answer!r} is no list"
        assert len(answer) == len(wanted), f"{where}: {answer}"
        for i, (got, want) in enumerate(zip(answer, wanted, strict=True)):
            holds(got, want, f"{where}[{i}]")
    else:
        assert answer == wanted, f"{where}: {answer!r}, not {wanted!r}"


def lines(path: Path) -> list[str]:
    text = path.read_text().splitlines()
    return [line for line in text if line.strip() and not line.startswith("#")]


@pytest.mark.parametrize("path", TRANSCRIPTS, ids=lambda path: path.stem)
def test_transcript(path: Path) -> None:
    """The conversation goes as it is written down; the § stands in its first line."""
    desk = Desk()
    rest = iter(lines(path))
    for line in rest:
        method, target, *body = line.split(" ", 2)
        if method == "WAIT":
            desk.shell.advance(int(target))
            continue
        raw = body[0].encode() if body else None
        answer = desk.ask(method, target, raw=raw)
        status, _, wanted = next(rest).partition(" ")
        assert answer.status == int(status), f"{line}: {document(answer)}"
        holds(document(answer), json.loads(wanted), line[:60])


def test_there_are_transcripts() -> None:
    """Nobody moved them away."""
    assert len(TRANSCRIPTS) >= 5
