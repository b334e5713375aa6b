"""How old what a replica shows is."""

from topics.server.cluster.node.lag import NOTES_MAX, Lag


def test_a_replica_that_has_all_lags_by_nothing() -> None:
    """However long ago it applied it."""
    lag = Lag()
    lag.note(5, 5, 100)
    assert (lag.units(5), lag.ms(5, 9000)) == (0, 0)
    assert (lag.units(0), lag.ms(0, 9000)) == (0, 0)


def test_the_age_is_that_of_the_oldest_unit_that_is_not_applied() -> None:
    """It grows while nothing is applied, and falls to the next unit's with each one that is. (§5)"""
    lag = Lag()
    lag.note(6, 5, 100)
    lag.note(6, 5, 150)
    lag.note(9, 5, 200)
    assert (lag.units(5), lag.ms(5, 300)) == (4, 200)
    assert (lag.units(6), lag.ms(6, 300)) == (3, 100)
    assert (lag.units(9), lag.ms(9, 300)) == (0, 0)

    lag.note(9, 9, 300)
    assert (lag.units(9), lag.ms(9, 400)) == (0, 0)
    lag.note(10, 9, 500)
    assert (lag.units(9), lag.ms(9, 600)) == (1, 100)


def test_a_long_lag_is_held_in_a_bounded_place() -> None:
    """The oldest age is kept, and how many units there are."""
    lag = Lag()
    for at in range(1, 3 * NOTES_MAX):
        lag.note(at, 0, at)
    assert len(lag._known) == NOTES_MAX
    assert lag.ms(0, 5000) == 4999
    assert lag.units(0) == 3 * NOTES_MAX - 1


def test_what_was_known_and_is_not_known_any_more_does_not_count_less() -> None:
    """A heartbeat that comes late names an older index."""
    lag = Lag()
    lag.note(9, 5, 100)
    lag.note(7, 5, 200)
    assert lag.units(5) == 4
