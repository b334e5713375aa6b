"""`x-topics-position`: how far the log had come when a write was answered, as a client carries it.

Owns the text of a position, `shard.index`.  A client sends the greatest that it was given, and a read on
any node shows at least that much.
"""

import re
from typing import Final

import msgspec

from topics.protocol.faces.http.decoding import invalid

_POSITION: Final = re.compile(rb"(\d{1,10})\.(\d{1,20})")


class Position(msgspec.Struct, frozen=True):
    """Unit `index` of a shard."""

    shard: int
    index: int

    @property
    def text(self) -> bytes:
        return b"%d.%d" % (self.shard, self.index)


def parse_position(text: bytes, *, shard: int, path: str = "x-topics-position") -> int:
    """The index of a position of this shard, which came in a header or in a field, `path`.

    Raises:
        Rejection: 400: it is none, and a read that ignored it would promise what it does not hold.
    """
    found = _POSITION.fullmatch(text.strip())
    if found is None:
        raise invalid("expected shard.index, as an answer had it", path)
    if int(found[1]) != shard:
        raise invalid(f"there is no shard {int(found[1])}", path)
    return int(found[2])
