"""`Connection`: the client of a broker or a backend, made when it is first used and closed at its shutdown.

A module that declares a broker is imported before there is an event loop, and a program may start and stop
the broker in several loops, one after the other: each has a client of its own.
"""

from topics.client import AsyncClient


class Connection:
    """A client on demand.

    Args:
        url, api_key: As for `AsyncClient`.
        client: In their place; `aclose` leaves it open.
    """

    def __init__(
        self, url: str | None, api_key: str | None, client: AsyncClient | None = None
    ) -> None:
        self._url = url
        self._api_key = api_key
        self._given = client
        self._made: AsyncClient | None = None

    @property
    def client(self) -> AsyncClient:
        if self._given is not None:
            return self._given
        if self._made is None:
            self._made = AsyncClient(self._url, api_key=self._api_key)
        return self._made

    async def aclose(self) -> None:
        made, self._made = self._made, None
        if made is not None:
            await made.aclose()
