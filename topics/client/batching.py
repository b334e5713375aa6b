"""`Batcher`: any number of values as appends of bounded size.

Owns where one batch ends and the next begins, and the keys.  Sends nothing: the client sends each
call and gives back its answer.
"""

import os
from collections.abc import Callable
from typing import Any, Final, Unpack

from topics.client import endpoints
from topics.client.call import Call
from topics.client.encoding import Default, encode_record
from topics.client.models import Appended, AppendedMany
from topics.client.options import Config, WriteOptions, require

BATCH_RECORDS: Final = 1000
BATCH_BYTES: Final = 8 << 20
"""An eighth of the 64 MiB that a server takes by default: a batch is one frame of the log, and is
sent as a whole again where an attempt fails."""


class Batcher:
    """Gathers records into batches, each under a key of its own, and adds up their answers.

    The n-th batch has the key `{key_prefix}{n}`, so the same records in the same batches under the
    same prefix are appended once, however often they are sent within the topic's window (§0.8).
    """

    def __init__(
        self,
        topic: str,
        *,
        batch_records: int = BATCH_RECORDS,
        batch_bytes: int = BATCH_BYTES,
        key_prefix: str | None = None,
        progress: Callable[[Appended], None] | None = None,
        default: Default | None = None,
        **options: Unpack[WriteOptions],
    ) -> None:
        require(WriteOptions, options, "append_many()")
        require(Config, options.get("config") or {}, "config of an append")
        if batch_records < 1 or batch_bytes < 1:
            raise ValueError("a batch holds at least one record")
        self._topic = topic
        self._batch_records = batch_records
        self._batch_bytes = batch_bytes
        self._prefix = f"{os.urandom(8).hex()}-" if key_prefix is None else key_prefix
        self._options = options
        self._progress = progress
        self._default = default
        self._records: list[bytes] = []
        self._size_bytes = 0
        self._batches = 0
        self.total = AppendedMany(topic=topic)

    def add(self, value: Any) -> Call[Appended] | None:
        """Take one value or `NewRecord`; returns the call of the batch that it ends, if it ends
        one.

        A full batch is sent at once and not with the value after it, which may be an hour away in a
        slow source.
        """
        record = encode_record(value, default=self._default)
        too_large = self._size_bytes + len(record) > self._batch_bytes
        call = self.flush() if too_large else None
        self._records.append(record)
        self._size_bytes += len(record) + 1
        # Never both: a batch that this value fills alone was empty before it came.
        return self.flush() if len(self._records) == self._batch_records else call

    def flush(self) -> Call[Appended] | None:
        """The call of the batch that is gathered; None where it is empty."""
        if not self._records:
            return None
        records, self._records, self._size_bytes = self._records, [], 0
        key = f"{self._prefix}{self._batches}"
        self._batches += 1
        return endpoints.append_batch(self._topic, records, key, self._options)

    def count(self, answer: Appended) -> None:
        """Add one batch's answer to the total."""
        total = self.total
        first_seq, last_seq = total.first_seq, total.last_seq
        if answer.partitions:
            # Seqs of several partitions are no span.
            first_seq = last_seq = 0
        elif len(answer.unique) < answer.count:
            first_seq, last_seq = first_seq or answer.first_seq, answer.last_seq
        self.total = AppendedMany(
            topic=total.topic,
            records=total.records + answer.count,
            deduped=total.deduped + (answer.count if answer.deduped else 0),
            batches=total.batches + 1,
            first_seq=first_seq,
            last_seq=last_seq,
            unique=total.unique + len(answer.unique),
            replaced=total.replaced + len(answer.replaced),
        )
        if self._progress is not None:
            self._progress(answer)
