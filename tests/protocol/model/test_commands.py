"""What the table says of each kind of command."""

import pytest

from topics.protocol.faces.http.route import Route, StreamKind
from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.model.commands import (
    FACTS,
    AddPartitions,
    AppendBatch,
    ChangeJobs,
    CommitOffsets,
    DeleteOffsets,
    DeleteSeqs,
    DescribeProducers,
    DescribeTopics,
    Diff,
    FetchBatches,
    FetchOffsets,
    FindPlaces,
    GetJob,
    GetSchedule,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    ListSchedules,
    ReserveProducerIds,
    RestsOn,
    SyncGroup,
    waits_for_news,
)

ASKED = [route for route in ROUTES if route.command is not None]


@pytest.mark.parametrize("route", ASKED, ids=lambda route: route.line)
def test_a_read_needs_no_more_than_the_scope_to_read(route: Route) -> None:
    """Whoever may only read changes nothing but how far they have read, and what a read rests on is never a
    change.  Schedules are for administrators alone. (§0.2, §13.3, §14)"""
    assert route.command is not None
    facts = FACTS[route.command]
    if route.command in (GetSchedule, ListSchedules):
        assert facts.is_read
        assert route.guard == "admin"
    else:
        assert facts.is_read == (route.guard == "read" and route.command is not CommitOffsets)
    assert facts.is_read or facts.rests_on is RestsOn.STATE


def test_every_command_has_a_route() -> None:
    """And is made by that route alone, but for the claims of a push stream."""
    made = [route.command for route in ASKED if route.target is not StreamKind.WORK]
    assert sorted(made.count(kind) for kind in set(made)) == [*[1] * (len(set(made)) - 1), 6]
    assert made.count(ChangeJobs) == 6
    assert set(made) == FACTS.keys() - {
        AddPartitions,
        AppendBatch,
        ReserveProducerIds,
        FetchBatches,
        FindPlaces,
        DescribeTopics,
        DescribeProducers,
        JoinGroup,
        SyncGroup,
        Heartbeat,
        LeaveGroup,
        FetchOffsets,
        DeleteOffsets,
        # Kafka's clients have these
        DeleteSeqs,  # and maintenance has this
    }


@pytest.mark.parametrize("wait_ms", [0, 1])
def test_a_read_that_does_not_wait_waits_for_no_news(wait_ms: int) -> None:
    """A read that is parked to go on in parts is in flight as any other. (§11)"""
    diff = Diff("t", 0, None, 1, 1, (), None, False, True, wait_ms, None)
    assert waits_for_news(diff) is (wait_ms > 0)


def test_a_look_at_a_job_may_wait_for_its_end() -> None:
    """And counts as a request that waits for news. (§10.9)"""
    assert waits_for_news(GetJob("q", 1, wait_ms=5))
    assert not waits_for_news(GetJob("q", 1))
