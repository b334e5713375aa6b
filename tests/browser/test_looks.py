"""How the console stands on screens: narrow ones, dark ones, small ones; and what it never does."""

from collections.abc import Callable
from typing import Any

import pytest
from contract.api import Api
from contract.server import Server

from .conftest import shows

At = Callable[[str], None]
HOSTILE = '<img src=x onerror="document.title=1">"\'</td><script>document.title=1</script>'
PLACES = {
    "/": ".chart polyline",
    "/topics": "#graph .router",
    "/topics/jobs": ".record",
    "/topics/jobs/live": ".row",
    "/topics/jobs/publish": "#publish",
    "/topics/q/jobs": "#jobs tr",
    "/topics/q/jobs/1": "#job-facts dd",
    "/topics/q/publish": "#publish-priority",
    "/schedules": "#schedule-list tr",
    "/topics/jobs/settings": "[name=ttl_ms]",
    "/topics/jobs/manage": "#drop",
    "/topics/jobs/activity": "#topic-routers tr",
    "/clients": "#clients .empty",
}
"""Places of the console, and what is in sight there once it is loaded."""


@pytest.fixture
def filled(api: Api) -> Api:
    """A topic, a queue and two routers."""
    api.append(
        "jobs", *({"data": {"n": n, "text": "word " * 40}, "tag": "eu.de"} for n in range(60))
    )
    api.put("q", type="queue")
    api.append("q", {"data": 1, "group": "customer-of-a-long-name", "delay_ms": 3_600_000})
    record = {"data": 1}
    api.ok("PUT", "/v0/schedules/s", {"topic": "jobs", "record": record, "cron": "0 6 * * 1-5"})
    for dest in ("copy", "other"):
        api.ok("PUT", f"/v0/routers/jobs->{dest}", {"source": "jobs", "dest": dest})
    return api


@pytest.mark.parametrize("place", PLACES)
def test_nothing_is_wider_than_a_telephone(filled: Api, page: Any, at: At, place: str) -> None:
    """At 390 px no page scrolls sideways, and what one types into is there."""
    page.set_viewport_size({"width": 390, "height": 844})
    at(place)
    page.wait_for_selector(PLACES[place], state="attached")

    assert page.evaluate("document.documentElement.scrollWidth") <= 390
    beyond = """() => [...document.querySelectorAll("input, button, select, textarea, a")]
      .filter((each) => each.checkVisibility() && !each.closest("#routers-scroll, #tabs"))
      .filter((each) => each.getBoundingClientRect().right > 391).map((each) => each.id || each.textContent)"""
    assert page.evaluate(beyond) == []


def test_the_graph_leaves_room_for_topics_and_can_be_folded(filled: Api, page: Any, at: At) -> None:
    """On 1280 x 800 topics and graph are both in sight; folded, the topics have the screen; the grip
    moves by keys, and stops before the topics are gone."""
    page.set_viewport_size({"width": 1280, "height": 800})
    at("/topics")
    page.wait_for_selector("#graph .router")
    box = page.locator("#topics-scroll").bounding_box
    before = box()["height"]
    assert before > 200
    assert page.locator("#routers").bounding_box()["y"] < 700
    assert page.evaluate("document.documentElement.scrollHeight") <= 800

    page.locator("#grip").focus()
    page.keyboard.press("ArrowDown")
    page.keyboard.press("ArrowDown")
    assert box()["height"] == pytest.approx(before + 48, abs=1)
    for _ in range(40):
        page.keyboard.press("ArrowUp")
    assert box()["height"] > 100
    page.locator("#fold").click()
    assert not page.locator("#graph").is_visible()
    assert box()["height"] > before + 48
    page.locator("#fold").click()
    page.wait_for_selector("#graph", state="visible")


def test_the_view_of_the_routers_is_paused(filled: Api, page: Any, at: At) -> None:
    """What it shows stays as of then; resumed, it shows what is. (§6.3)"""
    at("/topics")
    shows(page, "#routers-count", "2")
    page.locator("#router-pause").click()
    page.get_by_text("as of").wait_for()
    filled.ok("DELETE", "/v0/routers/jobs->other")
    filled.put("zz")
    page.wait_for_selector('tr[data-topic="zz"]')
    assert page.text_content("#routers-count") == "2"

    page.locator("#router-pause").click()

    shows(page, "#routers-count", "1")


def test_blocked_routers_alone(api: Api, page: Any, at: At) -> None:
    """Of many routers, those that stand still. (§6.1)"""
    api.put("full", cap_records=1, discard="reject")
    for dest in ("full", "free"):
        api.ok("PUT", f"/v0/routers/orders->{dest}", {"source": "orders", "dest": dest})
    api.append("orders", 1, 2)
    at("/topics")
    shows(page, "#routers-alarm", "1 blocked")

    page.locator("#only-blocked").check()

    shows(page, "#routers-count", "1")
    assert page.locator("#graph .router.stopped").count() == 1
    page.locator("#only-blocked").uncheck()
    shows(page, "#routers-count", "2")


def test_records_are_shown_newest_first(filled: Api, page: Any, at: At) -> None:
    """Where that is chosen; columns have heads. (§3)"""
    at("/topics/jobs")
    page.wait_for_selector(".record")
    heads = page.locator("#record-heads span").all_inner_texts()
    assert heads == ["Seq", "Time", "Tag", "Node", "Data"]
    first = page.locator(".record").first
    assert first.get_attribute("data-seq") == "11"

    page.locator("#newest-first").check()

    assert first.get_attribute("data-seq") == "60"


@pytest.mark.parametrize("opener", ["#topic-new", "#router-new", "#schedule-new"])
@pytest.mark.parametrize("width", [390, 1280])
def test_forms_fit(filled: Api, page: Any, at: At, opener: str, width: int) -> None:
    """What one types into is in sight, on a telephone and on a desk."""
    page.set_viewport_size({"width": width, "height": 844})
    at("/schedules" if "schedule" in opener else "/topics")
    page.locator(opener).click()
    page.wait_for_selector("form.card:not([hidden])")

    assert page.evaluate("document.documentElement.scrollWidth") <= width
    beyond = """(width) => [...document.querySelectorAll("form.card:not([hidden]) :is(input, select, textarea, button)")]
      .filter((each) => each.checkVisibility() && each.getBoundingClientRect().right > width)
      .map((each) => each.id)"""
    assert page.evaluate(beyond, width) == []


BIDI = "safe\u202egnp.exe\u2066\u200f!"
SPELLED = "safe\\u202egnp.exe\\u2066\\u200f!"


def test_what_turns_the_order_of_letters_is_spelled_out(
    api: Api, page: Any, at: At, console: Any
) -> None:
    """In data, tags, nodes, meta, keys, groups, reasons and errors, wherever the console shows one."""
    console.forgives_failures = True
    api.append("jobs", {"data": {BIDI: BIDI}, "tag": BIDI, "node": BIDI, "meta": {BIDI: BIDI}})
    api.put("q", type="queue")
    api.append("q", {"data": BIDI, "group": BIDI, "unique": BIDI})
    api.ok("POST", "/v0/topics/q/claim", {"node": BIDI})
    api.ok("POST", "/v0/topics/q/nack", {"node": BIDI, "seqs": [1], "reason": BIDI})
    client = {"client": "0-1", "kind": "kafka", "key": BIDI, "address": BIDI, "since_ms": 1, "agent": BIDI,
              "group": BIDI, "node": BIDI, "topic_count": 0, "topics": []}  # fmt: skip
    page.route(
        "**/v0/clients?*",
        lambda route: route.fulfill(json={"clients": [client], "next_after": None}),
    )
    shown = """() => !/[\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069]/.test(document.body.innerText + document.title)"""
    for place, selector in (
        ("/topics/jobs", ".record > .line"),
        ("/topics/jobs/live", ".row"),
        ("/topics/q/jobs", "#jobs tr"),
        ("/topics/q/jobs/1", "#job-facts dd"),
        ("/clients", "#clients tbody tr"),
    ):
        at(place)
        page.wait_for_selector(selector)
        if selector.startswith(".record"):
            page.locator(selector).click()
            page.wait_for_selector(".record .detail")
        page.wait_for_function(
            "text => document.querySelector('main:not([hidden])').innerText.includes(text)",
            arg=SPELLED,
        )
        assert page.evaluate(shown), place
    error = {"error": {"code": BIDI, "message": BIDI}}
    page.route("**/v0/clients?*", lambda route: route.fulfill(status=422, json=error))
    page.wait_for_function(
        "text => document.querySelector('#clients .trouble').textContent.includes(text)",
        arg=SPELLED,
    )
    assert page.evaluate(shown)


def luminance(page: Any, selector: str, what: str) -> float:
    """Of the first such element, once it is there: from 0, black, to 1, white."""
    script = """(element, what) => {
      const [r, g, b] = getComputedStyle(element)[what].match(/[\\d.]+/g).map(Number);
      return (0.2126 * r + 0.7152 * g + 0.0722 * b) / 255;
    }"""
    found: float = page.locator(selector).first.evaluate(script, what)
    return found


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_is_light_or_dark_as_the_system_is(filled: Api, page: Any, at: At, scheme: str) -> None:
    """Text and ground change places; nothing keeps the other's colours."""
    page.emulate_media(color_scheme=scheme)
    at("/topics/jobs")
    page.wait_for_selector(".record")

    for selector in ("body", ".record .data", "#facts dd", "#seq", "#older"):
        ink = luminance(page, selector, "color")
        assert ink < 0.4 if scheme == "light" else ink > 0.6, selector
    ground = luminance(page, "body", "backgroundColor")
    assert ground > 0.9 if scheme == "light" else ground < 0.1


def test_what_has_the_focus_is_seen(filled: Api, page: Any, at: At) -> None:
    """Each stop of Tab has an outline."""
    at("/topics/jobs")
    page.wait_for_selector(".record")
    seen: set[str] = set()
    while "node" not in seen and len(seen) < 60:
        page.keyboard.press("Tab")
        name, outline = page.evaluate(
            """() => [document.activeElement.id || document.activeElement.textContent,
                      getComputedStyle(document.activeElement).outlineStyle]"""
        )
        if name not in ("", "time"):  # the field of a date has stops inside
            assert outline == "solid", name
            seen.add(name)

    assert {"go-overview", "to-live", "oldest", "seq", "tag", "node"} <= seen


@pytest.mark.parametrize("place", PLACES)
def test_nothing_comes_from_another_origin(
    filled: Api, page: Any, at: At, server: Server, place: str
) -> None:
    """And the policy refuses nothing, as there is nothing to refuse: the console stays clean."""
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    at(place)
    page.wait_for_selector(PLACES[place], state="attached")

    origin = f"http://127.0.0.1:{server.port}/"
    assert [url for url in asked if not url.startswith((origin, "data:"))] == []
    assert len(asked) > 10


def test_what_a_record_holds_stays_text(api: Api, page: Any, at: At) -> None:
    """Markup in data, a tag, a node, meta and a message is shown as it is written. (§0.3)"""
    api.append(
        "jobs",
        {"data": {HOSTILE: HOSTILE}, "tag": HOSTILE, "node": HOSTILE, "meta": {HOSTILE: HOSTILE}},
    )
    at("/topics/jobs")
    page.locator(".record > .line").click()
    page.wait_for_selector(".record .detail")
    line = page.locator(".record > .line")

    assert line.locator(".tag").text_content() == HOSTILE
    assert line.locator(".by").text_content() == HOSTILE
    assert "onerror" in page.text_content(".detail")
    page.get_by_role("link", name="Live", exact=True).click()
    page.wait_for_selector('.row[data-seq="1"]')
    assert page.locator("main img, main script").count() == 0
    assert page.title() == "jobs · topics"


def test_what_a_server_says_stays_text(page: Any, at: At, console: Any) -> None:
    """Names, classes, versions, reasons and errors, however odd. (§0.5)"""
    console.forgives_failures = True
    topic = {
        "topic": HOSTILE, "type": HOSTILE, "durability": HOSTILE, "head_seq": 1, "earliest_seq": 1,
        "count": 1, "bytes": 1,
    }  # fmt: skip
    error = {"error": {"code": HOSTILE, "message": HOSTILE}}
    queue = {"topic": HOSTILE, "at_ms": [1.0], "ready": [1], "in_flight": [0], "delayed": [0],
             "dead_lettered": [0]}  # fmt: skip
    history = {"step_ms": 10000, "now_ms": 2, "series": {"at_ms": []}, "queues": [queue]}
    health = {"version": HOSTILE, "uptime_ms": 1, "status": HOSTILE}
    page.route("**/v0/topics?*", lambda route: route.fulfill(json={"topics": [topic]}))
    page.route("**/v0/topics/jobs?*", lambda route: route.fulfill(status=422, json=error))
    page.route("**/v0/stats/history?*", lambda route: route.fulfill(json=history))
    page.route("**/v0/health", lambda route: route.fulfill(json=health))

    at("/")
    page.wait_for_function(
        "() => document.querySelector('#queue-list td')?.textContent.includes('onerror')"
    )
    assert HOSTILE in page.text_content("#about")
    page.locator("#go-topics").click()
    page.wait_for_function(
        "() => document.querySelector('#topics td')?.textContent.includes('onerror')"
    )
    page.goto(page.url.partition("#")[0] + "#/topics/jobs")
    page.wait_for_function(
        "() => document.querySelector('#topic-trouble').textContent.includes('onerror')"
    )

    assert page.locator("main img, main script").count() == 0


def test_a_place_that_is_markup_stays_text(page: Any, at: At) -> None:
    """What stands behind the `#` is anybody's link."""
    at("/topics/%3Cimg%20src=x%20onerror=document.title=1%3E/live")

    shows(page, "#title", "<img src=x onerror=document.title=1>")
    assert page.locator("main img").count() == 0
