"""What the commands on a data directory share."""

import errno
import fcntl
import gc
from pathlib import Path

import pytest

from topics.cli.exits import CORRUPT, UNUSABLE, Stop
from topics.cli.offline import refusals, unused
from topics.protocol.model.errors import Corrupt, Unusable


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (Corrupt("f", 7, "is bad"), CORRUPT, "f: corrupt at byte 7: is bad"),
        (Unusable("d", "in use"), UNUSABLE, "d: in use"),
        (OSError(errno.ENOSPC, "No space left", "f"), UNUSABLE, "f: No space left"),
        (OSError(errno.EIO, "broken"), UNUSABLE, "dir: broken"),
    ],
)
def test_a_refusal_is_one_line(error: Exception, code: int, words: str) -> None:
    """Each ends the command with its exit code, and says where."""
    with pytest.raises(Stop) as stop, refusals(Path("dir")):
        raise error

    assert (stop.value.code, stop.value.message) == (code, words)


def test_the_collector_is_off_meanwhile() -> None:
    """And as it was afterwards, however the work ended."""
    assert gc.isenabled()
    with refusals(Path("dir")):
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(Stop), refusals(Path("dir")):
        raise Unusable("d", "in use")
    assert gc.isenabled()


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    """A server's lock keeps the commands away; they do not keep each other away but to change it."""
    (tmp_path / ".lock").touch()
    with unused(tmp_path), unused(tmp_path):
        pass
    with unused(tmp_path), pytest.raises(Stop), unused(tmp_path, exclusive=True):
        pass
    with (tmp_path / ".lock").open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(Stop, match="in use by a running server"), unused(tmp_path):
            pass


def test_a_directory_without_a_lock(tmp_path: Path) -> None:
    """No server ever used it: there is nothing to keep away."""
    with unused(tmp_path):
        assert list(tmp_path.iterdir()) == []
