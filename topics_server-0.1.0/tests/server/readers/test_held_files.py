"""Files that a process holds though they were unlinked."""

import mmap
from pathlib import Path

from topics.server.readers.held_files import holds_unlinked


def test_an_unlinked_file_is_held_while_it_is_open_or_mapped(tmp_path: Path) -> None:
    """By a descriptor, and by a map that outlives it; files of other directories do not count."""
    path, other = tmp_path / "data" / "1.seg", tmp_path / "elsewhere"
    path.parent.mkdir()
    for each in (path, other):
        each.write_bytes(b"x" * 4096)
    elsewhere = other.open("rb")
    other.unlink()
    assert not holds_unlinked(path.parent)

    opened = path.open("rb")
    assert not holds_unlinked(path.parent)
    mapped = mmap.mmap(opened.fileno(), 4096, prot=mmap.PROT_READ)
    path.unlink()
    assert holds_unlinked(path.parent)
    opened.close()
    assert holds_unlinked(path.parent)
    mapped.close()
    assert not holds_unlinked(path.parent)
    elsewhere.close()
