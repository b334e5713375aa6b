"""Groups as operators see them: described, listed, deleted (DescribeGroups, ListGroups, DeleteGroups)."""

from typing import Any, Final

from topics.protocol.faces.kafka import errors
from topics.protocol.model.commands import DeleteGroup, DescribeGroup, ListGroups
from topics.protocol.model.errors import Rejection
from topics.protocol.model.groups import CLASSIC, GroupFault, GroupPhase, GroupRefusal
from topics.protocol.model.outcomes import GroupShown, GroupsListed
from topics.server.kafka.call import Call, listed
from topics.server.kafka.steps import Steps

PAGE: Final = 500
"""Groups of a list that are looked at in one turn."""
_STATES: Final = {
    GroupPhase.EMPTY: "Empty",
    GroupPhase.PREPARING: "PreparingRebalance",
    GroupPhase.COMPLETING: "CompletingRebalance",
    GroupPhase.STABLE: "Stable",
    GroupPhase.DEAD: "Dead",
}
_PHASES: Final = {name.lower(): phase.value for phase, name in _STATES.items()}
_NOT_FOUND_FROM: Final = 6
"""The version of DescribeGroups from which on a group that is not there is an error."""


def describe(call: Call) -> Steps[Any]:
    """Groups with their members."""
    groups = []
    for name in call.request.groups:
        group = yield from _described(call, name)
        if call.request.include_authorized_operations:
            group.authorized_operations = call.operations_on_group(name)
        groups.append(group)
        yield from call.part_done()
    return call.T.DescribeGroupsResponse(groups=groups)


def _described(call: Call, name: str) -> Steps[Any]:
    T = call.T
    if (lacks := call.lacks("read", name)) is not None:
        return T.DescribedGroup(
            error_code=errors.GROUP_AUTHORIZATION_FAILED,
            error_message=lacks.message,
            group_id=name,
        )
    try:
        shown: GroupShown = yield from call.ask(DescribeGroup(name, page_size=0))
    except Rejection as refusal:
        is_absent = isinstance(refusal, GroupRefusal) and refusal.fault is GroupFault.NO_GROUP
        is_plain = is_absent and call.version < _NOT_FOUND_FROM
        return T.DescribedGroup(
            error_code=0 if is_plain else errors.code_of_group(refusal),
            error_message=None if is_plain else refusal.message,
            group_id=name,
            group_state=_STATES[GroupPhase.DEAD] if is_absent else "",
        )
    summary = shown.summary
    is_stable = summary.phase is GroupPhase.STABLE
    members = [
        T.DescribedGroupMember(
            member_id=each.member_id,
            group_instance_id=each.instance_id,
            client_id=each.client_id,
            client_host=each.client_host,
            member_metadata=each.metadata_of(shown.protocol) if is_stable else b"",
            member_assignment=each.assignment,
        )
        for each in shown.members
    ]
    return T.DescribedGroup(
        group_id=name,
        group_state=_STATES[summary.phase],
        protocol_type=summary.protocol_type,
        protocol_data=shown.protocol,
        members=members,
    )


def list_groups(call: Call) -> Steps[Any]:
    """All groups that the client may see; of some states and types where they are named."""
    request, T = call.request, call.T
    if call.lacks("read") is not None:
        return T.ListGroupsResponse(error_code=errors.GROUP_AUTHORIZATION_FAILED)
    wanted = [state.lower() for state in request.states_filter]
    phases = [_PHASES[state] for state in wanted if state in _PHASES]
    types = {each.lower() for each in request.types_filter}
    groups = list[Any]()
    after: str | None = ""
    if (wanted and not phases) or (types and CLASSIC not in types):
        after = None
    while after is not None:
        page: GroupsListed = yield from call.ask(ListGroups("", PAGE, after, phases))
        groups += (
            T.ListedGroup(
                group_id=each.name,
                protocol_type=each.protocol_type,
                group_state=_STATES[each.phase],
                group_type=each.kind,
            )
            for each in page.groups
        )
        after = page.after
        if after is not None:
            yield from call.pause(0)
    call.is_long = len(groups) > PAGE
    return T.ListGroupsResponse(groups=groups)


def delete(call: Call) -> Steps[Any]:
    """Groups without members go, with their offsets."""
    T, results = call.T, []
    for name in listed(call.request.groups_names):
        code = 0
        if call.lacks("delete", name) is not None:
            code = errors.GROUP_AUTHORIZATION_FAILED
        else:
            try:
                yield from call.ask(DeleteGroup(name))
            except Rejection as refusal:
                code = errors.code_of_group(refusal)
        results.append(T.DeletableGroupResult(group_id=name, error_code=code))
        yield from call.part_done()
    return T.DeleteGroupsResponse(results=results)
