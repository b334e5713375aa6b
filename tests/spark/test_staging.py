"""Staged chunks: what is decided once stays decided."""

from pathlib import Path

import pytest

from topics.spark import staging
from topics.spark.chunks import Chunk
from topics.spark.encoding import Row

ROWS = (Row(b'{"data":"\xc3\xbc"', b'{"k":1}', "t"), Row(b'{"data":null', None, "t"))


def test_chunks_come_back(tmp_path: Path) -> None:
    """With their names, which decide what is known to the server, and byte for byte."""
    made = [Chunk("t", "0-a", ROWS), Chunk("u", "0-b", ())]
    name, rows = staging.spool(tmp_path / "app" / "1", 2, 17, iter(made))
    assert (name, rows) == ("2-17.chunks", 2)
    assert list(staging.spooled(tmp_path / "app" / "1" / name)) == made


def test_the_first_decision_stands(tmp_path: Path) -> None:
    """A repeated batch has made other files by then; a draft of a decision is none."""
    home = staging.folder(f"file://{tmp_path}", "app", 4, "t", "")
    assert home.is_relative_to(tmp_path / "app")
    home.mkdir(parents=True)
    (home / f"{staging.MANIFEST}.77").write_text('["torn')
    assert staging.decide(home, ["0-1.chunks"]) == ["0-1.chunks"]
    assert staging.decide(home, ["0-9.chunks"]) == ["0-1.chunks"]
    staging.clear(home)
    staging.clear(home)
    assert staging.decide(home, ["0-9.chunks"]) == ["0-9.chunks"]


@pytest.mark.parametrize(
    "other", [(0, "t", "e"), (12, "t", "e"), (1, "u", "e"), (1, None, "e"), (1, "t", "f")]
)
def test_decisions_are_apart(tmp_path: Path, other: tuple[int, str | None, str]) -> None:
    """Each version of each topic, of each server's history, has its folder."""
    one = staging.folder(str(tmp_path), "a", 1, "t", "e")
    assert staging.folder(str(tmp_path), "a", *other) != one
    assert staging.folder(str(tmp_path), "a", 1, "t", "e") == one


def test_the_decision_of_an_earlier_version_of_topics(tmp_path: Path) -> None:
    """It did not name its target: it stands for the topics of its chunks, and for no others."""
    old = tmp_path / "app" / "1"
    name, _ = staging.spool(old, 0, 5, [Chunk("t", "0-a", ROWS)])
    staging.decide(old, [name])

    assert staging.folder(str(tmp_path), "app", 1, "t", "e") == old
    assert staging.folder(str(tmp_path), "app", 1, None, "e") == old
    assert staging.folder(str(tmp_path), "app", 1, "u", "e") != old
