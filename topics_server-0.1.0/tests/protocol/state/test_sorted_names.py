"""Names in order, for listings (§1.3)."""

from hypothesis import given
from hypothesis import strategies as st

from protocol.harness import Harness
from topics.protocol.state.sorted_names import _INSORT_MAX, SortedNames


def test_topics_are_listed_in_order_however_they_came() -> None:
    """One by one, or very many since somebody looked. (§1.3)"""
    engine = Harness()
    many = [f"t{i * 7919 % 1000}" for i in range(1000)]
    for name in ("u", "s"):
        engine.put(name)
    assert engine.engine.state.names == ["s", "u"]
    for name in many:
        engine.put(name)
    assert engine.engine.state.names == sorted([*many, "s", "u"])
    engine.put("sz")
    engine.drop("t500")

    assert engine.engine.state.names == sorted({*many, "s", "sz", "u"} - {"t500"})


@given(
    st.lists(
        st.tuples(st.sampled_from(["add", "remove", "read"]), st.integers(0, 199)), max_size=300
    ),
    st.integers(0, 2 * _INSORT_MAX),
)
def test_names_are_a_sorted_set(steps: list[tuple[str, int]], first: int) -> None:
    """Whatever came, went and was read between, few at a time or many. (§1.3)"""
    names = SortedNames()
    there = {f"first{i}" for i in range(first)}
    for name in there:
        names.add(name)
    for step, i in steps:
        name = f"n{i}"
        if step == "read":
            assert names.in_order() == sorted(there)
        elif step == "add" and name not in there:
            names.add(name)
            there.add(name)
        elif step == "remove" and name in there:
            names.remove(name)
            there.remove(name)

    assert names.in_order() == sorted(there)


def test_a_name_goes_that_nobody_has_read_yet() -> None:
    """A topic that is made and deleted between two listings is in neither. (§1.3)"""
    names = SortedNames()
    for name in ("b", "c", "a"):
        names.add(name)
    names.remove("c")
    assert names.in_order() == ["a", "b"]
    names.add("c")
    assert names.in_order() == ["a", "b", "c"]
