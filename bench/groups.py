"""Groups of consumers and topics of many partitions: `python -m bench.groups [--beside] [--members N] [--groups N]`.

Raw sockets join, sync and leave, so that only the server's work is in the figures: CPU time of the server for a rebalance
and for a commit, what it does while many groups have nothing to do, and what partitions cost beside topics.  With
`--beside`, a broker of Apache Kafka does the rebalances and commits in the same run.
"""

import os
import time
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import click

from bench.kafka import Broker, Client, batch_of, create, framed, produce_frame, rss_mb, servers
from bench.serving import cpu_s_of
from topics.protocol.faces.kafka.codec import decode
from topics.protocol.faces.kafka.schema import types

TOPIC: Final = "of-groups"
SESSION_MS: Final = 45_000
IDLE_S: Final = 10
COMMITS: Final = 2000
NOT_YET: Final = (14, 15, 16)
"""Errors of a coordinator that is not there yet."""
BEGUN_S: Final = 0.02
CREATE_TOPICS: Final = 4
JOIN, SYNC, HEARTBEAT, LEAVE, COMMIT = 5, 3, 3, 3, 7
"""Versions that all servers of the last years have."""


class Member(NamedTuple):
    """A connection, and the id of its member."""

    client: Client
    member_id: str


def join(member: Member, group: str) -> bytes:
    T = types("JoinGroupRequest")
    return framed(
        "JoinGroup",
        JOIN,
        group_id=group,
        session_timeout_ms=SESSION_MS,
        rebalance_timeout_ms=SESSION_MS,
        member_id=member.member_id,
        protocol_type="consumer",
        protocols=[T.JoinGroupRequestProtocol(name="range", metadata=b"\0" * 40)],
    )


def ready(broker: Broker, group: str) -> None:
    """Wait for a coordinator: that of Kafka makes a topic first."""
    client = Client(broker)
    while True:
        client.ask("FindCoordinator", 2, key=group)
        answer = client.ask("Heartbeat", HEARTBEAT, group_id=group, member_id="nobody")
        if answer.error_code not in NOT_YET:
            break
        time.sleep(0.2)
    client.close()


def told(client: Client, group: str) -> Member:
    """A new member, which is told its id before it joins."""
    client.send(join(Member(client, ""), group))
    return Member(client, answered(client).member_id)


def answered(client: Client) -> Any:
    return decode("JoinGroupResponse", JOIN, memoryview(client.take()), 4)


def joined(members: Sequence[Member], group: str) -> int:
    """All members join the next generation, and are assigned something; its number."""
    for nth, member in enumerate(members):
        member.client.send(join(member, group))
        if nth == 0:
            time.sleep(
                BEGUN_S
            )  # a stable group answers the others at once, unless it has begun anew
    answers = [answered(member.client) for member in members]
    generation = answers[0].generation_id
    assert {answer.generation_id for answer in answers} == {generation}
    T = types("SyncGroupRequest")
    given = [
        T.SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"\1" * 60)
        for each in members
    ]
    for member, answer in zip(members, answers, strict=True):
        leads = answer.leader == member.member_id
        member.client.send(
            framed(
                "SyncGroup",
                SYNC,
                group_id=group,
                generation_id=generation,
                member_id=member.member_id,
                assignments=given if leads else [],
            )
        )
    for member in members:
        synced = decode("SyncGroupResponse", SYNC, memoryview(member.client.take()), 4)
        assert synced.error_code == 0, synced
    return generation  # type: ignore[no-any-return]


def rebalances(broker: Broker, count: int, rounds: int) -> None:
    """A member leaves, and the others join the next generation; then it comes again."""
    group = f"group-{os.getpid()}"
    ready(broker, group)
    members = [told(Client(broker), group) for _ in range(count)]
    first = joined(members, group)
    took: list[float] = []
    cpu_s = cpu_s_of(broker.pid)
    for _ in range(rounds):
        last = members.pop()
        T = types("LeaveGroupRequest")
        gone = [T.MemberIdentity(member_id=last.member_id)]
        begun_s = time.perf_counter()
        assert last.client.ask("LeaveGroup", LEAVE, group_id=group, members=gone).error_code == 0
        joined(members, group)
        took.append(time.perf_counter() - begun_s)
        members.insert(0, told(last.client, group))
        generation = joined(members, group)
    cpu_ms = (cpu_s_of(broker.pid) - cpu_s) / (2 * rounds) * 1000
    took.sort()
    print(f"  rebalance of {count}: {cpu_ms:.1f} ms of CPU", end="")
    print(
        f"; after a leave {took[len(took) // 2] * 1000:.0f} ms p50, {took[-1] * 1000:.0f} at most"
    )
    assert generation >= first + 2 * rounds
    commits(broker, group, members[0], generation)
    for member in members:
        member.client.close()


def commits(broker: Broker, group: str, member: Member, generation: int) -> None:
    """One member commits, one request at a time."""
    T = types("OffsetCommitRequest")
    part = T.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topics = [T.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
    frame = framed(
        "OffsetCommit",
        COMMIT,
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member.member_id,
        topics=topics,
    )
    cpu_s, begun_s = cpu_s_of(broker.pid), time.perf_counter()
    for _ in range(COMMITS):
        member.client.send(frame)
        member.client.take()
    took_s, cpu_s = time.perf_counter() - begun_s, cpu_s_of(broker.pid) - cpu_s
    print(
        f"  commit: {cpu_s / COMMITS * 1e6:.0f} µs of CPU, {COMMITS / took_s:,.0f}/s by one member"
    )


def idle(broker: Broker, groups: int) -> None:
    """What a server does in some seconds, before there are groups with an offset and after."""
    before_s = _idle_s(broker)
    T = types("OffsetCommitRequest")
    part = T.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
    topics = [T.OffsetCommitRequestTopic(name=TOPIC, partitions=[part])]
    client, rss = Client(broker), rss_mb(broker.pid)
    for nth in range(groups):
        answer = client.ask("OffsetCommit", COMMIT, group_id=f"idle-{nth}", topics=topics)
        assert answer.topics[0].partitions[0].error_code == 0, answer
    client.close()
    rss = rss_mb(broker.pid) - rss
    after_s = _idle_s(broker)
    print(f"  idle for {IDLE_S} s: {before_s * 1000:.0f} ms of CPU", end="")
    print(f"; with {groups:,} groups {after_s * 1000:.0f} ms, and {rss:.0f} MB more")


def _idle_s(broker: Broker) -> float:
    time.sleep(2)
    cpu_s = cpu_s_of(broker.pid)
    time.sleep(IDLE_S)
    return cpu_s_of(broker.pid) - cpu_s


def partitions(broker: Broker, count: int) -> None:
    """A topic of many partitions, and as many topics: made, and written to once each."""
    client = Client(broker)
    data = batch_of(1, 0, keyed=True)
    T = types("CreateTopicsRequest")
    wanted = {
        "topics": [(f"each-{nth}", 1) for nth in range(count)],
        "partitions": [("many", count)],
    }
    for what, named in wanted.items():
        cpu_s, rss, begun_s = cpu_s_of(broker.pid), rss_mb(broker.pid), time.perf_counter()
        new = [
            T.CreatableTopic(name=name, num_partitions=parts, replication_factor=1)
            for name, parts in named
        ]
        made = client.ask("CreateTopics", CREATE_TOPICS, topics=new, timeout_ms=60_000)
        assert not any(each.error_code for each in made.topics)
        made_s, made_cpu_s = time.perf_counter() - begun_s, cpu_s_of(broker.pid) - cpu_s
        cpu_s = cpu_s_of(broker.pid)
        for name, parts in named:
            for index in range(parts):
                client.send(produce_frame(name, data, index))
                client.take()
        cpu_s, rss = cpu_s_of(broker.pid) - cpu_s, rss_mb(broker.pid) - rss
        print(
            f"  {count:,} {what}: made in {made_s * 1000:.0f} ms, {made_cpu_s * 1000:.0f} of CPU",
            end="",
        )
        print(f"; a record to each {cpu_s * 1000:.0f} ms of CPU; {rss:.0f} MB")
    client.close()


@click.command()
@click.option("--beside", is_flag=True, help="A broker of Apache Kafka does the same.")
@click.option("--members", default=10, show_default=True, help="Of the group that rebalances.")
@click.option(
    "--rounds", default=20, show_default=True, help="How often one leaves and comes again."
)
@click.option("--groups", default=9_900, show_default=True, help="Groups that have nothing to do.")
@click.option("--partitions", "count", default=1000, show_default=True, help="Of one topic.")
def main(*, beside: bool, members: int, rounds: int, groups: int, count: int) -> None:
    """Groups and partitions, measured."""
    for broker in servers(beside=beside):
        print(broker.name)
        create(broker, TOPIC)
        rebalances(broker, members, rounds)
        if broker.name == "topics":
            idle(broker, groups)
            partitions(broker, count)


if __name__ == "__main__":
    main()
