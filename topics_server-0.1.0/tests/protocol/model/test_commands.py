"""Commands: what a request asks, and for whom."""

from topics.protocol.model.commands import CreateWatch, View
from topics.protocol.model.holder import NOBODY, Holder


def test_a_session_is_counted_for_the_one_who_makes_it() -> None:
    """What it asks stays the same. (§11)"""
    asked = CreateWatch("w", {}, View(limit=1, budget_bytes=1), 1000, False, {})
    holder = Holder("k", is_key=True)

    made = asked.by(holder)

    assert (asked.holder, made.holder) == (NOBODY, holder)
    assert made.by(NOBODY) == asked
