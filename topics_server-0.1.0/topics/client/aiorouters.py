"""The calls of a client that are about routers."""

from collections.abc import AsyncIterator

from topics.client import endpoints, paging
from topics.client.aiosession import AsyncSession
from topics.client.models import Guarantee, Router, RouterConfig, RouterDeleted, RouterSummary
from topics.client.options import Match


class AsyncRouterCalls:
    """The part of `AsyncClient` for routers.

    Attributes:
        session: Sends the calls.
    """

    session: AsyncSession

    async def put_router(
        self,
        name: str,
        source: str,
        dest: str,
        *,
        filter: Match | None = None,
        preserve_node: bool = True,
        preserve_tag: bool = True,
        create_dest: bool = True,
        allow_cycle: bool = False,
        guarantee: Guarantee = "at_least_once",
    ) -> RouterConfig:
        """Copy every record that is appended to `source` from now on to `dest`.

            await client.put_router("orders-audit", "orders", "audit", filter="eu.*")

        Replaces the router of that name, if there is one; the same call again changes nothing.

        Args:
            filter: Forward only records whose tag matches, in the grammar of `delete`.
            preserve_node: Copies keep the `node` of their writer, so that it can leave them out.
            preserve_tag: Copies keep their tag.
            create_dest: False raises `TopicNotFound` where `dest` does not exist.
            allow_cycle: Allow a ring of routers; a record goes round it 8 times at most.
            guarantee: "exactly_once" appends no copy twice, whatever crashes.

        Raises:
            Conflict: It would close a ring (`detail["cycle"]`), or `dest` has another source.
        """
        call = endpoints.put_router(
            name,
            source,
            dest,
            filter=filter,
            preserve_node=preserve_node,
            preserve_tag=preserve_tag,
            create_dest=create_dest,
            allow_cycle=allow_cycle,
            guarantee=guarantee,
        )
        return await self.session.do(call)

    async def router(self, name: str) -> Router:
        """A router, how far it is, and what blocks it.  Raises `RouterNotFound`."""
        return await self.session.do(endpoints.router(name))

    def routers(
        self,
        *,
        prefix: str = "",
        source: str | None = None,
        dest: str | None = None,
        page_size: int = 1000,
    ) -> AsyncIterator[RouterSummary]:
        """All routers whose name begins with `prefix`, of this source and destination, page by
        page.

            async for router in client.routers(source="orders"):
                print(router.dest, router.lag)

        Args:
            page_size: Routers of one request.
        """
        pages = paging.routers(prefix=prefix, source=source, dest=dest, page_size=page_size)
        return self.session.items(pages)

    async def delete_router(self, name: str) -> RouterDeleted:
        """Stop forwarding at once; the copies that were made stay."""
        return await self.session.do(endpoints.delete_router(name))
