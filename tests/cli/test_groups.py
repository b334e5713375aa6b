"""`topics groups list | show | commit | delete`."""

import json
from typing import Any

import httpx
import pytest
from client.script import Script, ok

import topics.client
from topics.client import GroupNotFound
from topics.testing import MemoryTopics

MEMBER = {
    "member_id": "m-1",
    "client_id": "rdkafka",
    "client_host": "/10.0.0.7",
    "assignment": [{"topic": "orders", "partitions": [2, 0]}],
}
OFFSETS = [
    {"topic": "orders", "partition": 0, "seq": 4096, "lag": 1200, "lost": 0},
    {"topic": "orders", "partition": 2, "seq": 5, "lag": 7, "lost": 31},
]
SHOWN = {
    "group": "billing",
    "state": "stable",
    "generation": 3,
    "members": [MEMBER, {"member_id": "m-2", "instance_id": "i-2"}],
    "offsets": OFFSETS,
}


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What the command talks to."""
    script = Script()
    real = topics.client.Client

    def client(url: str, **options: Any) -> Any:
        return real(url, **{**options, "transport": httpx.MockTransport(script)})

    monkeypatch.setattr(topics.client, "Client", client)
    return script


@pytest.mark.parametrize("words", [["groups"], ["groups", "list"]], ids=" ".join)
def test_a_list(memory: MemoryTopics, run: Any, words: list[str]) -> None:
    """Without a command, too; a name can be any text, and steers no terminal. (§13.1)"""
    memory.client.put_topic("orders")
    for name in ("billing", "mails", "\x1b[2J"):
        memory.client.commit_offsets(name, {"orders": 0})

    head, escape, billing, mails = run(*words).stdout.splitlines()

    assert head.split() == ["group", "kind", "state", "generation", "members"]
    assert "\x1b" not in escape
    assert billing.split() == ["billing", "classic", "empty", "0", "0"]
    assert mails.split()[0] == "mails"
    (found,) = run(*words, "--json", "--prefix", "m").stdout.splitlines()
    assert json.loads(found)["group"] == "mails"


def test_how_far_a_group_is_and_who_reads(script: Script, run: Any) -> None:
    """A static member goes by its own name; all pages of offsets. (§13.2)"""
    more = {**SHOWN, "offsets": [{"topic": "clicks", "seq": 9}]}
    script.answers = [ok(SHOWN), ok({**SHOWN, "next_cursor": "e=="}), ok(more)]

    shown = run("groups", "show", "billing").stdout.splitlines()

    assert shown[:4] == [
        "group       billing",
        "state       stable",
        "generation  3",
        "members     2",
    ]
    assert shown[6].split() == ["m-1", "rdkafka", "/10.0.0.7", "orders#0,2"]
    assert shown[7].split() == ["i-2"]
    assert [line.split() for line in shown[9:]] == [
        ["seq", "lag", "lost", "topic"],
        ["4,096", "1,200", "0", "orders"],
        ["5", "7", "31", "orders#2"],
        ["9", "0", "0", "clicks"],
    ]


def test_a_group_as_json_has_all_its_offsets(script: Script, run: Any) -> None:
    """In one object. (§13.2)"""
    more = {**SHOWN, "offsets": [{"topic": "clicks", "seq": 9}]}
    script.answers = [ok(SHOWN), ok({**SHOWN, "next_cursor": "e=="}), ok(more)]

    found = json.loads(run("groups", "show", "billing", "--json").stdout)

    assert [each["seq"] for each in found["offsets"]] == [4096, 5, 9]
    assert found["members"][0]["assignment"] == MEMBER["assignment"]


def test_a_group_is_moved(memory: MemoryTopics, run: Any) -> None:
    """The last = and the first # count. (§13.3)"""
    memory.client.put_topic("orders", partitions=3)

    done = run("groups", "commit", "billing", "orders=7", "orders#2=9")

    assert (done.exit_code, done.stderr) == (0, "2 offsets of billing stored\n")
    at = {(each.partition, each.seq) for each in memory.client.group_offsets("billing")}
    assert at == {(0, 7), (2, 9)}
    told = json.loads(run("groups", "commit", "billing", "orders=8", "--json").stdout)
    assert told["committed"] == 1
    shown = run("groups", "show", "billing").stdout.splitlines()
    assert "members     0" in shown


@pytest.mark.parametrize("given", ["orders", "=5", "orders=x", "orders#=5", "orders#x=5", "#1=5"])
def test_what_is_no_offset(memory: MemoryTopics, run: Any, given: str) -> None:
    """2, before anything is sent."""
    done = run("groups", "commit", "billing", given)

    assert done.exit_code == 2
    assert f"{given} is not TOPIC=SEQ" in done.stderr
    with pytest.raises(GroupNotFound):
        memory.client.group("billing")


def test_a_group_is_forgotten(memory: MemoryTopics, run: Any) -> None:
    """Asked before, and not by a dry run. (§13.4)"""
    memory.client.put_topic("orders")
    memory.client.commit_offsets("billing", {"orders": 3})

    told = json.loads(run("groups", "delete", "billing", "--dry-run", "--json").stdout)
    assert told == {"group": "billing", "offsets": 1, "dry_run": True}
    assert (
        run("groups", "delete", "billing", "--dry-run").stderr
        == "billing, which has 1 offset would be forgotten\n"
    )
    assert run("groups", "delete", "billing").exit_code == 2
    done = run("groups", "delete", "billing", "--yes")
    assert (done.exit_code, done.stderr) == (0, "billing was forgotten\n")
    assert run("groups", "delete", "billing", "--yes", "--json").exit_code == 1
    memory.client.commit_offsets("billing", {"orders": 3})
    assert json.loads(run("groups", "delete", "billing", "--yes", "--json").stdout)["deleted"]
