# Generated from aiofailover.py by topics/client/_generate.py; do not edit, run `make generate`.
"""`Connections`: what carries the calls of a client; `Failover`: to several nodes of one cluster.

Owns which node is asked: the same one until it is away, and then the next.  It does not know what a call
means; whether one may be sent again is `retry`'s to say.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, Protocol

from topics.client.answer import Answer, StreamedAnswer
from topics.client.call import Call, Outcome
from topics.client.faults import Fault
from topics.client.retry import is_away, is_worth_repeating
from topics.client.target import PreparedRequest


class Connections(Protocol):
    """What carries requests; raises `Fault` where no answer came."""

    @property
    def is_closed(self) -> bool: ...

    def close(self) -> None: ...

    def request(self, call: Call[Any], prepared: PreparedRequest) -> Answer: ...

    def stream(
        self, call: Call[Any], prepared: PreparedRequest
    ) -> AbstractContextManager[StreamedAnswer]: ...


class Failover:
    """Carries calls to one of several nodes.

    Args:
        nodes: The connections of each.
    """

    def __init__(self, nodes: Sequence[Connections]) -> None:
        self._nodes = nodes
        self._at = 0

    @property
    def is_closed(self) -> bool:
        return self._nodes[0].is_closed

    def close(self) -> None:
        for node in self._nodes:
            node.close()

    def request(self, call: Call[Any], prepared: PreparedRequest) -> Answer:
        """The answer of the first node that is not away, or of the last one that is.

        A call that an earlier node may have carried out is sent to no other, unless doing it twice is
        doing it once.
        """
        left = len(self._nodes)
        while True:
            at, left = self._at, left - 1
            outcome: Outcome
            try:
                outcome = self._nodes[at].request(call, prepared)
            except Fault as fault:
                outcome = fault
            if is_away(outcome):
                self._leave(at)
                if left and is_worth_repeating(call, outcome):
                    continue
            if isinstance(outcome, Fault):
                raise outcome
            return outcome

    @contextmanager
    def stream(self, call: Call[Any], prepared: PreparedRequest) -> Iterator[StreamedAnswer]:
        """A stream of the present node; where that is away, or goes, the next one is of another."""
        at = self._at
        try:
            with self._nodes[at].stream(call, prepared) as response:
                if is_away(response):
                    self._leave(at)
                yield response
        except Fault:
            self._leave(at)
            raise

    def _leave(self, at: int) -> None:
        """Ask the next node from now on, unless another call has found out the same."""
        if self._at == at:
            self._at = (at + 1) % len(self._nodes)
