"""Shares: what one holder may take of what is limited, whoever came first. (§11)"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.model.errors import Rejection
from topics.protocol.model.holder import NOBODY, Holder
from topics.protocol.model.shares import Shares

KEY = Holder("k", is_key=True)
LOCAL = Holder("127.0.0.1", is_crowd=True)


def taken(shares: Shares, holder: Holder, most: int = 10_000) -> int:
    """How many the holder gets until it is refused."""
    for n in range(most):
        try:
            shares.require(holder)
        except Rejection:
            return n
        shares.take(holder)
    return most


def refusal(shares: Shares, holder: Holder) -> dict[str, object]:
    with pytest.raises(Rejection) as refused:
        shares.require(holder)
    assert refused.value.code.code == "throttled"
    return dict(refused.value.detail or {})


def test_the_total_is_for_all_together() -> None:
    """429 with the name of the cap and its number; what is given back can be taken again. (§11)"""
    shares = Shares("max_things", 2)
    assert taken(shares, NOBODY) == 2
    assert refusal(shares, LOCAL) == {"limit": "max_things", "max": 2}
    assert shares.refused == 2
    shares.give_back(NOBODY)
    assert taken(shares, LOCAL) == 1


def test_nothing_is_held_by_nobody() -> None:
    """Who takes nothing holds nothing, and can give that back whatever else it gave back before."""
    shares = Shares("max_things", 10)
    for amount in (0, 0, 4):
        shares.take(KEY, amount)
    for amount in (4, 0, 0):
        shares.give_back(KEY, amount)
    assert (shares.used, shares.held(KEY), shares.most_held) == (0, 0, 0)


def test_no_total_is_no_bound() -> None:
    """0 is unlimited. (§11)"""
    for holder in (Holder("a"), KEY):
        assert taken(Shares("max_things", 0), holder) == 10_000
    assert Shares("max_things", 0).most_held == 0


def test_one_address_leaves_something_for_others() -> None:
    """Alone it gets three quarters; the next three quarters of what is left; and so on."""
    shares = Shares("max_things", 1000)
    got = [taken(shares, Holder(name)) for name in "abcd"]
    assert got[0] == 750
    assert got == sorted(got, reverse=True)
    assert got[3] > 0
    assert refusal(shares, Holder("a")) == {"limit": "max_things", "max": 1000, "reason": "share"}
    assert shares.refused == 5


def test_an_address_of_many_clients_may_have_all() -> None:
    """Loopback cannot be told apart: the total is its share."""
    assert taken(Shares("max_things", 1000), LOCAL) == 1000


def test_bounds_of_one_holder() -> None:
    """Of a key and of an address, each by its own setting and name; nobody has none."""
    shares = Shares("max_things", 0, per_key=3, per_ip=2)
    assert taken(shares, KEY) == 3
    assert taken(shares, Holder("a")) == taken(shares, LOCAL) == 2
    assert refusal(shares, KEY) == {"limit": "max_things_per_key", "max": 3}
    assert refusal(shares, LOCAL) == {"limit": "max_things_per_ip", "max": 2}
    assert taken(shares, NOBODY, 100) == 100
    shares.require(NOBODY, 100)
    assert (shares.refused, shares.most_held) == (5, 3)


def test_what_is_given_back_with_it_does_not_count() -> None:
    """A stream that takes over another one of its holder needs no slot of its own. (§7.3)"""
    shares = Shares("max_things", 1)
    shares.take(KEY)
    shares.require(KEY, freed=1)
    with pytest.raises(Rejection):
        shares.require(KEY)

    own = Shares("max_things", 0, per_key=1)
    own.take(KEY)
    own.require(KEY, freed=1)
    with pytest.raises(Rejection):
        own.require(KEY)


def test_what_is_not_held_cannot_be_given_back() -> None:
    """A count that is too small by mistake is no bound."""
    shares = Shares("max_things", 5)
    shares.take(KEY)
    with pytest.raises(AssertionError):
        shares.give_back(KEY, 2)


@pytest.mark.parametrize(
    ("limits", "bounded"),
    [
        ((0, 0, 0), ()),
        ((5, 0, 0), (KEY, LOCAL, NOBODY)),
        ((0, 5, 0), (KEY,)),
        ((0, 0, 5), (LOCAL, NOBODY)),
    ],
)
def test_what_bounds_a_holder(limits: tuple[int, int, int], bounded: tuple[Holder, ...]) -> None:
    """Of what nothing bounds, nothing is counted."""
    total, per_key, per_ip = limits
    shares = Shares("max_things", total, per_key=per_key, per_ip=per_ip)

    assert {holder for holder in (KEY, LOCAL, NOBODY) if shares.bounds(holder)} == set(bounded)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), max_size=80))
def test_counts_are_those_of_the_holders(steps: list[tuple[str, bool]]) -> None:
    """Of all and of each, whatever the order."""
    shares, model = Shares("max_things", 20), dict.fromkeys("abc", 0)
    for name, takes in steps:
        holder = Holder(name)
        if takes:
            try:
                shares.require(holder)
            except Rejection:
                continue
            shares.take(holder)
            model[name] += 1
        elif model[name]:
            shares.give_back(holder)
            model[name] -= 1
    assert {name: shares.held(Holder(name)) for name in model} == model
    assert shares.used == sum(model.values()) <= 20
    # An address that holds nothing any more is forgotten: there are more of them than memory.
    assert {holder.name for holder in shares._held} == {name for name in model if model[name]}


def test_a_holder_is_bound_by_the_total_or_by_its_own_share() -> None:
    """Where neither has a bound, nothing need be counted for it. (§11)"""
    free = Shares("max_things", 0)
    assert not free.bounds(KEY)
    assert not free.bounds(LOCAL)

    assert Shares("max_things", 2).bounds(NOBODY)
    assert Shares("max_things", 0, per_key=2).bounds(KEY)
    assert not Shares("max_things", 0, per_key=2).bounds(LOCAL)
