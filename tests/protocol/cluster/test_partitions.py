"""Partitions in the log that nodes share (§4)."""

from topics.protocol.cluster.rule.unit import FORMAT

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
