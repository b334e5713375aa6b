"""What metrics are made of: the engine's state, and what stands beside it in the process."""

from collections.abc import Iterable

from topics.protocol.model.access import Caller
from topics.server.observing import metrics
from topics.server.service.shell import Phase, Shell
from topics.server.service.slots import Slots


def source_of(
    shell: Shell, slots: Slots, more: tuple[Iterable[metrics.Family], ...], caller: Caller
) -> metrics.Measured:
    """The source for a scrape by a caller, now.  Before the phase is READY, and after it, another thread
    owns the state.

    Args:
        more: Families of others.
    """
    engine = shell.engine
    is_ready = shell.phase is Phase.READY
    if is_ready:
        engine.let_pass(shell.now_ms)
    watches = engine.watches
    return metrics.Measured(
        engine.state if is_ready else None,
        watches,
        shell.store.stats,
        active=engine.active,
        push_streams=engine.push_streams.open_count,
        shares=(
            watches.session_shares,
            watches.connection_shares,
            watches.byte_shares,
            slots.inflight,
            slots.polls,
        ),
        shown_max=shell.limits.max_topic_metrics,
        more=more,
        caller=caller,
    )
