"""The data directory of a node: which cluster and which node it belongs to, and where its store is.

    DIR/node.json   the cluster's name and id, the node's id
    DIR/store/      the store, as a single server has it in DIR
    DIR/store.*     snapshots of other nodes on their way, and stores that were set aside (`snapshots`)

The store has a folder of its own, so that another one can take its place by a rename where DIR is a
mount point.  Invariants: a directory of something else is not changed; `node.json` is durable before
the store is there, and never changes.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec

from topics.protocol.model.errors import InUse, Unusable

NODE_FILE: Final = "node.json"
STORE: Final = "store"
COPIES: Final = "store.copies"
COMING: Final = "store.coming"
ADOPTING: Final = "store.adopting"
ASIDE: Final = "store.aside"
FORMAT: Final = 1
IDENTITY: Final = "topics.id"
"""Of a store: in DIR itself it is a single server's."""
ALSO_THERE: Final = frozenset({"lost+found"})
CLUSTER_BYTES: Final = 16


class Membership(msgspec.Struct, frozen=True, kw_only=True):
    """What a directory belongs to.

    Attributes:
        name: `TOPICS_CLUSTER_NAME`.
        cluster: The cluster's id, 16 bytes; None until the node has joined for the first time.
        node: The node's id.
        is_adopted: Its store was a single server's, with which the cluster begins.
    """

    name: str
    cluster: bytes | None
    node: str
    is_adopted: bool = False

    def __repr__(self) -> str:
        # The id is what nodes know one another by: it stays out of logs.
        return f"Membership(name={self.name!r}, node={self.node!r})"


def hold(descriptor: int, path: Path) -> None:
    """Raises InUse."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise InUse(str(path)) from None
    except OSError as error:
        what = f"flock: {error.strerror}: the file system or a sandbox does not allow it"
        raise Unusable(str(path), what) from error


def release(descriptor: int) -> None:
    """Close a descriptor that holds a folder.  A process that is being started has a copy of it until it runs its
    program, and would hold the folder with it."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)
    os.close(descriptor)


class HeldFolder:
    """A folder that no node's process uses meanwhile.  Raises Unusable, InUse."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        try:
            self._descriptor = os.open(self._path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except OSError as error:
            raise Unusable(str(self._path), error.strerror or str(error)) from error
        try:
            hold(self._descriptor, self._path)
        except BaseException:
            os.close(self._descriptor)
            raise

    def __exit__(self, *_: object) -> None:
        release(self._descriptor)


class NodeDirectory:
    """One directory, held by this process until it is closed.

    Args:
        name: `TOPICS_CLUSTER_NAME`.

    Raises:
        Unusable: It is another cluster's, a single server's or something else's, or in use.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path = path
        self.store = path / STORE
        with self._told():
            path.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            with self._told():
                self._lock()
                self.membership = self._read(name)
                self._finish_install()
        except BaseException:
            os.close(self._descriptor)
            raise

    def belong(self, cluster: bytes) -> None:
        """Note the cluster's id, durably, if it is not yet."""
        if self.membership.cluster is not None:
            assert self.membership.cluster == cluster
            return
        joined = msgspec.structs.replace(self.membership, cluster=cluster)
        with self._told():
            write_membership(self.path, joined)
        self.membership = joined

    @property
    def has_store(self) -> bool:
        """Whether there is a store, which may be without data."""
        return (self.store / IDENTITY).exists()

    def close(self) -> None:
        release(self._descriptor)

    # ------------------------------------------------------------------ the start

    def _lock(self) -> None:
        hold(self._descriptor, self.path)

    def _read(self, name: str) -> Membership:
        membership = read_membership(self.path)
        if membership is None:
            self._require_empty()
            return Membership(name=name, cluster=None, node=secrets.token_hex(6))
        if (membership.is_adopted and (self.path / ADOPTING).exists()) or (
            self.path / IDENTITY
        ).exists():
            raise Unusable(
                str(self.path),
                "its adoption was interrupted: run `topics cluster adopt` once more, or take it back "
                "with --undo",
            )
        if membership.name != name:
            raise Unusable(
                str(self.path),
                f'the directory of a node of cluster "{membership.name}", and TOPICS_CLUSTER_NAME is '
                f'"{name}": give the node the one or the other that belongs to it',
            )
        return membership

    def _finish_install(self) -> None:
        """Put a snapshot into its place whose predecessor was set aside by a process that was killed
        then (`snapshots`)."""
        coming = self.path / COMING
        if not self.store.exists() and (coming / IDENTITY).exists():
            coming.rename(self.store)
            os.fsync(self._descriptor)

    def _require_empty(self) -> None:
        names = {entry.name for entry in self.path.iterdir()} - ALSO_THERE - {f"{NODE_FILE}.tmp"}
        if IDENTITY in names:
            raise Unusable(
                str(self.path),
                "the data directory of a single server, and TOPICS_CLUSTER_KAFKA is set: a node "
                "begins with an empty directory, and a new cluster with one of `topics cluster adopt`",
            )
        # A store that was copied from a stopped node: whether it is the cluster's, its history says.
        if names - {STORE}:
            what = f'not the directory of a node: it holds "{min(names - {STORE})}"'
            raise Unusable(str(self.path), what)

    @contextmanager
    def _told(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise Unusable(str(self.path), error.strerror or str(error)) from error


def read_membership(path: Path) -> Membership | None:
    """What a directory says that it belongs to; None where it says nothing.  Raises Unusable."""
    found = path / NODE_FILE
    try:
        return _decoded(found, found.read_bytes())
    except FileNotFoundError:
        return None


def write_membership(path: Path, joined: Membership) -> None:
    """*Blocking.* Durably.  Raises OSError."""
    assert joined.cluster is not None
    text: dict[str, object] = {
        "format": FORMAT,
        "name": joined.name,
        "cluster": joined.cluster.hex(),
        "node": joined.node,
    }
    if joined.is_adopted:
        text["adopted"] = True
    unfinished = path / f"{NODE_FILE}.tmp"
    descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "w", encoding="ascii") as file:
        json.dump(text, file)
        file.flush()
        os.fsync(file.fileno())
    unfinished.rename(path / NODE_FILE)
    sync_folder(path)


def sync_folder(path: Path) -> None:
    """*Blocking.* Make renames in it durable.  Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def next_aside(path: Path) -> Path:
    """Where in a node's directory a store is set aside: the next name that is free."""
    number = 1
    while (path / f"{ASIDE}-{number}").exists():
        number += 1
    return path / f"{ASIDE}-{number}"


def _decoded(path: Path, raw: bytes) -> Membership:
    try:
        found: Any = json.loads(raw)
        if found["format"] > FORMAT:
            what = f"format {found['format']} is newer than {FORMAT}, which this version reads"
            raise Unusable(str(path), what)
        cluster = bytes.fromhex(found["cluster"])
        membership = Membership(
            name=str(found["name"]),
            cluster=cluster,
            node=str(found["node"]),
            is_adopted=bool(found.get("adopted", False)),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise Unusable(str(path), "it cannot be read") from error
    if len(cluster) != CLUSTER_BYTES or not membership.node:
        raise Unusable(str(path), "it cannot be read")
    return membership
