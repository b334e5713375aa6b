"""A store of each kind, and a sealed run for tests."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from topics.store.store import DiskStore

from .ledger import HotRun, entry_of


@dataclass
class World:
    """A store of one kind, and how to open it again as the next process would."""

    store: Any
    again: Callable[[], Any] | None = None


def small(files: Any) -> DiskStore:
    return DiskStore(files, wal_file_bytes=64 << 10, reserve_bytes=64 << 10)


@dataclass(frozen=True)
class Match:
    lower: bytes
    upper: bytes | None
    exact: bool = True
    suffix: bytes = b""

    def accepts(self, tag: bytes) -> bool:
        return tag.endswith(self.suffix)


TAGS = ["b", None, "a", "ab", "ba", "a", "ä", None, "abc", "b"]


TEXTS = [b'{"$seq":%d,"data":%s}' % (seq, b"x" * seq) for seq in range(1, 11)]


def sealed(store: Any, *, kill: list[int] = ()) -> Any:  # type: ignore[assignment]
    run = HotRun(1, TEXTS, tags=TAGS, nodes=["w-2", "w-1", None] * 3)
    run.delete(np.array(kill, np.int64))
    [ref] = store.seal([entry_of(run)])
    return store.open_run(ref, 1)
