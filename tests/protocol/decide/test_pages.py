"""Pages of names in order. (§1.3)"""

from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.decide.pages import page_of
from topics.protocol.model.access import ANYONE, Caller

NAMES = st.lists(st.text("ab.", min_size=1, max_size=4), unique=True).map(sorted)
CALLERS = st.sampled_from([ANYONE, Caller("k", prefixes=("a.", "b")), Caller("k", prefixes=("c",))])


@given(NAMES, CALLERS, st.sampled_from(["", "a", "b.", "ab"]), st.integers(1, 3), st.booleans())
def test_all_pages_have_every_name_once_that_the_caller_may_see(
    names: list[str], caller: Caller, prefix: str, size: int, is_cut: bool
) -> None:
    """Whether names are left out or not, each page goes on behind the last name of the one before."""

    def is_listed(name: str) -> bool:
        return not name.endswith("b")

    found, after = list[str](), ""
    while page := page_of(names, caller, prefix, after, size, is_listed if is_cut else None):
        assert len(page) <= size
        found += page
        after = page[-1]
    expected = [name for name in names if name.startswith(prefix) and caller.covers(name)]
    assert found == [name for name in expected if is_listed(name) or not is_cut]
