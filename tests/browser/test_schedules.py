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


def test_a_schedule_is_made_changed_and_deleted(server: Any, page: Any, at: At) -> None:
    """By a form: a change keeps what it does not show of the record, digit for digit. (§14.1, §14.6)"""
    base = f"http://127.0.0.1:{server.port}/v0/schedules"
    at("/schedules")
    page.locator("#schedule-new").click()
    page.locator("#schedule-name").fill("report")
    page.locator("#schedule-topic").fill("jobs")
    page.locator("#schedule-record").fill('{"data": {"n": 12345678901234567890}, "tag": "daily"}')
    page.locator("#schedule-cron").fill("0 6 * * 1-5")
    page.locator("#schedule-tz").fill("Europe/Berlin")
    page.locator("#schedule-config").fill('{"type": "queue"}')
    page.locator("#schedule-save").click()
    page.locator("#schedule-done", has_text="report is saved; its next tick is at ").wait_for()
    text = httpx.get(f"{base}/report").text
    assert '"data":{"n": 12345678901234567890}' in text
    made = httpx.get(f"{base}/report").json()
    assert (made["cron"], made["tz"], made["missed"]) == ("0 6 * * 1-5", "Europe/Berlin", "one")
    assert made["config"]["type"] == "queue"

    page.get_by_role("button", name="edit report").click()
    assert page.locator("#schedule-name").input_value() == "report"
    page.locator("#schedule-kind").select_option("every_ms")
    page.locator("#schedule-every-ms").fill("90000")
    page.locator("#schedule-missed").select_option("none")
    page.locator("#schedule-save").click()
    page.locator("#schedule-list tr", has_text="every 1.5 min").wait_for()
    changed = httpx.get(f"{base}/report").json()
    assert (changed["every_ms"], changed["cron"], changed["missed"]) == (90_000, None, "none")
    assert '"data":{"n": 12345678901234567890}' in httpx.get(f"{base}/report").text

    page.get_by_role("button", name="delete report").click()
    page.get_by_role("button", name="keep it").click()
    page.get_by_role("button", name="delete report").click()
    page.locator("#schedule-list .sure").click()
    shows(page, "#schedule-done", "report is deleted")
    assert httpx.get(f"{base}/report").status_code == 404


def test_a_double_click_runs_a_schedule_once(server: Any, page: Any, at: At) -> None:
    """A click on a button whose request is still under way does nothing. (§14.4)"""
    base = f"http://127.0.0.1:{server.port}"
    yearly = {"topic": "jobs", "record": {"data": 1}, "cron": "0 0 1 1 *"}
    httpx.put(f"{base}/v0/schedules/yearly", json=yearly).raise_for_status()
    at("/schedules")

    page.get_by_role("button", name="run yearly").dblclick()

    page.locator("#schedule-done", has_text="yearly ran").wait_for()
    assert httpx.get(f"{base}/v0/topics/jobs").json()["head_seq"] == 1


def test_a_schedule_that_was_paused_meanwhile_stays_paused(server: Any, page: Any, at: At) -> None:
    """A change of another field resumes nothing. (§14.1)"""
    base = f"http://127.0.0.1:{server.port}/v0/schedules/hourly"
    hourly = {"topic": "t", "record": {"data": 1}, "cron": "0 * * * *"}
    httpx.put(base, json=hourly).raise_for_status()
    at("/schedules")
    page.get_by_role("button", name="edit hourly").click()
    page.locator("#schedule-topic").fill("u")
    httpx.post(f"{base}/pause").raise_for_status()
    page.locator("#schedule-save").click()
    page.locator("#schedule-done", has_text="hourly is saved").wait_for()

    found = httpx.get(base).json()

    assert (found["topic"], found["paused"]) == ("u", True)


def test_a_schedule_that_happens_once_is_paused_and_keeps_its_moment(
    server: Any, page: Any, at: At
) -> None:
    """To the millisecond, where the field was not touched; a paused schedule stays paused. (§14.1)"""
    base = f"http://127.0.0.1:{server.port}/v0/schedules"
    moment = {"at": 2_000_000_000_123, "until": 2_100_000_000_456}
    once = {"topic": "t", "record": {"data": 1}, "paused": True, **moment}
    httpx.put(f"{base}/once", json=once).raise_for_status()
    at("/schedules")
    page.get_by_role("button", name="edit once").click()
    page.locator("#schedule-topic").fill("u")
    page.locator("#schedule-save").click()
    page.locator("#schedule-done", has_text="once is saved; it has no next tick").wait_for()

    found = httpx.get(f"{base}/once").json()

    assert (found["topic"], found["paused"]) == ("u", True)
    assert {name: found[name] for name in moment} == moment


def test_what_a_form_of_a_schedule_refuses(
    server: Any, page: Any, at: At, console: Console
) -> None:
    """A name that is taken, a record that is none, a refusal of the server, and a change meanwhile; the form
    stays. (§14.1)"""
    console.forgives_failures = True
    base = f"http://127.0.0.1:{server.port}/v0/schedules"
    hourly = {"topic": "t", "record": {"data": 1}, "cron": "0 * * * *"}
    httpx.put(f"{base}/hourly", json=hourly).raise_for_status()
    at("/schedules")
    page.locator("#schedule-new").click()
    trouble = "#schedule-form-trouble"
    for name, value in {
        "name": "hourly",
        "topic": "t",
        "record": "1",
        "cron": "61 * * * *",
    }.items():
        page.locator(f"#schedule-{name}").fill(value)
    page.locator("#schedule-save").click()
    shows(page, trouble, "The record is not a JSON object.")
    page.locator("#schedule-record").fill('{"data": 1}')
    page.locator("#schedule-save").click()
    shows(page, trouble, "There is a schedule hourly already.")
    page.locator("#schedule-name").fill("other")
    page.locator("#schedule-save").click()
    page.locator(trouble, has_text="$.cron").wait_for()
    page.locator("#schedule-cancel").click()

    page.get_by_role("button", name="edit hourly").click()
    page.locator("#schedule-cron").wait_for(state="visible")
    httpx.put(f"{base}/hourly", json={**hourly, "cron": "5 * * * *"}).raise_for_status()
    page.locator("#schedule-save").click()

    shows(page, trouble, "It was changed by another meanwhile. The form has what is in force now.")
    assert page.locator("#schedule-cron").input_value() == "5 * * * *"
