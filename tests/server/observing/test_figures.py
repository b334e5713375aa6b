"""What metrics are made of, in each phase of a server's life."""

from topics.protocol.model.access import ANYONE
from topics.protocol.model.limits import Limits
from topics.server.observing.figures import source_of
from topics.server.service.shell import Phase
from topics.server.service.slots import Slots
from topics.testing import START_MS, _Shell


def test_another_thread_owns_the_state_before_the_log_is_replayed() -> None:
    """A scrape is answered in every phase, and looks at the state in one. (§8.3)"""
    shell = _Shell(Limits(max_topic_metrics=7), START_MS)
    slots = Slots(shell.limits)

    ready = source_of(shell, slots, (), ANYONE)
    shell.phase = Phase.DRAINING
    later = source_of(shell, slots, (), ANYONE)

    assert ready.state is shell.engine.state
    assert later.state is None
    assert ready.shown_max == later.shown_max == 7
    assert slots.polls in ready.shares
