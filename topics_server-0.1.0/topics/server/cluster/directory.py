"""The data directory of a node: which cluster and which node it belongs to, and where its store is.

    DIR/node.json   the cluster's name and id, the node's id
    DIR/store/      the store, as a single server has it in DIR

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
    """

    name: str
    cluster: bytes | None
    node: str

    def __repr__(self) -> str:
        # The id is what nodes know one another by: it stays out of logs.
        return f"Membership(name={self.name!r}, node={self.node!r})"


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
        except BaseException:
            os.close(self._descriptor)
            raise

    def belong(self, cluster: bytes) -> None:
        """Note the cluster's id, durably, if it is not yet."""
        if self.membership.cluster is not None:
            assert self.membership.cluster == cluster
            return
        joined = msgspec.structs.replace(self.membership, cluster=cluster)
        text = {
            "format": FORMAT,
            "name": joined.name,
            "cluster": cluster.hex(),
            "node": joined.node,
        }
        with self._told():
            unfinished = self.path / f"{NODE_FILE}.tmp"
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "w", encoding="ascii") as file:
                json.dump(text, file)
                file.flush()
                os.fsync(file.fileno())
            unfinished.rename(self.path / NODE_FILE)
            os.fsync(self._descriptor)
        self.membership = joined

    def close(self) -> None:
        os.close(self._descriptor)

    # ------------------------------------------------------------------ the start

    def _lock(self) -> None:
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InUse(str(self.path)) from None

    def _read(self, name: str) -> Membership:
        found = self.path / NODE_FILE
        try:
            raw = found.read_bytes()
        except FileNotFoundError:
            self._require_empty()
            return Membership(name=name, cluster=None, node=secrets.token_hex(6))
        membership = _decoded(found, raw)
        if membership.name != name:
            raise Unusable(
                str(self.path),
                f'the directory of a node of cluster "{membership.name}", and TOPICS_CLUSTER_NAME is '
                f'"{name}": give the node the one or the other that belongs to it',
            )
        return membership

    def _require_empty(self) -> None:
        names = {entry.name for entry in self.path.iterdir()} - ALSO_THERE - {f"{NODE_FILE}.tmp"}
        if IDENTITY in names:
            raise Unusable(
                str(self.path),
                "the data directory of a single server, and TOPICS_CLUSTER_KAFKA is set: a node "
                "begins with an empty directory",
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


def _decoded(path: Path, raw: bytes) -> Membership:
    try:
        found: Any = json.loads(raw)
        if found["format"] > FORMAT:
            what = f"format {found['format']} is newer than {FORMAT}, which this version reads"
            raise Unusable(str(path), what)
        cluster = bytes.fromhex(found["cluster"])
        membership = Membership(name=str(found["name"]), cluster=cluster, node=str(found["node"]))
    except (ValueError, KeyError, TypeError) as error:
        raise Unusable(str(path), "it cannot be read") from error
    if len(cluster) != CLUSTER_BYTES or not membership.node:
        raise Unusable(str(path), "it cannot be read")
    return membership
