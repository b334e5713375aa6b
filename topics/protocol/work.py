"""Work: a queue's commands (§10).  The joint between queues, topics, copies and who waits."""

from collections.abc import Callable
from typing import Any

from topics.protocol.commands import Claim
from topics.protocol.effects import Outcome, Parked
from topics.protocol.limits import Limits
from topics.protocol.topic import Topic
from topics.protocol.turn import Room, Turn


class Work:
    """Queues over the topics of one engine."""

    def __init__(self, limits: Limits, turn: Turn) -> None:
        self._limits = limits
        self._turn = turn
        self.commands: dict[type, Callable[[Any, int, Room], Outcome]] = {}

    def claim(self, command: Claim, token: object, now_ms: int, room: Room) -> Outcome | Parked:
        raise NotImplementedError

    def on_published(self, topic: Topic) -> None: ...
    def on_removed(self, topic: Topic) -> None: ...
    def on_deleted(self, topic: Topic) -> None: ...
    def forget(self, token: object) -> None: ...
    def release_all(self) -> None: ...
    @property
    def is_due(self) -> bool:
        return False

    def step(self, now_ms: int, room: Room) -> None: ...
    def alarm_ms(self) -> int | None:
        return None
