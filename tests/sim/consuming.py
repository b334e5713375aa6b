"""A consumer of Kafka's within a world of producers: what it was shown once stays where it was, and what is gone stays gone.

It looks at any moment, also before a write or a sync ends, from any offset and for as little as it likes; a page of HTTP
beside it has the same records.
"""

import random
from collections.abc import Callable
from typing import Any

from protocol.consumer import Consumed, consume
from protocol.harness import Harness

from topics.protocol.batches.header import BatchError
from topics.protocol.model.commands import FindPlaces

from .lives import Broken, Bug, Patch, require


class Consumer:
    """What one consumer was shown, over all lives.

    Args:
        dice: Where it begins, and how much it asks for.
    """

    def __init__(self, dice: random.Random) -> None:
        self.dice = dice
        self.seen: dict[int, Consumed] = {}
        self.dying: set[int] = set()
        """Offsets of records whose delete is not durable yet."""
        self.gone: set[int] = set()
        """Offsets of records that were deleted for good."""

    def look(self, engine: Harness, *, from_start: bool = False) -> list[Consumed]:
        """Read to the end.  Raises Broken."""
        places: Any = engine.ask(FindPlaces([("t", False)]))
        start, end = places.places[0].start_seq - 1, places.places[0].head_seq
        offset = start if from_start else self.dice.randint(start, end)
        try:
            found = consume(engine, offset, budget=self.dice.choice((0, 100, 1000, 1 << 20)))
        except (BatchError, IndexError, ValueError, AssertionError) as error:
            raise Broken(f"a consumer cannot read on: {error!r}") from error
        offsets = [each.offset for each in found]
        require(offsets == sorted(set(offsets)), "records come in another order, or twice")
        for each in found:
            require(each.offset < end, "a record is shown beyond the high watermark")
            require(each.offset not in self.gone, "a deleted record is shown")
            known = self.seen.setdefault(each.offset, each)
            require(known == each, "another record is at an offset")
        missing = {at for at in self.seen if offset <= at} - set(offsets) - self.dying - self.gone
        require(not missing, f"what was shown is not there any more: {sorted(missing)}")
        self._compare(engine, offset, end, found)
        return found

    @staticmethod
    def _compare(engine: Harness, offset: int, end: int, found: list[Consumed]) -> None:
        shown = [
            (record["$seq"] - 1, str(record["data"]).encode())
            for record in engine.diff(offset, limit=1000)["records"]
            if record["$seq"] <= end  # a page that waits for a thread may show more
        ]
        known = [(each.offset, each.value) for each in found]
        require(
            known[: len(shown)] == shown, f"a page of HTTP has other records: {shown}, not {known}"
        )

    def delete(self, engine: Harness, key: bytes) -> None:
        """Every record of a key, and what that means once it is durable."""
        hit = {each.offset for each in self.look(engine, from_start=True) if each.key == key}
        self.dying |= hit
        engine.delete(match=key.decode())
        self.look(engine)
        engine.sync()
        self.dying -= hit
        self.gone |= hit


def shown_beyond_the_head(patch: Patch) -> None:
    """What is not written yet is fetched, too."""
    from topics.protocol.decide import fetches

    own = fetches._behind

    def behind(topic: Any, *given: Any, **named: Any) -> Any:
        shown, topic.published_seq = topic.published_seq, topic.head_seq
        try:
            return own(topic, *given, **named)
        finally:
            topic.published_seq = shown

    patch.setattr(fetches, "_behind", behind)


def shown_before_it_is_written(patch: Patch) -> None:
    """The head moves to what is decided, for both faces."""
    from topics.protocol.state.topic import Topic

    kept = property(lambda self: self.head_seq, lambda *_: None)
    patch.setattr(Topic, "published_seq", kept, raising=False)


def offsets_shifted_by_a_delete(patch: Patch) -> None:
    """What is left of a batch is numbered from where its last record was, back."""

    def moved(data: bytearray, kept: Any) -> bytearray:
        import struct

        (base,) = struct.unpack_from(">q", data)
        struct.pack_into(">q", data, 0, base + int(len(kept) - kept.sum()))
        return data

    _cut(patch, lambda own, data, kept: moved(own(), kept))


def dead_row_in_a_batch(patch: Patch) -> None:
    _cut(patch, lambda own, data, kept: data)


def crc_not_renewed(patch: Patch) -> None:
    def kept_crc(made: bytearray, data: Any) -> bytearray:
        made[17:21] = bytes(data[17:21])
        return made

    _cut(patch, lambda own, data, kept: kept_crc(own(), data))


def _cut(patch: Patch, other: Callable[..., Any]) -> None:
    """Have the rest of a batch made otherwise."""
    from topics.protocol.batches import shown

    own = shown.without

    def without(data: Any, kept: Any, **named: Any) -> Any:
        return other(lambda: own(data, kept, **named), data, kept)

    patch.setattr(shown, "without", without)


def text_before_batches(patch: Patch) -> None:
    """Within an answer, runs of text come before runs of batches."""
    from topics.protocol.decide import fetches
    from topics.protocol.model.fetched import TextBatch

    own = fetches._behind

    def behind(*given: Any, **named: Any) -> Any:
        found = own(*given, **named)
        ordered = sorted(found.pieces, key=lambda piece: not isinstance(piece, TextBatch))
        return found._replace(pieces=ordered)

    patch.setattr(fetches, "_behind", behind)


def acknowledged_before_it_is_sound(patch: Patch) -> None:
    from topics.protocol.batches import sound

    patch.setattr(sound, "require_sound", lambda data, *_: len(data))


def empty_batch_passes_over_the_living(patch: Patch) -> None:
    """A look that ended at its bound says that nothing is left up to the head."""
    from topics.protocol.decide import fetches
    from topics.protocol.model.fetched import NoRecords

    own = fetches._behind

    def behind(topic: Any, *given: Any, **named: Any) -> Any:
        found = own(topic, *given, **named)
        if len(found.pieces) == 1 and isinstance(found.pieces[0], NoRecords):
            whole = NoRecords(found.pieces[0].after_seq, topic.published_seq)
            found = found._replace(pieces=(whole,))
        return found

    patch.setattr(fetches, "_behind", behind)
    patch.setattr(fetches, "CUTS_MAX", 1)


BUGS = (
    Bug(shown_beyond_the_head, "a consumer cannot read on"),
    Bug(shown_before_it_is_written, "what is not written yet is shown"),
    Bug(offsets_shifted_by_a_delete, "another record is at an offset"),
    Bug(dead_row_in_a_batch, "a deleted record is shown"),
    Bug(crc_not_renewed, "a consumer cannot read on: .*CRC"),
    Bug(text_before_batches, "a consumer cannot read on"),
    Bug(acknowledged_before_it_is_sound, "sent record .* is the next"),
    Bug(empty_batch_passes_over_the_living, "what was shown is not there any more", 1),
)
