"""Memory for bodies: who gives way when it is used up (§11, `max_body_memory`)."""

from hypothesis import given
from hypothesis import strategies as st

from topics.server.transport.bodies import Bodies, BodyShare


class Client:
    """Bodies from some addresses; a body that is refused is dropped, as a speaker does."""

    def __init__(self, max_bytes: int, free_bytes: int = 0) -> None:
        self.bodies = Bodies(max_bytes, free_bytes)
        self.refused: list[BodyShare] = []

    def body(self, client: str = "a") -> BodyShare:
        def refuse() -> None:
            self.refused.append(share)
            share.close()

        share = BodyShare(self.bodies, client, refuse)
        return share


def test_a_small_body_is_never_refused() -> None:
    """Up to `free_bytes` a body is not counted, whatever others hold."""
    clients = Client(1000, free_bytes=64)
    assert clients.body().take(1000)
    small = clients.body("b")
    assert small.take(64)

    assert clients.bodies.held_bytes == 1000
    assert clients.refused == []


def test_the_largest_body_gives_way() -> None:
    """Four bodies that take all the room do not keep a smaller one out: one of them goes."""
    clients = Client(1000)
    large = [clients.body() for _ in range(4)]
    for n, share in enumerate(large):
        assert share.take(248 + n)
    other = clients.body()
    assert other.take(100)

    assert clients.refused == [large[3]]
    assert other.held_bytes == 100
    assert clients.bodies.refused == 1


def test_the_body_that_asks_gives_way_where_it_is_the_largest() -> None:
    """Nothing is held of what was refused."""
    clients = Client(1000)
    small, large = clients.body(), clients.body()
    assert small.take(300)
    assert large.take(600)
    assert not large.take(200)

    assert clients.refused == []
    assert (large.held_bytes, clients.bodies.held_bytes) == (600, 900)


def test_the_address_that_holds_most_gives_way_first() -> None:
    """Many bodies of one address count as one: the single large body of another stays."""
    clients = Client(1000)
    many = [clients.body("a") for _ in range(6)]
    for share in many:
        assert share.take(100)
    single = clients.body("b")
    assert single.take(400)
    assert single.take(100)

    assert len(clients.refused) == 1
    assert clients.refused[0] in many


def test_a_body_that_is_whole_does_not_give_way() -> None:
    """It is being carried out; it counts, and the next largest goes."""
    clients = Client(1000)
    whole, arriving = clients.body(), clients.body()
    assert whole.take(700)
    whole.settle()
    assert arriving.take(300)
    assert clients.body().take(10)
    assert clients.refused == [arriving]
    assert not clients.body().take(300)

    assert whole.held_bytes == 700


def test_a_share_serves_one_body_after_the_other() -> None:
    """What is closed holds nothing, and may be taken from again."""
    clients = Client(1000, free_bytes=10)
    share = clients.body()
    assert share.take(10)
    assert share.take(900)
    share.settle()
    share.close()
    share.close()
    assert clients.bodies.held_bytes == share.held_bytes == 0
    assert share.take(1000)
    assert clients.bodies.held_bytes == 1000


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 120), st.booleans()), max_size=60))
def test_the_amount_is_what_its_holders_hold(steps: list[tuple[int, int, bool]]) -> None:
    """Never more than the bound, and exactly the sum of the bodies that count."""
    clients = Client(300, free_bytes=20)
    shares = [clients.body(client) for client in "aabbcd"]
    for which, size, closes in steps:
        if closes:
            shares[which].close()
        else:
            shares[which].take(size)
        counted = sum(s.held_bytes for s in shares if s.held_bytes > 20)
        assert clients.bodies.held_bytes == counted <= 300
