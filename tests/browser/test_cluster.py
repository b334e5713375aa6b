"""The nodes of a cluster in a real browser (§8.7). What the server says of them is the test's."""

import json
from collections.abc import Callable
from typing import Any

from .conftest import shows

At = Callable[[str], None]

NODE = {"index": 1200, "durable": 1301, "lag_units": 0, "lag_ms": 0, "seen_ms_ago": 0}
CLUSTER: dict[str, Any] = {
    "enabled": True, "cluster": "topics", "shard": 0, "node": "n2", "leader": "n1",
    "leader_url": "http://a:1", "term": 3, "index": 1200, "lag_units": 0, "lag_ms": 0, "loss": None,
    "log_start": 40, "log_end": 1302,
    "trim": {"before": 40, "waits_for": "node", "node": "<i>n2</i>", "looked_ms": 1, "last_ms": None},
    "nodes": [
        {"node": "n1", "role": "leader", "url": "http://a:1", **NODE},
        {"node": "<b>n2</b>", "role": "lost", "url": "http://b:2", **NODE, "lag_units": 7, "durable": None},
    ],
}  # fmt: skip


def say(page: Any, cluster: dict[str, Any]) -> None:
    page.unroute("**/v0/cluster")
    page.route(
        "**/v0/cluster",
        lambda route: route.fulfill(content_type="application/json", body=json.dumps(cluster)),
    )


def test_a_single_server_shows_no_cluster(page: Any, at: At) -> None:
    """Its place is not in the navigation; whoever goes there all the same is told."""
    with page.expect_response("**/v0/cluster"):
        at("/")
    assert page.locator("#go-cluster").is_hidden()

    at("/cluster")
    shows(page, "#cluster-about", "this server is in no cluster")


def test_the_nodes_and_their_lags(page: Any, at: At) -> None:
    """A row for each; names are text, whatever is in them; the page follows what changes."""
    say(page, CLUSTER)
    at("/")
    page.get_by_role("link", name="Cluster", exact=True).click()

    shows(page, "#cluster-about", "topics · shard 0 · term 3 · as n2 knows it")
    rows = page.locator("#node-list tr")
    assert [row.split("\t") for row in rows.all_inner_texts()] == [
        ["n1", "leader", "http://a:1", "1,200", "1,301", "0", "0", "0"],
        ["<b>n2</b>", "lost", "http://b:2", "1,200", "–", "7", "0", "0"],
    ]
    waits = "Log 40 to 1,302 · trimmed last: never · node <i>n2</i> needs the rest"
    shows(page, "#cluster-log", waits)
    assert page.locator("#cluster-leaderless").is_hidden()
    assert page.locator("#cluster-loss").is_hidden()

    loss = {"at_ms": 1, "index": 1200, "what": "unit 1200 is not at its offset"}
    trim = CLUSTER["trim"] | {"waits_for": "retention", "node": None, "last_ms": 1795254071742}
    say(page, CLUSTER | {"leader": None, "term": 4, "loss": loss, "trim": trim})
    said = "trimmed last: 2026-11-21T09:41:11.742Z · the rest is too young"
    shows(page, "#cluster-log", f"Log 40 to 1,302 · {said}")
    shows(page, "#cluster-about", "topics · shard 0 · term 4 · as n2 knows it")
    page.locator("#cluster-leaderless").wait_for()
    assert "unit 1200 is not at its offset" in page.locator("#cluster-loss").inner_text()


def test_a_snapshot_and_how_far_it_is(page: Any, at: At) -> None:
    """While it is taken; afterwards where what the node had is, also beside the loss. (§8.7)"""
    snapshot = {
        "taking": True, "source": "<b>n1</b>", "copied_bytes": 3_000_000, "total_bytes": 9_000_000,
        "trouble": None, "taken": 0, "taken_ms": 0, "served": 0, "set_aside": None,
    }  # fmt: skip
    say(page, CLUSTER | {"snapshot": snapshot})
    at("/cluster")
    shows(
        page, "#cluster-snapshot", "Snapshots: this node takes a snapshot of <b>n1</b>: 3 of 9 MB"
    )

    waits = {**snapshot, "source": None, "trouble": "nobody"}
    say(page, CLUSTER | {"snapshot": waits})
    shows(
        page,
        "#cluster-snapshot",
        "Snapshots: this node waits for a snapshot of another one: nobody",
    )

    aside = "/d/store.aside-1"
    taken = {**snapshot, "taking": False, "taken": 1, "taken_ms": 1500, "served": 2}
    loss = {"at_ms": 1, "index": 7, "what": "unit 7 is gone", "set_aside": aside}
    say(page, CLUSTER | {"snapshot": {**taken, "set_aside": aside}, "loss": loss})
    shows(
        page,
        "#cluster-snapshot",
        f"Snapshots: took 1, the last in 1,500 ms; gave 2; what it had before is in {aside}",
    )
    assert f"what it had is in {aside}" in page.locator("#cluster-loss").inner_text()

    say(page, CLUSTER | {"snapshot": {**snapshot, "taking": False}})
    page.wait_for_selector("#cluster-snapshot", state="hidden")
