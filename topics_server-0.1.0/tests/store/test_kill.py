"""A real process on a real directory, killed in the middle of its work."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from topics.store.files import OsFiles
from topics.store.store import DiskStore

from .ledger import Ledger

WRITER = """
import sys
from store.ledger import Ledger
from topics.store.files import OsFiles
from topics.store.store import DiskStore

ledger = Ledger(None)
store = ledger.store = DiskStore(OsFiles(sys.argv[1]), wal_file_bytes=1 << 16)
store.recover(ledger)
if not ledger.topics:
    ledger.create(1)
ledger.recovered()
turn = 0
while True:
    turn += 1
    ledger.append(1, b"%d" % ledger.topics[1].head * 200)
    print(ledger.topics[1].head, flush=True)
    if turn % 40 == 0:
        store.sync()
        ledger.checkpoint()
"""


@pytest.mark.parametrize("rounds", [(1, 37, 160, 400)])
def test_a_killed_process_loses_nothing_it_said(tmp_path: Path, rounds: tuple[int, ...]) -> None:
    """SIGKILL keeps the page cache: every write that was reported is there, synced or not, and the
    log continues where it ended, again and again. (F1)"""
    root = tmp_path / "data"
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[1])}
    for lines in rounds:
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(root)],
            stdout=subprocess.PIPE,
            env=environment,
        )
        assert writer.stdout is not None
        for _ in range(lines):
            said = int(writer.stdout.readline())
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()
        writer.stdout.close()
        writer.wait()
        said = max([said, *map(int, rest[:-1])])

        store = DiskStore(OsFiles(root))
        ledger = Ledger(store)
        recovery = store.recover(ledger)
        found = ledger.content()[1]
        store.close(None)

        assert (recovery.same_boot, recovery.clean) == (True, False)
        assert max(found) >= said
        assert found == {seq: b"%d" % (seq - 1) * 200 for seq in range(1, max(found) + 1)}
