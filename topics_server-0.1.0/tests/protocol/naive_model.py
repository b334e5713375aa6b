"""A topic as the contract tells it, in a few lines of lists: slow, obvious, and the judge of the real one.

Owns the rules of loss and removal (§3.3, §5) for one topic whose records all have the same size.
"""

from dataclasses import dataclass, field
from typing import Any


@dataclass
class Row:
    seq: int
    ts_ms: int
    tag: str | None
    node: str | None
    gone: str | None = None
    """None while it is live; else `deleted`, `cap` or `ttl`."""


@dataclass
class Model:
    """State after the same calls that the real topic got."""

    now_ms: int
    cap: int = 0
    ttl_ms: int = 0
    rows: list[Row] = field(default_factory=list)

    @property
    def head_seq(self) -> int:
        return len(self.rows)

    def live(self) -> list[Row]:
        """What is there now, after what time took."""
        self._expire()
        return [row for row in self.rows if row.gone is None]

    def _expire(self) -> None:
        for row in self.rows:
            is_old = self.ttl_ms and self.now_ms - row.ts_ms > self.ttl_ms
            if is_old and row.gone is None:
                row.gone = "ttl"

    def _evict(self) -> None:
        live = self.live()
        if self.cap and len(live) > self.cap:
            for row in live[: len(live) - self.cap]:
                row.gone = "cap"

    def append(self, tags: list[str | None], node: str | None) -> None:
        self._expire()
        for tag in tags:
            self.rows.append(Row(self.head_seq + 1, self.now_ms, tag, node))
        self._evict()

    def configure(self, cap: int, ttl_ms: int) -> None:
        self._expire()
        self.cap = cap
        self._evict()
        self.ttl_ms = ttl_ms
        self._expire()

    def delete(self, before_seq: int | None, tag: str | None, *, prefix: bool = False) -> int:
        chosen = [
            row
            for row in self.live()
            if (before_seq is None or row.seq < before_seq)
            and (tag is None or _has_tag(row, tag, prefix))
        ]
        for row in chosen:
            row.gone = "deleted"
        return len(chosen)

    def purge(self, keep: int) -> int:
        live = self.live()
        return self.delete(live[-keep].seq, None) if 0 < keep <= len(live) else self._all(keep)

    def _all(self, keep: int) -> int:
        return 0 if keep else self.delete(self.head_seq + 1, None)

    @property
    def evict_floor(self) -> int:
        return max((row.seq for row in self.rows if row.gone in ("cap", "ttl")), default=0) + 1

    @property
    def earliest_seq(self) -> int:
        live = self.live()
        return live[0].seq if live else self.head_seq + 1

    def read(self, from_seq: int, *, node: str | None = None) -> dict[str, Any]:
        """What a read without a limit tells."""
        self._expire()
        stone = None
        if from_seq + 1 < self.evict_floor:
            stone = (from_seq + 1, self.earliest_seq - 1, self._reason(from_seq))
        found = [
            row.seq
            for row in self.live()
            if row.seq > from_seq and (node is None or row.node != node)
        ]
        return {"tombstone": stone, "seqs": found, "earliest_seq": self.earliest_seq}

    def _reason(self, from_seq: int) -> str:
        causes = {
            row.gone for row in self.rows if row.seq > from_seq and row.gone in ("cap", "ttl")
        }
        return causes.pop() or "" if len(causes) == 1 else "mixed"


def _has_tag(row: Row, tag: str, prefix: bool) -> bool:
    return row.tag is not None and (row.tag.startswith(tag) if prefix else row.tag == tag)
