"""What became of jobs, in the log that nodes share: another node shows it, and goes on with it (§10.9)."""

from typing import Any

import orjson
import pytest

from topics.protocol.cluster.rule.unit import FORMAT
from topics.protocol.faces.http.jobs import parse_change, parse_get, parse_list
from topics.protocol.faces.http.queues import (
    parse_ack,
    parse_claim,
    parse_extend,
    parse_nack,
    parse_redrive,
)
from topics.protocol.model.commands import Command
from topics.protocol.model.errors import ErrorCode, Rejection

from .rig import LIMITS, Rig

PARSERS: dict[str, Any] = {
    "claim": parse_claim,
    "ack": parse_ack,
    "nack": parse_nack,
    "extend": parse_extend,
}


def say(rig: Rig, action: str, *seqs: int, **fields: object) -> None:
    body = {"node": "w", **({"seqs": seqs} if action != "claim" else {}), **fields}
    rig.ask(PARSERS[action]("q", orjson.dumps(body), LIMITS))
    rig.land()


def found(process: Any, command: Command) -> Any:
    answers: list[Any] = []
    process.ask(command, answers.append)
    [answer] = answers
    return answer


def states(process: Any) -> dict[int, tuple[str, list[str], Any]]:
    """Of each job, in the queue or ended: its state, reasons and result."""
    out = {}
    for query in ({}, {"state": "done"}, {"state": "dead"}):
        for job in found(process, parse_list("q", query))["jobs"]:
            out[job["seq"]] = job["state"], [r["reason"] for r in job["reasons"]], job["result"]
    return out


def a_queue() -> Rig:
    """Job 1 done, 2 dead, 3 delayed, 4 held with progress."""
    rig = Rig()
    rig.leader.member.write_format(FORMAT)
    rig.put("q", type="queue", dead_letter="d", keep_done=10)
    rig.append(*"abcd", name="q")
    rig.land()
    say(rig, "claim", max=4)
    say(rig, "ack", 1, result={"n": 1})
    say(rig, "nack", 2, dead=True, reason="broken")
    say(rig, "nack", 3, delay_ms=60_000, reason="later")
    say(rig, "extend", 4, lease_ms=60_000, progress=[4])
    return rig


KNOWN = {
    1: ("done", [], {"n": 1}),
    2: ("dead", ["broken"], None),
    3: ("delayed", ["later"], None),
    4: ("leased", [], None),
}


def test_a_replica_shows_what_its_leader_shows() -> None:
    rig = a_queue()
    assert states(rig.leader) == states(rig.replica) == KNOWN
    assert found(rig.replica, parse_get("q", "4", {}))["progress"] == [4]


def test_another_leader_goes_on_with_it() -> None:
    """Its reasons are added to those that are there; letters go back there, each once."""
    rig = a_queue()
    old, rig.leader = rig.leader, rig.replica
    rig.lead(rig.leader)
    rig.leader.member.write_format(FORMAT)
    assert states(rig.leader) == KNOWN

    rig.ask(parse_change("q", "promote", "3", b"{}"))
    rig.land()
    say(rig, "claim")
    say(rig, "nack", 3, reason="again")
    rig.ask(parse_redrive("d", b'{"to":"q"}'))
    rig.land()

    assert states(rig.leader)[3] == ("ready", ["later", "again"], None)
    assert states(rig.leader)[5] == ("ready", [], None)
    assert rig.read(name="d") == []
    assert states(old) == states(rig.leader)


@pytest.mark.parametrize(
    ("action", "more"),
    [
        ("nack", {"reason": "r"}),
        ("ack", {"result": 1}),
        ("extend", {"lease_ms": 500, "progress": 1}),
    ],
)
def test_what_an_older_node_could_not_read_waits(action: str, more: dict[str, Any]) -> None:
    """409 `upgrade_pending`, while the same without it is done. (§0.6)"""
    rig = Rig()
    rig.leader.member.write_format(3)
    rig.put("q", type="queue")
    rig.append("a", name="q")
    rig.land()
    say(rig, "claim")
    with pytest.raises(Rejection) as refused:
        rig.leader.host.driver.submit(
            PARSERS[action]("q", orjson.dumps({"node": "w", "seqs": [1], **more}), LIMITS),
            pytest.fail,
        )
    assert refused.value.code is ErrorCode.UPGRADE_PENDING
    rest = {"lease_ms": 500} if action == "extend" else {}
    say(rig, action, 1, **rest)
    assert rig.answers[-1][f"{action}ed"] == 1
