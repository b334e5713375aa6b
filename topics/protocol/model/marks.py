"""What the head of a record says of a record of Kafka's beside its node: form, key, time and headers.

An append may give them, so that what was read can be appended again, and a client of Kafka's gets equal bytes.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray


class Mark(NamedTuple):
    """Of one record.

    Attributes:
        head: Stands in its head behind `$node`, with the leading comma.
        form: Bits of `records.FORMED`.
    """

    head: bytes
    form: int


def forms_of(marks: Sequence[Mark | None]) -> NDArray[np.uint8]:
    """The column of a batch."""
    return np.fromiter((0 if mark is None else mark.form for mark in marks), np.uint8, len(marks))
