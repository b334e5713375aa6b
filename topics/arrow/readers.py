"""Named readers: how far each has come, as records of the topic `topics.readers`.

A reader whose cursor lies elsewhere (a stream's checkpoint, an export's manifest) publishes here how
far it came, so that others can see its lag and wait for it before they delete.  A record of the topic
has the reader's name as its tag and as its data

    {"reader": "billing", "topics": {"orders": {"seq": 480000, "epoch": "2b4f57fe9e64a177-1"}}}

where `seq` is the last record that the reader has dealt with.  Of a reader's records the last one
counts for each topic that it names.  So several streams can be one reader, each of topics of its own.
"""

from collections.abc import Mapping
from contextlib import suppress
from typing import Final

import msgspec

from topics.arrow.columns import schema
from topics.arrow.loss import Gap
from topics.arrow.source import NoSuchTopic, TopicSource, Wanted
from topics.client import Client, RawRecord, TopicNotFound

READERS: Final = "topics.readers"


class Position(msgspec.Struct, frozen=True):
    """How far a reader came in a topic: through `seq` of its instance `epoch`."""

    seq: int
    epoch: str = ""


class _Published(msgspec.Struct):
    reader: str
    topics: dict[str, Position]


_decode: Final = msgspec.json.Decoder(_Published).decode


def publish(client: Client, reader: str, positions: Mapping[str, Position]) -> None:
    """Say how far a reader came; its earlier records are deleted.

    What they say of other topics stays.  Of two streams of one reader that publish at once, one may
    repeat an older position of the other's topics until that publishes again: a position is never
    ahead of its stream.

    Raises:
        TopicsError: The server refused, or could not be reached.
    """
    whose = ("tag", "Eq", reader)
    before: dict[str, Position] = {}
    with suppress(TopicNotFound):
        for item in client.read(READERS, match=whose, record_type=RawRecord):
            if isinstance(item, RawRecord) and (said := _said(bytes(item.data))) is not None:
                before |= said.topics if said.reader == reader else {}
    appended = client.append(READERS, _Published(reader, {**before, **positions}), tag=reader)
    client.delete(READERS, before_seq=appended.first_seq, match=whose)


def positions(source: TopicSource) -> dict[str, dict[str, Position]]:
    """What is published, by reader and topic; empty where nothing is.

    Records of another form are passed over: the topic is anyone's to write.
    """
    found: dict[str, dict[str, Position]] = {}
    try:
        bounds = source.bounds(READERS)
    except NoSuchTopic:
        return found
    wanted = Wanted(schema(["data"]))
    for batch in source.read(READERS, bounds.earliest_seq, bounds.head_seq, wanted):
        if isinstance(batch, Gap):
            continue
        for text in batch.column("data").to_pylist():
            if (said := _said(text)) is not None:
                found.setdefault(said.reader, {}).update(said.topics)
    return found


def _said(text: str | bytes) -> _Published | None:
    try:
        return _decode(text)
    except msgspec.DecodeError:
        return None
