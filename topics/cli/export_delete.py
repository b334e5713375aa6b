"""`topics export --then-delete`: what would be deleted is shown, asked about, written down, deleted."""

import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from topics.cli.exits import UNUSABLE, Stop, were
from topics.cli.printing import confirmed, publicly, say, say_json, shown

if TYPE_CHECKING:
    from topics.arrow.source import TopicSource
    from topics.client import Client
    from topics.export.manifest import Lineage, Settings
    from topics.export.run import Exporting
    from topics.export.then_delete import Plan


def then_delete(
    client: "Client",
    source: "TopicSource",
    target: "Exporting",
    topics: tuple[str, ...],
    given: Mapping[str, Any],
    event: Callable[..., None],
) -> None:
    """Delete in each topic what its export has, verified; asks unless `--yes`.

    Raises:
        Stop: The answer is no, or there is nobody to ask.
        NotSafe, Damaged, TopicsError, OSError.
    """
    from topics.export.then_delete import carry_out

    refresh = getattr(source, "refresh", None)
    from topics.arrow.scan import partition_names

    for topic in partition_names(source, topics):
        if refresh is not None:
            refresh()
        # What was deleted before the hand-off must not look as if it were part of it.
        target.reconcile(source, topic)
        target.verify(topic)
        plan = _plan(source, target.settings, target.lineage(topic), topic, given)
        _show(plan, event, as_json=given["as_json"])
        if plan.is_empty:
            continue
        if not given["yes"]:
            _ask(plan)
        target.hand_off(topic, plan.epoch, plan.bound.before_seq)
        count = carry_out(client, plan)
        event("deleted", topic=topic, before_seq=plan.bound.before_seq, count=count)
        if not given["as_json"]:
            say(f"{shown(topic)}: {were(count, 'record')} deleted")


def tell_deletes(
    source: "TopicSource",
    settings: "Settings",
    lineages: "Mapping[str, Lineage | None]",
    topics: tuple[str, ...],
    given: Mapping[str, Any],
) -> None:
    """Say what would be deleted once the run had exported so far, and all of it verified."""
    from topics.arrow.scan import partition_names

    for topic in partition_names(source, topics):
        plan = _plan(source, settings, lineages.get(topic), topic, given)
        _show(plan, _print_event if given["as_json"] else _nothing, as_json=given["as_json"])


def _print_event(what: str, **said: Any) -> None:
    import msgspec

    say_json(msgspec.json.encode({"event": what, **publicly(said)}))


def _nothing(what: str, **said: Any) -> None:
    """Not in JSON."""


def _plan(
    source: "TopicSource",
    settings: "Settings",
    lineage: "Lineage | None",
    topic: str,
    given: Mapping[str, Any],
) -> "Plan":
    from topics.arrow.source import now_ms
    from topics.export.then_delete import plan

    readers = [name for text in given["require_reader"] for name in text.split(",") if name]
    return plan(
        source,
        settings,
        lineage,
        topic,
        readers=readers,
        min_age_ms=given["min_age"],
        now_ms=now_ms(),
    )


def _show(plan: "Plan", event: Callable[..., None], *, as_json: bool) -> None:
    bound = plan.bound
    event(
        "then_delete",
        topic=plan.topic,
        before_seq=bound.before_seq,
        earliest_seq=plan.earliest_seq,
        limit=bound.limit,
        limits=bound.limits,
    )
    if as_json:
        return
    limits = ", ".join(f"{name}: through {last:,}" for name, last in bound.limits.items())
    if plan.is_empty:
        say(f"{shown(plan.topic)}: nothing to delete ({limits})")
        return
    say(
        f"{shown(plan.topic)}: the records from seq {plan.earliest_seq:,} to {bound.before_seq - 1:,} are "
        f"to be deleted for every reader ({limits})"
    )


def _ask(plan: "Plan") -> None:
    if sys.stdin is None or not sys.stdin.isatty():
        raise Stop("--then-delete asks on a terminal; give --yes where there is none", UNUSABLE)
    if not confirmed(f"Delete them in {shown(plan.topic)}?"):
        raise Stop("nothing was deleted", UNUSABLE)
