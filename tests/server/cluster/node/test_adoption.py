"""A single server's directory as the first node of a cluster, and back; a kill at every step."""

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from protocol.harness import shown

from topics.backup.proof import prove
from topics.protocol.cluster.place import event_of, place_of
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.unit import Shard
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_diff
from topics.protocol.model.errors import InUse, StoreError, Unusable
from topics.protocol.model.limits import Limits
from topics.protocol.model.outcomes import Outcome
from topics.server.cluster.node.adoption import adopt, take_back
from topics.server.cluster.node.directory import NodeDirectory
from topics.server.cluster.node.life import history_of
from topics.store import identity
from topics.store.files import OsFiles
from topics.store.store import DiskStore

NOW_MS = 1_750_000_000_000
NAME = "c"


def single(path: Path, *, is_stopped: bool = True) -> InlineHost:
    """A single server's directory, with three records in one topic."""
    host = InlineHost(Limits(), DiskStore(OsFiles(path)), NOW_MS)
    host.driver.recover()
    host.driver.start()
    body = b'{"records":[{"data":1},{"data":2},{"data":3}]}'
    command = parse_append("t", body, Limits(), return_seqs=True, header_key=None)
    host.driver.submit(command, lambda reply: None)
    host.settle()
    if is_stopped:
        host.driver.stop(lambda error: None)
        host.settle()
    return host


def records(path: Path) -> tuple[str, list[int]]:
    """The epoch of the topic, and its seqs, as a single server shows them."""
    host = InlineHost(Limits(), DiskStore(OsFiles(path)), NOW_MS)
    host.driver.recover()
    host.driver.start()
    found: list[Outcome] = []
    reply = host.driver.submit(parse_diff("t", b'{"from_seq":0}', Limits()), lambda reply: None)
    assert isinstance(reply.result, Outcome)  # type: ignore[union-attr]
    found.append(reply.result)  # type: ignore[union-attr]
    page = shown(found[0])
    host.driver.stop(lambda error: None)
    host.settle()
    return page["epoch"], [record["$seq"] for record in page["records"]]


def adopted(path: Path, name: str = NAME) -> bytes:
    """The new cluster's id."""
    membership = adopt(path, name, now_ms=lambda: NOW_MS)
    assert membership.cluster is not None
    return membership.cluster


def test_the_store_is_behind_a_unit_that_no_log_has(tmp_path: Path) -> None:
    """So a node without data cannot begin with the log; epochs are those of the single server,
    because the cluster's history is its. (§6, decision 100)"""
    single(tmp_path)
    history = identity.read(entered(tmp_path)).history  # type: ignore[union-attr]

    cluster = adopted(tmp_path)

    files = OsFiles(tmp_path / "store")
    living = prove(files)
    place, mark = place_of(living.place, Shard(cluster, 0))
    assert history_of(cluster) == history
    assert place == mark.place == Place.adopted(Shard(cluster, 0))
    assert place.index == 1
    assert place.chain != Place.before_all(Shard(cluster, 0)).chain
    assert living.records == 3
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["node.json", "store"]
    directory = NodeDirectory(tmp_path, NAME)
    assert directory.membership.is_adopted
    assert directory.membership.cluster == cluster
    directory.close()


def entered(path: Path) -> OsFiles:
    files = OsFiles(path)
    files.prepare(create=False)
    return files


def test_it_is_taken_back_until_the_cluster_has_begun(tmp_path: Path) -> None:
    """The same records, under the same epoch; and it may be adopted again."""
    single(tmp_path)
    before = records(tmp_path)
    first = adopted(tmp_path)

    take_back(tmp_path)
    assert not (tmp_path / "node.json").exists()
    assert records(tmp_path) == before
    with pytest.raises(Unusable, match="not a directory that was adopted"):
        take_back(tmp_path)

    assert adopted(tmp_path) != first


def test_it_is_not_taken_back_from_a_cluster_that_has_written(tmp_path: Path) -> None:
    """What that has acknowledged would be lost."""
    single(tmp_path)
    cluster = adopted(tmp_path)
    # Behind its first unit.
    place = Place.adopted(Shard(cluster, 0))
    later = Place(1, 1, 2, bytes(16), 1, 1)
    host = InlineHost(Limits(), DiskStore(OsFiles(tmp_path / "store")), NOW_MS)
    host.driver.recover()
    host.driver.engine.unit.emit(event_of(later, Mark(place), NOW_MS))
    host.store.write(host.driver.engine.take_frames())
    host.store.sync()
    host.store.close(None)

    with pytest.raises(Unusable, match="its cluster has begun"):
        take_back(tmp_path)
    assert (tmp_path / "store").exists()


@pytest.mark.parametrize("undo", [False, True])
def test_a_kill_at_any_step_is_followed_by_the_same_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, undo: bool
) -> None:
    """Until it has ended no server and no node starts there, and nothing is lost."""
    steps = 0
    expected: tuple[str, list[int]] | None = None
    while True:
        path = tmp_path / str(steps)
        single(path)
        expected = records(path)
        if undo:
            adopted(path)
        command = take_back if undo else adopted
        if not _killed_at(monkeypatch, steps, lambda at=path, run=command: run(at)):  # type: ignore[misc]
            break
        if (path / "node.json").exists() and not (path / "store").exists():
            with pytest.raises(StoreError):
                NodeDirectory(path, NAME)
        command(path)
        if not undo:
            take_back(path)
        assert records(path) == expected
        steps += 1
    assert steps > 5


class Killed(BaseException):
    """The process ended."""


def _killed_at(patch: pytest.MonkeyPatch, step: int, run: Callable[[], object]) -> bool:
    """Whether it was killed in front of that many renames of whole names and of files."""
    real, count = os.rename, 0

    def rename(*arguments: object, **options: object) -> None:
        nonlocal count
        if count == step:
            raise Killed
        count += 1
        real(*arguments, **options)  # type: ignore[arg-type]

    with patch.context() as patched:
        patched.setattr(os, "rename", rename)
        try:
            run()
        except Killed:
            return True
    return False


def test_what_is_no_stopped_single_server_is_refused(tmp_path: Path) -> None:
    """One in use, a node's, an empty one, and a name that changed halfway; nothing is changed."""
    running = tmp_path / "running"
    host = single(running, is_stopped=False)
    with pytest.raises(InUse):
        adopted(running)
    assert not (running / "node.json").exists()
    host.store.close(None)
    (tmp_path / "empty").mkdir()
    with pytest.raises(Unusable, match="not the data directory of a single server"):
        adopted(tmp_path / "empty")
    with pytest.raises(Unusable):
        adopted(tmp_path / "none")

    node = tmp_path / "node"
    single(node)
    adopted(node)
    with pytest.raises(Unusable, match='of a node of cluster "c" already'):
        adopted(node)
    held = NodeDirectory(node, NAME)
    with pytest.raises(InUse):
        take_back(node)
    held.close()


def test_an_adoption_that_was_interrupted_is_ended_under_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    single(tmp_path)
    assert _killed_at(monkeypatch, 3, lambda: adopted(tmp_path))
    assert json.loads((tmp_path / "node.json").read_text())["adopted"] is True

    with pytest.raises(Unusable, match="was interrupted"):
        adopted(tmp_path, "other")
    with pytest.raises(Unusable, match="adoption was interrupted"):
        NodeDirectory(tmp_path, NAME)

    adopted(tmp_path)
