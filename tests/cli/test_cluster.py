"""`topics cluster`: the nodes, as a table and as JSON."""

import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from client.script import Script, ok

import topics.client
from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.model.limits import Limits
from topics.store.files import OsFiles
from topics.store.store import DiskStore

NODE = {"index": 1200, "durable": 1301, "lag_units": 0, "lag_ms": 0, "seen_ms_ago": 0}
CLUSTER = {
    "enabled": True, "cluster": "topics", "shard": 0, "node": "n2", "leader": "n1",
    "leader_url": "http://a:1", "term": 3, "index": 1200, "lag_units": 0, "lag_ms": 0, "loss": None,
    "log_start": 40, "log_end": 1302, "trim": None,
    "nodes": [
        {"node": "n1", "role": "leader", "url": "http://a:1", **NODE},
        {"node": "n2", "role": "follower", "url": "http://b:2", **NODE, "lag_units": 7, "durable": None},
    ],
}  # fmt: skip


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch) -> Script:
    """What the command talks to."""
    script = Script()
    real = topics.client.Client

    def client(url: str, **options: Any) -> Any:
        return real(url, **{**options, "transport": httpx.MockTransport(script)})

    monkeypatch.setattr(topics.client, "Client", client)
    return script


def test_a_table_of_the_nodes(script: Script, run: Any) -> None:
    """A line each, under a line about the cluster. (§8.7)"""
    script.answers = [ok(CLUSTER)]

    done = run("cluster", "status")

    about, log, head, first, second = done.stdout.splitlines()
    assert (done.exit_code, script.lines) == (0, ["GET /v0/cluster"])
    assert about == "cluster topics, shard 0, term 3; as n2 knows it"
    assert log == "log 40 to 1,302"
    assert head.split()[:5] == ["node", "role", "url", "index", "durable"]
    assert first.split() == ["n1", "leader", "http://a:1", "1,200", "1,301", "0", "0", "0"]
    assert second.split() == ["n2", "follower", "http://b:2", "1,200", "-", "7", "0", "0"]


def test_as_json(script: Script, run: Any) -> None:
    script.answers = [ok(CLUSTER)]
    assert json.loads(run("cluster", "status", "--json").stdout) == CLUSTER


def test_a_server_in_no_cluster(script: Script, run: Any) -> None:
    """Ends with 1, so that a script notices; as JSON it is told all the same."""
    script.answers = [ok({"enabled": False}), ok({"enabled": False})]
    plain, as_json = run("cluster", "status"), run("cluster", "status", "--json")
    assert (plain.exit_code, plain.stderr) == (1, "topics: the server is in no cluster\n")
    assert (as_json.exit_code, json.loads(as_json.stdout)) == (1, {"enabled": False})


def test_a_cluster_without_a_leader(script: Script, run: Any) -> None:
    script.answers = [ok(CLUSTER | {"leader": None, "leader_url": None})]
    done = run("cluster", "status")
    assert done.exit_code == 1
    assert "n2" in done.stdout
    assert "no node leads now" in done.stderr


def test_a_log_that_lost_is_told(script: Script, run: Any) -> None:
    loss = {"at_ms": 1, "index": 9, "what": "unit 9 is not at offset 12"}
    script.answers = [ok(CLUSTER | {"loss": loss})]
    done = run("cluster", "status")
    assert "the log has lost what n2 rests on (unit 9): unit 9 is not at offset 12" in done.stderr


def test_a_snapshot_is_shown_while_it_is_taken(script: Script, run: Any) -> None:
    """With what is there by now; a loss that it mended, with where the old data are. (§8.7)"""
    snapshot = {
        "taking": True, "source": "n1", "copied_bytes": 3_000_000, "total_bytes": 9_000_000,
        "trouble": None, "taken": 0, "taken_ms": 0, "served": 0, "set_aside": None,
    }  # fmt: skip
    loss = {"at_ms": 1, "index": 7, "what": "unit 7", "set_aside": "/d/store.aside-1"}
    script.answers = [
        ok({**CLUSTER, "snapshot": snapshot, "loss": loss}),
        ok({**CLUSTER, "snapshot": {**snapshot, "source": None, "trouble": "nobody"}}),
    ]

    done, waiting = run("cluster", "status"), run("cluster", "status")

    assert done.stdout.splitlines()[-1] == "n2 takes a snapshot of n1: 3 of 9 MB"
    assert "it is in /d/store.aside-1" in done.stderr
    assert "none gives one: 3 of 9 MB (nobody)" in waiting.stdout


def test_a_directory_is_adopted_and_taken_back(run: Any, tmp_path: Path) -> None:
    """`topics inspect` finds it whole in both places; a second adoption is refused. (§6)"""
    host = InlineHost(Limits(), DiskStore(OsFiles(tmp_path)), 1_750_000_000_000)
    host.driver.recover()
    host.driver.start()
    host.driver.stop(lambda error: None)
    host.settle()

    done = run("cluster", "adopt", tmp_path, "--name", "c")
    again = run("cluster", "adopt", tmp_path, "--name", "c")
    inspected = run("inspect", tmp_path / "store")
    undone = run("cluster", "adopt", "--undo", "--json", tmp_path)

    assert done.exit_code == 0
    assert 'the first node of cluster "c"' in done.stdout
    assert (again.exit_code, inspected.exit_code, undone.exit_code) == (2, 0, 0)
    assert 'of cluster "c" already' in again.stderr
    assert json.loads(undone.stdout) == {"data_dir": str(tmp_path), "adopted": False}
    assert run("inspect", tmp_path).exit_code == 0


@pytest.mark.parametrize(
    ("trim", "says"),
    [
        (
            {"waits_for": "node", "node": "n2", "last_ms": 1_795_254_071_742},
            "; trimmed last: 2026-11-21 09:41:11Z; node n2 needs the rest",
        ),
        ({"waits_for": "retention", "node": None, "last_ms": None}, "; trimmed last: never; the "),
        ({"waits_for": "copies", "node": None, "last_ms": None}, "; fewer than two nodes have it"),
    ],
)
def test_how_far_the_trimming_is(script: Script, run: Any, trim: dict[str, Any], says: str) -> None:
    """When, and what it waits for. (§6)"""
    script.answers = [ok(CLUSTER | {"trim": {"before": 40, "looked_ms": 1, **trim}})]
    assert says in run("cluster", "status").stdout.splitlines()[1]


PLAN = {
    "trimmed": False, "before": 500, "records": 460, "log_start": 40, "log_end": 1302,
    "waits_for": "node", "node": "n2",
    "positions": [
        {"node": "n1", "offset": 1301, "is_copy": True},
        {"node": "n2", "offset": 500, "is_copy": False},
        {"node": "n3", "offset": None, "is_copy": False},
    ],
}  # fmt: skip
ASKS = {"now": False, "alone": False, "dry_run": True}


def bodies(script: Script) -> list[Any]:
    return [json.loads(request.content) for request in script.requests]


def test_a_trim_says_what_goes_and_takes_what_it_said(script: Script, run: Any) -> None:
    """It asks what would go, and then for just that: what became free meanwhile stays. (§6)"""
    script.answers = [ok(PLAN), ok(PLAN | {"trimmed": True})]

    done = run("cluster", "trim", "--now", "--yes")

    assert done.exit_code == 0
    assert script.lines == ["POST /v0/cluster/trim"] * 2
    asked, did = bodies(script)
    assert asked == ASKS | {"now": True}
    assert did == ASKS | {"before": 500, "dry_run": False}
    said = done.stderr.splitlines()
    assert said[0].endswith("offsets 40 to 1,302; those before 500 may go, which are 460")
    assert said[1:] == [
        "  n1 needs it from 1,301 on",
        "  n2 needs it from 500 on, and is no copy of what is before",
        "  n3 needs all of it, and is no copy of what is before",
        "the log begins at 500 now; node n2 needs the rest",
    ]


def test_a_trim_asks_first(script: Script, run: Any) -> None:
    """Without a terminal it needs --yes; a rehearsal and a log of which nothing may go change
    nothing."""
    script.answers = [ok(PLAN), ok(PLAN), ok(PLAN | {"records": 0, "before": 40})]
    unasked = run("cluster", "trim", "--alone")
    rehearsed = run("cluster", "trim", "--before", "500", "--dry-run", "--json")
    nothing = run("cluster", "trim", "--yes")

    assert unasked.exit_code == 2
    assert "removes 460 records of Kafka's log" in unasked.stderr
    assert "they end with its disk: give --yes" in unasked.stderr
    assert json.loads(rehearsed.stdout) == PLAN
    assert bodies(script)[1] == ASKS | {"before": 500}
    assert "nothing goes: node n2 needs the rest" in nothing.stderr
    assert len(script.lines) == 3


def test_before_and_now_exclude_each_other(script: Script, run: Any) -> None:
    done = run("cluster", "trim", "--before", "5", "--now")
    assert (done.exit_code, script.lines) == (2, [])


def test_what_a_trim_did_as_json(script: Script, run: Any) -> None:
    script.answers = [ok(PLAN), ok(PLAN | {"trimmed": True})]
    done = run("cluster", "trim", "--yes", "--json")
    assert json.loads(done.stdout) == PLAN | {"trimmed": True}
