"""The queues: which topics are queues, which leases were given, and which jobs may end by time (§10)."""

from collections.abc import Iterator, Mapping
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from topics.protocol.model.events import JobsLeased, JobsNoted, JobsReleased, QueueImage
from topics.protocol.model.job_options import JobOptions, decoded_options
from topics.protocol.model.limits import Limits
from topics.protocol.state.job import Job
from topics.protocol.state.queue import Noted, Queue
from topics.protocol.state.topic import Topic

_OPTIONS: Final = msgspec.msgpack.Decoder(JobOptions)


class Queues(Mapping[int, Queue]):
    """The queue of each topic that is one, by topic id.

    Attributes:
        by_id: What the mapping holds.
        ending: Ids of queues of which a job may end sooner than was known at the last `take_ending`.
        behind: Ids of queues whose backlog lags, or did: each gets its turns to catch up.
        awaited: Ids of queues in which a client waits for the end of a job.
        left: Those of them that records left since it was last taken.
        noted: What is held of what workers said of jobs.
        redriven: Dead letters that went back to a queue, since this process decides; a replay does not count.
        next_lease: No lease from this number on was ever given.
        damages: What of sealed jobs' options could not be read, a sentence each.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self.by_id: dict[int, Queue] = {}
        self.ending: dict[int, None] = {}
        self.behind: dict[int, None] = {}
        self.awaited: set[int] = set()
        self.left: dict[int, None] = {}
        self.next_lease = 1
        self.redriven = 0
        self.noted = Noted()
        self.damages: list[str] = []

    def __getitem__(self, topic_id: int) -> Queue:
        return self.by_id[topic_id]

    def __iter__(self) -> Iterator[int]:
        return iter(self.by_id)

    def __len__(self) -> int:
        return len(self.by_id)

    def __contains__(self, topic_id: object) -> bool:
        return topic_id in self.by_id

    def get(self, topic_id: int) -> Queue | None:  # type: ignore[override]  # no other default
        # The mapping's own raises and catches where there is none, which is at most appends.
        return self.by_id.get(topic_id)

    def add(self, topic: Topic) -> None:
        """A topic of type "queue" was created."""
        self.by_id[topic.topic_id] = Queue(noted=self.noted)
        self.configure(topic)

    def remove(self, topic_id: int) -> None:
        """The topic was deleted, a queue or not."""
        queue = self.by_id.pop(topic_id, None)
        if queue is not None:
            queue.forget_notes()
        self.ending.pop(topic_id, None)
        self.behind.pop(topic_id, None)

    def note_options(self, topic: Topic, jobs: bytes, first_seq: int) -> None:
        """Jobs were appended of which some have options."""
        options = decoded_options(_OPTIONS.decode(jobs), first_seq)
        self.by_id[topic.topic_id].note_options(topic, options)

    # ------------------------------------------------------------------ leases

    def lease(self, event: JobsLeased) -> None:
        self.next_lease = max(self.next_lease, max(event.leases) + 1)
        self.by_id[event.topic_id].lease(event)
        self.note_ends(event.topic_id)

    def release(self, event: JobsReleased) -> None:
        self.by_id[event.topic_id].release(event)
        self.note_ends(event.topic_id)

    def note(self, event: JobsNoted) -> None:
        self.by_id[event.topic_id].note(event)
        self.note_ends(event.topic_id)

    def postpone(self, topic_id: int, job: Job, until_ms: int) -> None:
        """The dead-letter topic refused a dying job.  That is no event: a later process will be
        refused again."""
        self.by_id[topic_id].postpone(job, until_ms)
        self.note_ends(topic_id)

    # ------------------------------------------------------------------ ending by time

    def configure(self, topic: Topic) -> None:
        """The topic's config is what it is now: how often its jobs may be delivered, and in which order."""
        queue, config = self.by_id.get(topic.topic_id), topic.config
        if queue is not None:
            queue.configure(topic)
            has_letters = config.dead_letter is not None
            most = config.max_deliveries if has_letters else 0
            after_ms = self._limits.dead_letter_after_ms
            queue.end_after(most if after_ms else 0, after_ms, has_letters=has_letters)
            self.note_ends(topic.topic_id)
            self.note_lag(topic.topic_id)

    def note_ends(self, topic_id: int) -> None:
        """Note that a job of the queue may end sooner than was known."""
        queue = self.by_id[topic_id]
        if queue.ends_sooner or (queue.backlog is not None and queue.backlog.ends_sooner):
            if queue.backlog is not None:
                queue.backlog.ends_sooner = False
            queue.ends_sooner = False
            self.ending[topic_id] = None

    def take_ending(self) -> dict[int, None]:
        """The ids of queues of which a job may end sooner than was known when this was last called."""
        ending, self.ending = self.ending, {}
        return ending

    def note_left(self, topic_id: int) -> None:
        """Records left the queue."""
        if topic_id in self.awaited:
            self.left[topic_id] = None

    def take_left(self) -> dict[int, None]:
        """The ids of awaited queues that records left since this was last called."""
        left, self.left = self.left, {}
        return left

    # ------------------------------------------------------------------ catching up

    def note_lag(self, topic_id: int) -> None:
        """Records were shown, or are to be absorbed anew."""
        backlog = self.by_id[topic_id].backlog
        if backlog is not None and backlog.lags:
            self.behind[topic_id] = None

    def catch_up(self, now_ms: int) -> int | None:
        """Absorb a part of the records of one backlog that lags; returns the id of a queue that lags no more."""
        topic_id = next(iter(self.behind))
        del self.behind[topic_id]
        backlog = self.by_id[topic_id].backlog
        if backlog is not None and backlog.lags:
            backlog.catch_up(now_ms)
            self.note_ends(topic_id)
        self.note_lag(topic_id)
        return None if topic_id in self.behind else topic_id

    # ------------------------------------------------------------------ recovery

    def begin(self, now_ms: int) -> None:
        """This engine decides from now on."""
        for queue in self.by_id.values():
            queue.starts.begin(now_ms)

    def restore(self, topic: Topic, image: QueueImage, lost: NDArray[np.uint64]) -> None:
        """Begin with the image of a checkpoint.

        Args:
            lost: Spans of seqs whose records are lost, both ends inclusive, shape (k, 2).
        """
        queue = self.by_id[topic.topic_id] = Queue(noted=self.noted)
        queue.restore(topic, image)
        queue.remove(lost)
        self.next_lease = max([self.next_lease, *(job.lease + 1 for job in image.jobs)])

    def recover(self, topic: Topic, now_ms: int, *, clean: bool) -> None:
        """After a replay: leases outlive a clean stop, and a crash only where each was logged; what workers said
        when they gave jobs back outlives both."""
        topic_id = topic.topic_id
        queue = self.by_id[topic_id]
        if not clean and not topic.config.leases_durable:
            queue.give_up_leases()
        if not clean and not queue.jobs:
            self.by_id[topic_id] = queue.without_jobs()
        elif queue.fresh_from > 1 and not clean:
            found = [s.tolist() for s in topic.live_seqs(before_seq=queue.fresh_from)]
            queue.reconcile([seq for seqs in found for seq in seqs])
        # Times of the log end here: no worker could claim anything while there was no process.
        queue = self.by_id[topic_id]
        queue.load(self.damages)
        if queue.backlog is not None:
            queue.backlog.restart()
        queue.open_at(now_ms)
        self.configure(topic)
