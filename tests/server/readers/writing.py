"""An engine that writes, and followers of its log, on a disk in memory."""

from dataclasses import replace

import orjson
from sim.files import SimFiles

from topics.protocol.driver.follower import Follower, Shown, Timing
from topics.protocol.driver.group_commit import Sync
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.driver.reply import Reply
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_delete
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import Rejection
from topics.protocol.model.limits import Limits
from topics.protocol.model.ports import LogFollowers
from topics.store.following import FollowingStore
from topics.store.store import DiskStore

START_MS = 1_750_000_000_000
LIMITS = Limits(segment_max_age_ms=60_000, wal_file_bytes=64 << 10)


class Writer(InlineHost):
    """An engine over a disk, whose syncs end when the test says so."""

    def __init__(
        self,
        files: SimFiles,
        wal_file_bytes: int = LIMITS.wal_file_bytes,
        followers: LogFollowers | None = None,
    ) -> None:
        self.disk = DiskStore(
            files,
            wal_file_bytes=wal_file_bytes,
            reserve_bytes=64 << 10,
            followers=followers,
        )
        limits = replace(LIMITS, wal_file_bytes=wal_file_bytes)
        super().__init__(limits, self.disk, START_MS)
        self.is_slow = False
        self._unsynced: list[Sync] = []
        self.number = 0
        self.driver.recover()
        self.driver.start()
        self.settle()

    def sync_log(self, step: Sync) -> None:
        if self.is_slow:
            self._unsynced.append(step)
        else:
            super().sync_log(step)

    def sync_now(self) -> None:
        while self._unsynced:
            super().sync_log(self._unsynced.pop())
            self.settle()

    def do(self, command: Command) -> list[Reply]:
        """Submit a command and write what it decides."""
        replies: list[Reply] = []
        try:
            found = self.driver.submit(command, replies.append)
        except Rejection as refusal:
            found = Reply(refusal)
        if isinstance(found, Reply):
            replies.append(found)
        self.settle()
        return replies

    @property
    def shown(self) -> Shown:
        self.number += 1
        held = self.driver.engine.unit.publication.held()
        return Shown(self.number, self.disk.written_batch, held, Timing())


def appended(name: str, *datas: object, **fields: object) -> Command:
    body = orjson.dumps({"records": [{"data": data, **fields} for data in datas]})
    return parse_append(name, body, LIMITS, return_seqs=True, header_key=None)


def put(name: str, **config: object) -> Command:
    return parse_put(name, orjson.dumps(config))


def deleted(name: str, **fields: object) -> Command:
    return parse_delete(name, orjson.dumps(fields))


def begun(writer: Writer, files: SimFiles) -> Follower:
    shown = writer.shown
    follower = Follower(LIMITS, FollowingStore(files.other()))
    follower.begin(shown)
    assert follower.follow(shown)
    return follower
