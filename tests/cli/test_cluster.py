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

NODE = {"index": 1200, "lag_units": 0, "lag_ms": 0, "seen_ms_ago": 0}
CLUSTER = {
    "enabled": True, "cluster": "topics", "shard": 0, "node": "n2", "leader": "n1",
    "leader_url": "http://a:1", "term": 3, "index": 1200, "lag_units": 0, "lag_ms": 0, "loss": None,
    "nodes": [
        {"node": "n1", "role": "leader", "url": "http://a:1", **NODE},
        {"node": "n2", "role": "follower", "url": "http://b:2", **NODE, "lag_units": 7},
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

    about, head, first, second = done.stdout.splitlines()
    assert (done.exit_code, script.lines) == (0, ["GET /v0/cluster"])
    assert about == "cluster topics, shard 0, term 3; as n2 knows it"
    assert head.split()[:4] == ["node", "role", "url", "index"]
    assert first.split() == ["n1", "leader", "http://a:1", "1,200", "0", "0", "0"]
    assert second.split() == ["n2", "follower", "http://b:2", "1,200", "7", "0", "0"]


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
