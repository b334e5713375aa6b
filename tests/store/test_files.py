"""The store's access to the disk, and the simulated disk that stands in for it."""

import errno
import mmap
import os
import random
from pathlib import Path
from typing import Any

import pytest
from sim.files import Fault, SimFiles

from topics.store import files as module
from topics.store.files import File, Files, OsFiles, publish, read_at_most, read_whole, write_all
from topics.store.layout import PAGE, SECTOR
from topics.store.memory import MemoryFiles


@pytest.fixture(params=["os", "sim", "memory"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Files:
    made: dict[str, Files] = {"os": OsFiles(tmp_path), "sim": SimFiles(), "memory": MemoryFiles()}
    made[request.param].prepare(create=True)
    return made[request.param]


def content(file: File) -> bytes:
    return bytes(read_at_most(file, file.size() + 10, 0))


def test_bytes_are_where_they_were_written(files: Files) -> None:
    """Offsets are absolute and gaps are zeros."""
    file = files.create("a")
    write_all(file, b"world", 7)
    write_all(file, memoryview(b"hello"), 0)

    assert content(file) == b"hello\0\0world"
    assert file.size() == 12
    file.truncate(6)
    file.allocate(9)
    assert content(file) == b"hello\0\0\0\0"
    assert bytes(read_whole(files, "a")) == content(file)


def test_another_process_can_be_given_a_file(tmp_path: Path) -> None:
    """The process that syncs the log gets its descriptor."""
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    file = files.create("a")
    write_all(file, b"hello", 0)
    assert os.pread(file.fileno(), 10, 0) == b"hello"


def test_names_come_and_go(files: Files) -> None:
    """A name is created once, replaced by a rename, and missing after its removal."""
    write_all(files.create("a"), b"a", 0)
    files.create("b")
    with pytest.raises(FileExistsError):
        files.create("a")

    files.rename("a", "b")
    files.sync_dir()

    assert files.names() == ["b"]
    assert bytes(read_whole(files, "b")) == b"a"
    for missing in (files.open, files.unlink):
        with pytest.raises(FileNotFoundError):
            missing("a")


def test_a_map_shows_what_is_written_later(files: Files) -> None:
    """Flags change under the readers' maps, by writes and never through the map."""
    file = files.create("a")
    file.allocate(8192)
    mapped = file.map_readonly(8192)

    write_all(file, b"\xd5", 5000)

    assert (mapped[4999], mapped[5000]) == (0, 0xD5)
    assert mapped.readonly
    with pytest.raises(TypeError):
        mapped[0] = 1


def test_an_unlinked_file_stays_readable_while_it_is_open(files: Files) -> None:
    """A drop does not disturb a reader."""
    write_all(files.create("a"), b"still here", 0)
    file = files.open("a")
    files.unlink("a")

    assert content(file) == b"still here"


def test_publishing_replaces_as_a_whole(files: Files) -> None:
    """A half-written file of an earlier process does not prevent it."""
    files.create("a.tmp")
    publish(files, "a", b"one")
    publish(files, "a", b"two")

    assert bytes(read_whole(files, "a")) == b"two"
    assert files.names() == ["a"]


def test_clock_and_entropy_belong_to_the_files(files: Files) -> None:
    """A simulation controls clock and entropy through the same port."""
    assert files.monotonic_us() <= files.monotonic_us()
    write_all(files.create("a"), b"a", 0)
    assert abs(files.modified_s("a") - files.now_s()) < 60
    with pytest.raises(FileNotFoundError):
        files.modified_s("b")
    assert len(files.entropy(8)) == 8
    assert len(files.boot_id()) == 16
    assert files.boot_id() == files.boot_id()
    assert files.free_bytes() > 1 << 20
    before_us = files.monotonic_us()
    files.give_way()
    assert files.monotonic_us() > before_us


def test_reading_without_waiting_gives_up_where_it_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without the flag is tried once; after that threads read."""
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    file = files.create("a")
    write_all(file, b"abc", 0)
    asked: list[int] = []

    def refuse(fd: int, buffers: Any, offset: int, flags: int) -> int:
        asked.append(flags)
        raise OSError(errno.EOPNOTSUPP, "no such flag")

    monkeypatch.setattr(os, "preadv", refuse)
    buffer = memoryview(bytearray(3))

    assert [file.read_nowait(buffer, 0) for _ in range(3)] == [False] * 3
    assert asked == [os.RWF_NOWAIT]


@pytest.mark.parametrize("answer", [2, BlockingIOError()])
def test_reading_without_waiting_is_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, answer: Any
) -> None:
    """A part that is in memory is not returned."""
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    file = files.create("a")

    def some(fd: int, buffers: Any, offset: int, flags: int) -> int:
        if isinstance(answer, int):
            return answer
        raise answer

    monkeypatch.setattr(os, "preadv", some)

    assert not file.read_nowait(memoryview(bytearray(3)), 0)
    assert files.nowait


def test_an_unsynced_write_persists_sector_by_sector() -> None:
    """A cut keeps any subset of the unsynced sectors, and all synced ones."""
    files = SimFiles()
    file = files.create("a")
    write_all(file, b"a" * 4 * SECTOR, 0)
    file.sync()
    files.sync_dir()
    write_all(file, b"b" * 4 * SECTOR, 0)

    seen = {files.cut(random.Random(seed)).tree()["a"][::SECTOR] for seed in range(300)}

    assert {b"aaaa", b"bbbb", b"abab", b"baaa"} <= seen
    assert len(seen) == 16
    assert files.kill().tree()["a"] == b"b" * 4 * SECTOR


@pytest.mark.parametrize(
    ("page_bytes", "name", "may_lose"),
    [
        (SECTOR, "0000000001.wal", False),
        (PAGE, "0000000001.wal", True),
        (PAGE, "0000000001.seg", False),
    ],
)
def test_a_page_of_a_log_that_was_being_written_may_be_gone(
    page_bytes: int, name: str, may_lose: bool
) -> None:
    """On a disk with such sectors the page is lost with the synced data in it; the page before it
    is not."""
    files = SimFiles()
    files.page_bytes = page_bytes
    file = files.create(name)
    write_all(file, b"a" * (PAGE + SECTOR), 0)
    file.sync()
    files.sync_dir()
    write_all(file, b"b" * SECTOR, PAGE + SECTOR)

    found = [files.cut(random.Random(seed)).tree()[name] for seed in range(100)]

    assert {data[:PAGE] for data in found} == {b"a" * PAGE}
    synced = {data[PAGE : PAGE + SECTOR] for data in found}
    assert synced == ({b"a" * SECTOR, bytes(SECTOR)} if may_lose else {b"a" * SECTOR})


def test_a_file_cut_within_a_page_is_written_there() -> None:
    """The rest of the page is zeroed, so the page is being written again."""
    files = SimFiles()
    file = files.create("a")
    write_all(file, b"a" * 4 * PAGE, 0)
    file.sync()

    file.truncate(2 * PAGE)
    assert not files.inodes["a"].dirty
    file.truncate(PAGE + SECTOR)

    assert files.inodes["a"].dirty == {PAGE // SECTOR}


def test_names_persist_as_a_prefix_or_harshly_as_any_subset() -> None:
    """A directory that was not synced may lose names, in order unless the disk is a harsh one."""
    files = SimFiles()
    for name in "abc":
        files.create(name)

    gentle = {"".join(files.cut(random.Random(s)).names()) for s in range(100)}
    harsh = {"".join(files.cut(random.Random(s), harsh=True).names()) for s in range(100)}

    assert gentle == {"", "a", "ab", "abc"}
    assert len(harsh) == 8


def test_a_failed_sync_leaves_clean_pages_that_are_not_on_the_disk() -> None:
    """The second sync succeeds and the bytes are lost all the same."""
    files = SimFiles()
    file = files.create("a")
    write_all(file, b"a" * SECTOR, 0)
    file.sync()
    write_all(file, b"b" * SECTOR, 0)
    files.faults[files.calls + 1] = Fault(errno.EIO)
    with pytest.raises(OSError):
        file.sync()

    file.sync()
    assert content(file) == b"b" * SECTOR
    file.forget_cache()
    assert content(file) == b"a" * SECTOR


def test_a_disk_that_takes_no_byte_is_an_error() -> None:
    """Instead of a write that is tried for ever."""

    class Idle:
        name = "idle"

        def write(self, data: Any, offset: int) -> int:
            return 0

    with pytest.raises(OSError, match="a write took no byte"):
        write_all(Idle(), b"abc", 0)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("error", "again"),
    [(errno.EAGAIN, True), (errno.EOPNOTSUPP, False)],
    ids=["not in memory", "no such flag"],
)
def test_a_read_that_would_wait_is_left_to_a_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, again: bool
) -> None:
    """A file system without the flag is not asked again; one that lacks the bytes is. (F5)"""
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    file = files.create("a")
    write_all(file, b"bytes", 0)
    asked = []

    def refuse(*arguments: object) -> int:
        asked.append(arguments)
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "preadv", refuse)
    files.nowait = True
    buffer = memoryview(bytearray(5))

    assert [file.read_nowait(buffer, 0) for _ in range(2)] == [False, False]

    assert len(asked) == (2 if again else 1)
    files.close()


def test_a_disk_that_cannot_read_is_reported_without_a_thread_as_well(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error of the disk is none of the flag. (§0.6)"""
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    file = files.create("a")

    def fail(*_: object) -> int:
        raise OSError(errno.EIO, "the disk fails")

    monkeypatch.setattr(os, "preadv", fail)
    files.nowait = True

    with pytest.raises(OSError, match="the disk fails"):
        file.read_nowait(memoryview(bytearray(5)), 0)
    files.close()


def test_a_directory_is_prepared_and_locked_once(tmp_path: Path) -> None:
    """Again is no error, and takes no second descriptor; another process is refused."""
    files = OsFiles(tmp_path / "data")
    files.prepare(create=True)
    assert files.lock()
    descriptors = len(os.listdir("/proc/self/fd"))

    files.prepare(create=True)

    assert files.lock()
    assert len(os.listdir("/proc/self/fd")) == descriptors
    other = OsFiles(tmp_path / "data")
    other.prepare(create=False)
    assert not other.lock()
    other.close()
    files.close()


def test_a_closed_directory_is_free_though_a_child_has_its_descriptors(tmp_path: Path) -> None:
    """A process that is being started has those of its parent until it runs its program; a node that opens its store
    anew meanwhile is not refused."""
    files = OsFiles(tmp_path / "data")
    files.prepare(create=True)
    assert files.lock()
    # As a fork does: another descriptor of the same open file.
    (lock,) = (
        at
        for at in Path("/proc/self/fd").iterdir()
        if os.path.realpath(at).startswith(f"{tmp_path}/data/")
    )
    childs = os.dup(int(lock.name))

    files.close()

    other = OsFiles(tmp_path / "data")
    other.prepare(create=False)
    assert other.lock()
    other.close()
    os.close(childs)


def test_a_machine_without_a_boot_id_counts_every_start_as_a_reboot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the page cache had is then not believed. (§0.10)"""
    files = OsFiles(tmp_path)
    assert files.boot_id() == files.boot_id()

    monkeypatch.setattr(module, "BOOT_ID", str(tmp_path / "none"))

    assert files.boot_id() != files.boot_id()


# ---------------------------------------------------------------------- calls that a sandbox refuses


def _refuses(patch: pytest.MonkeyPatch, number: int, *calls: str) -> None:
    def answer(*given: Any, **named: Any) -> Any:
        raise OSError(number, os.strerror(number))

    for call in calls:
        target, _, name = call.rpartition(".")
        patch.setattr({"": os, "mmap": module.mmap, "fcntl": module.fcntl}[target], name, answer)


@pytest.fixture
def opened(tmp_path: Path) -> OsFiles:
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    return files


@pytest.mark.parametrize("number", [errno.EPERM, errno.ENOSYS, errno.EACCES])
def test_what_has_a_plain_way_is_done_by_it(
    opened: OsFiles, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Vectors, `fdatasync`, allocation, the page cache and the space that is left: nothing that a store
    needs depends on them."""
    _refuses(
        *(monkeypatch, number, "preadv", "pwritev", "fdatasync", "posix_fallocate"),
        *("posix_fadvise", "fstatvfs"),
    )
    file = opened.create("a")

    file.allocate(10)
    assert content(file) == bytes(10)
    assert file.write_vector([b"he", b"llo"], 2) == 5
    file.allocate(2 << 20)
    file.sync_data()
    file.forget_cache()

    assert content(file)[:9] == b"\0\0hello\0\0"
    assert file.size() == 2 << 20
    assert not file.read_nowait(memoryview(bytearray(5)), 2)
    assert opened.free_bytes() == module.PLENTY_BYTES


def test_a_sync_is_made_by_the_other_call(opened: OsFiles, monkeypatch: pytest.MonkeyPatch) -> None:
    """`fdatasync` makes the size durable as well; only without both is there no promise."""
    file = opened.create("a")
    _refuses(monkeypatch, errno.EPERM, "fsync")
    file.sync()
    opened.sync_dir()

    _refuses(monkeypatch, errno.EPERM, "fdatasync")
    for call, name in ((file.sync, "fdatasync"), (file.sync_data, "fsync")):
        with pytest.raises(PermissionError, match=f"{name}: .*sandbox"):
            call()


@pytest.mark.parametrize(
    ("calls", "call"),
    [
        (("pwrite",), lambda file, files: file.write(b"x", 0)),
        (("pwrite", "pwritev"), lambda file, files: file.write_vector([b"x"], 0)),
        (("pread", "preadv"), lambda file, files: file.read_into(memoryview(bytearray(1)), 0)),
        (("ftruncate",), lambda file, files: file.truncate(1)),
        (("mmap.mmap",), lambda file, files: file.map_readonly(1)),
        (("rename",), lambda file, files: files.rename("a", "b")),
        (("unlink",), lambda file, files: files.unlink("a")),
        (("fcntl.flock",), lambda file, files: files.lock()),
    ],
)
def test_a_call_without_a_plain_way_is_named_with_the_cure(
    opened: OsFiles, monkeypatch: pytest.MonkeyPatch, calls: tuple[str, ...], call: Any
) -> None:
    file = opened.create("a")
    write_all(file, b"content", 0)
    _refuses(monkeypatch, errno.EPERM, *calls)

    with pytest.raises(PermissionError, match=r"\w+: Operation not permitted: .*sandbox"):
        call(file, opened)


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("preadv", lambda file, files: file.read_into(memoryview(bytearray(1)), 0)),
        ("preadv", lambda file, files: file.read_nowait(memoryview(bytearray(1)), 0)),
        ("pwritev", lambda file, files: file.write_vector([b"x"], 0)),
        ("fdatasync", lambda file, files: file.sync_data()),
        ("fsync", lambda file, files: file.sync()),
        ("posix_fallocate", lambda file, files: file.allocate(1)),
        ("posix_fadvise", lambda file, files: file.forget_cache()),
        ("fstatvfs", lambda file, files: files.free_bytes()),
        ("fcntl.flock", lambda file, files: files.lock()),
    ],
)
def test_a_disk_that_fails_is_no_sandbox(
    opened: OsFiles, monkeypatch: pytest.MonkeyPatch, name: str, call: Any
) -> None:
    """EIO is told as it is, and nothing is tried in another way."""
    file = opened.create("a")
    _refuses(monkeypatch, errno.EIO, name)

    with pytest.raises(OSError, match=r"Input/output error$"):
        call(file, opened)


def test_calls_that_come_late_are_tried_when_the_directory_is_locked(
    opened: OsFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A map and a truncation are needed hours after the start.  A full disk is no reason to refuse, and
    nothing is left behind."""
    with monkeypatch.context() as patch:
        _refuses(patch, errno.ENODEV, "mmap.mmap")
        with pytest.raises(OSError, match=r"mmap: .*sandbox"):
            opened.lock()
    opened.close()

    opener = os.open

    def without(path: Any, flags: int, *given: Any, **named: Any) -> int:
        if flags & os.O_TMPFILE == os.O_TMPFILE:
            raise OSError(errno.EOPNOTSUPP, "no files without names")
        return opener(path, flags, *given, **named)

    for call in ("pwrite", "open"):
        opened.prepare(create=True)
        with monkeypatch.context() as patch:
            if call == "open":
                patch.setattr(os, call, without)
            else:
                _refuses(patch, errno.ENOSPC, call, "pwritev")
            assert opened.lock()
        assert opened.names() == [".lock"]
        opened.close()


@pytest.mark.parametrize("text", ["", "not hexadecimal", "abcd"])
def test_a_boot_id_that_is_hidden_is_none(
    opened: OsFiles, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str
) -> None:
    """A sandbox shows an empty file, or another: no start trusts the page cache then."""
    (tmp_path / "id").write_text(text)
    monkeypatch.setattr(module, "BOOT_ID", str(tmp_path / "id"))

    assert len(opened.boot_id()) == 16
    assert opened.boot_id() != opened.boot_id()


def test_an_error_of_the_disk_is_raised_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not made the cause of itself, for which whoever looks through causes would look for ever."""
    files = OsFiles(tmp_path)
    files.prepare(create=True)
    file = files.create("a")

    def fail(*_: object, **__: object) -> int:
        raise OSError(errno.EFBIG, "File too large")

    for call in ("pwrite", "pwritev", "posix_fallocate", "fdatasync", "fsync", "ftruncate"):
        monkeypatch.setattr(os, call, fail)
    monkeypatch.setattr(mmap, "mmap", fail)
    calls: list[Any] = [
        lambda: file.write(b"x", 0),
        lambda: file.write_vector([b"x", b"y"], 0),
        lambda: file.allocate(9),
        file.sync,
        lambda: file.truncate(1),
        lambda: file.map_readonly(1),
    ]
    for call in calls:
        with pytest.raises(OSError) as failed:
            call()
        assert failed.value.errno == errno.EFBIG
        assert failed.value.__cause__ is None
