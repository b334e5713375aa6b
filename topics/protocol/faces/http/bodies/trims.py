"""The body about a cluster's log: how much of it is to go."""

from typing import Final

import msgspec

from topics.protocol.faces.http.bodies.checks import u64
from topics.protocol.faces.http.bodies.types import TrimBody
from topics.protocol.faces.http.decoding import decode, invalid
from topics.protocol.model.records import Buffer

_TRIM: Final = msgspec.json.Decoder(TrimBody)


def parse_trim(body: Buffer) -> TrimBody:
    """How far to trim; an empty body says nothing.

    Raises:
        Rejection: 400.
    """
    asked = decode(_TRIM, body or b"{}")
    if asked.before is not None:
        u64(asked.before, "$.before")
        if asked.now:
            raise invalid("before and now exclude each other", "$.now")
    return asked
