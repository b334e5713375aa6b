"""Schedules in a real browser (§14)."""

from collections.abc import Callable
from typing import Any

import httpx

from .conftest import Console, shows

At = Callable[[str], None]


def test_a_schedule_is_run_paused_and_resumed(server: Any, page: Any, at: At) -> None:
    """Each by a button; the list shows when it is next and what it did last. (§14.4, §14.5)"""
    at("/schedules")
    page.locator("#first-schedule").wait_for(state="visible")
    base = f"http://127.0.0.1:{server.port}"
    assert f"{base}/v0/schedules/" in page.locator("#schedule-curl").inner_text()
    yearly = {"topic": "jobs", "record": {"data": 1}, "cron": "0 0 1 1 *", "tz": "Europe/Berlin"}
    httpx.put(f"{base}/v0/schedules/yearly", json=yearly).raise_for_status()

    page.get_by_role("button", name="run yearly").click()
    shows(page, "#schedule-done", "yearly ran: jobs 1")
    page.get_by_role("button", name="pause yearly").click()
    shows(page, "#schedule-done", "yearly is paused")
    resume = page.get_by_role("button", name="resume yearly")
    resume.wait_for(state="visible")
    (row,) = page.locator("#schedule-list tr").all_inner_texts()
    cells = row.split("\t")
    assert cells[:4] == ["yearly", "jobs", "0 0 1 1 * Europe/Berlin", "paused"]
    assert cells[4].endswith(" · 1")
    assert cells[5:8] == ["1", "0", ""]
    resume.click()
    page.get_by_role("button", name="pause yearly").wait_for(state="visible")
    assert "goes on at " in page.locator("#schedule-done").inner_text()

    page.locator("#schedule-list a", has_text=" · 1").click()
    page.locator("#view-topic").wait_for(state="visible")


def test_what_blocks_a_schedule_is_shown(page: Any, at: At, console: Console) -> None:
    """With what was missed; names and refusals are text, and a run that is refused is told. (§14.2)"""
    listed = {
        "schedule": "s", "topic": "full", "cron": None, "every_ms": 90_000, "at": None, "tz": None,
        "missed": "one", "until": None, "paused": False, "next_at": 1, "last_run": None,
        "fired_total": 1200, "missed_total": 31,
        "blocked": {"code": "topic_full", "message": "<b>full</b>", "since": 1, "retry_ms": 50},
    }  # fmt: skip
    page.route(
        "**/v0/schedules?*",
        lambda route: route.fulfill(json={"schedules": [listed], "next_cursor": "x"}),
    )
    at("/schedules")

    page.locator("#schedule-list tr").wait_for(state="visible")
    (row,) = page.locator("#schedule-list tr").all_inner_texts()
    cells = row.split("\t")
    assert (cells[2], cells[4:8]) == (
        "every 1.5 min",
        ["never", "1,200", "31", "topic_full: <b>full</b>"],
    )
    shows(page, "#schedules-count", "1+")
    assert page.locator("#more-schedules").is_visible()
    console.forgives_failures = True
    page.get_by_role("button", name="run s").click()
    trouble = page.locator("#schedules-trouble")
    trouble.wait_for(state="visible")
    assert "does not exist" in trouble.inner_text()
