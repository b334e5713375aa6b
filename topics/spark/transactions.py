"""What was written already: the markers of an application, and the stamps of its chunks.

A write with `txnAppId` and `txnVersion`, and every batch of a stream, is a transaction.  It is done
once for each topic that it writes to, so a marker is one of an application and a topic.  It is a
record of the topic `spark.txn` with the application as its tag and as its data

    {"app": "nightly", "done": 41, "begun": 42, "topics": {"orders": 480000}, "rows": 1200,
     "topic": "orders", "epoch": "94ff038b3cf73fc9-1"}

`done` is the last version that the topic has as a whole, `begun` the one that it may have in part,
`topics` where that version ended in it.  `epoch` is the topic's instance: a marker says nothing of a
topic that was deleted and created again.  Of an application's markers of a topic the newest counts.

A marker without `topic` is one of the whole application: the column `topic` of a batch decides where
its rows go, so that nothing else is known when it begins; a stream's batch with that column is done
for all topics at once.  Earlier versions of this program wrote no other markers.  Theirs are good for
the topics that they name.  To any other topic their versions may have been written or not: there the
stamps decide, whatever their age.

A chunk that is sent again is known by its idempotency key for as long as the topic remembers keys
(§0.8).  After that it is found by the stamp in its first record's `meta`.
"""

import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import msgspec

from topics.client import Client, Forbidden, RawRecord, Tombstone, TopicNotFound
from topics.client.endpoints import append_batch
from topics.client.options import WriteOptions as AppendWriteOptions
from topics.spark.encoding import STAMP
from topics.spark.errors import SparkFailure

NONE: Final = -1
BEHIND_MAX: Final = 64
"""Markers that were overtaken and may lie behind one that counts, before that one is written anew."""
ROWS_MAX: Final = 1 << 63
ENTRY_MAX: Final = 5000
"""Markers of one entry; more are several."""


class Marker(msgspec.Struct, frozen=True):
    """How far an application came in a topic; with `topic` None, as a whole.

    Attributes:
        of_seq, at_ms: Of a marker that was written anew: the seq and the server's time of the first.
    """

    app: str
    done: int = NONE
    begun: int = NONE
    topics: dict[str, int] = {}
    rows: int = 0
    topic: str | None = None
    epoch: str = ""
    of_seq: int = 0
    at_ms: int = 0


@dataclass(frozen=True, slots=True)
class Placed:
    """A marker that counts, where it is in `spark.txn`, and the server's time of it, milliseconds since
    the epoch."""

    marker: Marker
    seq: int
    at_ms: int

    @property
    def age(self) -> int:
        """The order of markers: a marker that was written anew is as old as the first."""
        return self.marker.of_seq or self.seq


@dataclass(frozen=True, slots=True)
class TopicVersion:
    """How a version stands in a topic.

    Attributes:
        since_ms: When the version may first have been tried there, the server's time; 0: unknown.
    """

    is_done: bool
    since_ms: int


@dataclass(frozen=True, slots=True)
class Known:
    """The markers of an application.

    Attributes:
        placed: By topic; None: of the application as a whole.
        through: The last seq of its records; 0: there is none.
        behind: How many of its records were overtaken.
    """

    app: str
    placed: Mapping[str | None, Placed] = field(default_factory=dict)
    through: int = 0
    behind: int = 0

    @property
    def whole(self) -> Marker:
        """The marker of the application as a whole; where there is none, one that says nothing."""
        found = self.placed.get(None)
        return Marker(self.app) if found is None else found.marker

    @property
    def is_only_begun(self) -> bool:
        """Whether the marker of the application as a whole is there and says of nothing that it is done."""
        return None in self.placed and self.whole.done == NONE

    def of(self, topic: str, epoch: str) -> Marker:
        """The marker of an instance of a topic; where there is none, one that says nothing."""
        found = self._of(topic, epoch)
        if found is not None:
            return found.marker
        whole = self.whole
        done = whole.done if topic in whole.topics else NONE
        return Marker(self.app, done, NONE, topic=topic, epoch=epoch)

    def _of(self, topic: str, epoch: str) -> Placed | None:
        found = self.placed.get(topic)
        return found if found is not None and _is_same(found.marker.epoch, epoch) else None

    def standing(self, topic: str, epoch: str, version: int) -> TopicVersion:
        """How a version stands in an instance of a topic."""
        if version <= self.of(topic, epoch).done:
            return TopicVersion(True, 0)
        if version <= self.whole.done and topic not in self.whole.topics:
            return TopicVersion(False, 0)
        found = [each for each in (self._of(topic, epoch), self.placed.get(None)) if each]
        if any(each.marker.begun > version for each in found):
            return TopicVersion(False, 0)
        began = [each.at_ms for each in found if each.marker.begun == version]
        if began:
            return TopicVersion(False, min(began))
        # A stream's batch, which begins once the one before it is done.
        before = [each.at_ms for each in self.placed.values() if each.marker.begun < version]
        return TopicVersion(False, max(before, default=0))


def _is_same(marked: str, epoch: str) -> bool:
    """Whether a marker's instance of a topic is the one that is there.

    A restored directory gives all its topics other epochs, and keeps what is behind the dash.
    """
    return not marked or marked == epoch or marked.rpartition("-")[2] == epoch.rpartition("-")[2]


_marker: Final = msgspec.json.Decoder(Marker).decode


def find(client: Client, txn_topic: str, app: str) -> Known:
    """The markers of an application.

    Raises:
        SparkFailure: A marker does not parse.
        TopicsError: The server refused, or could not be reached.
    """
    placed: dict[str | None, Placed] = {}
    through = count = 0
    try:
        for item in client.read(txn_topic, match=("tag", "Eq", app), record_type=RawRecord):
            if isinstance(item, Tombstone):
                continue
            found = _placed(txn_topic, app, item)
            through, count = item.seq, count + 1
            before = placed.get(found.marker.topic)
            if before is None or before.age <= found.age:
                placed[found.marker.topic] = found
    except TopicNotFound:
        pass
    return Known(app, placed, through, count - len(placed))


def _placed(txn_topic: str, app: str, record: RawRecord) -> Placed:
    try:
        marker = _marker(bytes(record.data))
    except msgspec.DecodeError as error:
        what = f'{txn_topic}: record {record.seq} is no marker of "{app}": {error}'
        raise SparkFailure(what) from None
    return Placed(marker, record.seq, marker.at_ms or record.ts_ms)


def put(
    client: Client,
    txn_topic: str,
    known: Known,
    markers: Iterable[Marker],
    *,
    key: str | None = None,
    drops_whole: bool = False,
) -> None:
    """Append markers as one entry, and delete those that they overtake where the key may delete.

    What another writer of the application has appended since `known` was read stays.

    Args:
        key: Where several tasks append the same, they say so by one key.
        drops_whole: The marker of the application as a whole counts no more.
    """
    made = list(markers)
    named = {each.topic for each in made} | ({None} if drops_whole else set())
    left = [each for topic, each in known.placed.items() if topic not in named]
    bound = min((each.seq for each in left), default=known.through + 1)
    is_heap = known.behind + len(known.placed) - len(left) > BEHIND_MAX + len(left)
    if is_heap or (drops_whole and known.placed[None].seq > bound):
        # One idle topic would keep all that is behind its marker from deletion.
        made += [_anew(each) for each in left]
        bound = known.through + 1
    for at in range(0, len(made), ENTRY_MAX):
        records = [_record(each) for each in made[at : at + ENTRY_MAX]]
        entry_key = f"{key or secrets.token_hex(16)}:{at}"
        client.session.do(append_batch(txn_topic, records, entry_key, AppendWriteOptions()))
    if bound > 1 and known.placed:
        try:
            client.delete(txn_topic, before_seq=bound, match=("tag", "Eq", known.app))
        except Forbidden:
            return


def _anew(each: Placed) -> Marker:
    return msgspec.structs.replace(each.marker, of_seq=each.age, at_ms=each.at_ms)


def _record(marker: Marker) -> bytes:
    data, tag = msgspec.json.encode(marker), msgspec.json.encode(marker.app)
    return b'{"data":%b,"tag":%b}' % (data, tag)


def stamps(
    client: Client, topic: str, app: str, version: int, since_ms: int
) -> dict[tuple[int, str], int]:
    """The chunks (part, name) of a version that a topic has, among its records since a time, and how many
    rows each has: as many as there may be where an earlier version of this program did not say."""
    found: dict[tuple[int, str], int] = {}
    try:
        for item in client.read(topic, from_ts=since_ms, record_type=RawRecord):
            if isinstance(item, RawRecord) and STAMP.encode() in bytes(item.meta):
                stamp: Any = msgspec.json.decode(item.meta).get(STAMP)
                if not isinstance(stamp, Mapping) or stamp.get("t", topic) != topic:
                    continue
                if (stamp.get("a"), stamp.get("v")) == (app, version):
                    found[stamp["p"], stamp["c"]] = stamp.get("n", ROWS_MAX)
    except TopicNotFound:
        return found
    return found
