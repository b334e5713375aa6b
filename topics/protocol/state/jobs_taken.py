"""The jobs of a queue as a checkpoint keeps them, taken a slice at a time while commands run."""

from topics.protocol.model.events import JobImage, QueueImage, array_header, encode_image
from topics.protocol.model.records import Buffer
from topics.protocol.state.job import Job
from topics.protocol.state.queue import Queue


class JobsTaken:
    """All jobs of a queue as they were when this was made, taken a slice at a time: the queue calls
    `keep` before a job changes.  Only the copy of the dict at the beginning walks all of them, in C.

    Args:
        lasting: Leases outlive the process; else what the log has of jobs is taken, and no lease.
    """

    def __init__(self, queue: Queue, *, lasting: bool = True) -> None:
        self._queue = queue
        self._due = queue.jobs.copy()
        self._lasting = lasting
        self._head = (queue.dead_lettered, queue.fresh_from)
        self._end = queue.image_end()
        self._kept: list[JobImage] = []
        self._encoded: list[bytes] = []
        self._done = 0
        queue.taking = self

    def keep(self, job: Job) -> None:
        """The job is about to change."""
        if self._due.pop(job.seq, None) is not None:
            self._take(job)

    def _take(self, job: Job) -> None:
        if self._lasting:
            self._kept.append(job.image())
        elif job.is_logged:
            self._kept.append(job.image_of_log())

    def take_some(self, limit: int) -> bool:
        """Take so many of what is due; False where nothing is any more."""
        due = self._due
        for _ in range(min(limit, len(due))):
            self._take(due.popitem()[1])
        some = self._kept[:limit]
        del self._kept[:limit]
        self._encoded.append(b"".join(map(encode_image, some)))
        self._done += len(some)
        if due or self._kept:
            return True
        self.give_up()
        return False

    def give_up(self) -> None:
        """The queue need not call `keep` any more."""
        self._queue.taking = None

    def pieces(self) -> list[Buffer]:
        """The msgpack of a `QueueImage`, once all is taken."""
        assert not self._due
        assert not self._kept
        head = [encode_image(field) for field in self._head]
        fields = len(QueueImage.__struct_fields__)
        end = [encode_image(field) for field in self._end]
        return [array_header(fields), *head, array_header(self._done), *self._encoded, *end]
