"""The life of a connection: every cell of its table."""

import pytest

from topics.server.transport.connection_life import LIVE, TABLE, ConnectionInput, ConnectionState

from .http1_rig import Rig

MOVES = """
           chosen  ended      lost
choosing   open    finishing  lost
open       -       finishing  lost
finishing  -       finishing  lost
lost       -       -          lost
"""
_NAMES, *_ROWS = [line.split() for line in MOVES.strip().splitlines()]
CELLS = [
    pytest.param(ConnectionState(row[0]), ConnectionInput(what), made, id=f"{row[0]}-{what}")
    for row in _ROWS
    for what, made in zip(_NAMES, row[1:], strict=True)
]


@pytest.mark.parametrize(("state", "what", "made"), CELLS)
def test_every_cell_of_the_table(state: ConnectionState, what: ConnectionInput, made: str) -> None:
    """A connection moves as the table says, and no other way."""
    connection = Rig().connection
    connection.state = state

    if made == "-":
        with pytest.raises(AssertionError):
            connection._move(what)
        assert connection.state is state
    else:
        connection._move(what)
        assert connection.state is ConnectionState(made)


def test_the_picture_is_the_whole_table() -> None:
    assert [row[0] for row in _ROWS] == [state.value for state in ConnectionState]
    assert [what.value for what in ConnectionInput] == _NAMES
    assert sum(made != "-" for row in _ROWS for made in row[1:]) == len(TABLE)


def test_what_is_over_stays_over() -> None:
    """No row leads back to where bytes are looked at."""
    assert not [made for (state, _), made in TABLE.items() if state not in LIVE and made in LIVE]
