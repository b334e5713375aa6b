"""Words that fields of several bodies share.

Which fields there are, and their types, come from the bodies themselves; here is what a type cannot say.  A
fragment is JSON schema: a description, a default that is not null, which the document puts into words, and bounds
that no setting moves.  Bounds that only clamp are described in words, since a greater number is no error (§0.3); so
are rules between fields, of which generators of clients make types that nobody can fill in.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET

from topics.protocol.model.config import PARTITIONS_MAX
from topics.protocol.model.limits import FRAME_BYTES_DEFAULT, LIMIT_DEFAULT
from topics.protocol.model.names import TOPIC_PATTERN

Fragment: TypeAlias = dict[str, Any]

Fields: TypeAlias = Mapping[str, Fragment]

TOPIC: Final[Fragment] = {"pattern": f"^{TOPIC_PATTERN}$"}
PARTITION: Final[Fragment] = {"maximum": PARTITIONS_MAX - 1}


def says(description: str, more: Fragment | None = None, **bounds: object) -> Fragment:
    return {"description": description, **(more or {}), **bounds}


def defaults(config: msgspec.Struct, words: Fields) -> Fields:
    """Words with the defaults that a config resolves to; null is none worth telling."""
    known = msgspec.structs.asdict(config)
    # Sent where it was left out, the default of these would mean something else: another type, or
    # the last word over `durable`.
    for name in ("type", "durability"):
        known.pop(name, None)
    return {
        name: said if known.get(name) in (None, UNSET) else {**said, "default": known[name]}
        for name, said in words.items()
    }


MATCH: Final = says(
    "Only tags that match: `Eq` is this tag, `Glob` all that begin with what stands before the "
    "last `*`; a string is `Glob` if it ends in `*`, else `Eq`. At most 16 KiB of text."
)

BEGIN: Final[Fields] = {
    "from_seq": says("Records after this number; 0, as absent, is the earliest there is."),
    "from_ts": says("Instead of `from_seq`: from the first record at or after this time."),
    "match": MATCH,
    "node": says("One name or a list: leave out what they wrote."),
}

VIEW: Final[Fields] = {
    "node": BEGIN["node"],
    "match": MATCH,
    "limit": says(
        "Records in one frame; at most `max_limit`, 0: as absent.", default=LIMIT_DEFAULT
    ),
    "max_batch_bytes": says(
        "Bytes in one frame, at most 8388608; the first record always fits.",
        default=FRAME_BYTES_DEFAULT,
    ),
    "include_tags": says("Show `$tag`.", default=False),
    "include_meta": says("Show `meta`.", default=True),
    "include_data": says("Show `data`.", default=True),
    "consistency": says("`strong`: only what is on the disk.", default="eventual"),
}
