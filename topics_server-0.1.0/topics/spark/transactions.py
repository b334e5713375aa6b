"""What was written already: the marker of an application, and the stamps of its chunks.

A write with `txnAppId` and `txnVersion`, and every batch of a stream, is a transaction.  Its marker is
a record of the topic `spark.txn` with the application as its tag and as its data

    {"app": "nightly", "done": 41, "begun": 42, "topics": {"orders": 480000}, "rows": 1200}

`done` is the last version that was written as a whole, `begun` the one that may have been written in
part, `topics` where that version ended in each topic that it wrote to.  The newest record counts.

A chunk that is sent again is known by its idempotency key for as long as the topic remembers keys
(§0.8).  After that it is found by the stamp in its first record's `meta`.
"""

from collections.abc import Mapping
from typing import Any, Final

import msgspec

from topics.client import Client, Forbidden, RawRecord, Tombstone, TopicNotFound
from topics.client.endpoints import append_batch
from topics.client.options import WriteOptions as AppendWriteOptions
from topics.spark.errors import SparkFailure

NONE: Final = -1
STAMP: Final = "_topics_spark"


class Marker(msgspec.Struct, frozen=True):
    """How far an application came."""

    app: str
    done: int = NONE
    begun: int = NONE
    topics: dict[str, int] = {}
    rows: int = 0


class Known(msgspec.Struct, frozen=True):
    """The newest marker and the server's time of it, milliseconds since the epoch."""

    marker: Marker
    at_ms: int


_marker: Final = msgspec.json.Decoder(Marker).decode


def find(client: Client, txn_topic: str, app: str) -> Known | None:
    """The newest marker of an application; None: it has written nothing yet.

    Raises:
        SparkFailure: A marker does not parse.
        TopicsError: The server refused, or could not be reached.
    """
    newest: RawRecord | None = None
    try:
        for item in client.read(txn_topic, match=("tag", "Eq", app), record_type=RawRecord):
            if not isinstance(item, Tombstone):
                newest = item
    except TopicNotFound:
        return None
    if newest is None:
        return None
    try:
        return Known(_marker(bytes(newest.data)), newest.ts_ms)
    except msgspec.DecodeError as error:
        raise SparkFailure(
            f'{txn_topic}: record {newest.seq} is no marker of "{app}": {error}'
        ) from None


def put(client: Client, txn_topic: str, marker: Marker) -> None:
    """Append a marker; those before it are deleted where the key may delete.

    Sent again by another process it is the same marker, and the newest of two counts.
    """
    data = msgspec.json.encode(marker)
    record = b'{"data":%b,"tag":%b}' % (data, msgspec.json.encode(marker.app))
    key = f"spark-txn:{marker.app}:{marker.done}:{marker.begun}"
    call = append_batch(txn_topic, [record], key, AppendWriteOptions())
    appended = client.session.do(call)
    try:
        client.delete(txn_topic, before_seq=appended.first_seq, match=("tag", "Eq", marker.app))
    except Forbidden:
        return


def stamps(
    client: Client, topic: str, app: str, version: int, since_ms: int
) -> set[tuple[int, str]]:
    """The chunks (part, name) of a version that a topic has, among its records since a time."""
    found: set[tuple[int, str]] = set()
    try:
        for item in client.read(topic, from_ts=since_ms, record_type=RawRecord):
            if isinstance(item, RawRecord) and STAMP.encode() in bytes(item.meta):
                stamp: Any = msgspec.json.decode(item.meta).get(STAMP)
                if isinstance(stamp, Mapping) and (stamp.get("a"), stamp.get("v")) == (
                    app,
                    version,
                ):
                    found.add((stamp["p"], stamp["c"]))
    except TopicNotFound:
        return found
    return found
