"""Forwarding: routers' commands, and the passes that copy what they owe (§6).

The joint between routers, topics and copies.
"""

from collections.abc import Callable
from typing import Any

from topics.protocol.effects import Outcome
from topics.protocol.limits import Limits
from topics.protocol.topic import Topic
from topics.protocol.turn import Room, Turn


class Forwarding:
    """Routers over the topics of one engine."""

    def __init__(self, limits: Limits, turn: Turn) -> None:
        self._limits = limits
        self._turn = turn
        self.commands: dict[type, Callable[[Any, int, Room], Outcome]] = {}

    def on_recovered(self) -> None:
        """Replay is over: whatever a router owes is due."""

    def on_published(self, topic: Topic) -> None:
        """A topic shows more: its routers owe copies."""

    def on_room(self, topic: Topic) -> None:
        """A topic may take more than before: routers that it blocked try again."""

    def on_deleted(self, topic: Topic) -> None:
        """A topic went, and its routers with it."""

    @property
    def is_due(self) -> bool:
        """Whether `step` has something to do now."""
        return False

    def step(self, now_ms: int, room: Room) -> None:
        """A bounded part of what is owed."""

    def alarm_ms(self) -> int | None:
        """When a blocked router tries again."""
        return None
