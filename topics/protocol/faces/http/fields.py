"""Fields that the bodies and answers of several nouns share."""

from typing import Annotated, Any, Final, Literal

from msgspec import Meta, Raw, UnsetType

from topics.protocol.model.limits import (
    META_KEYS_MAX,
)
from topics.protocol.model.tags import MATCH_TYPES

Natural = Annotated[int, Meta(ge=0)]
ABSENT: Final[Any] = None
"""Of a field that is kept as text: none was given.  Not an empty `Raw`, which has no place in a
schema."""
AnyJson = Annotated[Raw, Meta(description="Any JSON value; kept byte for byte.")]
MetaObject = Annotated[
    Raw, Meta(extra_json_schema={"type": ["object", "null"], "maxProperties": META_KEYS_MAX})
]
_PAIR: Final = {
    **{"type": "array", "minItems": 2, "maxItems": 2},
    "items": {"description": "A name, then its value."},
}
Pairs = Annotated[Raw, Meta(extra_json_schema={"type": ["array", "null"], "items": _PAIR})]
TagPattern = Annotated[Raw, Meta(extra_json_schema={"anyOf": [*MATCH_TYPES, {"type": "null"}]})]
Seq = Annotated[int, Meta(ge=1, description="The record's number in its topic.")]
Ts = Annotated[int, Meta(ge=0, description="When it was appended, milliseconds since 1970.")]
Node = Annotated[str | UnsetType, Meta(description="Who wrote it; absent where no name was given.")]
FormOf = Annotated[
    Literal["text", "base64", "null"] | UnsetType,
    Meta(description="What `data` stand for, where a client of Kafka's wrote what is no JSON."),
]
KeyOf = Annotated[
    str | UnsetType,
    Meta(description="Its key in base64, where tags are asked for; absent where it is the tag."),
]
TimeOf = Annotated[
    int | UnsetType, Meta(description="The time of its producer; absent where it is `$ts`.")
]
HeadersOf = Annotated[
    list[Any] | UnsetType,
    Meta(
        description="Its headers as pairs of a name and a value, where `meta` cannot hold them.",
        extra_json_schema={"items": _PAIR},
    ),
]
Tag = Annotated[str | UnsetType, Meta(description="Its tag, where asked for; absent where none.")]
TopicName = Annotated[str, Meta(description="The topic's name.")]
HeadSeq = Annotated[int, Meta(ge=0, description="The greatest number given out; 0: none.")]
EarliestSeq = Annotated[
    int, Meta(ge=1, description="The first record that is there; `head_seq + 1`: none.")
]
Count = Annotated[int, Meta(ge=0, description="Records that are there.")]
Bytes = Annotated[int, Meta(ge=0, description="Their size as they are served.")]
DiskBytes = Annotated[
    int,
    Meta(
        ge=0,
        description="What its records take in segment files, deleted ones included until their "
        "file is rewritten; what is only in the log does not count.",
    ),
]
Epoch = Annotated[str, Meta(description="Which instance of the name this is.")]
Ms = Annotated[float, Meta(ge=0)]
NextCursor = Annotated[
    str | UnsetType, Meta(description="Where to go on, as `?cursor=`; absent on the last page.")
]
Data = Annotated[Any, Meta(description="As it was written, byte for byte.")]
MetaData = Annotated[
    dict[str, Any] | UnsetType, Meta(description="As it was written; absent where none.")
]
