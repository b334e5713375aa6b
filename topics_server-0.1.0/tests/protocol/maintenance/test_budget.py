"""The rate of rewrites (§5)."""

from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.maintenance.budget import BURST_MS, RewriteBudget

RATE = 1000


def test_what_was_spent_is_paid_by_time() -> None:
    """A second's worth may be spent at once; then the next file waits until it is paid."""
    budget = RewriteBudget(RATE)
    assert budget.ready_ms() <= 10_000

    budget.spend(RATE, 10_000)
    assert budget.ready_ms() == 10_000
    budget.spend(500, 10_000)
    assert budget.ready_ms() == 10_500
    budget.spend(3 * RATE, 10_500)
    assert budget.ready_ms() == 13_500


def test_no_rate_is_no_wait() -> None:
    """0 is no limit, whatever was spent."""
    budget = RewriteBudget(0)

    budget.spend(1 << 40, 5)

    assert budget.ready_ms() == 0


@given(st.lists(st.tuples(st.integers(0, 5000), st.integers(1, 3000)), min_size=1, max_size=50))
def test_no_span_of_time_has_more_than_its_rate(files: list[tuple[int, int]]) -> None:
    """Each file is begun when the budget allows it: between any two of them no more was spent than
    the rate, one burst and one file. (§5)"""
    budget, now_ms = RewriteBudget(RATE), 100_000
    begun: list[tuple[int, int]] = []
    for pause_ms, size in files:
        now_ms = max(now_ms + pause_ms, budget.ready_ms())
        budget.spend(size, now_ms)
        begun.append((now_ms, size))

    for i, (first_ms, _) in enumerate(begun):
        for j in range(i, len(begun)):
            spent = sum(size for _, size in begun[i:j])
            allowed = (begun[j][0] - first_ms + BURST_MS) * RATE / 1000 + RATE / 1000
            assert spent <= allowed + max(size for _, size in files)
