"""The leader's end of a link: who may have one, and what it bears. (§5 of the cluster)"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from topics.protocol.faces.http.append_body import parse_append
from topics.protocol.faces.http.queues import parse_claim
from topics.protocol.model.limits import Limits
from topics.server.cluster import link_socket as module
from topics.server.cluster.link_socket import LinkSocket
from topics.server.cluster.tokens import token_of
from topics.server.links.codec import encode_command
from topics.server.links.messages import (
    Answered,
    Asker,
    Ended,
    Refused,
    Submit,
    decode_to_ask,
    encode,
)

from .pair import SECRET, Node, Pair, a_pair, run

NODE = {"X-Topics-Forwarded": token_of(SECRET).decode(), "X-Topics-Link": "1"}


@asynccontextmanager
async def a_link(node: Node, headers: dict[str, str] = NODE) -> AsyncIterator[ClientConnection]:
    url = node.url.replace("http", "ws") + "/v0/cluster/link"
    async with connect(url, additional_headers=headers, compression=None, proxy=None) as link:
        yield link


def submit(number: int, data: bytes = b"1") -> bytes:
    body = b'{"records":[{"data":%b}]}' % data
    append = parse_append("t", body, Limits(), return_seqs=True, header_key=None)
    kind, head, pieces = encode_command(append)
    text = b"".join(pieces)
    return encode(Submit(number, Asker(b"", "", 1), kind, head, len(text), text))


@pytest.mark.parametrize(
    ("changes", "status"),
    [
        ({"X-Topics-Forwarded": ""}, 404),
        ({"X-Topics-Forwarded": token_of(bytes(16)).decode()}, 404),
        ({"X-Topics-Link": "2"}, 400),
        ({"X-Topics-Link": ""}, 400),
    ],
    ids=["no token", "another cluster's", "another version", "no version"],
)
def test_a_link_is_for_nodes_of_the_cluster(changes: dict[str, str], status: int) -> None:
    """For others there is no such path; a version that is not known is told."""

    async def story() -> None:
        async with a_pair() as pair:
            with pytest.raises(InvalidStatus) as refused:
                async with a_link(pair.leader, NODE | changes):
                    pass
            assert refused.value.response.status_code == status

    run(story())


async def answered(link: ClientConnection) -> Answered | Refused:
    data = await link.recv()
    assert isinstance(data, bytes)
    found = decode_to_ask(data)
    assert isinstance(found, Answered | Refused)
    return found


def test_a_command_is_decided_by_who_leads_and_by_nobody_else() -> None:
    """What a node asks of a node that follows is not asked of a third."""

    async def story() -> None:
        async with a_pair() as pair:
            for node, is_done in ((pair.leader, True), (pair.follower, False)):
                async with a_link(node) as link:
                    await link.send(submit(1))
                    assert isinstance(await answered(link), Answered) is is_done
            assert pair.leader.shell.engine.state.topics["t"].head_seq == 1

    run(story())


def test_many_short_messages_are_no_flood() -> None:
    """A node says of each claim that it is over, in six bytes; frames so short are counted against
    a client, and not against a node."""

    async def story() -> None:
        async with a_pair() as pair, a_link(pair.leader) as link:
            for number in range(5000):
                await link.send(encode(Ended(number)))
            await link.send(submit(1))
            assert isinstance(await answered(link), Answered)

    run(story())


@pytest.mark.parametrize("said", [b"\xc1", b"", "text"], ids=["garbage", "no bytes", "text"])
def test_what_is_no_message_ends_the_link_and_nothing_else(said: bytes | str) -> None:
    async def story() -> None:
        async with a_pair() as pair:
            async with a_link(pair.leader) as link:
                await link.send(said)
                with pytest.raises(ConnectionClosed):
                    await link.recv()
            assert (await pair.leader.append("t", 1)).status == 201

    run(story())


def test_what_a_link_asked_for_ends_with_it() -> None:
    """Its claims wait no more: no job is leased to a node that is gone. (§10.2)"""

    async def story() -> None:
        async with a_pair() as pair:
            pair.leader.put("q", type="queue")
            claim = parse_claim("q", b'{"node":"w","wait_ms":30000}', Limits())
            kind, head, _ = encode_command(claim)
            parked = pair.leader.shell.driver._parked
            async with a_link(pair.leader) as link:
                await link.send(encode(Submit(1, Asker(b"", "", 1), kind, head, 0, b"")))
                await until_parked(pair, 1)
                link.transport.abort()
            await until_parked(pair, 0)
            assert not parked

    run(story())


async def until_parked(pair: Pair, count: int) -> None:
    while len(pair.leader.shell.driver._parked) != count:
        await asyncio.sleep(0.001)


def test_who_does_not_take_is_sent_no_more_of_what_may_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "LOW_BYTES", 10)

    async def story() -> None:
        socket = LinkSocket()
        lows: list[bool] = []
        woken: list[int] = []
        socket.when_low = lambda: lows.append(socket.is_low)
        socket.listen(lambda: woken.append(1))
        assert (socket.take(), socket.is_clear, socket.is_drained) == (None, True, True)
        socket.relay(b"x" * 6)
        socket.relay(b"y" * 6)
        assert (socket.is_low, socket.is_drained, len(woken)) == (False, False, 3)
        assert socket.take() == b"x" * 6
        assert lows == [True]
        socket.close()
        socket.close()
        socket.relay(b"z")
        assert (socket.take(), socket.is_over, socket.is_low) == (None, True, False)

    run(story())
