"""Checkpointing: what has to be sealed and encoded before a checkpoint can be written.

A checkpoint is of one position of the log, the boundary.  Its images are taken while commands run
(`state.checkpoint`), all that its topics have unsealed is sealed, and the images of those topics are
encoded last, because they name the new segments.  Then the log before the boundary can go.
"""

from collections.abc import Iterator

import msgspec

from topics.protocol.engine import Engine
from topics.protocol.maintenance.sealing import SealBuilder, Sealing, SealJob, SealPlanning
from topics.protocol.state.checkpoint import EncodedCheckpoint, Images


class CheckpointPlan(msgspec.Struct, frozen=True):
    """A checkpoint in the making, one at a time.  In this order: its images are taken, all that its
    topics have unsealed is sealed, and the images of those topics are encoded."""

    images: Images

    @property
    def image(self) -> EncodedCheckpoint:
        """All of it, once nothing is left to do."""
        return self.images.checkpoint()


class Checkpointing:
    """Plans the parts of a checkpoint over an engine's state."""

    def __init__(self, engine: Engine, sealing: Sealing) -> None:
        self._engine = engine
        self._state = engine.state
        self._sealing = sealing

    def begin(self, now_ms: int, *, is_last: bool = False) -> CheckpointPlan:
        """The checkpoint is of this moment, at which every applied event is written.

        The caller rotates the log next, or stops where the checkpoint `is_last`; then it repeats
        `make_images`, and `plan_seal` with its seal, until neither has anything left.
        """
        self._engine.advance(now_ms)
        self._state.images.begin(is_last=is_last)
        return CheckpointPlan(self._state.images)

    def make_images(self, plan: CheckpointPlan) -> bool:
        """Make a slice of the images, in some milliseconds; False where no more can be made before
        what is unsealed is sealed, or at all."""
        images = plan.images
        return images.take_some() or (not images.unsealed and images.encode_some())

    def plan_seal(self, plan: CheckpointPlan) -> SealJob | None:
        """The next part of what the checkpoint has to seal; None where nothing is left."""
        return self.planning_seal(plan).whole()

    def planning_seal(self, plan: CheckpointPlan) -> SealPlanning:
        """The same in slices, so that many small topics do not hold up commands."""
        builder = SealBuilder(self._sealing, self._engine)
        return SealPlanning(builder, self._add_unsealed(builder, plan))

    def _add_unsealed(self, builder: SealBuilder, plan: CheckpointPlan) -> Iterator[None]:
        unsealed = plan.images.unsealed
        while unsealed and not builder.is_full:
            yield
            topic = unsealed.popleft()
            if topic.topic_id not in self._state.by_id:
                continue
            # Records that expired since the boundary are not sealed, but the image counts them: the
            # log behind the boundary has to say that they are gone.
            self._engine.unit.log_expiry(topic, self._state.now_ms)
            # Runs that began after the boundary are in the log behind the checkpoint: sealed with
            # it, their records would be found twice.
            if not builder.add_topic(topic, through=plan.images.head_seq(topic.topic_id)):
                unsealed.appendleft(topic)

    def abandon(self, plan: CheckpointPlan) -> None:
        """The checkpoint failed: the runs that it froze and did not seal are due as full runs are."""
        for topic in plan.images.unsealed:
            if topic.topic_id in self._state.memory.unsealed:
                self._state.memory.full[topic.topic_id] = topic
        plan.images.give_up()
