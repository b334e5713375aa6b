"""By what nodes of one cluster know one another."""

from topics.server.cluster.peers import Peers
from topics.server.cluster.tokens import is_token, token_of

from .pair import SECRET


def test_the_token_is_of_the_secret() -> None:
    """Nodes of one cluster make the same, those of another one not; and it tells nothing of it."""
    assert token_of(SECRET) == Peers(SECRET).token != token_of(bytes(16))
    assert SECRET.hex().encode() not in token_of(SECRET)
    assert is_token(token_of(SECRET), Peers(SECRET).token)
    assert not is_token(b"", Peers(SECRET).token)


def test_the_secret_may_be_known_later() -> None:
    """A node has it once it has joined; until then no other node takes what it asks."""
    peers = Peers(bytes(16))
    peers.know(SECRET)

    assert peers.token == token_of(SECRET)
