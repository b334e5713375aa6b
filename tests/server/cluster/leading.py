"""A leader in memory, in a process of its own, for stories in which it is killed or stopped.

Usage: leading.py PORT; prints the port that it listens on, and serves until it is ended.
"""

import asyncio
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))  # a program, and no module of the tests

from server.cluster.pair import FakeStanding, Node


async def main() -> None:
    node = Node(FakeStanding(leads=True, node="n1"), None, None, int(sys.argv[1]))
    node.standing.leader_url = node.url
    await node.start()
    print(node.port, flush=True)
    await asyncio.Event().wait()


asyncio.run(main())
