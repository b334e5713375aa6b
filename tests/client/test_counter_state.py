"""What comes of changes of counters, and which counters are remembered."""

import msgspec
import pytest

from topics.client.counter_state import (
    BASE_AGE_MAX_S,
    BASES_MAX,
    Base,
    Bases,
    Change,
    Values,
    family_of,
)

START = Base(0, {})


@pytest.mark.parametrize(
    ("change", "value", "granted"),
    [
        (Change(START, "add", "b", 7, 100), 7, True),
        (Change(START, "add", "a", 7, 100), 2, False),
        (Change(START, "incr", "a", 3, 100, 5), 5, True),
        (Change(START, "incr", "a", 4, 100, 5), 2, False),
        (Change(START, "incr", "b", 1, 100, 3, ["a", "b"]), 1, True),
        (Change(START, "incr", "b", 2, 100, 3, ["a", "b"]), None, False),
        (Change(START, "decr", "a", 2, 100, 0), 0, True),
        (Change(START, "decr", "a", 3, 100, 0), 2, False),
        (Change(START, "decr", "b", 1, 100, 0), None, False),
    ],
    ids=str,
)
def test_what_is_granted(change: Change, value: int | None, granted: bool) -> None:
    """A change within its limit; its key then lives for its time, any other as before."""
    counters: Values = {"a": (2, 1050)}

    assert change.apply(counters, 1000) is granted

    expires_ms = 1100 if granted else 1050
    assert counters.get(change.key) == (None if value is None else (value, expires_ms))


def test_a_key_that_has_expired_is_not_there() -> None:
    """At the time itself it is gone."""
    counters: Values = {"a": (5, 1000), "b": (1, 1001)}

    assert Change(START, "add", "a", 1, 100).apply(counters, 1000)
    assert counters == {"a": (1, 1100), "b": (1, 1001)}


def test_a_change_is_read_as_it_was_written() -> None:
    """Another process replays it."""
    change = Change(Base(3, {"a": (1, 5)}), "incr", "a", 1, 100, 5, ["a"])

    assert msgspec.json.decode(msgspec.json.encode(change), type=Change) == change


def test_keys_of_a_family() -> None:
    """The text before the last @; a key without one is its own."""
    assert [family_of(key) for key in ("a", "a@1", "a@b@1", "@1")] == ["a", "a", "a@b", "@1"]


def test_counters_are_remembered_for_a_while() -> None:
    """The newest of each family, until they are old or forgotten."""
    now_s = [0.0]
    bases = Bases(lambda: now_s[0])
    bases.remember("a", Base(7, {}))
    bases.remember("a", Base(5, {}))
    assert bases.get("a") == Base(7, {})

    now_s[0] = BASE_AGE_MAX_S
    assert bases.get("a") is None
    bases.remember("a", Base(8, {}))
    assert bases.get("a") == Base(8, {})
    bases.forget("a")
    bases.forget("a")
    assert bases.get("a") is None


def test_few_families_are_remembered() -> None:
    """Families that were changed last are."""
    bases = Bases()
    for number in range(BASES_MAX + 1):
        bases.remember(str(number), Base(number + 1, {}))
        bases.remember("0", Base(number + 1, {}))

    assert bases.get("0") is not None
    assert bases.get("1") is None
    assert bases.get(str(BASES_MAX)) is not None
