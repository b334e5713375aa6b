"""Ids of producers, and the coordinators of groups and transactions.

Ids are reserved a block at a time: a block is durable before its first id is given.
"""

from typing import Any, Final

from topics.protocol.faces.kafka import errors
from topics.protocol.model.commands import ReserveProducerIds
from topics.protocol.model.errors import Rejection
from topics.protocol.model.outcomes import ProducerIds
from topics.server.kafka.call import Call
from topics.server.kafka.steps import Steps
from topics.server.service.nodes import NO_NODE

BLOCK: Final = 1000
NO_TRANSACTIONS: Final = "topics has no transactions"
GROUP, TRANSACTION = 0, 1


class IdBlock:
    """What is left of a block, for one server.

    Attributes:
        first, left: The next id, and how many there are.
    """

    def __init__(self) -> None:
        self.first = self.left = 0

    def take(self, call: Call) -> Steps[int]:
        """An id that no producer has.  Raises Rejection."""
        while not self.left:
            found: ProducerIds = yield from call.ask(ReserveProducerIds(BLOCK))
            if (
                not self.left
            ):  # another request may have got a block meanwhile; this one is given up
                self.first, self.left = found.first, found.count
        given = self.first
        self.first, self.left = self.first + 1, self.left - 1
        return given


def init_producer_id(call: Call, block: IdBlock) -> Steps[Any]:
    """An id for a producer that numbers its batches; none for one with transactions."""
    request, T = call.request, call.T
    if request.transactional_id is not None:
        return T.InitProducerIdResponse(
            error_code=errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            producer_id=-1,
            producer_epoch=-1,
        )
    if call.lacks("write") is not None:
        return T.InitProducerIdResponse(
            error_code=errors.CLUSTER_AUTHORIZATION_FAILED, producer_id=-1, producer_epoch=-1
        )
    if call.cluster.leader is NO_NODE:
        code = call.role.later
        return T.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    try:
        given = yield from block.take(call)
    except Rejection as refusal:
        code = errors.code_of(refusal)
        return T.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return T.InitProducerIdResponse(producer_id=given)


def find_coordinator(call: Call) -> Steps[Any]:
    """The leader coordinates every group; there are no transactions."""
    request, T = call.request, call.T
    code, message = 0, None
    if request.key_type == TRANSACTION:
        code, message = errors.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, NO_TRANSACTIONS
    elif request.key_type != GROUP:
        code, message = (
            errors.INVALID_REQUEST,
            f"topics coordinates nothing of type {request.key_type}",
        )
    elif (lacks := call.lacks("read")) is not None:
        code, message = errors.GROUP_AUTHORIZATION_FAILED, lacks.message
    elif call.cluster.leader is NO_NODE:
        code, message = errors.COORDINATOR_NOT_AVAILABLE, "no node leads now"
    node, host, port = NO_NODE if code else call.cluster.leader
    if call.version < 4:
        return T.FindCoordinatorResponse(
            error_code=code, error_message=message, node_id=node, host=host, port=port
        )
    return T.FindCoordinatorResponse(
        coordinators=[
            T.Coordinator(
                key=key, node_id=node, host=host, port=port, error_code=code, error_message=message
            )
            for key in request.coordinator_keys
        ]
    )
    yield
