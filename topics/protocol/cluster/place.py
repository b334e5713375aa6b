"""A node's place in the log that nodes share, as an event of its own log, and back.

Owns the translation and no decision.  A place in a store is always that right behind a unit, so it has
no parts, and nothing behind it was read.
"""

from topics.protocol.cluster.rule.replica import Mark, Place
from topics.protocol.cluster.rule.unit import LOCAL_EVENTS, Shard
from topics.protocol.model.codec import CODES, FRAME_HEADER, Frames
from topics.protocol.model.events import LogPlace, PlaceReached

_LOCAL_CODES = frozenset(CODES[event] for event in LOCAL_EVENTS)


def event_of(place: Place, mark: Mark, now_ms: int) -> PlaceReached:
    """What a node's own log holds behind a unit."""
    return PlaceReached(now_ms, _log_place(place), _log_place(mark.place), mark.epoch)


def place_of(event: PlaceReached | None, shard: Shard) -> tuple[Place, Mark]:
    """Place and mark of a store; those before all of an empty one."""
    if event is None:
        zero = Place.before_all(shard)
        return zero, Mark(zero)
    return _place(event.place), Mark(_place(event.mark), event.epoch)


def _log_place(place: Place) -> LogPlace:
    return LogPlace(place.term, place.seen, place.index, place.chain, place.offset)


def _place(place: LogPlace) -> Place:
    term, seen, index = place.term, place.seen, place.index
    return Place(term, seen, index, place.chain, place.offset, place.offset)


def shared(frames: Frames) -> tuple[int, bytes]:
    """How many of these frames belong into the shared log, and their bytes; the others are this
    node's own."""
    kept, count, left = [], 0, 0
    is_local = False
    for part in frames.parts:
        if not part:
            continue  # the padding of a text that needs none
        if not left:
            left, code, *_ = FRAME_HEADER.unpack_from(part)
            is_local = code in _LOCAL_CODES
            count += not is_local
        left -= len(part)
        if not is_local:
            kept.append(part)
    assert not left
    return count, b"".join(kept)
