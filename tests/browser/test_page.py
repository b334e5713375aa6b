"""The page at `/` in a real browser, on a real server: what a person sees (§9)."""

import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
from contract.api import Api
from contract.server import Server

from .conftest import Console, shows

HOSTILE = '<img src=x onerror="document.title=1"></div><script>document.title=1</script>'


def seqs(page: Any, last: int) -> list[int]:
    """The seqs on show, once the last of them is this."""
    page.wait_for_selector(f'.row[data-seq="{last}"]')
    shown: list[int] = page.eval_on_selector_all(".row", "rows => rows.map(r => +r.dataset.seq)")
    return shown


def data_of(page: Any, seq: int) -> str:
    text: str = page.locator(f'.row[data-seq="{seq}"] .body').first.text_content()
    return text


def notes(page: Any, kind: str = "note") -> list[str]:
    page.wait_for_selector(f"#lines .{kind}")
    texts: list[str] = page.locator(f"#lines .{kind}").all_text_contents()
    return texts


def cells(page: Any, topic: str) -> list[str]:
    texts: list[str] = page.locator(f'tr[data-topic="{topic}"] td').all_text_contents()
    return texts


# ---------------------------------------------------------------------- topics


def test_topics_are_listed_and_their_counters_move(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """Name, class, head, earliest, records and bytes, by name; they follow what is written."""
    api.put("b", durability="fsync", cap_records=2)
    api.put("a", durability="memory")
    api.append("b", 1, 2, 3)

    visit()
    shows(page, "#count", "2")

    assert page.locator("#topics tr td:first-child").all_text_contents() == ["a", "b"]
    assert cells(page, "a")[:6] == ["a", "memory", "0", "1", "0", "0 B"]
    assert cells(page, "b")[:5] == ["b", "fsync", "3", "2", "2"]
    assert page.locator("#about").text_content().startswith("version ")

    api.append("a", *range(1200))

    shows(page, 'tr[data-topic="a"] .head_seq', "1,200")
    assert cells(page, "a")[4] == "1,200"
    assert cells(page, "a")[6] != "", "the rate of the last round"


def test_a_topic_that_comes_and_goes(api: Api, page: Any, visit: Callable[..., None]) -> None:
    """An empty server says how to write; a new topic appears by itself, a deleted one vanishes."""
    visit()
    page.locator("#first").wait_for()
    assert f"http://127.0.0.1:{api.wire.port}/v0/topics/hello" in page.text_content("#curl")

    api.append("hello", "world")
    page.wait_for_selector('tr[data-topic="hello"]')
    assert not page.locator("#none").is_visible()

    api.drop("hello")
    page.wait_for_selector("#first", state="visible")


def names(page: Any) -> list[str]:
    texts: list[str] = page.locator("#topics td.topic").all_text_contents()
    return texts


def test_many_topics_are_loaded_as_one_scrolls(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """By cursor; only rows in sight are in the document, and a prefix is the server's. (§1.3)"""
    for number in range(505):
        api.put(f"t{number:03}")
    api.put("u")
    asked: list[str] = []
    page.on("request", lambda request: "/v0/topics?" in request.url and asked.append(request.url))
    visit()
    shows(page, "#count", "200+")
    assert len(names(page)) < 100
    assert not any("cursor" in url for url in asked)

    page.wait_for_function(
        """() => {
          const box = document.getElementById("topics-scroll");
          box.scrollTop = box.scrollHeight;
          return document.querySelector('tr[data-topic="u"]');
        }"""
    )
    shows(page, "#count", "506")
    assert len(names(page)) < 100

    page.locator("#search").fill("t00")
    shows(page, "#count", "10")
    page.locator("#search").fill("none")
    page.wait_for_selector("#nothing", state="visible")
    assert not page.locator("#first").is_visible()


def test_topics_are_sorted_by_any_column_and_found_by_a_part(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """An order that the server does not have is made of all topics; numbers begin with the greatest."""
    for name, records in (("a.low", 1), ("b.high", 30), ("c.mid", 4)):
        api.append(name, *range(records))
    visit()
    shows(page, "#count", "3")

    page.get_by_role("button", name="Records", exact=True).click()
    page.wait_for_selector('th.count[aria-sort="descending"]')
    page.wait_for_function("() => document.querySelector('#topics tr')?.dataset.topic === 'b.high'")
    assert names(page) == ["b.high", "c.mid", "a.low"]
    page.get_by_role("button", name="Records", exact=True).click()
    page.wait_for_function("() => document.querySelector('#topics tr')?.dataset.topic === 'a.low'")
    assert names(page) == ["a.low", "c.mid", "b.high"]

    page.locator("#search").fill("*MI")
    shows(page, "#count", "1")
    assert names(page) == ["c.mid"]


def test_a_hundred_thousand_topics_are_sorted_in_a_few_rows(
    page: Any, visit: Callable[..., None]
) -> None:
    """They are asked for a thousand at a time, and what is in the document is what is in sight. (§1.3)"""

    def answer(route: Any) -> None:
        asked = {
            name: values[0] for name, values in parse_qs(urlsplit(route.request.url).query).items()
        }
        first, size = int(asked.get("cursor", 0)), int(asked["page_size"])
        topics = [
            {"topic": f"t{n:06}", "type": "log", "durability": "disk", "head_seq": n, "earliest_seq": 1,
             "count": n * 7919 % 100_003, "bytes": n}
            for n in range(first, first + size)
        ]  # fmt: skip
        more = {"next_cursor": str(first + size)} if first + size < 100_000 else {}
        route.fulfill(json={"topics": topics, **more})

    page.route("**/v0/topics?*", answer)
    visit()
    shows(page, "#count", "200+")

    page.get_by_role("button", name="Records", exact=True).click()
    page.wait_for_function(
        "() => document.getElementById('count').textContent.startsWith('100,000, as of')"
    )

    counts = page.locator("#topics td.count").all_text_contents()
    assert counts[:3] == ["100,002", "100,001", "100,000"]
    assert len(counts) < 100
    page.locator("#search").fill("*99999")
    page.wait_for_function(
        "() => document.getElementById('count').textContent.startsWith('1, as of')"
    )
    assert names(page) == ["t099999"]


def test_a_queue_tells_of_its_jobs(api: Api, page: Any, visit: Callable[..., None]) -> None:
    """Ready, in flight and dead in the list; delayed, too, on its page. (§10.7)"""
    api.put("log")
    api.put("jobs", type="queue", max_deliveries=1, dead_letter="jobs.dead")
    api.append("jobs", *range(9))
    visit()
    shows(page, 'tr[data-topic="jobs"] .ready', "9")
    assert cells(page, "jobs")[7:] == ["9", "0", "0"]
    assert cells(page, "log")[7:] == ["", "", ""]

    claim = {"node": "w", "max": 4, "lease_ms": 600_000}
    api.ok("POST", "/v0/topics/jobs/claim", claim)
    api.ok("POST", "/v0/topics/jobs/nack", {"node": "w", "seqs": [1], "delay_ms": 600_000})
    api.ok("POST", "/v0/topics/jobs/nack", {"node": "w", "seqs": [2]})
    api.ok("POST", "/v0/topics/jobs/claim", claim | {"max": 1})  # buries 2, gives 5

    shows(page, 'tr[data-topic="jobs"] .dead', "1")
    assert cells(page, "jobs")[7:] == ["4", "3", "1"]
    page.get_by_role("link", name="jobs", exact=True).click()
    page.get_by_text("4 ready · 3 in flight · 1 delayed · 1 dead-lettered").wait_for()


def test_nothing_is_asked_while_nobody_looks(
    server: Server, page: Any, visit: Callable[..., None]
) -> None:
    """A page in the background lets the server alone; back in front it asks at once."""
    hide = (
        "is => { Object.defineProperty(document, 'hidden', { configurable: true, get: () => is });"
    )
    hide += " document.dispatchEvent(new Event('visibilitychange')); }"
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.clock.install()
    visit()
    page.wait_for_load_state("networkidle")

    page.evaluate(hide, True)
    asked.clear()
    page.clock.run_for(60_000)
    assert asked == []

    with page.expect_request("**/v0/topics?*"):
        page.evaluate(hide, False)


# ---------------------------------------------------------------------- the tail


def test_the_tail_shows_records_as_they_come(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """The last twenty, and then what is appended, in order, with tag, node and meta. (§7)"""
    api.append("jobs", *range(30))
    visit("jobs")
    assert seqs(page, 30) == list(range(11, 31))

    api.append("jobs", {"data": [1], "tag": "eu.new", "node": "n1", "meta": {"trace": "z"}}, "two")

    assert seqs(page, 32) == list(range(11, 33))
    row = page.locator('.row[data-seq="31"]').text_content()
    assert all(part in row for part in ("# eu.new", "@ n1", "[1]", 'meta {"trace": "z"}'))
    assert notes(page) == ["Caught up with record 30."]


def test_data_is_shown_as_it_is_stored(api: Api, page: Any, visit: Callable[..., None]) -> None:
    """Numbers keep their digits, markup stays text, quotes and brackets in strings are text. (§0.3)"""
    datas = [
        '{"big":9007199254740993,"price":1.0e2,"list":[],"none":null}',
        json.dumps(HOSTILE),
        '["\\\\", "\\"]}", {"\\"":{}}]',
        '"Z\\u00fcrich"',
    ]
    records = ",".join(f'{{"data":{data}}}' for data in datas)
    api.ok("POST", "/v0/topics/jobs", f'{{"records":[{records}]}}'.encode())
    visit("jobs")

    assert seqs(page, 4) == [1, 2, 3, 4]
    assert [data_of(page, seq) for seq in (1, 2, 3, 4)] == [
        '{"big": 9007199254740993, "price": 1.0e2, "list": [], "none": null}',
        json.dumps(HOSTILE),
        '["\\\\", "\\"]}", {"\\"": {}}]',
        '"Zürich"',
    ]
    assert page.locator("#lines img, #lines script").count() == 0
    assert page.title() == "jobs · topics"


def test_a_long_record_is_cut_until_it_is_asked_for(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """The first few thousand characters; the rest at a click."""
    data = {"lines": [f"line {number}" for number in range(2000)], "end": True}
    api.append("jobs", data)
    visit("jobs")
    seqs(page, 1)
    assert len(data_of(page, 1)) < 5000

    page.get_by_role("button", name="show all").click()

    assert json.loads(data_of(page, 1)) == data


def test_from_the_start_from_now_and_after_a_record(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """Where the tail begins is chosen with a button, or by number."""
    api.append("jobs", *range(30))
    visit("jobs")

    page.locator("#start").click()
    assert seqs(page, 30) == list(range(1, 31))
    page.locator("#after").fill("27")
    page.get_by_role("button", name="Go").click()
    shows(page, "#tally", "· 3 records")
    assert seqs(page, 30) == [28, 29, 30]
    page.locator("#now").click()
    shows(page, "#state", "live")
    api.append("jobs", "new")
    assert seqs(page, 31) == [31]


def test_a_long_backlog_ends_with_its_last_records(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """Everything is counted, the last 500 are kept."""
    for _ in range(3):
        api.append("jobs", *range(1000))
    visit("jobs")

    page.locator("#start").click()

    shows(page, "#tally", "· 3,000 records")
    kept = seqs(page, 3000)
    assert kept == list(range(3001 - len(kept), 3001))
    assert page.locator("#lines > *").count() == 500


def test_loss_is_shown(api: Api, page: Any, visit: Callable[..., None]) -> None:
    """A tombstone is a line of its own: which records, and why. (§3.3, §7.5)"""
    api.put("news", cap_records=2)
    api.append("news", 1, 2, 3, 4)
    visit("news")

    page.locator("#start").click()

    assert seqs(page, 4) == [3, 4]
    assert notes(page, "tombstone") == ["Lost records 1 to 2: no longer kept (from_seq_too_old)."]
    shows(page, "#tally", "· 2 records · 1 gap")
    background = "e => getComputedStyle(e).backgroundColor"
    lost, row = (
        page.locator(f"#lines .{kind}").first.evaluate(background) for kind in ("tombstone", "row")
    )
    assert lost != row


def test_pausing_loses_nothing(api: Api, page: Any, visit: Callable[..., None]) -> None:
    """A paused tail takes nothing; resumed, it goes on with the next record. (§7.4)"""
    api.append("jobs", 1, 2)
    visit("jobs")
    assert seqs(page, 2) == [1, 2]

    page.locator("#pause").click()
    shows(page, "#state", "paused")
    api.append("jobs", 3, 4)
    shows(page, "#facts dd", "4")  # the head, of the next round
    assert seqs(page, 2) == [1, 2]
    page.locator("#pause").click()

    assert seqs(page, 4) == [1, 2, 3, 4]


PAUSE_WHEN_BEHIND = """() => {
  const state = document.getElementById("state");
  new MutationObserver((_, observer) => {
    if (!state.textContent.includes("behind")) return;
    observer.disconnect();
    document.getElementById("pause").click();
  }).observe(state, { childList: true });
}"""


def test_a_pause_in_a_backlog_loses_nothing(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """What the server had sent and the page had not taken is sent again, and only that. (§7.4)"""
    # More than a browser hands to a page at once, so that the page looks up while it is behind.
    for _ in range(8):
        api.append("jobs", *["x" * 2000] * 500)
    visit("jobs")

    page.evaluate(PAUSE_WHEN_BEHIND)
    page.locator("#start").click()
    shows(page, "#state", "paused")
    assert page.text_content("#tally") != "· 4,000 records"
    page.locator("#pause").click()

    shows(page, "#tally", "· 4,000 records")
    kept = seqs(page, 4000)
    assert kept == list(range(4001 - len(kept), 4001))


def test_a_deleted_topic_is_told(api: Api, page: Any, visit: Callable[..., None]) -> None:
    """`topic-deleted` ends the tail; the next topic of that name is a choice. (§7.5)"""
    api.append("jobs", 1, 2)
    visit("jobs")

    api.drop("jobs")

    shows(page, "#state", "deleted")
    assert notes(page, "deleted") == ["The topic was deleted; its last record was 2."]


def test_the_keyboard_is_enough(api: Api, page: Any, visit: Callable[..., None]) -> None:
    """From the search down into the list, a return opens a topic; a reload keeps its place."""
    for name in ("a", "jobs", "z"):
        api.append(name, "x")
    visit()
    page.wait_for_selector('tr[data-topic="jobs"]')

    page.keyboard.press("/")
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert page.evaluate("document.activeElement.textContent") == "jobs"
    page.keyboard.press("Enter")

    page.wait_for_selector('.record[data-seq="1"]')
    page.reload()
    shows(page, "#title", "jobs")
    page.wait_for_selector('.record[data-seq="1"]')


# ---------------------------------------------------------------------- keys


def test_a_key_is_a_header_and_never_an_address(
    api: Api, page: Any, console: Console, visit: Callable[..., None]
) -> None:
    """Behind a door that asks for a key, the key typed in opens list and tail. (§0.2)"""
    console.forgives_failures = True
    api.append("jobs", "x")
    addresses: list[str] = []
    page.on("request", lambda request: addresses.append(request.url))

    def door(route: Any) -> None:
        if route.request.headers.get("authorization") == "Bearer s3cret":
            route.continue_()
        else:
            body = {"error": {"code": "unauthorized", "message": "a key is needed"}}
            route.fulfill(status=401, json=body)

    page.route("**/v0/topics**", door)
    page.route("**/v0/watch**", door)
    page.route("**/v0/routers**", door)
    visit()
    shows(page, "#trouble", "This server asks for a key. Type it in above.")

    page.locator("#key").fill("s3cret")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="jobs").click()
    page.get_by_role("link", name="Live", exact=True).click()

    assert seqs(page, 1) == [1]
    assert not page.locator("#trouble").is_visible()
    assert not [address for address in addresses if "s3cret" in address]
    assert (
        page.evaluate("localStorage.length + document.cookie.length") == 0
    )  # the tab's own is not


# ---------------------------------------------------------------------- restarts


@pytest.fixture
def restart(server: Server, api: Api, console: Console) -> Iterator[Callable[[], None]]:
    """SIGKILL, and the server again on the same directory and port."""
    running = [server]
    console.forgives_failures = True

    def restart() -> None:
        running[-1].kill()
        running.append(Server(server.home, port=server.port).start())
        api.wire.reset()

    yield restart
    running[-1].__exit__(None, None, None)


def test_the_tail_goes_on_after_a_kill(
    api: Api, page: Any, visit: Callable[..., None], restart: Callable[[], None]
) -> None:
    """The session is gone with the process: a new one goes on where the reader was. (§7.4)"""
    api.append("jobs", *range(5))
    visit("jobs")
    api.append("jobs", *range(5))
    assert seqs(page, 10) == list(range(1, 11))

    for last in (20, 30):
        restart()
        api.append("jobs", *range(5))
        api.append("jobs", *range(5))

        assert seqs(page, last) == list(range(1, last + 1))
        shows(page, "#state", "live")
        assert f"A new session goes on after record {last - 10}." in notes(page)
    shows(page, "#phase", "ready")


def test_a_topic_made_anew_meanwhile_is_told(
    api: Api, page: Any, visit: Callable[..., None], restart: Callable[[], None]
) -> None:
    """A cursor of the old topic is not used on the new one, even where it would fit. (§3.3)"""
    api.append("jobs", 1, 2)
    visit("jobs")
    seqs(page, 2)
    page.locator("#pause").click()
    api.drop("jobs")
    api.append("jobs", "a", "b", "c")

    restart()
    page.locator("#pause").click()

    assert seqs(page, 3) == [1, 2, 1, 2, 3]
    (told,) = notes(page, "tombstone")
    assert "recreated" in told


def test_a_server_that_stops_is_told(
    server: Server, page: Any, console: Console, visit: Callable[..., None], api: Api
) -> None:
    """The page says that nobody answers, and keeps trying. (§8.2)"""
    console.forgives_failures = True
    api.append("jobs", 1)
    visit("jobs")

    assert server.stop() == 0

    shows(page, "#phase", "unreachable")
    shows(page, "#state", "reconnecting")
    shows(page, "#topic-trouble", "The server cannot be reached.")
    page.locator("#go-topics").click()
    shows(page, "#trouble", "The server cannot be reached.")
    assert cells(page, "jobs")[2] == "1", "what was known stays on show"
    assert not page.locator("#none").is_visible()


# ---------------------------------------------------------------------- partitions


def write(api: Api, name: str, *places: tuple[int, Any]) -> None:
    records = [{"partition": partition, "data": data} for partition, data in places]
    api.ok("POST", f"/v0/topics/{name}", {"records": records})


def lines(page: Any, count: int) -> list[tuple[str, str]]:
    """Partition and seq of each line, in the order of the partitions."""
    page.wait_for_function(f"() => document.querySelectorAll('#lines .row').length === {count}")
    found: list[list[str]] = page.evaluate(
        "() => [...document.querySelectorAll('#lines .row')].map((row) => [row.dataset.partition, row.dataset.seq])"
    )
    return sorted((partition, seq) for partition, seq in found)


def test_the_tail_shows_all_partitions(api: Api, page: Any, visit: Callable[..., None]) -> None:
    """The last of each, behind its number, and what comes in those that the topic gets later. (§2.1, §7)"""
    api.put("wide", partitions=2)
    write(api, "wide", *((1, n) for n in range(25)), (0, "a"))
    visit("wide")
    assert lines(page, 21) == sorted([("0", "1"), *(("1", str(n)) for n in range(6, 26))])
    row = page.locator('.row[data-partition="1"][data-seq="25"]')
    assert row.locator("span").first.text_content() == "1"
    assert "Partition 1: Caught up with record 25." in notes(page)

    api.put("wide", partitions=3)
    write(api, "wide", (2, "new"), (0, "b"))

    assert {("2", "1"), ("0", "2")} < set(lines(page, 23))
    shows(page, "#state", "live")
    page.locator("#pause").click()
    write(api, "wide", (1, "x"), (2, "y"))
    page.locator("#pause").click()
    assert {("1", "26"), ("2", "2")} < set(lines(page, 25))

    api.drop("wide")
    shows(page, "#state", "deleted")
    assert notes(page, "deleted") == ["The topic was deleted."]


def test_a_place_in_the_tail_is_of_the_partition_on_show(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """A number without it would leave out records of the others. (§2.1)"""
    api.put("wide", partitions=2)
    write(api, "wide", *((1, n) for n in range(5)), (0, "a"))
    visit("wide")
    lines(page, 6)
    page.select_option("#partition", index=1)
    page.fill("#after", "3")
    page.locator("#jump button").click()
    assert lines(page, 2) == [("1", "4"), ("1", "5")]

    page.locator("#start").click()
    assert len(lines(page, 6)) == 6


def test_the_tail_of_partitions_goes_on_after_a_kill(
    api: Api, page: Any, visit: Callable[..., None], restart: Callable[[], None]
) -> None:
    """In each of them where the reader was, and in one that came while nobody listened. (§7.4)"""
    api.put("wide", partitions=2)
    write(api, "wide", (0, 1), (1, 1))
    visit("wide")
    lines(page, 2)

    restart()
    api.put("wide", partitions=3)
    write(api, "wide", (0, 2), (1, 2), (2, 1))

    assert lines(page, 5) == [("0", "1"), ("0", "2"), ("1", "1"), ("1", "2"), ("2", "1")]
    shows(page, "#state", "live")
