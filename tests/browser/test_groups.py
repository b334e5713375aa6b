"""Groups of consumers in a real browser (§13). What the server says of members is the test's."""

from collections.abc import Callable
from typing import Any

import httpx

from .conftest import Console, shows

At = Callable[[str], None]

SHOWN: dict[str, Any] = {
    "group": "a/<b>", "kind": "classic", "state": "stable", "generation": 3, "protocol_type": "consumer",
    "protocol": "range",
    "members": [
        {"member_id": "m-1", "client_id": "<i>c</i>", "client_host": "/10.0.0.7",
         "assignment": [{"topic": "orders", "partitions": [0, 2]}]},
        {"member_id": "m-2", "client_id": "c", "client_host": "/10.0.0.8", "instance_id": "i-2"},
    ],
    "offsets": [
        {"topic": "orders", "partition": 0, "seq": 4096, "ts": 1, "lag": 1200, "lost": 0},
        {"topic": "orders", "partition": 2, "seq": 5, "ts": 1, "lag": 7, "lost": 31},
    ],
}  # fmt: skip
LISTED = {**SHOWN, "members": 2}


def test_a_group_is_found_and_opened(page: Any, at: At, server: Any, console: Console) -> None:
    """What was committed over HTTP, whatever is in its name; a group that is gone is told. (§13.2)"""
    at("/groups")
    page.locator("#first-group").wait_for(state="visible")
    assert f"127.0.0.1:{server.port}/v0/groups/" in page.locator("#group-curl").inner_text()
    base = f"http://127.0.0.1:{server.port}"
    httpx.post(f"{base}/v0/topics/orders", json={"records": [{"data": n} for n in range(3)]})
    offsets = {"offsets": [{"topic": "orders", "seq": 1}]}
    httpx.post(f"{base}/v0/groups/a%2F%3Cb%3E/commit", json=offsets)

    page.get_by_role("link", name="a/<b>", exact=True).click()
    shows(page, "#group-name", "a/<b>")
    shows(page, "#group-about", "empty · generation 0 · 2 records behind")
    assert page.locator("#no-member").is_visible()
    (row,) = page.locator("#offset-list tr").all_inner_texts()
    assert row.split("\t")[:5] == ["orders", "0", "1", "2", "0"]

    console.forgives_failures = True
    httpx.delete(f"{base}/v0/groups/a%2F%3Cb%3E")
    trouble = page.locator("#group-trouble")
    trouble.wait_for(state="visible")
    assert "does not exist" in trouble.inner_text()
    assert page.locator("#group").is_hidden()


def test_members_lag_and_loss(page: Any, at: At) -> None:
    """A row for each; names are text; what was lost stands out. (§13.2)"""
    page.route(
        "**/v0/groups?*", lambda route: route.fulfill(json={"groups": [LISTED], "next_cursor": "x"})
    )
    page.route("**/v0/groups/*", lambda route: route.fulfill(json=SHOWN))
    at("/groups/a%2F%3Cb%3E")

    shows(page, "#group-about", "stable · generation 3 · range · 1,207 records behind")
    shows(page, "#group-alarm", "31 lost before it came to them")
    members = page.locator("#member-list tr").all_inner_texts()
    assert [row.split("\t") for row in members] == [
        ["m-1", "<i>c</i>", "/10.0.0.7", "orders 0, 2"],
        ["i-2", "c", "/10.0.0.8", ""],
    ]
    rows = [row.split("\t")[:5] for row in page.locator("#offset-list tr").all_inner_texts()]
    assert rows == [["orders", "0", "4,096", "1,200", "0"], ["orders", "2", "5", "7", "31"]]
    assert page.locator("#offset-list .bad").inner_text() == "31"
    shows(page, "#groups-count", "1+")
    assert page.locator("#more-groups").is_visible()
