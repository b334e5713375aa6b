"""A server process for tests: the real one around a runtime that does as it is told.

Usage: served.py DIRECTORY PORT [FAULT]; what the runtime was told stands in DIRECTORY/life.
"""

import asyncio
import mmap
import sys
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from topics.protocol.model.errors import Corrupt, Unusable
from topics.protocol.model.limits import Limits
from topics.server import serving
from topics.server.process import port_file, signals

sys.path.insert(0, str(Path(__file__).parents[1]))  # a program, and no module of the tests
from server.transport.http2_rig import Exchange, ok

FAULTS = {
    "unusable": Unusable("/data/lock", "another server uses it"),
    "corrupt": Corrupt("/data/wal-7", 4096, "digest"),
    "bug": ValueError("a bug\nof ours"),
}


@dataclass
class FakeRuntime:
    directory: Path
    fault: str
    exchange: Exchange = field(default_factory=Exchange)

    def note(self, word: str) -> None:
        with (self.directory / "life").open("a") as life:
            life.write(f"{word}\n")

    async def start(self) -> None:
        self.note("start")
        if self.fault == "cut":
            await asyncio.to_thread(read_a_file_that_is_cut_short, self.directory / "mapped")

    @property
    def topics(self) -> int:
        return 0

    async def wait_ready(self) -> None:
        if self.fault in FAULTS:
            await asyncio.Event().wait()

    async def wait_failed(self) -> Exception:
        if self.fault in FAULTS:
            return FAULTS[self.fault]
        await asyncio.Event().wait()
        raise AssertionError

    async def wait_space(self) -> None:
        await asyncio.Event().wait()

    def recovers(self) -> None:
        self.note("recovers")

    def leave(self) -> None:
        self.note("leave")

    @property
    def has_threads_at_work(self) -> bool:
        return False

    def end_turns_by(self, soon: Any) -> None:
        """It has no turns."""

    def drain(self) -> None:
        self.note("drain")
        if self.fault == "endless":
            return
        for pending in self.exchange.waits:
            assert pending.deliver is not None
            pending.deliver(ok(b"drained"))

    async def stop(self) -> None:
        self.note("stop")
        if self.fault == "hangs":
            await asyncio.Event().wait()
        if self.fault == "spins":
            while True:
                pass


def read_a_file_that_is_cut_short(path: Path) -> int:
    """Read a page of a map that its file no longer has."""
    path.write_bytes(bytes(2 * mmap.PAGESIZE))
    with path.open("r+b") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
        file.truncate(0)
        return mapped[mmap.PAGESIZE]


def main(directory: Path, port: int, fault: str = "") -> int:
    settings: Any = SimpleNamespace(
        host="127.0.0.1",
        port=port,
        port_file=directory / "port",
        keep_alive_ms=75_000,
        readers=0,
        busy_poll_us=200,
        kafka=False,
        kafka_port=None,
        cluster_kafka=None,
        data_dir=directory / "data",
        limits=Limits(max_body_bytes=1 << 20),
        trusted_proxies=(),
        log_format="text",
        api_keys=None,
        api_keys_file=None,
        notes=(),
    )
    if fault == "endless":
        serving.GRACE_S = 0.1  # type: ignore[misc]
    if fault == "spins":
        signals.STOP_S = 0.3  # type: ignore[misc]

    if fault == "port taken":
        # What stands there comes between the check and the writing.
        port_file.check = lambda path: path.mkdir()  # type: ignore[assignment]

    def create(_: Any, followers: Any) -> Any:
        if fault == "create":
            raise FAULTS["unusable"]
        return FakeRuntime(directory, fault)

    return serving.serve(settings, create)


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), int(sys.argv[2]), *sys.argv[3:]))
