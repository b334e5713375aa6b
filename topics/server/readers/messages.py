"""What the engine's process and a reader say to each other, but for what goes over their link.

Owns the messages and their bytes.
"""

from pathlib import Path
from typing import Final, TypeAlias

import msgspec

from topics.protocol.driver.streams import LentSession
from topics.server.access.keys import Entry
from topics.server.service.clients import ClientPage, ClientsAsked
from topics.settings import TABLE, Settings

# ---------------------------------------------------------------------- to a reader


class Hello(msgspec.Struct, frozen=True):
    """The first message.

    Attributes:
        settings: See `settings_of`.
    """

    index: int
    readers: int
    has_keys: bool
    settings: bytes


class Keys(msgspec.Struct, frozen=True, array_like=True, tag=0):
    """The keys in force."""

    entries: list[Entry]


class HeadsMoved(msgspec.Struct, frozen=True, array_like=True, tag=1):
    """The shared heads show more."""


class Elsewhere(msgspec.Struct, frozen=True, array_like=True, tag=2):
    """How many requests of each key are in flight in other processes, by its name."""

    counts: dict[str, int]


class Release(msgspec.Struct, frozen=True, array_like=True, tag=3):
    """Hold no file of the erasure of this number, nor of one before."""

    number: int


class Rest(msgspec.Struct, frozen=True, array_like=True, tag=4):
    """Files were unlinked: close what is not read."""


class Recall(msgspec.Struct, frozen=True, array_like=True, tag=5):
    """Another stream of a session takes over elsewhere: it comes back."""

    wid: str
    number: int


class End(msgspec.Struct, frozen=True, array_like=True, tag=6):
    """A session is the engine's again; `why` names a `StreamEnd`."""

    wid: str
    number: int
    why: str


class Lent(msgspec.Struct, frozen=True, array_like=True, tag=7):
    """A session, where there was one to lend.

    Attributes:
        asked: The number of the `Borrow`; 0 where it goes with a connection.
        entry: The key whose it is.
        number: Which loan it is.
    """

    asked: int
    image: LentSession | None = None
    entry: Entry | None = None
    number: int = 0


class Drain(msgspec.Struct, frozen=True, array_like=True, tag=8):
    """The server stops."""


class Crowded(msgspec.Struct, frozen=True, array_like=True, tag=9):
    """A crowd writes, or does not any more: whether a connection stays in a reader that writes."""

    is_crowded: bool


class AskClients(msgspec.Struct, frozen=True, array_like=True, tag=10):
    """Who is connected there?"""

    number: int
    asked: ClientsAsked


# ---------------------------------------------------------------------- of a reader


class Serving(msgspec.Struct, frozen=True, array_like=True, tag=16):
    """It serves from now on."""


class Stats(msgspec.Struct, frozen=True, array_like=True, tag=17):
    """What metrics tell of it.

    Attributes:
        answers: Of the requests that it has answered since it told them last; see
            `measures.RequestMeasures.take`.
    """

    requests: int
    relayed: int
    connections: int
    cpu_s: float
    hot_bytes: int
    answers: bytes


class ReadTimes(msgspec.Struct, frozen=True, array_like=True, tag=18):
    """When topics were read there that the engine was not told of yet, by id."""

    at_ms: dict[int, int]


class InFlightCounts(msgspec.Struct, frozen=True, array_like=True, tag=19):
    """How many requests of each key are in flight there, by its name."""

    counts: dict[str, int]


class KeyFailures(msgspec.Struct, frozen=True, array_like=True, tag=20):
    """Requests with unknown keys, by address."""

    counts: dict[str, int]


class Borrow(msgspec.Struct, frozen=True, array_like=True, tag=21):
    """It asks for a session, to serve a stream of it for a key."""

    asked: int
    wid: str
    caller: str


class Returned(msgspec.Struct, frozen=True, array_like=True, tag=22):
    """It gives a session back."""

    image: LentSession
    number: int


class Forgotten(msgspec.Struct, frozen=True, array_like=True, tag=23):
    """It has forgotten a session, as the engine does in time."""

    wid: str
    number: int


class Released(msgspec.Struct, frozen=True, array_like=True, tag=24):
    """It holds no file of this erasure."""

    number: int


class ToldClients(msgspec.Struct, frozen=True, array_like=True, tag=25):
    """The clients that were asked for by that number."""

    number: int
    page: ClientPage


ToReader: TypeAlias = (
    Keys
    | HeadsMoved
    | Elsewhere
    | Release
    | Rest
    | Recall
    | End
    | Lent
    | Drain
    | Crowded
    | AskClients
)
FromReader: TypeAlias = (
    Serving
    | Stats
    | ReadTimes
    | InFlightCounts
    | KeyFailures
    | Borrow
    | Returned
    | Forgotten
    | Released
    | ToldClients
)

_encode: Final = msgspec.msgpack.Encoder(enc_hook=str).encode
encode: Final = msgspec.msgpack.Encoder().encode
decode_to_reader: Final = msgspec.msgpack.Decoder(ToReader).decode
decode_from_reader: Final = msgspec.msgpack.Decoder(FromReader).decode
decode_hello: Final = msgspec.msgpack.Decoder(Hello).decode


def pack_settings(settings: Settings) -> bytes:
    """Settings as a reader gets them: without keys, of which it is told those in force."""
    values = {setting.name: getattr(settings, setting.name) for setting in TABLE}
    return _encode(values | {"api_keys": None, "api_keys_file": None})


def settings_of(packed: bytes) -> Settings:
    return _decode_settings(packed)


def _path(kind: type, text: str) -> Path:
    assert issubclass(kind, Path)
    return Path(text)


_decode_settings: Final = msgspec.msgpack.Decoder(Settings, dec_hook=_path).decode
