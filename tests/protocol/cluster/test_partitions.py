"""Partitions in the log that nodes share (§4)."""

import orjson
from cluster.engines import LIMITS, EngineProcess

from protocol.viewers import short
from topics.protocol.cluster.rule.unit import FORMAT
from topics.protocol.driver.streams import Streams
from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.model.commands import Begin, View
from topics.protocol.state.frames import Frame

from .rig import Rig


def test_partitions_are_added_in_every_copy() -> None:
    rig = Rig()
    rig.leader.member.write_format(FORMAT)
    rig.put(partitions=2)
    rig.land()
    rig.put(partitions=3)
    rig.land()

    for process in (rig.leader, rig.replica):
        engine = process.engine
        assert [each.engine_name for each in engine.state.topics["t"].partitions] == [
            "t",
            "t#1",
            "t#2",
        ]
        assert engine.has_partitions("t")
        assert not engine.has_partitions("another")


def test_partitions_join_the_watches_of_every_copy() -> None:
    """Of the leader, and of a replica that applies what it decided. (§7, §8.7)"""
    rig = Rig()
    rig.leader.member.write_format(FORMAT)
    rig.put()
    rig.land()
    watching = {process: Watching(process) for process in (rig.leader, rig.replica)}
    rig.put(partitions=2)
    body = orjson.dumps({"records": [{"data": 1, "partition": 1}]})
    rig.land()
    rig.ask(parse_append("t", body, LIMITS, return_seqs=True, header_key=None))
    rig.land()

    for each in watching.values():
        assert sorted(each.told()) == ["t#1 1", "t#1 caught up at 1"]


class Watching:
    """A socket of one process."""

    def __init__(self, process: EngineProcess) -> None:
        self.process = process
        self.stream = Streams(process.engine).socket(lambda: None)
        self.stream.add({"t": Begin()}, View(10, 1 << 20), process.engine.state.now_ms)
        assert self.told() == ["t caught up at 0"]

    def told(self) -> list[str]:
        found = []
        while (frame := self.stream.next_frame(self.process.engine.state.now_ms)) is not None:
            assert isinstance(frame, Frame)
            found.append(short(frame))
        return found
