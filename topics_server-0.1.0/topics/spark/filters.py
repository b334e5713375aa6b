"""Filters that Spark hands down, as ranges of seqs and of times, a tag, and names of topics.

What is taken here is evaluated exactly, because Spark then leaves it out of its plan; everything
else goes back.  Times of a topic never decrease, so a range of times is a range of seqs.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

NEVER_NULL: Final = frozenset({"topic", "seq", "ts", "data"})


@dataclass(frozen=True, slots=True)
class Pushed:
    """What of a scan is wanted, beside its options.

    Attributes:
        first_seq, last_seq: Inclusive; None: no bound.
        from_us, until_us: Microseconds since the epoch, `from_us <= ts < until_us`; None: no bound.
        topics: None: all.
        tag, tag_prefix: At most one of them.
    """

    first_seq: int | None = None
    last_seq: int | None = None
    from_us: int | None = None
    until_us: int | None = None
    topics: frozenset[str] | None = None
    tag: str | None = None
    tag_prefix: str | None = None

    @property
    def from_ms(self) -> int | None:
        """The first millisecond that is wanted: records' times are whole milliseconds."""
        return None if self.from_us is None else -(-self.from_us // 1000)

    @property
    def until_ms(self) -> int | None:
        return None if self.until_us is None else -(-self.until_us // 1000)


def push(
    filters: Sequence[Filter], names: Mapping[str, str], *, has_tag: bool = False
) -> tuple[Pushed, list[Filter]]:
    """What of the filters is taken, and those that Spark must still evaluate.

    Args:
        names: Spark's column -> a column of a scan; only these are pushed.
        has_tag: The options ask for a tag already, and a scan has room for one.
    """
    pushed = Pushed()
    rest: list[Filter] = []
    for each in filters:
        path: tuple[str, ...] = getattr(each, "attribute", ())
        column = names.get(path[0]) if len(path) == 1 else None
        taken = None if column is None else _taken(pushed, each, column, has_tag)
        if taken is None:
            rest.append(each)
        else:
            pushed = taken
    has_tag_filter = pushed.tag is not None or pushed.tag_prefix is not None
    implied = [f for f in rest if has_tag_filter and isinstance(f, IsNotNull)]
    rest = [f for f in rest if not (f in implied and names.get(f.attribute[0]) == "tag")]
    return pushed, rest


def _taken(pushed: Pushed, each: Filter, column: str, has_tag: bool) -> Pushed | None:
    if isinstance(each, IsNotNull):
        return pushed if column in NEVER_NULL else None
    take = _TAKEN.get((column, type(each)))
    value = getattr(each, "value", None)
    if (
        take is None
        or value is None
        or (column == "tag" and (has_tag or pushed.tag or pushed.tag_prefix))
    ):
        return None
    return take(pushed, value)


def _seq_from(pushed: Pushed, seq: Any) -> Pushed:
    first = seq if pushed.first_seq is None else max(seq, pushed.first_seq)
    return replace(pushed, first_seq=first)


def _seq_to(pushed: Pushed, seq: Any) -> Pushed:
    last = seq if pushed.last_seq is None else min(seq, pushed.last_seq)
    return replace(pushed, last_seq=last)


_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def _us(at: datetime) -> int:
    since = at - _EPOCH
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def _ts_from(pushed: Pushed, us: int) -> Pushed:
    return replace(pushed, from_us=us if pushed.from_us is None else max(us, pushed.from_us))


def _ts_until(pushed: Pushed, us: int) -> Pushed:
    return replace(pushed, until_us=us if pushed.until_us is None else min(us, pushed.until_us))


def _time(
    take: Callable[[Pushed, int], Pushed], plus: int = 0
) -> Callable[[Pushed, Any], Pushed | None]:
    def taken(pushed: Pushed, value: Any) -> Pushed | None:
        if not isinstance(value, datetime) or value.tzinfo is None:
            return None
        return take(pushed, _us(value) + plus)

    return taken


def _at(pushed: Pushed, value: Any) -> Pushed | None:
    found = _time(_ts_from)(pushed, value)
    return None if found is None else _time(_ts_until, 1)(found, value)


def _topics(pushed: Pushed, names: Any) -> Pushed:
    wanted = frozenset(names)
    return replace(pushed, topics=wanted if pushed.topics is None else wanted & pushed.topics)


_TAKEN: Final[dict[tuple[str, type[Filter]], Callable[[Pushed, Any], Pushed | None]]] = {
    ("seq", EqualTo): lambda pushed, seq: _seq_to(_seq_from(pushed, seq), seq),
    ("seq", GreaterThan): lambda pushed, seq: _seq_from(pushed, seq + 1),
    ("seq", GreaterThanOrEqual): _seq_from,
    ("seq", LessThan): lambda pushed, seq: _seq_to(pushed, seq - 1),
    ("seq", LessThanOrEqual): _seq_to,
    ("ts", EqualTo): _at,
    ("ts", GreaterThan): _time(_ts_from, 1),
    ("ts", GreaterThanOrEqual): _time(_ts_from),
    ("ts", LessThan): _time(_ts_until),
    ("ts", LessThanOrEqual): _time(_ts_until, 1),
    ("topic", EqualTo): lambda pushed, name: _topics(pushed, [name]),
    ("topic", In): _topics,
    ("tag", EqualTo): lambda pushed, tag: replace(pushed, tag=tag),
    ("tag", StringStartsWith): lambda pushed, prefix: replace(pushed, tag_prefix=prefix),
}
