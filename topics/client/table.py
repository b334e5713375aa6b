# Generated from aiotable.py by topics/client/_generate.py; do not edit, run `make generate`.
"""`Table`: a topic as values by key, each the newest record of its tag; `Client.table` makes it.

Owns which tag a key has, and how long values are kept.  A reader that waits for keys holds one request until the
next record comes, and does not look again and again.
"""

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from itertools import takewhile
from typing import Any, Final, Generic, TypeVar

from topics.client import endpoints
from topics.client.endpoints import WAIT_MS_MAX
from topics.client.errors import Forbidden, RecordNotFound, TopicNotFound
from topics.client.models import Appended, NewRecord, Record, TopicState
from topics.client.names import tag_for
from topics.client.options import Config, DiffOptions, Match
from topics.client.session import Session

D = TypeVar("D")

FIRST_TTL_MS: Final = 86_400_000
"""How long a table that is created keeps values with a `ttl_ms`; longer, where a value is to be kept for longer."""
FOREVER_MS: Final = 2**63
CREATED: Final = "topics.table.created"
"""The tag of the record that creates a table for a reader, and is deleted at once."""


def now_ms() -> float:
    """The wall clock, milliseconds since the epoch."""
    return time.time() * 1000


class Table(Generic[D]):
    """Values by key, in a topic that is created when it is first written.

        table = client.table("sessions")
        table.put("ada", {"cart": [7]}, ttl_ms=3_600_000)
        found = table.get("ada")        # a Record, or None

    A key may be any text.  The config of a topic that exists is left as it is, but for its `ttl_ms`: that is raised
    where a value is to be kept for longer.
    """

    def __init__(
        self,
        session: Session,
        topic: str,
        record_type: type[Record[D]],
        config: Config,
        now_ms: Callable[[], float] = now_ms,
    ) -> None:
        self.topic = topic
        self._session = session
        self._record_type = record_type
        self._config: Config = {"compact": True, **config}
        self._now_ms = now_ms
        self._kept_ms = 0
        """How long the topic keeps records, as far as this table knows."""

    def put(self, key: str, value: Any, *, ttl_ms: int | None = None) -> int:
        """Set the value of a key; returns its sequence number.

        Args:
            ttl_ms: How long the value is shown; by default for as long as the topic keeps it.
        """
        meta = None if ttl_ms is None else {"ttl_ms": ttl_ms}
        if ttl_ms is not None:
            self.keep(ttl_ms)
        record = NewRecord(value, tag=tag_for(key), meta=meta)
        return (self._append(record)).first_seq

    def get(self, key: str) -> Record[D] | None:
        """The record of a key; None where there is none, or its time is over."""
        try:
            call = endpoints.latest(self.topic, self._record_type, tag=tag_for(key))
            (found,) = (self._session.do(call)).records
        except (RecordNotFound, TopicNotFound):
            return None
        return found if self.is_shown(found) else None

    def delete(self, key: str) -> None:
        """Delete the value of a key, if it has any."""
        with suppress(TopicNotFound):
            self._delete(tag_for(key))

    def _append(self, record: NewRecord) -> Appended:
        call = endpoints.append(self.topic, [record], {"config": self._config})
        return self._session.do(call)

    def _delete(self, tag: str) -> None:
        call = endpoints.delete(self.topic, before_seq=None, match=("tag", "Eq", tag))
        self._session.do(call)

    def _state(self) -> TopicState:
        return self._session.do(endpoints.topic(self.topic, touch=False))

    def is_shown(self, record: Record[D]) -> bool:
        """Whether it is a value whose `ttl_ms` is not over, and no deletion mark."""
        if record.form == "null":
            return False
        ttl_ms = (record.meta or {}).get("ttl_ms")
        return ttl_ms is None or record.ts_ms + ttl_ms > self._now_ms()

    def changes(self, keys: Iterable[str]) -> "TableChanges[D]":
        """What is put under keys, from what they have now on; none of it is missed.

        changes = table.changes(["ada"])
        while not (found := changes.next(wait_ms=10_000)):
            ...
        """
        return TableChanges(self, self._session, self._record_type, keys)

    def keep(self, ttl_ms: int) -> None:
        """Have the topic keep values for so long, or longer; it is created where it is missing."""
        while self._kept_ms < ttl_ms:
            try:
                state = self._state()
            except TopicNotFound:
                first_ms = self._config.get("ttl_ms", FIRST_TTL_MS)
                self._config["ttl_ms"] = max(ttl_ms, first_ms) if first_ms else 0
                self.create()
                continue
            kept_ms = state.config.ttl_ms or FOREVER_MS
            if kept_ms < ttl_ms:
                config = endpoints.merged(state.config, {"ttl_ms": ttl_ms})
                self._session.do(endpoints.put_topic(self.topic, config))
            else:
                self._kept_ms = kept_ms

    def create(self) -> int:
        """Create the topic where it is missing, and change nothing of one that exists; its newest sequence number."""
        try:
            return (self._state()).head_seq
        except TopicNotFound:
            # An append creates a topic or changes nothing; a `PUT` could undo the config of another process.
            done = self._append(NewRecord(None, tag=CREATED))
            with suppress(Forbidden, TopicNotFound):
                self._delete(CREATED)
            return done.last_seq


class TableChanges(Generic[D]):
    """What is put under some keys: what `Table.changes` returns, for one thread."""

    def __init__(
        self,
        table: Table[D],
        session: Session,
        record_type: type[Record[D]],
        keys: Iterable[str],
    ) -> None:
        self._table = table
        self._session = session
        self._record_type = record_type
        self._keys = {tag_for(key): key for key in keys}
        self._cursor: int | None = None
        self._epoch: str | None = None

    def leave_out(self, key: str) -> None:
        """Ask no more for a key."""
        self._keys.pop(tag_for(key), None)

    def next(self, wait_ms: int) -> dict[str, Record[D]]:
        """Keys with their new values: at first those that are there, later those that were put since.

        Args:
            wait_ms: How long to wait for any, at most 30,000; the first time it does not wait.
        """
        if self._cursor is None:
            # The log is read after its head, so no value is missed.
            self._cursor = self._table.create()
            return self._known()
        options: DiffOptions = {
            "from_seq": self._cursor,
            "epoch": self._epoch,
            "match": self._match(),
            "include_tags": True,
            "wait_ms": min(wait_ms, WAIT_MS_MAX),
        }
        call = endpoints.diff(self._table.topic, self._record_type, options)
        page = self._session.do(call)
        self._cursor, self._epoch = page.next_from_seq, page.epoch
        return {
            self._keys[record.tag]: record
            for record in page.records
            if record.tag in self._keys and self._table.is_shown(record)
        }

    def _known(self) -> dict[str, Record[D]]:
        found = {}
        for key in list(self._keys.values()):
            if (record := self._table.get(key)) is not None:
                found[key] = record
        return found

    def _match(self) -> Match | None:
        if len(self._keys) == 1:
            return ("tag", "Eq", next(iter(self._keys)))
        pairs = zip(min(self._keys, default=""), max(self._keys, default=""), strict=False)
        common = "".join(one for one, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        return ("tag", "Glob", f"{common}*") if common else None
