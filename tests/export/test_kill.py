"""Processes that export and are killed, twenty times."""

import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from arrow.writer import writer

from topics.arrow.local import LocalSource
from topics.export.lake import OsLake
from topics.export.loading import load
from topics.export.planning import MANIFEST
from topics.export.verify import compare, verify

from .exporting import seqs, visible

TESTS = Path(__file__).parent.parent
KILLS = 10


@pytest.mark.parametrize(("format", "by", "seed"), [("parquet", "none", 1), ("jsonl", "tag", 2)])
def test_an_exporter_is_killed(tmp_path: Path, format: str, by: str, seed: int) -> None:
    """Ten times each, right before a call that touches the disk: in the end each live record
    is there once, byte for byte, and a reader on the way never meets one twice."""
    chance = random.Random(seed)
    engine = writer(tmp_path / "data")
    for n in range(25):
        tags = [f"t{chance.randrange(5)}" for _ in range(200)]
        engine.append(*({"data": n, "tag": tag} for tag in tags))
    engine.delete(match=["tag", "Eq", "t3"])
    engine.store.idle()
    lake = OsLake(tmp_path / "lake")
    command = [sys.executable, "-m", "export.child", str(tmp_path / "data"), lake.path, format, by]
    with subprocess.Popen(
        command, cwd=TESTS, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as starter:
        kills = 0
        while _export(starter, kill_after=chance.randrange(5, 45) if kills < KILLS else None):
            kills += 1
            if Path(lake.path, MANIFEST).exists():
                found = visible(lake)
                assert len(found) == len(set(found))
        starter.communicate()
    assert kills == KILLS

    with LocalSource(tmp_path / "data") as source:
        compared = compare(lake, load(lake), source, "t")
        assert compared is not None
        assert compared.is_whole
        assert compared.deleted_since == compared.lost_since == 0
        assert seqs(lake) == visible(lake)
        assert compared.same == len(seqs(lake)) > 1000
    assert verify(lake, load(lake)).problems == []


def _export(starter: "subprocess.Popen[str]", *, kill_after: int | None) -> bool:
    """Let it export, and kill it after so many calls; whether it was killed."""
    assert starter.stdin is not None
    assert starter.stdout is not None
    print("go", file=starter.stdin, flush=True)
    pid, calls = 0, 0
    for line in starter.stdout:
        match line.split():
            case ["end", status]:
                assert status in ("0", "-9")
                return status == "-9"
            case [number] if number.isdigit():
                pid = int(number)
            case _:
                calls += 1
                if calls == kill_after:
                    os.kill(pid, signal.SIGKILL)
                else:
                    print(end=".", file=starter.stdin, flush=True)
    raise AssertionError("the process that starts exports ended")
