"""The server as an ASGI application, `topics.asgi:app`, for HTTP servers of others.

Importing it opens nothing: the engine begins with the host's lifespan, set up by `TOPICS_*`.
"""

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any


async def app(
    scope: MutableMapping[str, Any],
    receive: Callable[[], Awaitable[MutableMapping[str, Any]]],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
) -> None:
    """ASGI 3."""
    from topics.distribution import needs

    with needs("server", of="topics.asgi"):
        from topics.asgi.hosted import hosted

    await hosted(scope, receive, send)
