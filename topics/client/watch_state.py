"""`WatchState`: what a watch asks for next, what the frames mean, how far they were handed out.

Owns a watch's life over any number of connections and watch sessions: a session is posted, its
stream is opened and read until it ends, and is opened again after a pause; where the server has
forgotten the session, a new one takes its place (§7.1-§7.6).  It does no I/O: a `Watch` or an
`AsyncWatch` carries its calls and bytes.  Invariant: `cursor` covers exactly the items that were
handed out.  So no item is handed out twice, and none is missing without a `Tombstone`.

Each partition of a topic has a place of its own, by the name that it has in an id: `orders`, `orders#1`.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar, Unpack

import msgspec

from topics.client import endpoints
from topics.client.answer import Answer
from topics.client.call import Call, Numbered, Outcome
from topics.client.errors import PartitionRequired, TopicsError
from topics.client.faults import Broken, Fault
from topics.client.hooks import require_hook
from topics.client.models import (
    PartitionPosition,
    Record,
    RecordHead,
    Tombstone,
    TopicGone,
    Watched,
    WatchPosition,
    WatchSession,
)
from topics.client.options import Begin, WatchOptions, require
from topics.client.retry import (
    Attempts,
    Clock,
    Retry,
    StreamAttempts,
    is_worth_repeating,
    server_pause_s,
)
from topics.client.sse import Event, EventParser, Parsed, Reconnect
from topics.client.streams import (
    ADVISORY,
    PASSING,
    decode_event,
    error_of_end,
    fault_of,
    is_payload,
    is_stream,
    parse,
    pause_before_reconnect_s,
    reconnect_s,
)

R = TypeVar("R")

WatchTopics = str | Mapping[str, int | Begin] | Iterable[str]
"""A topic's name, several names, or several names each with its beginning; an integer is a
`from_seq`."""

HEARTBEAT_MS_MAX: Final = 60_000
"""The longest heartbeat that a server grants, for an answer that does not name it (§7.2)."""
SLACK_S: Final = 5.0
"""On top of two heartbeats without a byte, after which a connection counts as lost (§7.6)."""

MAP_TOPICS_MAX: Final = 64
"""Topics, partitions counted as such, up to which an id is a map by name, and not a list (§7.4)."""
PARTITION_MARK: Final = "#"
"""Stands between a topic and the number of its partition, in ids and positions (§7.2)."""

_STARTS: Final = frozenset({"from_seq", "from_ts", "tail"})
"""Options that name a place; of these, a topic's own beginning overrides the watch's."""
_FORGOTTEN: Final = frozenset({404, 410})
"""The server does not know the watch session any more, and a new one is posted (§7.4)."""


class _Frame(msgspec.Struct, Generic[R]):
    topic: str
    records: list[R]
    from_seq: int
    to_seq: int
    head_seq: int
    partition: int = 0


class _Named(msgspec.Struct):
    topic: str
    head_seq: int = 0
    partition: int = 0


_Position = WatchPosition | PartitionPosition


@dataclass(slots=True)
class _Place:
    """How far one topic, or partition, was handed out, and of which of its instances."""

    topic: str
    partition: int
    seq: int
    head_seq: int = 0
    epoch: str | None = None

    def advance(self, position: _Position) -> None:
        self.seq = max(self.seq, position.from_seq)
        self.head_seq = position.head_seq
        self.epoch = position.epoch


@dataclass(frozen=True, slots=True)
class _Midway:
    """A frame of which the first `count` records were handed out; `name` is its place's."""

    name: str
    data: bytes
    count: int


class WatchState(Generic[R]):
    """One watch, for a loop that does its I/O:

        while not is_over:
            while call := call():      send it, give the outcome to `posted`, pause
            hand out `pending_items()`
            open `stream()`; if `opens()`, hand out `take()` of each piece while `is_listening`
            give the outcome to `ended`, pause

    Any step may raise `TopicsError`, which ends the loop; begun again, it goes on where it was.

    Of a session of many topics the ids are no cursor: a list holds for the same topics only, and one
    of them may be gone when the next session is posted.  The positions by topic do instead.

    Attributes:
        is_over: All topics were deleted; no item will come.
        is_listening: The stream has not had its last event.
    """

    def __init__(
        self,
        topics: Sequence[WatchTopics],
        record_type: type[R],
        *,
        retry: Retry,
        clock: Clock,
        include_data: bool = True,
        **options: Unpack[WatchOptions],
    ) -> None:
        require(WatchOptions, options, "watch()")
        kind: Any = record_type
        if not include_data and kind is Record:
            kind = RecordHead
        self._frames: type[_Frame[R]] = _Frame[kind]
        self._retry = retry
        self._clock = clock
        self._begins = _begins(topics, options)
        self._connection = options.pop("connection", None)
        require_hook("connection", self._connection)
        self._is_lenient = options.pop("lenient", False)
        self._id, self._ahead = _parse_cursor(options.pop("cursor", None))
        own = Begin.__annotations__
        self._options = {name: value for name, value in options.items() if name not in own}
        self._options["include_data"] = include_data
        self._places: dict[str, _Place] | None = None
        self._ended: set[str] = set()
        """Places of which this stream has said that nothing more comes."""
        self._names: set[str] = set()
        """Of the session's places, those that have ended included."""
        self._gives_places = False
        """A topic has more partitions than when it was watched first: where to go on is said for each by name."""
        self._last_heads: dict[str, int] = {}
        """Of topics that are gone in part: the last heads of their first partitions."""
        self._session: WatchSession | None = None
        self._was_opened = False
        self._parser = EventParser()
        self._midway: _Midway | None = None
        self._pending: list[Watched[R]] = []
        self._attempts: Attempts | None = None
        self._stream_attempts = StreamAttempts(retry, clock)
        self._is_reposted = False
        self._has_list_ids = False
        self._has_heard = False
        self._is_lost = False
        self._fault: TopicsError | None = None
        self._pause_s = 0.0
        self.is_over = False
        self.is_listening = False

    @property
    def names(self) -> list[str]:
        """The topics that are watched, as the program named them."""
        return list(self._begins)

    @property
    def cursor(self) -> str | None:
        """Where to go on after the item that was handed out last; None before the first session.

        At the end of a frame it is the frame's id.  Within a frame, and before the first, it also
        names the topics that are further than the id.
        """
        event_id = None if self._has_list_ids else self._id
        ahead = dict(self._ahead)
        if event_id is None:
            ahead |= {name: place.seq for name, place in (self._places or {}).items()}
        if self._midway is not None:
            ahead[self._midway.name] = _seqs(self._midway.data)[self._midway.count - 1]
        return _cursor(event_id, ahead)

    # ------------------------------------------------------------------ sessions

    def call(self) -> Call[WatchSession] | None:
        """The session to post; None where there is one."""
        if self._was_opened and self._id is None:
            # The server may have counted a frame as sent that never arrived, and without an id it
            # cannot be asked to go back (§7.4).  A new session begins behind what was handed out.
            self._session = None
        call = self._post()
        if self._attempts is None:
            self._attempts = Attempts(call, self._retry, self._clock)
        return call if self._session is None else None

    def _post(self) -> Call[WatchSession]:
        if self._places is None:
            begins = {n: Begin(**{**b, **self._seen(n)}) for n, b in self._begins.items()}
            reached = self._ahead
        else:
            reached = {name: place.seq for name, place in self._places.items()}
            begins = {
                place.topic: _from(self._begins[place.topic], place.seq)
                for place in self._places.values()
            }
        cursor = None if self._has_list_ids else self._id
        return endpoints.create_watch(
            begins,
            cursor=cursor or (dict(reached) if self._gives_places else _partitioned(reached)),
            options=self._options,
            # A topic that was deleted meanwhile becomes a `TopicGone`, and no error.
            lenient=self._is_lenient or self._places is not None,
        )

    def _seen(self, name: str) -> Begin:
        return _from({}, self._ahead[name]) if name in self._ahead else {}

    def posted(self, call: Call[WatchSession], outcome: Outcome) -> float:
        """Take the outcome of posting a session; seconds to wait before the next step."""
        if isinstance(outcome, Fault) or not outcome.is_success:
            if self._has_more_partitions(call, outcome):
                self._gives_places = True
                return 0.0
            return self._failed(call, outcome, is_worth=is_worth_repeating(call, outcome))
        self._session = call.result(outcome)
        at = dict(_positions(self._session, self._asked_for))
        self._names = {_name(*which) for which in at}
        self._has_list_ids |= len(at) > MAP_TOPICS_MAX
        self._was_opened = False
        if self._places is None:
            self._places = {}
        else:
            self._check_places(self._places, at)
        for (topic, partition), position in at.items():
            name = _name(topic, partition)
            if name not in self._places:
                seq = max(position.from_seq, self._ahead.get(name, 0))
                head_seq, epoch = position.head_seq, position.epoch
                self._places[name] = _Place(topic, partition, seq, head_seq, epoch)
        self.is_over = not self._places
        return 0.0

    @property
    def _asked_for(self) -> Collection[str]:
        """The topics that are watched, but for those that are gone."""
        if self._places is None:
            return self._begins.keys()
        return {place.topic for place in self._places.values()}

    def _has_more_partitions(self, call: Call[WatchSession], outcome: Outcome) -> bool:
        """Whether the seq of a topic was refused that had one partition when it was reached."""
        if self._gives_places or not (self._places or self._ahead):
            return False
        return isinstance(error_of_end(call, outcome), PartitionRequired)

    def _check_places(
        self, places: dict[str, _Place], at: Mapping[tuple[str, int], _Position]
    ) -> None:
        """Note what became of the topics since the old session, which the new one does not know.

        A topic that was deleted and created again is read from its start.  That takes another
        session, because the cursor that this one began with belongs to the old instance (§3.3).
        """
        renewed = False
        for name, place in list(places.items()):
            position = at.get((place.topic, place.partition))
            if position is None:
                self._pending += self._drop(places, name, place.head_seq)
            elif place.epoch is None or place.epoch == position.epoch:
                place.advance(position)
            else:
                renewed = True
                place.seq = position.earliest_seq - 1
                place.head_seq, place.epoch = position.head_seq, position.epoch
                self._pending.append(_item(place, _recreated(position)))
        if renewed:
            self._session, self._id = None, None
            self._ahead.clear()

    def pending_items(self) -> Iterator[Watched[R]]:
        """The items that a new session brought to light."""
        while self._pending:
            yield self._pending.pop(0)

    # ------------------------------------------------------------------ streams

    def stream(self) -> tuple[Call[bytes], float]:
        """The stream to open, and the seconds without a byte after which it counts as lost."""
        assert self._session is not None
        self._was_opened = True
        self._ended.clear()
        self._parser = EventParser()
        self._has_heard = False
        self._fault = None
        self.is_listening = True
        heartbeat_ms = self._session.heartbeat_ms or HEARTBEAT_MS_MAX
        read_timeout_s = 2 * heartbeat_ms / 1000 + SLACK_S
        return endpoints.open_watch(self._session.wid, self._id), read_timeout_s

    def opens(self, response: Answer) -> bool:
        """Whether an answer is a stream to read on; else it is for `ended`, with its body."""
        self._stream_attempts.opened()
        return is_stream(response)

    def take(self, piece: bytes) -> Iterator[Watched[R]]:
        """The items that a piece of the stream brings; to be handed out to the last one."""
        for parsed in parse(self._parser, piece):
            self._hear(parsed)
            match parsed:
                case Reconnect():
                    self._pause_s = reconnect_s(parsed)
                case Event(kind="record"):
                    yield from self._records(parsed)
                case Event(kind="tombstone"):
                    yield from self._tombstone(parsed)
                case Event(kind="topic-deleted"):
                    yield from self._gone(parsed)
                case Event(kind="error"):
                    self._end(fault_of(parsed))
                case Event():
                    self._id = parsed.id
            if not self.is_listening:
                return

    def _hear(self, parsed: Parsed) -> None:
        """Note that the server sent something: a failure after this has attempts of its own."""
        self._stream_attempts.heard(brings=is_payload(parsed))
        self._has_heard = True
        self._attempts = None
        self._is_reposted = False
        if self._is_lost:
            self._is_lost = False
            if self._connection is not None:
                self._connection(None)

    def ended(self, call: Call[bytes], outcome: Outcome) -> float:
        """Take the outcome of a stream; seconds to wait before the next step."""
        self.is_listening = False
        if self._has_heard:
            why = self._fault or error_of_end(call, outcome)
            pause_s = pause_before_reconnect_s(self._pause_s, self._fault, self._retry, self._clock)
            if not self._stream_attempts.goes_on(outcome, pause_s):
                raise why
            self._lose(why)
            return pause_s
        if not isinstance(outcome, Fault) and outcome.status_code in _FORGOTTEN:
            self._session = None
            if not self._is_reposted:
                self._is_reposted = True
                return 0.0
            return self._failed(call, outcome, is_worth=True)
        if not isinstance(outcome, Fault) and outcome.is_success:
            # The connection broke before the first byte of the stream, as any other may.
            outcome = Broken("the stream ended before it began")
        return self._failed(call, outcome, is_worth=is_worth_repeating(call, outcome))

    def _failed(self, call: Call[Any], outcome: Outcome, *, is_worth: bool) -> float:
        """The pause before another attempt.

        Raises:
            TopicsError: This was the last one.
        """
        attempts, self._attempts = self._attempts, None
        assert attempts is not None
        pause_s = None
        if is_worth:
            pause_s = attempts.next_pause_s(max(server_pause_s(outcome), self._pause_s))
        if pause_s is None:
            raise error_of_end(call, outcome)
        self._attempts = attempts
        self._lose(error_of_end(call, outcome))
        return pause_s

    def _lose(self, why: TopicsError) -> None:
        if not self._is_lost:
            self._is_lost = True
            if self._connection is not None:
                self._connection(why)

    # ------------------------------------------------------------------ frames

    def _records(self, event: Event) -> Iterator[Watched[R]]:
        frame = decode_event(self._frames, event.data)
        name = _name(frame.topic, frame.partition)
        place = self._find(name) or self._join(name, frame.topic, frame.partition)
        if place is None:
            self._id = event.id
            return
        first = 0
        if frame.from_seq < place.seq:
            first = bisect_right(_seqs(event.data), place.seq)
        last = len(frame.records) - 1
        for index in range(first, last):
            self._midway = _Midway(name, event.data, index + 1)
            yield _item(place, frame.records[index])
        self._reach(event, name, frame.to_seq, frame.head_seq)
        if first <= last:
            yield _item(place, frame.records[last])

    def _tombstone(self, event: Event) -> Iterator[Watched[R]]:
        stone, named = decode_event(Tombstone, event.data), decode_event(_Named, event.data)
        name = _name(named.topic, named.partition)
        place = self._find(name) or self._join(name, named.topic, named.partition)
        if place is None:
            self._id = event.id
        elif stone.reason == "recreated":
            # Its `gap_to` is the head of the new instance, whose records are still to come (§3.3).
            place.seq, place.epoch = stone.earliest_seq - 1, None
            self._ahead.pop(name, None)
            self._reach(event, name, place.seq, stone.head_seq)
            yield _item(place, stone)
        else:
            seen_seq = place.seq
            self._reach(event, name, stone.gap_to, stone.head_seq)
            if stone.gap_to > seen_seq:
                yield _item(place, _after(seen_seq, stone))

    def _gone(self, event: Event) -> Iterator[Watched[R]]:
        named = decode_event(_Named, event.data)
        self._id = event.id
        name = _name(named.topic, named.partition)
        self._ended.add(name)
        if self._places is None or name not in self._places:
            return
        items = self._drop(self._places, name, named.head_seq)
        self.is_over = not self._places
        self.is_listening = not self.is_over
        yield from items

    def _drop(self, places: dict[str, _Place], name: str, head_seq: int) -> list[Watched[R]]:
        """A topic, or a partition, is gone: a `TopicGone`, where none of the topic's is left."""
        place = places.pop(name)
        self._ahead.pop(name, None)
        topic = place.topic
        if not place.partition:
            self._last_heads[topic] = head_seq
        if any(each.topic == topic for each in places.values()):
            return []
        return [Watched(topic, TopicGone(head_seq=self._last_heads.pop(topic, head_seq)))]

    def _find(self, name: str) -> _Place | None:
        """The place of a topic, or a partition; None after its end, also where one of its name exists again."""
        return None if self._places is None else self._places.get(name)

    def _join(self, name: str, topic: str, partition: int) -> _Place | None:
        """The place of a partition that its topic got while it is watched, or of one that was made again; None
        where the topic is gone."""
        places = self._places
        if places is None or name in self._ended:
            return None
        if all(each.topic != topic for each in places.values()):
            return None
        places[name] = place = _Place(topic, partition, self._ahead.get(name, 0))
        self._names.add(name)
        self._has_list_ids |= len(self._names) > MAP_TOPICS_MAX
        return place

    def _reach(self, event: Event, name: str, seq: int, head_seq: int) -> None:
        """Note that a place is handed out through `seq`, with the item that comes next."""
        assert self._places is not None
        place = self._places[name]
        place.seq, place.head_seq = max(place.seq, seq), head_seq
        if self._ahead.get(name, 0) <= seq:
            self._ahead.pop(name, None)
        self._midway = None
        self._id = event.id

    def _end(self, fault: TopicsError) -> None:
        """Take an `error` event; raises it where a new connection would meet it again."""
        if fault.status == ADVISORY:
            return
        self.is_listening = False
        self._fault = fault
        if fault.status in _FORGOTTEN:
            self._session = None
        elif fault.status not in PASSING:
            raise fault


def _begins(topics: Sequence[WatchTopics], options: WatchOptions) -> dict[str, Begin]:
    """The beginning of each topic: its own, completed by that of the watch."""
    rest: Any = options
    shared = {name: rest[name] for name in Begin.__annotations__ if rest.get(name) is not None}
    begins: dict[str, Begin] = {}
    for topic in topics:
        for name, own in _named(topic):
            drop = _STARTS if own.keys() & _STARTS else frozenset()
            kept = {key: value for key, value in shared.items() if key not in drop}
            begins[name] = Begin(**{**kept, **own})  # type: ignore[typeddict-item]
    return begins


def _named(topic: WatchTopics) -> Iterator[tuple[str, Begin]]:
    """Names, each with its own beginning.

    Raises:
        TypeError: Neither a name nor several, or no place to begin.
    """
    if isinstance(topic, str):
        topic = {topic: Begin()}
    elif not isinstance(topic, Mapping):
        topic = {name: Begin() for name in topic}
    for name, begin in topic.items():
        own: Any = Begin(from_seq=begin) if isinstance(begin, int) else begin
        if not isinstance(name, str) or not isinstance(own, Mapping):
            raise TypeError(f"expected a topic's name and where it begins: {name!r}, {own!r}")
        require(Begin, own, f"the beginning of {name!r}")
        yield name, own  # type: ignore[misc]


def _name(topic: str, partition: int) -> str:
    """What a partition is called in an id: the first is the topic itself."""
    return f"{topic}{PARTITION_MARK}{partition}" if partition else topic


def _partitioned(reached: Mapping[str, int]) -> dict[str, int] | None:
    """The places of topics with several partitions, as a session's `cursor`; None where there are none."""
    topics = {name.partition(PARTITION_MARK)[0] for name in reached if PARTITION_MARK in name}
    found = {n: seq for n, seq in reached.items() if n.partition(PARTITION_MARK)[0] in topics}
    return found or None


def _positions(
    session: WatchSession, topics: Collection[str]
) -> Iterator[tuple[tuple[str, int], _Position]]:
    """Where a session stands in each partition, of topics that were asked for."""
    for topic, position in session.topics.items():
        if topic not in topics:
            continue
        if not position.partitions:
            yield (topic, 0), position
        for each in position.partitions:
            yield (topic, each.partition), each


def _item(place: _Place, item: R | Tombstone | TopicGone) -> Watched[R]:
    watched = Watched(place.topic, item)
    if place.partition:
        watched.partition = place.partition
    return watched


def _from(begin: Begin, seq: int) -> Begin:
    """The same beginning, but from the seq that was reached."""
    kept = {name: value for name, value in begin.items() if name not in _STARTS}
    return Begin(**{**kept, "from_seq": seq})  # type: ignore[typeddict-item]


def _cursor(event_id: str | None, ahead: Mapping[str, int]) -> str | None:
    """An event id and the topics that are ahead of it, as text; an id alone is its own cursor."""
    if not ahead:
        return event_id
    text = urlsafe_b64encode(msgspec.json.encode(ahead)).decode().rstrip("=")
    return f"{event_id or ''}.{text}"


def _parse_cursor(text: str | None) -> tuple[str | None, dict[str, int]]:
    event_id, _, encoded = (text or "").partition(".")
    if not encoded:
        return event_id or None, {}
    try:
        ahead = msgspec.json.decode(urlsafe_b64decode(encoded + "=="), type=dict[str, int])
    except ValueError:
        raise ValueError(f"{text!r} is not the cursor of a watch") from None
    return event_id or None, ahead


def _seqs(data: bytes) -> list[int]:
    """The seqs of a record frame, ascending, whatever its records are decoded into."""
    return [record.seq for record in decode_event(_Frame[Numbered], data).records]


def _recreated(position: _Position) -> Tombstone:
    return Tombstone(
        gap_from=1,
        gap_to=position.head_seq,
        reason="recreated",
        missed_estimate=position.head_seq,
        earliest_seq=position.earliest_seq,
        head_seq=position.head_seq,
    )


def _after(seq: int, stone: Tombstone) -> Tombstone:
    """The part of a loss that this watch had not handed out before."""
    if stone.gap_from > seq:
        return stone
    return msgspec.structs.replace(
        stone, gap_from=seq + 1, missed_estimate=min(stone.missed_estimate, stone.gap_to - seq)
    )
