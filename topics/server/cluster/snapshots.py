"""Another node's store in the place of this one's: fetched while that node runs, put there by a rename.

    DIR/store             what this node serves
    DIR/store.copies/     what was copied of the other node's; used again by the next attempt
    DIR/store.coming/     the store that is made of it; whole once it has an identity
    DIR/store.aside-N     a store that was set aside, for people to look at

Implements `host.Snapshots`.  Owns these names but the first, whom is asked, and what a kill leaves:

- until `store.coming` is whole, nothing of `store` has changed, and the next attempt begins anew with the
  copies that are there;
- `install` renames `store` away and `store.coming` into its place.  Between the two there is no `store`,
  and a whole `store.coming`: the next start finishes it (`directory`).

A store that was set aside is never removed here.
"""

import asyncio
import errno
import logging
import os
import shutil
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import msgspec

from topics.backup.remote import RemoteFiles
from topics.backup.replica import replicate
from topics.protocol.cluster.place import place_of
from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.unit import Shard
from topics.server.cluster.node.directory import COMING, COPIES, STORE, next_aside, sync_folder
from topics.server.cluster.node.status import SnapshotStatus
from topics.server.cluster.tokens import FORWARDED
from topics.store.files import OsFiles

log = logging.getLogger("topics.cluster")

TELL_S: Final = 5.0
"""How often the log says how far a snapshot is."""


class Donor(msgspec.Struct, frozen=True):
    """A node that may be asked."""

    node: str
    url: str


class Fetched(msgspec.Struct, frozen=True):
    """What `install` is to put into its place."""

    place: Place
    mark: Mark


class NodeSnapshots:
    """Of one node.  Used on the event loop, but for what is blocking.

    Args:
        path: Of the node's directory.
        history: The cluster's.
        sources: Nodes that live and have data, the best first.
        token: By which the nodes know one another.
        may_begin: Whether the log is all that there is, and a node may read it from its beginning where
            no other node gives it a snapshot.

    Attributes:
        status: How far it is; what `served` counts is another's.
    """

    def __init__(
        self,
        path: Path,
        shard: Shard,
        history: bytes,
        sources: Callable[[], Sequence[Donor]],
        token: Callable[[], bytes],
        *,
        may_begin: bool,
        monotonic_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self.status = SnapshotStatus()
        self._path, self._shard, self._history = path, shard, history
        self._sources, self._token = sources, token
        self._may_begin = may_begin
        self._monotonic_s = monotonic_s
        self._tried: set[str] = set()
        self._begun_s = 0.0
        self._told_s = 0.0
        self._is_over = threading.Event()
        self._remote: RemoteFiles | None = None
        self._fetched: Fetched | None = None

    # ------------------------------------------------------------------ host.Snapshots

    async def fetch(self) -> tuple[Place, Mark]:
        if not self.status.taking:
            self._begun_s = self._monotonic_s()
        self._change(taking=True, source=None, copied_bytes=0, total_bytes=0)
        found = self._next()
        if found is None:
            if self._may_begin:
                # Once: where the log turns out to be trimmed, only a snapshot helps.
                self._may_begin = False
                self._fetched = None
                zero = Place.before_all(self._shard)
                return zero, Mark(zero)
            self._change(trouble=self.status.trouble or "no node that has data is heard of")
            raise OSError(errno.EAGAIN, self.status.trouble)
        self._change(source=found.node)
        log.info("this node takes a snapshot of node %s", found.node)
        try:
            self._fetched = await asyncio.to_thread(self._bring, found)
        except OSError as error:
            what = f"node {found.node}: {error.strerror or error}"
            self._change(source=None, trouble=what)
            raise OSError(errno.EAGAIN, what) from error
        return self._fetched.place, self._fetched.mark

    def install(self, *, is_empty: bool) -> str | None:
        """*Blocking.*"""
        if self._fetched is None:
            self._change(taking=False)
            return None
        store, coming = self._path / STORE, self._path / COMING
        aside: Path | None = None
        if store.exists():
            aside = next_aside(self._path)
            store.rename(aside)
            sync_folder(self._path)
        coming.rename(store)
        sync_folder(self._path)
        if aside is not None and is_empty:
            shutil.rmtree(aside, ignore_errors=True)
            aside = None
        self._fetched = None
        self._tried.clear()
        self.clean()
        took_ms = int((self._monotonic_s() - self._begun_s) * 1000)
        self._change(
            taking=False,
            trouble=None,
            taken=self.status.taken + 1,
            taken_ms=took_ms,
            set_aside=self.status.set_aside if aside is None else str(aside),
        )
        log.warning("a snapshot of node %s was taken, in %d ms", self.status.source, took_ms)
        if aside is not None:
            log.warning("what this node had is in %s: remove it once nobody needs it", aside)
        return None if aside is None else str(aside)

    def abort(self) -> None:
        """Let what is fetched now fail, soon."""
        self._is_over.set()
        if self._remote is not None:
            self._remote.abort()

    def clean(self) -> None:
        """*Blocking.* Remove what a snapshot leaves that is in its place, or was begun and is not needed
        any more."""
        for name in (COPIES, COMING):
            shutil.rmtree(self._path / name, ignore_errors=True)

    # ------------------------------------------------------------------

    def _change(self, **fields: object) -> None:
        self.status = msgspec.structs.replace(self.status, **fields)

    def _next(self) -> Donor | None:
        """Whom to ask: each once, and then from the beginning."""
        sources = self._sources()
        left = [each for each in sources if each.node not in self._tried]
        if not left and not self._may_begin:
            self._tried.clear()
            left = list(sources)
        if not left:
            return None
        self._tried.add(left[0].node)
        return left[0]

    def _bring(self, source: Donor) -> Fetched:
        """*Blocking.*"""
        coming = self._path / COMING
        copies = self._path / COPIES
        shutil.rmtree(coming, ignore_errors=True)
        remote = RemoteFiles(source.url, {FORWARDED.decode(): self._token().decode()})
        place, target = OsFiles(copies), OsFiles(coming)
        self._remote = remote

        def link(copy: str, name: str) -> bool:
            try:
                os.link(copies / copy, coming / name)
            except OSError:
                return False  # a file system without hard links
            return True

        try:
            place.prepare(create=True)
            remote.prepare(create=False)
            self._change(total_bytes=remote.total_bytes, copied_bytes=_size_of(copies))
            needed = remote.total_bytes - self.status.copied_bytes
            if needed > place.free_bytes():
                what = f"{needed:,} bytes are needed in {self._path}"
                raise OSError(errno.ENOSPC, f"{what}, and {place.free_bytes():,} are free")
            living = replicate(
                remote, place, target, self._history, link=link, progress=self._progress
            )
            remote.finish()
        finally:
            self._remote = None
            remote.close()
            place.close()
            target.close()
        if living.place is None:
            raise OSError(errno.EAGAIN, "it has no data")
        at, mark = place_of(living.place, self._shard)
        log.info(
            "the snapshot of node %s is here: %d records in %d topics, at unit %d",
            *(source.node, living.records, living.topics, at.index),
        )
        return Fetched(at, mark)

    def _progress(self, copied_bytes: int) -> None:
        if self._is_over.is_set():
            raise OSError(errno.ECANCELED, "this node stops")
        self._change(copied_bytes=self.status.copied_bytes + copied_bytes)
        if self._monotonic_s() - self._told_s > TELL_S:
            self._told_s = self._monotonic_s()
            log.info("this node takes %s", self.status.what)


def _size_of(folder: Path) -> int:
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.is_file())
