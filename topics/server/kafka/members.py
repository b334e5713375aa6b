"""Members of groups: who joins, syncs, lives and leaves (JoinGroup, SyncGroup, Heartbeat, LeaveGroup).

A join waits for the other members, and a sync for the leader.  Requests behind one on its connection are carried out
meanwhile, and answered behind it.
"""

import uuid
from typing import Any, Final

from topics.protocol.faces.kafka import errors
from topics.protocol.model.commands import Command, Heartbeat, JoinGroup, LeaveGroup, SyncGroup
from topics.protocol.model.errors import Rejection
from topics.protocol.model.groups import GroupRefusal, Membership
from topics.protocol.model.outcomes import GroupJoined, GroupLeft, GroupSynced
from topics.server.kafka.call import Call
from topics.server.kafka.steps import Steps

_TWICE_FROM: Final = 4
"""The version of JoinGroup from which on a new member is told its id first (KIP-394)."""
_TYPED_FROM: Final = 7
"""The version of JoinGroup from which on an answer names the type of the group, and may have no protocol (KIP-559)."""
_SKIPS_FROM: Final = 9
_SYNC_TYPED_FROM: Final = 5
"""The version of SyncGroup from which on a member has to say by which protocol it is assigned."""
_MEMBERS_FROM: Final = 3
"""The version of LeaveGroup from which on it names several members."""
BUSY_MS: Final = 1000
"""What a client has to pause that may not have another request wait here."""
CLIENT_CHARS_MAX: Final = 200
"""Of a client's name in the id of a member."""


def join(call: Call) -> Steps[Any]:
    """Become a member, or join the next generation."""
    request, T = call.request, call.T
    client = call.client_id[:CLIENT_CHARS_MAX]
    rebalance_ms = request.session_timeout_ms if call.version < 1 else request.rebalance_timeout_ms
    command = JoinGroup(
        group=request.group_id,
        member_id=request.member_id,
        new_member_id=f"{client or 'member'}-{uuid.uuid4()}",
        instance_id=request.group_instance_id,
        client_id=client,
        client_host=f"/{call.client.address}",
        session_ms=request.session_timeout_ms,
        rebalance_ms=max(rebalance_ms, 0),
        protocol_type=request.protocol_type,
        protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        joins_twice=call.version >= _TWICE_FROM,
        skips_assignment=call.version >= _SKIPS_FROM,
    )
    try:
        found: GroupJoined = yield from _waited(call, command)
    except Rejection as refusal:
        member_id = request.member_id
        if isinstance(refusal, GroupRefusal) and refusal.member_id:
            member_id = refusal.member_id
        return T.JoinGroupResponse(
            throttle_time_ms=_throttle_ms(call),
            error_code=errors.code_of_group(refusal),
            protocol_name=None if call.version >= _TYPED_FROM else "",
            member_id=member_id,
        )
    call.client.joined(request.group_id)
    members = [
        T.JoinGroupResponseMember(member_id=member, group_instance_id=instance, metadata=metadata)
        for member, instance, metadata in found.members
    ]
    return T.JoinGroupResponse(
        generation_id=found.generation,
        protocol_type=found.protocol_type,
        protocol_name=found.protocol,
        leader=found.leader,
        skip_assignment=found.skips_assignment,
        member_id=found.member_id,
        members=members,
    )


def sync(call: Call) -> Steps[Any]:
    """What the leader assigned; the leader says it."""
    request, T = call.request, call.T
    says = request.protocol_type, request.protocol_name
    if call.version >= _SYNC_TYPED_FROM and None in says:
        return T.SyncGroupResponse(error_code=errors.INCONSISTENT_GROUP_PROTOCOL)
    command = SyncGroup(
        group=request.group_id,
        member=_member(request),
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments=[(each.member_id, bytes(each.assignment)) for each in request.assignments],
    )
    try:
        found: GroupSynced = yield from _waited(call, command)
    except Rejection as refusal:
        return T.SyncGroupResponse(
            throttle_time_ms=_throttle_ms(call), error_code=errors.code_of_group(refusal)
        )
    return T.SyncGroupResponse(
        protocol_type=found.protocol_type,
        protocol_name=found.protocol,
        assignment=found.assignment,
    )


def _waited(call: Call, command: Command) -> Steps[Any]:
    """The outcome of a command that waits for other members.  Raises Rejection."""
    _require(call)
    try:
        call.slot.begin_poll()
    except Rejection:
        # Some clients do not heed the time that they are told, so nothing is read from them meanwhile.
        call.client.mute_s = BUSY_MS / 1000
        call.throttle()
        raise
    submitted = call.begin(command, holds=False)
    call.is_timed = submitted.later.is_there
    return (yield from submitted.outcome())


def _require(call: Call) -> None:
    """Raises Rejection: the client may not be a member."""
    lacks = call.lacks("read", call.request.group_id)
    if lacks is not None:
        raise lacks


def _throttle_ms(call: Call) -> int:
    """What the client is told to wait: nothing, unless too many wait already."""
    return round(call.client.mute_s * 1000)


def _member(request: Any) -> Membership:
    return Membership(request.generation_id, request.member_id, request.group_instance_id)


def heartbeat(call: Call) -> Steps[Any]:
    """A member lives."""
    code = 0
    try:
        _require(call)
        yield from call.ask(Heartbeat(call.request.group_id, _member(call.request)))
    except Rejection as refusal:
        code = errors.code_of_group(refusal)
    return call.T.HeartbeatResponse(error_code=code)


def leave(call: Call) -> Steps[Any]:
    """Members leave: one that asks for itself, or several that are named."""
    request, T = call.request, call.T
    if call.version < _MEMBERS_FROM:
        named = [Membership(member_id=request.member_id)]
    else:
        named = [
            Membership(member_id=each.member_id, instance_id=each.group_instance_id)
            for each in request.members
        ]
    try:
        _require(call)
        found: GroupLeft = yield from call.ask(LeaveGroup(request.group_id, named))
    except Rejection as refusal:
        return T.LeaveGroupResponse(error_code=errors.code_of_group(refusal))
    call.client.joined("")
    codes = [0 if fault is None else errors.FAULTS[fault] for fault in found.faults]
    if call.version < _MEMBERS_FROM:
        return T.LeaveGroupResponse(error_code=codes[0])
    members = [
        T.MemberResponse(
            member_id=each.member_id, group_instance_id=each.instance_id, error_code=code
        )
        for each, code in zip(named, codes, strict=True)
    ]
    return T.LeaveGroupResponse(members=members)
