"""Rounds of maintenance, run when a test wants them."""

import asyncio

from topics.server.runtime.runtime import Runtime


async def keep_up(runtime: Runtime, *, checkpoint: bool = False) -> None:
    """Run a round of maintenance after the current one; raises the error that ended it."""
    maintenance = runtime.driver.maintenance
    while not maintenance.is_idle:
        await asyncio.sleep(0)
    ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
    maintenance.round(ended.set_result, checkpoint=checkpoint)
    error = await ended
    if error is not None:
        raise error
