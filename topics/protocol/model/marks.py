"""What the head of a record says of a record of Kafka's beside its node: form, key, time and headers.

An append may give them, so that what was read can be appended again, and a client of Kafka's gets equal bytes.
"""

from base64 import b64decode
from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.records import HAS_KEY

_KEY: Final = b',"$key":"'


class Mark(NamedTuple):
    """Of one record.

    Attributes:
        head: Stands in its head behind `$node`, with the leading comma.
        form: Bits of `records.FORMED`.
    """

    head: bytes
    form: int

    @property
    def key(self) -> bytes | None:
        """The key that is no tag; None where there is none."""
        if not self.form & HAS_KEY:
            return None
        begin = self.head.index(_KEY) + len(_KEY)
        return b64decode(self.head[begin : self.head.index(b'"', begin)])


def forms_of(marks: Sequence[Mark | None]) -> NDArray[np.uint8]:
    """The column of a batch."""
    return np.fromiter((0 if mark is None else mark.form for mark in marks), np.uint8, len(marks))
