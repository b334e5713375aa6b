"""Two nodes of real engines over one log, in which nothing happens but what a test does."""

from typing import Any

import orjson
from cluster.ending import settle
from cluster.engine_world import EngineWorld
from cluster.engines import LIMITS, EngineProcess

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.records import parse_delete, parse_diff
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.commands import Command


class Rig:
    """A leader and a replica; `land` lets everything arrive, `turn` only ends the leader's turn.

    Attributes:
        answers: Of the leader's clients, in the order in which they came.
    """

    def __init__(self) -> None:
        self.world = EngineWorld(0)
        for name in ("n2", "n3", "n4"):
            self.world.kill(self.world.processes[name], power=False)
            del self.world.stores[name]
        self.leader: EngineProcess = self.world.processes["n0"]
        self.replica: EngineProcess = self.world.processes["n1"]
        self.leader.skew_ms = self.replica.skew_ms = 0
        self.answers: list[Any] = []
        self.land()
        self.lead(self.leader)

    def lead(self, process: EngineProcess) -> None:
        self.world.lead(process)  # type: ignore[arg-type]
        self.land()

    def land(self) -> None:
        settle(self.world)

    def turn(self) -> None:
        self.leader.end_turn()

    def ask(self, command: Command) -> None:
        self.leader.ask(command, self.answers.append)

    def append(self, *datas: object, name: str = "t") -> None:
        body = orjson.dumps({"records": [{"data": data} for data in datas]})
        self.ask(parse_append(name, body, LIMITS, return_seqs=True, header_key=None))

    def fill(self) -> list[str]:
        """Have as many turns on their way as may be, each an append to `t`; their datas."""
        datas = []
        while self.leader.host.acceptance.turns.has_room:
            datas.append(f"on its way {len(datas)}")
            self.append(datas[-1])
            self.leader.host.driver.end_turn()
        return datas

    def put(self, name: str = "t", **config: object) -> None:
        self.ask(parse_put(name, orjson.dumps(config)))

    def delete(self, before_seq: int, name: str = "t") -> None:
        self.ask(parse_delete(name, orjson.dumps({"before_seq": before_seq})))

    def read(self, process: EngineProcess | None = None, name: str = "t", **fields: object) -> Any:
        """Datas at once, a refusal, or None while the read waits."""
        found: list[Any] = []
        body = orjson.dumps({"from_seq": 0, **fields})
        (process or self.leader).ask(parse_diff(name, body, LIMITS), found.append)
        if not found:
            return None
        page = found[0]
        return page if isinstance(page, Exception) else [r["data"] for r in page["records"]]
