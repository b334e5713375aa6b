"""The jobs of a queue in a real browser: by state, one of them, what is done with them, dead letters (§10.9)."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from contract.api import Api
from contract.server import Server

from .conftest import Console, shows

At = Callable[[str], None]
QUEUE = "/v0/topics/q"
LATER_MS = 3_600_000


def claimed(api: Api, most: int, **fields: object) -> list[int]:
    asked = {"node": "w-1", "max": most, **fields}
    return [job["$seq"] for job in api.ok("POST", f"{QUEUE}/claim", asked)["claimed"]]


def nack(api: Api, *seqs: int, **fields: object) -> None:
    api.ok("POST", f"{QUEUE}/nack", {"node": "w-1", "seqs": [*seqs], **fields})


def texts(page: Any, selector: str) -> list[list[str]]:
    """The cells of each row, by their labels' order."""
    found: list[list[str]] = page.locator(selector).evaluate_all(
        "(rows) => rows.map((row) => [...row.cells].map((cell) => cell.innerText.trim()))"
    )
    return found


def row(page: Any, seq: int) -> Any:
    return page.locator(f'#jobs tr[data-seq="{seq}"]')


@pytest.fixture
def queue(api: Api) -> Api:
    """A queue with a job in each state: 1 is leased, 2 done, 3 given back, 4 dead, 5 ready, 6 delayed."""
    api.put("q", type="queue", max_deliveries=9, dead_letter="q.dead", keep_done=100)
    api.append(
        "q", *({"data": {"n": n}, "tag": f"acme:{n}", "group": f"g{n}"} for n in range(1, 6))
    )
    api.append("q", {"data": 6, "tag": "other", "priority": 7, "delay_ms": LATER_MS})
    assert claimed(api, 4) == [1, 2, 3, 4]
    held = {"node": "w-1", "seqs": [1], "lease_ms": 600_000}
    api.ok("POST", f"{QUEUE}/extend", {**held, "progress": {"percent": 40}})
    api.ok("POST", f"{QUEUE}/ack", {"node": "w-1", "seqs": [2], "result": {"sent": True}})
    nack(api, 3, delay_ms=LATER_MS, reason="no connection")
    nack(api, 4, dead=True, reason="no such address")
    return api


# ---------------------------------------------------------------------- lists


def test_jobs_by_state(queue: Api, page: Any, at: At) -> None:
    """Each list has what its state says: time left, the holder, progress, reasons, results. (§10.9)"""
    at("/topics/q")
    page.locator("#to-jobs-tab").click()
    page.wait_for_selector("#jobs tr")
    assert [cells[:2] for cells in texts(page, "#jobs tr")] == [
        ["1", "leased"], ["3", "delayed"], ["5", "ready"], ["6", "delayed"],
    ]  # fmt: skip
    leased, back, _, later = texts(page, "#jobs tr")
    assert "min left" in leased[2]
    assert leased[3:8] == ["g1", "", "1", "w-1", 'at {"percent":40}']
    assert back[7] == "no connection"
    assert later[2].startswith("ready in ")
    assert later[4] == "7"

    for state, seqs in {
        "ready": ["5"],
        "delayed": ["3", "6"],
        "leased": ["1"],
        "done": ["2"],
    }.items():
        page.locator(f'#job-states [data-state="{state}"]').click()
        page.wait_for_function(
            "(seqs) => [...document.querySelectorAll('#jobs tr')].map((row) => row.dataset.seq).join() === seqs",
            arg=",".join(seqs),
        )
    assert texts(page, "#jobs tr")[0][7] == 'gave {"sent":true}'
    page.locator('#job-states [data-state="dead"]').click()
    row(page, 4).wait_for()
    assert texts(page, "#jobs tr")[0][7] == "no such address\nletter 1"
    counts = page.locator("#job-states button").all_inner_texts()
    assert counts[:4] == ["Waiting 4", "Ready 1", "Delayed 2", "Leased 1"]


def test_jobs_come_a_page_at_a_time(api: Api, page: Any, at: At) -> None:
    """Fifty, then the next fifty by `after`, and back; never all of them. (§10.9)"""
    api.put("q", type="queue")
    api.append("q", *range(120))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    at("/topics/q/jobs")
    shows(page, "#jobs-range", "50 jobs and more")
    assert page.locator("#jobs tr").count() == 50

    page.locator("#jobs-next").click()
    row(page, 51).wait_for()
    page.locator("#jobs-next").click()
    row(page, 101).wait_for()
    shows(page, "#jobs-range", "20 jobs")
    assert page.locator("#jobs-next").is_disabled()
    page.locator("#jobs-back").click()
    row(page, 51).wait_for()
    page.locator("#jobs-first").click()
    row(page, 1).wait_for()

    assert page.locator("#jobs-back").is_disabled()
    assert all("limit=50" in url for url in asked if "/jobs?" in url)


def test_the_jobs_of_a_group(queue: Api, page: Any, at: At) -> None:
    """Only those, in any state that is chosen. (§10.9)"""
    at("/topics/q/jobs")
    row(page, 6).wait_for()
    page.locator("#job-group").fill("g3")
    page.locator("#job-find button").click()

    shows(page, "#jobs-range", "1 job")
    row(page, 3).wait_for()


def test_a_log_has_no_jobs(api: Api, page: Any, at: At) -> None:
    """No tab, and a link to one leads to the records. (§10)"""
    api.append("log", 1)
    at("/topics/log/jobs")

    page.wait_for_selector(".record")
    assert not page.locator("#to-jobs-tab").is_visible()


# ---------------------------------------------------------------------- one job


def test_a_delayed_job_is_promoted_and_cancelled(queue: Api, page: Any, at: At) -> None:
    """A promoted job may be claimed; a cancel asks first, and may be left. (§10.9)"""
    at("/topics/q/jobs")
    page.get_by_role("button", name="promote job 6").click()
    shows(page, "#jobs-done", "Job 6 may be claimed now.")
    assert queue.ok("GET", f"{QUEUE}/jobs/6")["state"] == "ready"

    cancel = page.get_by_role("button", name="cancel job 6")
    cancel.wait_for()
    page.get_by_role("button", name="promote job 6").wait_for(state="detached")
    cancel.click()
    page.get_by_role("button", name="keep it").click()
    assert queue.ok("GET", f"{QUEUE}/jobs/6")["state"] == "ready"
    cancel.click()
    row(page, 6).locator(".sure").click()

    shows(page, "#jobs-done", "Job 6 is cancelled.")
    row(page, 6).wait_for(state="detached")


def test_a_job_that_failed_is_retried(queue: Api, page: Any, at: At) -> None:
    """Its deliveries count from none; a dead one comes back as a new job. (§10.9)"""
    at("/topics/q/jobs")
    page.get_by_role("button", name="retry job 3").click()
    shows(page, "#jobs-done", "Job 3 is tried again.")
    assert queue.ok("GET", f"{QUEUE}/jobs/3")["deliveries"] == 0

    page.locator('#job-states [data-state="dead"]').click()
    page.get_by_role("button", name="retry job 4").click()

    shows(page, "#jobs-done", "Job 4 is tried again.")
    page.locator('#job-states [data-state="ready"]').click()
    row(page, 7).wait_for()


def test_a_refusal_stands_at_its_job(queue: Api, page: Any, at: At, console: Console) -> None:
    """A worker took the job after it was listed: 409 `leased`, in the row. (§10.9)"""
    console.forgives_failures = True
    listed = queue.ok("GET", f"{QUEUE}/jobs")
    page.route("**/topics/q/jobs?*", lambda route: route.fulfill(json=listed))
    at("/topics/q/jobs")
    row(page, 5).wait_for()
    assert claimed(queue, 1, lease_ms=600_000) == [5]

    page.get_by_role("button", name="cancel job 5").click()
    row(page, 5).locator(".sure").click()

    row(page, 5).locator(".trouble", has_text='job 5 of queue "q" is leased to "w-1"').wait_for()
    assert row(page, 3).locator(".trouble").is_hidden()


def test_a_key_that_may_not_cancel(tmp_path: Any, page: Any, console: Console) -> None:
    """403 where the button is; the list goes on. (§0.2)"""
    console.forgives_failures = True
    with Server(tmp_path / "keyed", api_keys="all,look:rw:") as server:
        head = {"authorization": "Bearer all", "content-type": "application/json"}
        base = f"http://127.0.0.1:{server.port}"
        with httpx.Client(base_url=base, headers=head) as client:
            client.put("/v0/topics/q", json={"type": "queue"}).raise_for_status()
            client.post("/v0/topics/q", json={"records": [{"data": 1}]}).raise_for_status()
        page.goto(f"{base}/#/topics/q/jobs")
        page.locator("#key").fill("look")
        page.get_by_role("button", name="Use").click()
        page.get_by_role("button", name="cancel job 1").click()
        row(page, 1).locator(".sure").click()

        row(page, 1).locator(".trouble", has_text="403 forbidden").wait_for()
        page.goto("about:blank")


def test_one_job_to_its_end(queue: Api, page: Any, at: At) -> None:
    """Data, history and holder; its progress as it comes, and its end at once, without another look. (§10.9)"""
    at("/topics/q/jobs")
    row(page, 1).get_by_role("link", name="1", exact=True).click()
    page.locator("#job-facts", has_text="Held by").wait_for()
    assert "w-1" in page.text_content("#job-facts")
    page.locator("#job-data", has_text='{"n": 1}').wait_for()
    assert "percent" in page.text_content("#job-data")
    assert "held by w-1 until" in page.text_content("#job-history")

    queue.ok("POST", f"{QUEUE}/ack", {"node": "w-1", "seqs": [1], "result": {"ok": 1}})

    shows(page, "#job-state", "done")
    assert "ok" in page.text_content("#job-data")
    assert "done by w-1" in page.text_content("#job-history")
    page.locator("#to-jobs").click()
    page.wait_for_selector("#jobs tr")


def test_a_dead_job_has_its_history(queue: Api, page: Any, at: At) -> None:
    """Why it died, where its letter lies, and what it was. (§10.9)"""
    at("/topics/q/jobs/4")
    shows(page, "#job-state", "dead")

    assert "given back by w-1: no such address" in page.text_content("#job-history")
    page.locator("#job-data", has_text='"n": 4').wait_for()
    page.get_by_role("link", name="q.dead 1").click()
    page.wait_for_selector('.record[data-seq="1"].open')


def test_a_job_that_is_not_there(queue: Api, page: Any, at: At, console: Console) -> None:
    """Nothing was kept of it, and that is said. (§10.9)"""
    console.forgives_failures = True
    at("/topics/q/jobs/77")

    shows(page, "#job-state", "gone")
    assert "No such job is in the queue" in page.text_content("#job-trouble")


def test_a_job_is_asked_for_by_number(queue: Api, page: Any, at: At) -> None:
    """As a record is. (§10.9)"""
    at("/topics/q/jobs")
    page.locator("#job-seq").fill("3")
    page.locator("#job-seek button").click()

    shows(page, "#job-title", "Job 3")
    assert page.url.endswith("#/topics/q/jobs/3")


# ---------------------------------------------------------------------- many


def test_many_are_counted_before_they_are_changed(queue: Api, page: Any, at: At) -> None:
    """A dry run says how many; then they are changed, or left. (§10.9)"""
    at("/topics/q/jobs")
    page.locator("#many-match").fill("other")
    page.locator("#job-many button", has_text="Count first").click()
    shows(page, "#many-text", "1 job would be promoted.")
    page.locator("#many-keep").click()
    assert queue.ok("GET", f"{QUEUE}/jobs/6")["state"] == "delayed"

    page.locator("#job-many button", has_text="Count first").click()
    page.locator("#many-go").click()

    shows(page, "#many-text", "1 of 1 job promoted.")
    assert queue.ok("GET", f"{QUEUE}/jobs/6")["state"] == "ready"


def test_many_are_cancelled_by_tag_or_state(queue: Api, page: Any, at: At) -> None:
    """One of both is needed; what a worker holds is left. (§10.9)"""
    at("/topics/q/jobs")
    page.locator("#many-action").select_option("cancel")
    page.locator("#job-many button", has_text="Count first").click()
    shows(page, "#many-trouble", "Which jobs? A tag or a state is needed.")
    page.locator("#many-match").fill("acme*")
    page.locator("#job-many button", has_text="Count first").click()
    shows(page, "#many-text", "2 jobs would be cancelled.")
    shows(page, "#many-go", "cancel 2")
    page.locator("#many-go").click()

    shows(page, "#many-text", "2 of 2 jobs cancelled.")
    assert [job["seq"] for job in queue.ok("GET", f"{QUEUE}/jobs")["jobs"]] == [1, 6]


def test_more_than_one_call_changes(api: Api, page: Any, at: At) -> None:
    """A call changes 5,000 at most: it is repeated until those that were counted are done. (§10.9)"""
    api.put("q", type="queue")
    for _ in range(3):
        api.append("q", *({"data": n, "delay_ms": LATER_MS} for n in range(2500)))
    at("/topics/q/jobs")
    page.locator("#job-many button", has_text="Count first").click()
    shows(page, "#many-text", "7,500 jobs would be promoted.")
    page.locator("#many-go").click()

    shows(page, "#many-text", "7,500 of 7,500 jobs promoted.")
    assert api.ok("GET", f"{QUEUE}?touch=false")["queue"]["ready"] == 7500


# ---------------------------------------------------------------------- dead letters


def dead(api: Api, *tags: str) -> None:
    for tag in tags:
        api.append("q", {"data": {"of": tag}, "tag": tag})
        nack(api, *claimed(api, 1), dead=True, reason=f"no {tag}")


def test_dead_letters_stand_beside_their_queue(api: Api, page: Any, at: At) -> None:
    """Of which job each is, and why; a single letter goes back. (§10.6)"""
    api.put("q", type="queue", max_deliveries=3, dead_letter="q.dead")
    dead(api, "a", "b", "c")
    at("/topics/q/jobs")
    page.locator('[data-state="letters"]').click()
    page.wait_for_selector("#letter-list tr")
    cells = [each[:2] + each[3:7] for each in texts(page, "#letter-list tr")]
    assert cells == [
        [str(n), str(n), "1", f"no {tag}", tag, f'{{"of": "{tag}"}}']
        for n, tag in enumerate("abc", 1)
    ]

    page.get_by_role("button", name="send back letter 2").click()

    shows(page, "#letters-done", "Letter 2 is a job of q again.")
    shows(page, "#letters-range", "2 letters")
    assert [each["data"]["of"] for each in api.diff("q", from_seq=0)["records"]] == ["b"]


def test_letters_of_a_tag_go_back(api: Api, page: Any, at: At) -> None:
    """Counted first, and left or sent. (§10.6)"""
    api.put("q", type="queue", max_deliveries=3, dead_letter="q.dead")
    dead(api, "acme:1", "acme:2", "other")
    at("/topics/q/jobs")
    page.locator('[data-state="letters"]').click()
    page.locator("#letters-match").fill("acme*")
    page.locator("#letters-many button").click()
    shows(page, "#letters-text", "2 letters would go back to q.")
    page.locator("#letters-keep").click()
    shows(page, "#letters-range", "3 letters")
    page.locator("#letters-many button").click()
    page.locator("#letters-go").click()

    shows(page, "#letters-text", "2 letters sent back.")
    shows(page, "#letters-range", "1 letter")
    page.locator("#letters-match").fill("")
    page.locator("#letters-many button").click()
    shows(page, "#letters-text", "1 letter would go back to q.")


def test_letters_of_another_queue_are_told(api: Api, page: Any, at: At) -> None:
    """A topic may have letters of several queues, and a match takes all of them. (§10.6)"""
    for name in ("q", "p"):
        api.put(name, type="queue", max_deliveries=3, dead_letter="q.dead")
    dead(api, "a")
    api.append("p", 1)
    api.ok("POST", "/v0/topics/p/claim", {"node": "w"})
    api.ok("POST", "/v0/topics/p/nack", {"node": "w", "seqs": [1], "dead": True})
    at("/topics/q/jobs")
    page.locator('[data-state="letters"]').click()

    shows(page, "#letters-others", "1 letter here is of another queue; a match sends those too.")
    assert [each[1] for each in texts(page, "#letter-list tr")] == ["1", "p 1"]


def test_no_letter_yet(api: Api, page: Any, at: At, console: Console) -> None:
    """The first letter makes the topic; until then there is none. (§10.6)"""
    console.forgives_failures = True
    api.put("q", type="queue", max_deliveries=3, dead_letter="q.dead")
    at("/topics/q/jobs")
    page.locator('[data-state="letters"]').click()

    page.locator("#no-letters").wait_for(state="visible")
    assert not page.locator("#letters-trouble-list").is_visible()
