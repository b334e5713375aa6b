"""A machine whose power is cut: a real ext4 on a loop device, and the bytes of that device at one
moment, mounted again as after the cut.

The device's file lies on a file system of its own.  While that is frozen no write reaches the file,
so a copy of it has exactly what the device had been given; what the kernel still held back in its
cache is lost, as with the power.  Takes root, loop devices, mkfs.ext4, fsfreeze and unshare.
"""

import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest
from contract.hosts import Host

BOOT_ID: Final = "/proc/sys/kernel/random/boot_id"
NEEDED: Final = ("mkfs.ext4", "mount", "umount", "fsfreeze", "unshare")


def ran(*words: object) -> None:
    done = subprocess.run(
        [str(word) for word in words], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (words, done.stderr)


@contextmanager
def mounted(image: Path, where: Path, options: str = "") -> Iterator[Path]:
    """An image of ext4, mounted while this lasts."""
    where.mkdir()
    ran("mount", "-o", f"loop{options and ','}{options}", image, where)
    try:
        yield where
    finally:
        ran("umount", where)
        where.rmdir()


def made(image: Path, size_bytes: int) -> Path:
    """A fresh ext4 in a sparse file."""
    with image.open("wb") as file:
        file.truncate(size_bytes)
    ran("mkfs.ext4", "-q", "-F", image)
    return image


class Machine:
    """`data` is a directory on its disk."""

    def __init__(self, home: Path, outer: Path, image: Path, disk: Path) -> None:
        self.data = disk / "data"
        self._home = home
        self._outer = outer
        self._image = image

    @contextmanager
    def cut(self) -> Iterator[Path]:
        """The data directory as a start finds it, had the power been cut now."""
        copy = self._home / "cut.img"
        ran("fsfreeze", "--freeze", self._outer)
        try:
            ran("cp", "--sparse=always", self._image, copy)
        finally:
            ran("fsfreeze", "--unfreeze", self._outer)
        try:
            with mounted(copy, self._home / "cut") as disk:
                yield disk / "data"
        finally:
            copy.unlink()


@contextmanager
def machine(home: Path, options: str) -> Iterator[Machine]:
    """A machine with a disk of 96 MiB, mounted with these options; skips where none can be made."""
    missing = [name for name in NEEDED if shutil.which(name) is None]
    if missing:
        pytest.skip(f"a power cut takes {', '.join(missing)}")
    try:
        image = made(home / "outer.img", 160 << 20)
        outer = mounted(image, home / "outer")
        where = outer.__enter__()
    except (AssertionError, OSError) as error:
        pytest.skip(f"no loop device may be mounted here: {error}")
    try:
        inner = made(where / "inner.img", 96 << 20)
        with mounted(inner, home / "disk", options) as disk:
            yield Machine(home, where, inner, disk)
    finally:
        outer.__exit__(None, None, None)
        image.unlink()


def booted_again(home: Path) -> Host:
    """A server on a machine that was started again: its kernel has another boot id."""
    boot_id = home / "boot_id"
    boot_id.write_text(f"{uuid.uuid4()}\n")
    script = f'mount --bind "$1" {BOOT_ID} && exec "$2" -m topics serve'
    command = ("unshare", "--mount", "sh", "-c", script, "sh", str(boot_id), sys.executable)
    return Host("booted again", lambda _: command, has_port_file=True)
