"""Which parts of its file an open segment reads, and when."""

import errno
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from topics.protocol.model.errors import CannotRead, Corrupt, DamagedRun
from topics.protocol.model.ports import StoreStats
from topics.protocol.model.tags import equals
from topics.store.files import TRIAL, OsFile, OsFiles
from topics.store.handle import ACCESS, Access, Handle, HandleTurn, Segment
from topics.store.layout import PAGE, segment_name
from topics.store.runs import SealedRun
from topics.store.segments import Segments
from topics.store.store import DiskStore

from .ledger import HotRun, Ledger, entry_of, live_rows, row_text

INSTANCE = b"instance"
ROWS = 3 * PAGE
"""Flags over three pages, so that the map of a file that was cut short has pages beyond its end."""


def sealed(root: Path) -> tuple[Segments, SealedRun, Path]:
    """A segment with one run on a real directory, and the path of its file."""
    files = OsFiles(root)
    files.prepare(create=True)
    segments = Segments(files, instance=INSTANCE, stats=StoreStats())
    hot = HotRun(1, [b'{"n":%d}' % row for row in range(ROWS)], tags=["a", "b"] * (ROWS // 2))
    [ref] = segments.seal([entry_of(hot)], 0)
    return segments, segments.run(ref, 1), root / segment_name(ref.segment)


def cut(path: Path, size: int = PAGE) -> None:
    with path.open("r+b") as file:
        file.truncate(size)


def test_a_segment_that_was_cut_short_before_it_is_opened_is_told(tmp_path: Path) -> None:
    """The header has the size of the file: the error names the file and where it ends."""
    _, run, path = sealed(tmp_path)
    size = path.stat().st_size
    cut(path)

    with pytest.raises(DamagedRun) as told:
        _ = run.columns

    assert (told.value.path, told.value.offset) == (str(path), PAGE)
    assert f"the file has {PAGE} bytes and should have {size}" in str(told.value)


USES: dict[str, Callable[[SealedRun], object]] = {
    "flags": lambda run: run.flags.sum(),
    "columns": lambda run: run.columns.size.sum(),
    "tags": lambda run: run.tag_ids(equals("a")),
    "postings": lambda run: run.tag_rows(equals("a")),
    "text": lambda run: row_text(run, ROWS - 1),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES.keys())
def test_a_segment_that_is_cut_short_while_it_is_open_is_told(
    tmp_path: Path, use: Callable[[SealedRun], object]
) -> None:
    """Whichever part is used first: the size of the file is checked before memory beyond its end is
    touched, which would be a SIGBUS and the end of the process."""
    _, run, path = sealed(tmp_path)
    run.open()
    cut(path)

    with pytest.raises(DamagedRun) as told:
        use(run)

    assert (told.value.path, told.value.offset) == (str(path), PAGE)
    assert (told.value.first_seq, told.value.last_seq) == (1, ROWS)


def test_a_segment_that_is_cut_short_while_it_is_mapped_is_told(tmp_path: Path) -> None:
    """One run in use maps the file; the next one's columns are checked all the same."""
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    segments = Segments(files, instance=INSTANCE, stats=StoreStats())
    entries = [entry_of(HotRun(1, [b"{}"] * ROWS), topic_id=topic_id) for topic_id in (1, 2)]
    one, other = (
        segments.run(ref, topic_id) for topic_id, ref in enumerate(segments.seal(entries, 0), 1)
    )
    assert int(one.columns.size[0]) == 2
    path = tmp_path / segment_name(one.segment)
    cut(path, 2 * PAGE)

    with pytest.raises(DamagedRun):
        int(other.columns.size.sum())
    with pytest.raises(DamagedRun):
        int(np.count_nonzero(other.flags))


def test_opening_reads_no_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Header and run table are read when a segment is opened, and nothing is mapped; columns and
    flags when they are used."""
    _, run, path = sealed(tmp_path)
    read_to: list[int] = []
    mapped: list[int] = []
    read_into, map_readonly = OsFile.read_into, OsFile.map_readonly

    def reading(self: OsFile, buffer: memoryview, offset: int) -> int:
        read_to.append(offset + len(buffer))
        return read_into(self, buffer, offset)

    def mapping(self: OsFile, size: int) -> memoryview:
        mapped.append(size)
        return map_readonly(self, size)

    monkeypatch.setattr(OsFile, "read_into", reading)
    monkeypatch.setattr(OsFile, "map_readonly", mapping)

    run.open()
    assert max(read_to) < 1024
    assert mapped == []

    assert int(np.count_nonzero(run.flags)) == 0
    assert int(run.columns.size[0]) == 7
    assert len(mapped) == 1
    assert max(read_to) <= path.stat().st_size


def test_a_start_reads_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However many segments there are, a start reads the first bytes of each and maps none."""
    store = DiskStore(OsFiles(tmp_path), wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
    ledger = Ledger(store)
    store.recover(ledger)
    ledger.create(1)
    for _ in range(5):
        ledger.append(1, *[b'"x"'] * 1000)
        ledger.seal(1)
    wanted = ledger.content()
    ledger.stop()
    read_to: dict[str, int] = {}
    read_into = OsFile.read_into

    def reading(self: OsFile, buffer: memoryview, offset: int) -> int:
        read_to[self.name] = max(read_to.get(self.name, 0), offset + len(buffer))
        return read_into(self, buffer, offset)

    map_readonly = OsFile.map_readonly

    def refusing(self: OsFile, size: int) -> memoryview:
        assert self.name == TRIAL, "mapped at start"
        return map_readonly(self, size)

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "read_into", reading)
        patch.setattr(OsFile, "map_readonly", refusing)
        store = DiskStore(OsFiles(tmp_path), wal_file_bytes=64 << 10, reserve_bytes=64 << 10)
        found = Ledger(store)
        store.recover(found)

    segments = {name: end for name, end in read_to.items() if name.endswith(".seg")}
    assert len(segments) == 5
    assert max(segments.values()) < 1024
    assert found.content() == wanted
    store.close(None)


def test_a_run_that_is_whole_is_read(tmp_path: Path) -> None:
    """Over a map: flags, columns, tags and text."""
    segments, run, _ = sealed(tmp_path)

    assert live_rows(run) == list(range(ROWS))
    assert row_text(run, ROWS - 1) == b'{"n":%d}' % (ROWS - 1)
    assert run.tag_rows(equals("b")).tolist() == list(range(1, ROWS, 2))
    segments.close()


def test_a_file_that_is_missing_is_told(tmp_path: Path) -> None:
    """A missing segment is damage, reported with its name."""
    _, run, path = sealed(tmp_path)
    path.unlink()

    with pytest.raises(Corrupt, match="the file is missing"):
        run.open()


CELLS = [(access, turn) for access in Access for turn in HandleTurn]


@pytest.mark.parametrize(("access", "turn"), CELLS, ids=lambda each: each.value)
def test_every_cell_of_the_access_table(access: Access, turn: HandleTurn, tmp_path: Path) -> None:
    """Each input leads to the state in the table; only an open or kept segment has a handle."""
    segments, run, _ = sealed(tmp_path)
    handle = segments.handle(run._segment)
    made = Segment(1)
    made.access = access
    made.handle = handle if access in (Access.OPEN, Access.KEPT) else None
    opened = handle if turn is HandleTurn.OPENED else None

    if (access, turn) not in ACCESS:
        with pytest.raises(KeyError):
            made.move(turn, opened)
        return
    made.move(turn, opened)

    assert made.access is ACCESS[access, turn]
    assert (made.handle is handle) is (made.access in (Access.OPEN, Access.KEPT))


def test_a_segment_ends_where_it_began_or_is_gone() -> None:
    """`ENDED` leaves a segment closed or gone, from every state."""
    ends = {ACCESS[access, HandleTurn.ENDED] for access in Access}

    assert ends == {Access.CLOSED, Access.GONE}
    for end in ends:
        assert (end, HandleTurn.CROWDED_OUT) not in ACCESS


def test_a_run_that_a_segment_does_not_have_is_told(tmp_path: Path) -> None:
    """A reference to the wrong file is damage of what refers to it, not an error of the program."""
    segments, run, path = sealed(tmp_path)
    handle = segments.handle(Segment(int(path.stem)))

    with pytest.raises(Corrupt, match="the segment has no run 1"):
        handle.row(1)

    assert handle.row(0)["count"] == run.count


def test_what_cannot_be_opened_or_mapped_is_not_called_corrupt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A permission, a bound of maps, a sandbox: nothing is known of the bytes."""
    _, run, _ = sealed(tmp_path)

    def refuses(*given: object, **named: object) -> None:
        raise PermissionError(errno.EPERM, "Operation not permitted")

    with monkeypatch.context() as patch:
        patch.setattr(OsFile, "map_readonly", refuses)
        with pytest.raises(DamagedRun, match="cannot be read at byte 0: Operation not permitted"):
            _ = run.columns
    with monkeypatch.context() as patch:
        patch.setattr(OsFiles, "open", refuses)
        with pytest.raises(CannotRead) as refused:
            Handle(OsFiles(tmp_path), 1, b"12345678")
    assert "corrupt" not in str(refused.value)
    assert not refused.value.is_proven
    assert Corrupt("a", 0, "b").is_proven
    assert DamagedRun(refused.value, 1, 2).refusal().detail == {
        "reason": "read_error",
        "first_seq": 1,
        "last_seq": 2,
    }
