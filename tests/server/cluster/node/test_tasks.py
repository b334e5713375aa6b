"""Tasks of one owner."""

import asyncio

from topics.server.cluster.node.tasks import Tasks


def test_what_a_task_raises_is_heard_and_a_cancelled_one_did_not_fail() -> None:
    """Each failure once; those that still run end with their owner, and wait for nothing."""

    async def lived() -> tuple[list[BaseException], list[str]]:
        failed: list[BaseException] = []
        ended: list[str] = []
        tasks = Tasks(failed.append)

        async def fails() -> None:
            raise ValueError("broken")

        async def waits() -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.append("waits")

        async def ends() -> None:
            ended.append("ends")

        await asyncio.wait([tasks.begin(fails()), tasks.begin(ends())])
        waiting = tasks.begin(waits())
        await asyncio.sleep(0)
        await tasks.cancel()
        assert waiting.cancelled()
        return failed, ended

    failed, ended = asyncio.run(lived())

    assert [str(error) for error in failed] == ["broken"]
    assert ended == ["ends", "waits"]
