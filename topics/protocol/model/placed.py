"""Where the records of one append went in a topic of several partitions, as its idempotency key remembers it."""

from collections.abc import Sequence

import msgspec
import numpy as np


class PartitionSpan(msgspec.Struct, frozen=True, array_like=True):
    """Seqs [first_seq, first_seq + count) of one partition."""

    partition: int
    first_seq: int
    count: int

    @property
    def last_seq(self) -> int:
        return self.first_seq + self.count - 1


class Placed(msgspec.Struct, frozen=True, array_like=True):
    """The records of one append.

    Attributes:
        spans: By partition; within each, records keep their order.
        order: Of which span each record is, in the order in which they came: a byte each, two where there are
            more than 256 spans; empty where there is one.
    """

    spans: Sequence[PartitionSpan]
    order: bytes = b""

    @classmethod
    def of(cls, spans: Sequence[PartitionSpan], rows: Sequence[Sequence[int]]) -> "Placed":
        """The same, where `rows` says which records are of each span."""
        if len(spans) == 1:
            return cls(spans)
        order = np.empty(sum(map(len, rows)), _width(len(spans)))
        for nth, each in enumerate(rows):
            order[each] = nth
        return cls(spans, order.tobytes())

    def seqs(self) -> list[int]:
        """The seq of each record, in the order in which they came."""
        if not self.order:
            (span,) = self.spans
            return [*range(span.first_seq, span.last_seq + 1)]
        order = np.frombuffer(self.order, _width(len(self.spans)))
        seqs = np.empty(len(order), np.int64)
        for nth, span in enumerate(self.spans):
            seqs[order == nth] = np.arange(span.first_seq, span.last_seq + 1)
        found: list[int] = seqs.tolist()
        return found


def _width(spans: int) -> str:
    return "<u1" if spans <= 256 else "<u2"


encode_placed = msgspec.msgpack.Encoder().encode
decode_placed = msgspec.msgpack.Decoder(Placed).decode
