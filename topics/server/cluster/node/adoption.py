"""A single server's directory becomes the first node of a new cluster, and back until that has begun.

Owns the order of both, each step of which a kill may follow: the same command goes on where it was, and no
server and no node starts in between.

    node.json      the new cluster's id and the node's; from here on no single server starts here
    the place      behind a unit that is in no log (`Place.adopted`), as the last event of the store's log
    store.adopting the files of the store, moved one by one, `topics.id` last
    store          by a rename; from here on a node starts here

The cluster's id begins with the history of the store, of which epochs are made, so cursors stay valid.  A
node without data cannot begin with the log of such a cluster: it does not hold what was adopted.
"""

import secrets
from collections.abc import Callable
from pathlib import Path
from typing import Final

import msgspec

from topics.backup.proof import prove
from topics.protocol.cluster.place import event_of
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.unit import Shard
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.model.errors import Unusable
from topics.protocol.model.limits import Limits
from topics.server.cluster.node.directory import (
    ADOPTING,
    CLUSTER_BYTES,
    IDENTITY,
    NODE_FILE,
    STORE,
    HeldFolder,
    Membership,
    read_membership,
    sync_folder,
    write_membership,
)
from topics.store import identity
from topics.store.files import OsFiles
from topics.store.store import DiskStore

KEPT: Final = frozenset({NODE_FILE, f"{NODE_FILE}.tmp", ADOPTING, STORE, "lost+found"})
"""What of a directory is not the store's."""


def adopt(path: Path, name: str, *, now_ms: Callable[[], int]) -> Membership:
    """*Blocking.* Make a stopped single server's directory that of the first node of a new cluster.

    Args:
        name: `TOPICS_CLUSTER_NAME`.

    Raises:
        StoreError: It is in use, a node's, or no data directory.
        OSError: The disk failed; the same call goes on.
    """
    with HeldFolder(path):
        membership = read_membership(path)
        if membership is None:
            membership = _new_membership(path, name)
        _require_adopting(path, membership, name)
        if not (path / ADOPTING).exists():
            # Else it is there, and some of the files have moved.
            _put_place(path, membership, now_ms)
        _move_files(path, path / ADOPTING)
        (path / ADOPTING).rename(path / STORE)
        sync_folder(path)
    return membership


def take_back(path: Path) -> None:
    """*Blocking.* Make it a single server's directory again.

    Raises:
        StoreError: It is in use, or the cluster has begun: what that has written would be lost.
        OSError: The disk failed; the same call goes on.
    """
    with HeldFolder(path):
        membership = read_membership(path)
        if membership is None or not membership.is_adopted:
            raise Unusable(str(path), "not a directory that was adopted")
        store = path / STORE
        if store.exists():
            _require_not_begun(store, membership)
            store.rename(path / ADOPTING)
            sync_folder(path)
        moved = path / ADOPTING
        if moved.exists():
            _move_files(moved, path)
            moved.rmdir()
        (path / NODE_FILE).unlink()
        sync_folder(path)


def _new_membership(path: Path, name: str) -> Membership:
    """Noted, durably, once it is sure that this is a directory that can be adopted."""
    files = OsFiles(path)
    try:
        if not (path / IDENTITY).exists():
            raise Unusable(str(path), "not the data directory of a single server")
        # A server that runs here, or a directory of another version, refuses that.
        identity.enter(files)
        known = identity.read(files)
        assert known is not None
    finally:
        files.close()
    cluster = known.history + secrets.token_bytes(CLUSTER_BYTES - len(known.history))
    made = Membership(name=name, cluster=cluster, node=secrets.token_hex(6), is_adopted=True)
    write_membership(path, made)
    return made


def _require_adopting(path: Path, membership: Membership, name: str) -> None:
    if not membership.is_adopted or (path / STORE).exists():
        raise Unusable(str(path), f'the directory of a node of cluster "{membership.name}" already')
    if membership.name != name:
        raise Unusable(
            str(path),
            f'its adoption for cluster "{membership.name}" was interrupted, and the name is "{name}" '
            "now: end it with the same name, or take it back by --undo",
        )


def _put_place(path: Path, membership: Membership, now_ms: Callable[[], int]) -> None:
    """Start as a server does, write the place, and stop cleanly."""
    assert membership.cluster is not None
    place = Place.adopted(Shard(membership.cluster, 0))
    event = event_of(place, Mark(place), 0)
    files = OsFiles(path)
    store = DiskStore(files)
    host = InlineHost(Limits(), store, now_ms())
    driver = host.driver
    try:
        driver.recover()
        state = driver.engine.state
        if state.place is None or state.place.place != event.place:
            driver.engine.unit.emit(msgspec.structs.replace(event, now_ms=state.now_ms))
            driver.engine.on_written(store.write(driver.engine.take_frames()))
            driver.engine.on_synced(store.sync())
        driver.start()
        ended: list[Exception | None] = []
        driver.drain()
        driver.stop(ended.append)
        host.settle()
    except BaseException:
        store.close(None)
        raise
    if ended != [None]:
        raise Unusable(str(path), f"it could not be stopped: {ended[0] if ended else '-'}")


def _require_not_begun(store: Path, membership: Membership) -> None:
    assert membership.cluster is not None
    found = prove(OsFiles(store)).place
    place = Place.adopted(Shard(membership.cluster, 0))
    adopted = event_of(place, Mark(place), 0)
    if found is None or found.place != adopted.place:
        raise Unusable(
            str(store.parent),
            "its cluster has begun, and what that has written would be lost: a backup of the node's "
            "store is restored as a single server's directory",
        )


def _move_files(source: Path, target: Path) -> None:
    """All files of a store, its identity last: without it nothing takes them for a whole one."""
    target.mkdir(mode=0o700, exist_ok=True)
    names = [entry.name for entry in source.iterdir() if entry.name not in KEPT]
    for name in sorted(names, key=lambda name: (name == IDENTITY, name)):
        (source / name).rename(target / name)
    sync_folder(target)
    sync_folder(source)
