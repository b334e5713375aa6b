"""Groups over real sockets: cursors that the server keeps, over every host (§13)."""

import random
from collections.abc import Callable
from typing import Any
from urllib.parse import quote

import pytest

from .api import Api
from .server import Server
from .wire import Http1

Start = Callable[..., Server]
NAMES = ["billing", "a/b c", "caf\u00e9 \U0001f680", "%2F", "\ufffd", "x" * 255]


def path(group: str, action: str = "") -> str:
    return f"/v0/groups/{quote(group, safe='')}" + (f"/{action}" if action else "")


def commit(api: Api, group: str, **seqs: int) -> Any:
    offsets = [{"topic": topic, "seq": seq} for topic, seq in seqs.items()]
    return api.ok("POST", path(group, "commit"), {"offsets": offsets})


def seqs_of(api: Api, group: str) -> dict[str, int]:
    return {each["topic"]: each["seq"] for each in api.ok("GET", path(group))["offsets"]}


@pytest.mark.every_server
def test_a_stored_cursor(api: Api, name: str) -> None:
    """Read, commit, and read on where the group is; nobody has to keep the number. (§13)"""
    api.append(name, *range(5))
    page = api.diff(name, limit=3)
    answer = api.ask(
        "POST",
        path(name, "commit"),
        {"offsets": [{"topic": name, "seq": page["next_from_seq"]}]},
    )
    assert (answer.status, answer.json["committed"]) == (200, 1)
    assert "performance" in answer.json

    told = api.ok("GET", path(name))
    assert (told["kind"], told["state"], told["members"]) == ("classic", "empty", [])
    (offset,) = told["offsets"]
    assert (offset["topic"], offset["partition"], offset["seq"]) == (name, 0, 3)
    assert (offset["lag"], offset["lost"]) == (2, 0)
    assert api.seqs(name, offset["seq"]) == [4, 5]
    head = api.ask("HEAD", path(name))
    assert (head.status, head.body) == (200, b"")

    assert api.ok("DELETE", path(name))["deleted"] is True
    assert api.refused("GET", path(name)) == (404, "group_not_found")
    assert api.refused("DELETE", path(name)) == (404, "group_not_found")


@pytest.mark.every_server
@pytest.mark.parametrize("group", NAMES)
def test_any_text_is_a_name(api: Api, name: str, group: str) -> None:
    """Percent-encoded in the path, and as it is in the answer. (§13)"""
    api.put(name)
    commit(api, group, **{name: 1})
    assert api.ok("GET", path(group))["group"] == group
    listed = api.ok("GET", f"/v0/groups?prefix={quote(group, safe='')}")["groups"]
    assert group in [each["group"] for each in listed]
    api.ok("DELETE", path(group))


def test_the_sync_that_an_answer_waits_for_is_told(api: Api, name: str) -> None:
    """Whatever the class of the topic: a cursor is on the disk before it is answered. (§13, §0.9)"""
    api.put(name)
    committed = commit(api, name, **{name: 1})
    deleted = api.ok("DELETE", path(name))
    assert all(each["performance"]["fsync_ms"] > 0 for each in (committed, deleted))


def test_pages_of_groups(api: Api, name: str) -> None:
    """Every group once, whatever the page size; a cursor is opaque. (§0.7, §13.1)"""
    api.put(name)
    for i in range(5):
        commit(api, f"{name}.g{i}", **{name: 1})
    for size in (1, 2, 5, 100):
        found: list[str] = []
        cursor = ""
        while True:
            page = api.ok("GET", f"/v0/groups?prefix={name}.&page_size={size}{cursor}")
            found += [each["group"] for each in page["groups"]]
            if "next_cursor" not in page:
                break
            cursor = f"&cursor={page['next_cursor']}"
        assert found == [f"{name}.g{i}" for i in range(5)]


def test_what_was_lost_and_what_was_deleted(api: Api, name: str) -> None:
    """A cap is a loss for a group that did not come so far, a delete is none. (§3.3, §13.2)"""
    api.put(name, cap_records=4)
    api.append(name, *range(3))
    commit(api, name, **{name: 1})
    api.append(name, *range(7))
    (offset,) = api.ok("GET", path(name))["offsets"]
    assert (offset["seq"], offset["lag"], offset["lost"]) == (1, 4, 5)
    api.delete(name, before_seq=9)
    (offset,) = api.ok("GET", path(name))["offsets"]
    assert (offset["seq"], offset["lag"], offset["lost"]) == (1, 2, 5)


def test_a_group_has_a_cursor_in_each_partition(api: Api, name: str) -> None:
    """Named by its number; one that the topic has not is 404. (§13.3)"""
    api.put(name, partitions=3)
    offsets = [{"topic": name, "partition": i, "seq": i} for i in (0, 2)]
    api.ok("POST", path(name, "commit"), {"offsets": offsets})
    shown = api.ok("GET", path(name))["offsets"]
    assert [(each["topic"], each["partition"], each["seq"]) for each in shown] == [
        (name, 0, 0),
        (name, 2, 2),
    ]
    offsets = [{"topic": name, "partition": 3, "seq": 1}]
    assert api.refused("POST", path(name, "commit"), {"offsets": offsets}) == (
        404,
        "partition_not_found",
    )


def test_a_commit_is_kept_as_a_whole_or_not_at_all(api: Api, name: str) -> None:
    """What is wrong with one offset keeps all from being kept; an offset may go back. (§0.5, §13.3)"""
    api.put(name)
    commit(api, name, **{name: 7})
    offsets = [{"topic": name, "seq": 9}, {"topic": f"{name}.absent", "seq": 1}]
    assert api.refused("POST", path(name, "commit"), {"offsets": offsets}) == (
        404,
        "topic_not_found",
    )
    assert seqs_of(api, name) == {name: 7}
    commit(api, name, **{name: 2})
    assert seqs_of(api, name) == {name: 2}
    api.drop(name)
    assert seqs_of(api, name) == {}


REFUSED = [
    ("GET", f"/v0/groups/{'x' * 256}", None, (404, "group_not_found")),
    ("GET", "/v0/groups/%FF", None, (400, "invalid_request")),
    ("DELETE", f"/v0/groups/{'x' * 256}", None, (400, "invalid_request")),
    ("POST", "/v0/groups/g/commit", {}, (400, "invalid_request")),
    ("POST", "/v0/groups/g/commit", {"offsets": [{"topic": "a b", "seq": 1}]}, (400, "invalid_request")),
    ("POST", "/v0/groups/g/commit", {"offsets": [{"topic": "t", "seq": -1}]}, (400, "invalid_request")),
    ("POST", "/v0/groups/g", {}, (405, "method_not_allowed")),
    ("DELETE", "/v0/groups", None, (405, "method_not_allowed")),
    ("GET", "/v0/groups?page_size=x", None, (400, "invalid_request")),
    ("GET", "/v0/groups?cursor=nonsense", None, (400, "invalid_request")),
    ("GET", "/v0/groups/", None, (404, "not_found")),
]  # fmt: skip


@pytest.mark.parametrize(("method", "target", "body", "expected"), REFUSED)
def test_what_is_refused(
    api: Api, method: str, target: str, body: Any, expected: tuple[int, str]
) -> None:
    """A name that no group has is 404 in a read, and 400 in a change. (§13)"""
    refused = api.refused(method, target) if body is None else api.refused(method, target, body)
    assert refused == expected


def test_a_field_that_nobody_reads_is_refused_where_that_is_asked_for(api: Api, name: str) -> None:
    """Also in an offset. (§0.3)"""
    api.put(name)
    offset = {"topic": name, "seq": 1, "partion": 0}
    answer = api.ask(
        "POST", path(name, "commit"), {"offsets": [offset]}, {"prefer": "handling=strict"}
    )
    assert (answer.status, answer.error["detail"]["did_you_mean"]) == (400, "partition")
    assert "$.offsets[0].partion" in answer.error["message"].replace("[...]", "[0]")


def test_offsets_survive_every_end(private: Start) -> None:
    """What was acknowledged is there after SIGKILL and after a stop. (§13.3)"""
    chosen = random.Random(5)
    kept: dict[str, int] = {}
    with private() as server:
        for _ in range(4):
            api = Api(Http1(server.port))
            api.put("t")
            assert {group: seqs_of(api, group)["t"] for group in kept} == kept
            for _ in range(20):
                group, seq = f"g{chosen.randrange(3)}", chosen.randrange(1000)
                commit(api, group, t=seq)
                kept[group] = seq
            api.wire.reset()
            if chosen.random() < 0.5:
                server.kill()
            else:
                server.stop()
            server.start()
        api = Api(Http1(server.port))
        assert {group: seqs_of(api, group)["t"] for group in kept} == kept
        api.wire.reset()
