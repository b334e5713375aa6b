"""Power cuts on a real ext4: what was acknowledged under each class is there as it promises.  (F2-F4)

The writers go on while the power is cut: every cut is a state that the disk was in, of a run that
knows nothing of it.
"""

import threading
from pathlib import Path
from typing import Any, Final

import pytest
from contract.api import Api, dumps
from contract.server import Server, until
from contract.wire import Ended, Http1

from .machines import booted_again, machine

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

JSON: Final = {"content-type": "application/json"}
CLASSES: Final = ("memory", "disk", "fsync")


class Writer(threading.Thread):
    """Appends to one topic of each class in turn, and deletes now and then, until it is stopped."""

    def __init__(self, server: Server) -> None:
        super().__init__(daemon=True)
        self.is_over = threading.Event()
        self.failure: BaseException | None = None
        self.acked: dict[str, dict[int, str]] = {kind: {} for kind in CLASSES}
        self.tried: set[str] = set()
        self.deleted = 0
        self._wire = server.connect(Http1)

    def run(self) -> None:
        try:
            number = 0
            while not self.is_over.is_set():
                number += 1
                for kind in CLASSES:
                    self._append(kind, number)
                if number % 50 == 0:
                    self._delete_half(number)
        except (Ended, OSError):
            return
        except BaseException as failure:
            self.failure = failure

    def _ask(self, target: str, body: object) -> Any:
        self._wire.send("POST", target, dumps(body), JSON)
        answer = self._wire.receive()
        assert answer.status in (200, 201), answer
        return answer.json

    def _append(self, kind: str, number: int) -> None:
        texts = [f"{kind}/{number}/{i}".ljust(number % 7 * 100, "x") for i in range(number % 3 + 1)]
        self.tried.update(texts)
        told = self._ask(f"/v0/topics/{kind}", {"records": [{"data": text} for text in texts]})
        self.acked[kind] |= dict(zip(told["seqs"], texts, strict=True))

    def _delete_half(self, number: int) -> None:
        """The oldest half of what is in the `fsync` topic; it has no part in what is compared."""
        before = max(self.acked["fsync"]) // 2
        self._ask("/v0/topics/fsync/delete", {"before_seq": before})
        self.deleted = before - 1

    def snapshot(self) -> tuple[int, dict[str, dict[int, str]]]:
        """Through which seq the `fsync` topic is deleted, and what was acknowledged, by now."""
        return self.deleted, {kind: dict(found) for kind, found in self.acked.items()}


def judge(api: Api, deleted: int, acked: dict[str, dict[int, str]], tried: set[str]) -> None:
    """`fsync` lost nothing, `disk` and `memory` an end at most, with a report; nothing is invented
    and nothing deleted is back."""
    for kind in CLASSES:
        walked = api.walk(kind, limit=1000)
        found = {each["$seq"]: each["data"] for each in walked if "$seq" in each}
        stones = [each for each in walked if "$seq" not in each]
        assert set(found.values()) <= tried
        known = acked[kind]
        assert all(found[seq] == known[seq] for seq in found.keys() & known.keys()), kind
        if kind == "fsync":
            assert not stones
            assert min(found) > deleted
            missing = known.keys() - found.keys()
            assert all(seq <= deleted or seq < min(found) for seq in missing), missing
        else:
            assert list(found) == list(range(1, len(found) + 1)), kind
            assert [stone["reason"] for stone in stones] == ["crash"]
            (stone,) = stones
            assert stone["gap_from"] == len(found) + 1
            assert stone["gap_to"] >= max(known)


@pytest.mark.parametrize(
    "options", ["commit=1", "commit=1000", "commit=1,data=writeback", "commit=1000,data=journal"]
)
def test_the_power_is_cut(tmp_path: Path, options: str, is_full: bool) -> None:
    """Thirty cuts with each of the options that change when ext4 writes what; one by default."""
    cuts = 30 if is_full else 1
    settings = {"wal_file_bytes": 1 << 20, "segment_max_records": 128, "reserve_bytes": 1 << 20}
    with (
        machine(tmp_path, options) as found,
        Server(tmp_path / "home", data_dir=found.data, **settings) as server,
    ):
        api = Api(server.connect(Http1))
        for kind in CLASSES:
            api.put(kind, durability=kind)
        writer = Writer(server)
        writer.start()
        try:
            for turn in range(cuts):
                enough = len(writer.acked["fsync"]) + 20 + turn * 7 % 90
                until(
                    "some writes",
                    lambda n=enough: len(writer.acked["fsync"]) >= n or not writer.is_alive(),
                )
                assert writer.failure is None
                deleted, acked = writer.snapshot()
                with found.cut() as data:
                    started_and_judged(tmp_path, data, settings, deleted, acked, writer)
        finally:
            writer.is_over.set()
            writer.join()
        assert writer.failure is None
        assert server.stop() == 0


def started_and_judged(
    home: Path,
    data: Path,
    settings: dict[str, int],
    deleted: int,
    acked: dict[str, dict[int, str]],
    writer: Writer,
) -> None:
    host = booted_again(home)
    with Server(home / "again", host, data_dir=data, **settings) as server:
        tried = set(writer.tried)
        judge(Api(server.connect(Http1)), deleted, acked, tried)
        assert server.stop() == 0
        server.assert_log_is_quiet()
