"""The message browser in a real browser: pages in both directions, filters, links, and what is gone."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from contract.api import Api

from .conftest import Console, shows

At = Callable[[str], None]
NUMBERS = '{"long":12345678901234567890,"huge":1e400,"tiny":1.10,"minus":-0.0}'


def seqs(page: Any) -> list[int]:
    """The seqs on show, once the page is not being loaded."""
    page.wait_for_function(
        "() => !document.querySelector('#records[aria-busy]') && document.querySelector('#records > *')"
    )
    found: list[int] = page.eval_on_selector_all(".record", "rows => rows.map(r => +r.dataset.seq)")
    return found


def starts(page: Any, seq: int) -> list[int]:
    """The seqs on show, once the first of them is this."""
    page.wait_for_function(
        "seq => document.querySelector('.record')?.dataset.seq === String(seq)", arg=seq
    )
    return seqs(page)


def notes(page: Any) -> list[str]:
    texts: list[str] = page.locator("#records > .note").all_text_contents()
    return texts


def test_pages_go_in_both_directions(api: Api, page: Any, at: At) -> None:
    """Fifty at a time from the newest; older and newer; to both ends. (§3)"""
    api.append("jobs", *range(120))
    at("/topics/jobs")
    assert starts(page, 71) == list(range(71, 121))
    assert page.locator("#newer").is_disabled()

    page.locator("#older").click()
    assert starts(page, 21) == list(range(21, 71))
    page.locator("#older").click()
    assert starts(page, 1) == list(range(1, 21))
    assert page.locator("#older").is_disabled()
    page.locator("#newer").click()
    assert starts(page, 21) == list(range(21, 71))
    page.locator("#newest").click()
    assert starts(page, 71) == list(range(71, 121))
    page.locator("#oldest").click()
    assert starts(page, 1) == list(range(1, 51))


def test_what_is_written_meanwhile_is_the_next_page(api: Api, page: Any, at: At) -> None:
    """The page that is read stays as it is; the button to the next one wakes."""
    api.append("jobs", *range(3))
    at("/topics/jobs")
    assert seqs(page) == [1, 2, 3]

    api.append("jobs", "new")
    page.wait_for_selector("#newer:enabled")
    assert seqs(page) == [1, 2, 3]
    page.locator("#newer").click()

    assert starts(page, 4) == [4]


def test_a_row_opens_and_keeps_every_digit(api: Api, page: Any, at: At) -> None:
    """On one line closed and laid out open, with numbers as they are stored. (§0.3)"""
    record = f'{{"data":{NUMBERS},"tag":"eu.de","node":"n1","meta":{{"n":9007199254740993}}}}'
    api.ok("POST", "/v0/topics/jobs", f'{{"records":[{record}]}}'.encode())
    at("/topics/jobs")
    line = page.locator('.record[data-seq="1"] > .line')
    text = line.text_content()
    assert all(n in text for n in ("12345678901234567890", "1e400", "1.10", "-0.0", "eu.de", "n1"))

    line.click()

    detail = page.locator(".detail").text_content()
    assert all(n in detail for n in ("12345678901234567890", "1e400", "1.10", "-0.0", "eu.de"))
    assert 'meta {"n": 9007199254740993}' in detail
    assert line.get_attribute("aria-expanded") == "true"


def test_a_record_is_copied_as_it_is_and_as_curl(api: Api, page: Any, at: At) -> None:
    """The command reads this record, and the clipboard has its bytes. (§3)"""
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    api.append("jobs", 0)
    api.ok("POST", "/v0/topics/jobs", f'{{"records":[{{"data":{NUMBERS}}}]}}'.encode())
    at("/topics/jobs")
    page.locator('.record[data-seq="2"] > .line').click()

    page.get_by_role("button", name="Copy data").click()
    page.get_by_role("button", name="Copied").wait_for()
    assert page.evaluate("navigator.clipboard.readText()") == NUMBERS
    page.get_by_role("button", name="Copy as curl").click()
    page.wait_for_function("async () => (await navigator.clipboard.readText()).startsWith('curl ')")

    command = page.evaluate("navigator.clipboard.readText()")
    assert f"'http://127.0.0.1:{api.wire.port}/v0/topics/jobs/diff'" in command
    body = json.loads(command.partition(" -d ")[2].strip("'"))
    assert [record["$seq"] for record in api.diff("jobs", **body)["records"]] == [2]


def test_a_link_leads_to_its_record(api: Api, page: Any, at: At) -> None:
    """The page begins with it, and it is open; the field leads to another. (§3)"""
    api.append("jobs", *range(100))
    at("/topics/jobs/records/40")

    assert starts(page, 40) == list(range(40, 90))
    page.wait_for_selector('.record[data-seq="40"].wanted.open')
    link = page.locator(".detail .permalink").get_attribute("href")
    assert link == "#/topics/jobs/records/40"

    page.locator("#seq").fill("7")
    page.locator("#to-seq button").click()
    assert starts(page, 7)[0] == 7
    assert page.url.endswith("#/topics/jobs/records/7")
    page.go_back()
    assert starts(page, 40)[0] == 40


def test_a_time_leads_to_its_records(api: Api, page: Any, at: At) -> None:
    """From the first record at or after it; a time to come is the end of the topic. (§3)"""
    api.append("jobs", *range(70))
    at("/topics/jobs")
    seqs(page)

    page.locator("#time").fill("2001-01-01T00:00:00")
    page.locator("#to-time button").click()
    assert starts(page, 1) == list(range(1, 51))
    page.locator("#time").fill("2098-01-01T00:00:00")
    page.locator("#to-time button").click()
    page.wait_for_selector("#newer:disabled")
    assert page.locator(".record").count() == 0


@pytest.mark.parametrize(
    ("tag", "node", "found"),
    [
        ("eu.*", "", [1, 4, 7, 10]),
        ("us", "", [2, 5, 8]),
        ("", "a", [1, 3, 5, 7, 9]),
        ("", "!a", [2, 4, 6, 8, 10]),
        ("eu.*", "a", [1, 7]),
        ("none", "", []),
    ],
)
def test_records_are_filtered_by_tag_and_node(
    api: Api, page: Any, at: At, tag: str, node: str, found: list[int]
) -> None:
    """By the server where it can, and no seq that was left out is called deleted. (§3, §5)"""
    tags = ("eu.de", "us", "apac")
    api.append("jobs", *({"data": n, "tag": tags[n % 3], "node": "ab"[n % 2]} for n in range(10)))
    at("/topics/jobs")
    assert len(seqs(page)) == 10

    page.locator("#tag").fill(tag)
    page.locator("#node").fill(node)
    with page.expect_response("**/diff"):
        page.locator("#filter button").click()
    page.wait_for_function("n => document.querySelectorAll('.record').length === n", arg=len(found))

    assert page.eval_on_selector_all(".record", "rows => rows.map(r => +r.dataset.seq)") == found
    assert notes(page) == []
    assert page.locator("#no-records").is_visible() is not bool(found)


def test_a_rare_record_is_found_from_the_end(api: Api, page: Any, at: At) -> None:
    """Windows grow on the way down, so that one in thousands is a few requests away."""
    api.append("jobs", {"data": "rare", "tag": "rare"}, *range(5000))
    at("/topics/jobs")
    seqs(page)

    page.locator("#tag").fill("rare")
    page.locator("#filter button").click()

    assert starts(page, 1) == [1]


# ---------------------------------------------------------------------- what is gone


def test_a_deleted_record_is_told_as_such(api: Api, page: Any, at: At) -> None:
    """Between records that are there, and for a link to it. (§5)"""
    api.append("jobs", *({"data": n, "tag": "x" if 2 <= n <= 4 else "y"} for n in range(8)))
    api.delete("jobs", match="x")
    at("/topics/jobs")

    assert seqs(page) == [1, 2, 6, 7, 8]
    assert notes(page) == ["Records 3 to 5 were deleted."]

    page.locator("#seq").fill("4")
    page.locator("#to-seq button").click()
    shows(page, ".wanted-note", "Record 4 was deleted.")


def test_a_job_that_is_done_may_be_why(api: Api, page: Any, at: At) -> None:
    """An ack deletes: both are silent, and the page does not claim to know. (§10.4)"""
    api.put("q", type="queue")
    api.append("q", 1, 2)
    api.ok("POST", "/v0/topics/q/claim", {"node": "w", "max": 1})
    api.ok("POST", "/v0/topics/q/ack", {"node": "w", "seqs": [1]})

    at("/topics/q/records/1")

    shows(page, ".wanted-note", "Record 1 was deleted, or the job is done.")


def test_an_evicted_record_is_told_with_its_reason(api: Api, page: Any, at: At) -> None:
    """A tombstone says cap, and what it covers; a seq to come is neither lost nor deleted. (§3.3)"""
    api.put("ring", cap_records=3)
    api.append("ring", *range(9))
    at("/topics/ring/records/2")
    shows(page, ".wanted-note", "Lost records 2 to 6: the topic reached its cap (cap).")

    page.locator("#newest").click()
    page.wait_for_selector(".wanted-note", state="detached")
    assert seqs(page) == [7, 8, 9]
    assert notes(page) == ["Lost records 1 to 6: the topic reached its cap (cap)."]
    at("/topics/ring/records/50")
    shows(page, ".wanted-note", "Record 50 is not written yet: the last one is 9.")
    assert seqs(page) == [7, 8, 9]


def test_arrows_move_and_escape_closes(api: Api, page: Any, at: At) -> None:
    """One stop of Tab for all rows; Return opens, Escape closes and stays there."""
    api.append("jobs", *range(5))
    at("/topics/jobs")
    seqs(page)
    page.locator(".record > .line").first.focus()

    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("Enter")
    page.wait_for_selector('.record[data-seq="3"].open')
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Copy record"
    page.keyboard.press("Escape")

    page.wait_for_selector(".record.open", state="detached")
    assert page.evaluate("document.activeElement.parentNode.dataset.seq") == "3"
    page.keyboard.press("End")
    assert page.evaluate("document.activeElement.parentNode.dataset.seq") == "5"
    assert page.locator('.record > .line[tabindex="0"]').count() == 1


# ---------------------------------------------------------------------- search in data


def until_found(page: Any, *seqs: int) -> None:
    """Return once these, and no others, are what was found."""
    said = f"{len(seqs)} record{'' if len(seqs) == 1 else 's'} found"
    page.wait_for_function(
        """([said, seqs]) => document.querySelector("#range").textContent.startsWith(said)
             && [...document.querySelectorAll("#records .record")].map((row) => row.dataset.seq).join() === seqs""",
        arg=[said, ",".join(map(str, seqs))],
    )


def test_data_are_searched(api: Api, page: Any, at: At) -> None:
    """For a text in any case, however it is escaped, and for a value at a path: a string, a number of the same
    value. (§0.3)"""
    api.append(
        "jobs",
        {"order": 7, "items": [{"sku": "Lamp"}]},
        {"order": 8.0, "items": [{"sku": "desk"}], "note": "Grüße"},
        {"order": "7", "items": []},
        "lamp",
    )
    at("/topics/jobs")
    page.wait_for_selector(".record")
    for typed, expected in {
        "lamp": (1, 4), "grüße": (2,), "$.order=7": (1, 3), "$.order = 8": (2,),
        '$.order="7"': (3,), "$.items[0].sku=Lamp": (1,), "$.items[1].sku=Lamp": (),
    }.items():  # fmt: skip
        page.locator("#find-text").fill(typed)
        page.locator("#find-go").click()
        until_found(page, *expected)

    page.locator("#find-text").fill("")
    page.locator("#find-go").click()
    page.wait_for_function("() => document.querySelectorAll('.record').length === 4")


def test_a_search_goes_on_and_is_stopped(api: Api, page: Any, at: At) -> None:
    """Fifty are shown, newest ones first; a stop says how far it looked. (§3)"""
    for n in range(4):
        api.append("jobs", *({"n": n * 1000 + each} for each in range(1000)))
    at("/topics/jobs")
    page.wait_for_selector(".record")
    page.locator("#find-text").fill("n")
    page.locator("#find-go").click()
    until_found(page, *range(3951, 4001))
    page.locator(".search-on").click()
    page.wait_for_selector('.record[data-seq="3950"]')

    held: list[Any] = []
    page.route("**/diff", lambda route: held.append(route))
    page.locator("#find-text").fill("absent")
    with page.expect_request("**/diff"):
        page.locator("#find-go").click()
    shows(page, "#find-go", "Stop")
    page.locator("#find-go").click()
    for route in held:
        route.continue_()

    until_found(page)
    assert "all from 3,001 on were looked at" in page.text_content("#range")
    shows(page, "#find-go", "Find")


def many(api: Api, count: int = 4000) -> None:
    """Numbers up to that, one in each record."""
    for low in range(0, count, 1000):
        api.append("jobs", *({"n": n + 1} for n in range(low, low + 1000)))


def search_for(page: Any, typed: str) -> None:
    page.locator("#find-text").fill(typed)
    page.locator("#find-go").click()


def test_whole_numbers_are_found_by_every_digit(api: Api, page: Any, at: At) -> None:
    """Whole numbers beyond 2^53 that are one double are told apart. (§0.3)"""
    api.append("jobs", {"n": 2**60}, {"n": 2**60 + 1})
    at("/topics/jobs")
    page.wait_for_selector(".record")

    search_for(page, f"$.n={2**60 + 1}")

    until_found(page, 2)


def test_a_page_of_hits_is_turned_around_and_goes_on(api: Api, page: Any, at: At) -> None:
    """What looks further stays where hits are turned around. (§3)"""
    many(api, 1000)
    at("/topics/jobs")
    page.wait_for_selector(".record")
    search_for(page, "n")
    until_found(page, *range(951, 1001))

    page.locator("#newest-first").check()
    until_found(page, *range(1000, 950, -1))
    page.locator(".search-on").click()

    until_found(page, *range(950, 900, -1))


def test_a_search_that_is_stopped_within_a_window_misses_none(api: Api, page: Any, at: At) -> None:
    """A window of which a part was read is looked at again. (§3)"""
    many(api, 2000)
    at("/topics/jobs")
    page.wait_for_selector(".record")
    held: list[Any] = []

    def in_parts(route: Any) -> None:
        asked = {**route.request.post_data_json, "limit": 100}
        if asked["from_seq"] % 1000 == 100 and not held:
            held.append((route, asked))
            page.evaluate("window.isHeld = true")
        else:
            route.continue_(post_data=json.dumps(asked))

    page.route("**/diff", in_parts)
    search_for(page, "$.n=1900")
    page.wait_for_function("() => window.isHeld")
    page.locator("#find-go").click()
    ((route, asked),) = held
    route.continue_(post_data=json.dumps(asked))
    until_found(page)
    assert "all from 2,001 on were looked at" in page.text_content("#range")
    page.locator(".search-on").click()

    until_found(page, 1900)


def test_a_search_outlives_the_server(api: Api, page: Any, at: At, console: Console) -> None:
    """What was found before the server went stays, and the search goes on from there. (§3)"""
    console.forgives_failures = True
    many(api, 2000)
    at("/topics/jobs")
    page.wait_for_selector(".record")
    page.route(
        "**/diff",
        lambda route: (
            route.continue_() if route.request.post_data_json["from_seq"] >= 1000 else route.abort()
        ),
    )

    search_for(page, "00}")
    until_found(page, *range(1100, 2001, 100))
    shows(page, "#records-trouble", "The server cannot be reached.")
    page.unroute("**/diff")
    page.locator(".search-on").click()

    until_found(page, *range(100, 1001, 100))
    page.locator("#records-trouble").wait_for(state="hidden")


def test_a_search_does_not_follow_to_another_page(api: Api, page: Any, at: At) -> None:
    """The button of a search that still runs elsewhere finds, and does not stop."""
    many(api, 1000)
    at("/topics/jobs")
    page.wait_for_selector(".record")
    held: list[Any] = []
    page.route(
        "**/diff",
        lambda route: (
            held.append(route)
            if route.request.post_data_json["limit"] == 1000
            else route.continue_()
        ),
    )
    with page.expect_request("**/diff"):
        search_for(page, "absent")
    shows(page, "#find-go", "Stop")

    page.locator("#oldest").click()

    shows(page, "#find-go", "Find")
    assert starts(page, 1)[-1] == 50
    for route in held:
        route.continue_()
