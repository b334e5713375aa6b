"""The graph of routers on the page at `/`, in a real browser, on a real server (§6, §9)."""

from collections.abc import Callable
from typing import Any

import pytest
from contract.api import Api

from .conftest import Console, shows

RING = {"allow_cycle": True}
HOSTILE = '<img src=x onerror="document.title=1">'

Visit = Callable[..., None]


def route(api: Api, source: str, dest: str, name: str = "", **fields: object) -> None:
    body = {"source": source, "dest": dest, **fields}
    api.ok("PUT", f"/v0/routers/{name or f'{source}->{dest}'}", body)


def told(page: Any, router: str, part: str, text: str) -> None:
    """Return once this part of a router's box says so."""
    shows(page, f'[data-router="{router}"] .{part}', text)


def parts(page: Any, router: str) -> list[str]:
    """Everything that a router's box shows while it is closed."""
    texts: list[str] = page.locator(
        f'[data-router="{router}"] summary > span:visible:not(.unseen)'
    ).all_inner_texts()
    return texts


def outline(page: Any) -> list[str]:
    """The graph as it is read: each box indented by how deep it lies."""
    script = """boxes => boxes.map(box => {
      let depth = 0;
      for (let up = box.parentNode; up.id !== "graph"; up = up.parentNode) depth += up.tagName === "UL";
      const name = box.dataset.router ?? box.querySelector("b").textContent;
      const mark = box.matches(".back") ? "<- " : box.matches(".router") ? "- " : "";
      return "  ".repeat(depth) + mark + name;
    })"""
    lines: list[str] = page.eval_on_selector_all("#graph .router, #graph .node", script)
    return lines


def ends(page: Any) -> list[tuple[str, str]]:
    """What each wire leads from and to, by where on the screen it begins and ends."""
    script = """() => {
      const boxes = [...document.querySelectorAll("#graph .router, #graph .node")];
      const origin = document.getElementById("wires").getBoundingClientRect();
      const at = ([x, y]) => {
        const box = boxes.find(box => {
          const { left, right, top, bottom } = box.getBoundingClientRect();
          const dx = x + origin.left, dy = y + origin.top;
          return dx > left - 2 && dx < right + 2 && dy > top - 2 && dy < bottom + 2;
        });
        return box && (box.dataset.router ?? (box.matches(".back") ? "<- " : "") + box.dataset.topic);
      };
      return [...document.querySelectorAll("#wires path")].map(path => {
        const d = path.getAttribute("d"), first = path.getPointAtLength(0);
        const arrow = /l-?\\d+ -?\\d+m-?\\d+ -?\\d+l-?\\d+ -?\\d+$/, line = path.cloneNode();
        line.setAttribute("d", d.replace(arrow, ""));
        const last = line.getPointAtLength(line.getTotalLength());
        return [at([first.x, first.y]), at([last.x, last.y])];
      });
    }"""
    return [(start, end) for start, end in page.evaluate(script)]


# ---------------------------------------------------------------------- what flows where


def test_without_routers_the_page_says_how_to_make_one(api: Api, page: Any, visit: Visit) -> None:
    """The line it shows works as it stands, and the router it makes appears by itself. (§6.1)"""
    api.append("orders", 1)
    visit()
    page.wait_for_selector("#first-router", state="visible")
    curl = page.text_content("#router-curl")
    address, _, body = curl.removeprefix("curl -X PUT ").partition(" -H content-type:")
    assert address == f"http://127.0.0.1:{api.wire.port}/v0/routers/orders-copy"
    assert not page.locator("#router-find").is_visible()

    api.ok("PUT", "/v0/routers/orders-copy", body.partition(" -d ")[2].strip("'").encode())

    page.wait_for_selector('[data-router="orders-copy"]')
    assert not page.locator("#first-router").is_visible()
    assert outline(page) == ["orders", "  - orders-copy", "  orders.copy"]


def test_a_fan_out_is_a_tree(api: Api, page: Any, visit: Visit) -> None:
    """One source, its destinations below each other; what they feed, further in. (§6)"""
    api.put("orders")
    route(api, "orders", "eu", filter=["tag", "Glob", "eu.*"])
    route(api, "orders", "audit", "all")
    route(api, "orders", "eu", "uk", filter=["tag", "Eq", "uk"])
    route(api, "eu", "mail")
    visit()

    shows(page, "#routers-count", "4")

    assert outline(page) == [
        "orders",
        "  - all",
        "  audit",
        "  - orders->eu",
        "  - uk",
        "  eu",
        "    - eu->mail",
        "    mail",
    ]
    assert parts(page, "all") == ["all", "every record", "0 forwarded"]
    assert parts(page, "orders->eu") == ["tag like eu.*", "0 forwarded"]
    assert parts(page, "uk") == ["uk", "tag is uk", "0 forwarded"]


@pytest.mark.parametrize("width", [1300, 390])
def test_wires_join_what_flows(api: Api, page: Any, visit: Visit, width: int) -> None:
    """From box to box, and back to where a ring began, on wide screens and on narrow ones. (§6)"""
    page.set_viewport_size({"width": width, "height": 2500})
    api.put("a")
    for source, dest in ("ab", "bc", "ca"):
        route(api, source, dest, **RING)
    route(api, "b", "z", "keep")
    visit()
    shows(page, "#routers-count", "4")

    assert outline(page) == [
        "a",
        "  - a->b",
        "  b",
        "    - keep",
        "    z",
        "    - b->c",
        "    c",
        "      - c->a",
        "      <- a",
    ]
    page.wait_for_function(
        "() => [...document.querySelectorAll('#wires path')].every(p => p.getAttribute('d'))"
    )
    assert sorted(ends(page)) == sorted(
        [
            ("a", "a->b"), ("a->b", "b"), ("b", "keep"), ("keep", "z"), ("b", "b->c"),
            ("b->c", "c"), ("c", "c->a"), ("c->a", "<- a"), ("<- a", "a"),
        ]
    )  # fmt: skip


def test_wires_follow_what_stays_in_sight(api: Api, page: Any, visit: Visit) -> None:
    """The source of sixty is beside those that one scrolls to, and the wires still begin at it."""
    api.put("events")
    for number in range(60):
        route(api, "events", f"shard.{number:02}")
    visit()
    shows(page, "#routers-count", "60")
    source = page.locator('#graph [data-topic="events"]')

    for shard in ("shard.59", "shard.00"):
        page.locator(f'#graph [data-topic="{shard}"]').scroll_into_view_if_needed()
        page.wait_for_function(
            """() => {
              const end = document.querySelector('#graph [data-topic="events"]').getBoundingClientRect();
              const wire = document.querySelector("#wires path").getPointAtLength(0);
              const top = document.getElementById("wires").getBoundingClientRect().top + wire.y;
              return Math.abs(top - (end.top + end.bottom) / 2) < 2;
            }"""
        )
        within = page.locator("#routers-scroll").bounding_box()
        assert within["y"] <= source.bounding_box()["y"] <= within["y"] + within["height"]


# ---------------------------------------------------------------------- how far it has come


def test_counters_follow_what_is_forwarded(api: Api, page: Any, visit: Visit) -> None:
    """Forwarded and its rate by router, records by topic, while the boxes stay what they are. (§6.2)"""
    api.put("orders")
    route(api, "orders", "eu", filter=["tag", "Glob", "eu.*"])
    visit()
    told(page, "orders->eu", "total", "0 forwarded")
    page.evaluate("document.querySelector('.router').dataset.kept = 'yes'")

    api.append("orders", *[{"data": n, "tag": f"eu.{n}"} for n in range(1200)], {"data": "us"})

    told(page, "orders->eu", "total", "1,200 forwarded")
    shows(page, '#graph [data-topic="orders"] .facts', "1,201 records")
    shows(page, '#graph [data-topic="eu"] .facts', "1,200 records")
    assert page.locator('[data-router="orders->eu"]').get_attribute("data-kept") == "yes"
    told(page, "orders->eu", "rate", "")
    assert parts(page, "orders->eu") == ["tag like eu.*", "1,200 forwarded"]


def test_what_is_blocked_is_told_until_it_flows_again(api: Api, page: Any, visit: Visit) -> None:
    """Who refuses, why, and how far behind the router is; the wires show it, too. (§6.1)"""
    api.put("full", cap_records=1, discard="reject")
    api.put("orders")
    route(api, "orders", "full")
    visit()
    api.append("orders", 1, 2, 3)

    told(page, "orders->full", "lag", "2 behind")
    shows(page, "#routers-alarm", "1 blocked")
    (blocked,) = [part for part in parts(page, "orders->full") if part.startswith("blocked")]
    assert 'topic "full" is full' in blocked
    assert page.locator("#wires .stopped").count() == 2

    api.put("full", cap_records=10, discard="reject")

    told(page, "orders->full", "total", "3 forwarded")
    shows(page, "#routers-alarm", "")
    page.wait_for_selector("#wires .stopped", state="detached")


def test_a_routers_loss_is_told(api: Api, page: Any, visit: Visit) -> None:
    """What the source dropped before it was forwarded: how much, which, and why. (§3.3)"""
    api.put("full", cap_records=1, discard="reject")
    api.put("orders", cap_records=2)
    route(api, "orders", "full")
    api.append("full", "in the way")
    api.append("orders", 1, 2, 3, 4, 5)
    api.put("full", cap_records=10, discard="reject")
    visit()

    told(page, "orders->full", "lost", "3 lost")
    shows(page, "#routers-alarm", "3 lost")

    page.locator('[data-router="orders->full"] summary').click()
    facts = page.locator('[data-router="orders->full"] dd:visible').all_text_contents()
    assert any("records 1 to 3" in fact and "(cap)" in fact for fact in facts)


def test_a_router_tells_the_rest_when_it_is_opened(api: Api, page: Any, visit: Visit) -> None:
    """Its config and its cursor, by keyboard; it stays open, and has the focus, when others come. (§6.2)"""
    api.put("orders")
    route(api, "orders", "mail", guarantee="exactly_once", preserve_tag=False)
    api.append("orders", 1, 2)
    visit()
    told(page, "orders->mail", "total", "2 forwarded")

    page.locator("#fold").focus()
    for _ in range(3):  # the graph, which scrolls; its first topic; the router
        page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    box = page.locator('[data-router="orders->mail"]')
    box.get_by_text("record 2").wait_for()
    assert box.locator("dd:visible").all_text_contents() == [
        "orders->mail", "exactly once", "node", "not allowed", "record 2", "0", "0",
    ]  # fmt: skip
    route(api, "orders", "audit")
    page.wait_for_selector('[data-router="orders->audit"]')
    assert box.get_attribute("open") is not None
    assert page.evaluate("document.activeElement.parentNode.dataset.router") == "orders->mail"


def test_loss_is_found_however_many_routers_there_are(api: Api, page: Any, visit: Visit) -> None:
    """The list does not tell of loss, so routers are asked in turns, a few a round. (§6.3)"""
    api.put("events")
    for number in range(30):
        route(api, "events", f"shard.{number:02}")
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/v0/")[2]))
    page.clock.install()
    visit()

    page.clock.run_for(1)
    singles = [path for path in asked if path.startswith("routers/")]
    while len(set(singles)) < 30:
        with page.expect_response("**/v0/routers/*"):
            page.clock.run_for(2000)
        singles = [path for path in asked if path.startswith("routers/")]

    rounds = len([path for path in asked if path.startswith("routers?")])
    assert len(singles) <= 8 * rounds


# ---------------------------------------------------------------------- the rest of the page


def test_a_topic_in_the_graph_leads_to_its_page(api: Api, page: Any, visit: Visit) -> None:
    """A node is a button, and so is the leaf at which a ring closes."""
    api.append("a", "x")
    route(api, "a", "b", **RING)
    route(api, "b", "a", **RING)
    visit()

    page.locator('#graph [data-topic="b"]').click()
    shows(page, "#title", "b")
    page.go_back()
    page.locator("#graph .back").click()

    shows(page, "#title", "a")
    page.go_back()
    assert page.locator('#graph [aria-pressed="true"]').count() == 2, "it, and its leaf"


def test_routers_come_and_go(api: Api, page: Any, visit: Visit, console: Console) -> None:
    """A prefix leaves out what does not match; a deleted topic takes its routers along. (§1.4, §6.3)"""
    api.put("a")
    route(api, "a", "b", "first")
    route(api, "b", "c", "second")
    visit()
    shows(page, "#routers-count", "2")

    page.locator("#router-prefix").fill("sec")
    shows(page, "#routers-count", "1")
    assert outline(page) == ["b", "  - second", "  c"]
    page.locator("#router-prefix").fill("none")
    page.wait_for_selector("#no-router", state="visible")
    page.locator("#router-prefix").fill("")
    shows(page, "#routers-count", "2")

    console.forgives_failures = True  # the page may ask for a router of its list that just went
    api.drop("b")
    page.wait_for_selector("#first-router", state="visible")


def test_what_a_server_tells_stays_text(page: Any, visit: Visit) -> None:
    """Markup in a filter, a message or a name is shown as it is written. (§0.3)"""
    odd = {
        "router": HOSTILE, "source": HOSTILE, "dest": "b", "guarantee": HOSTILE,
        "forwarded_total": 1, "filter": ["tag", "Glob", HOSTILE], "lag": 2,
        "blocked": {"code": HOSTILE, "message": HOSTILE, "since": 1, "retry_ms": 50},
    }  # fmt: skip
    page.route("**/v0/routers?*", lambda route: route.fulfill(json={"routers": [odd]}))
    page.route("**/v0/routers/*", lambda route: route.fulfill(json=odd))
    visit()

    shows(page, ".router .filter", f"tag like {HOSTILE}")
    page.locator(".router summary").click()
    assert HOSTILE in page.text_content(".router .blocked")
    assert page.locator("#routers img").count() == 0
    assert page.title() == "topics"


def test_fewer_facts_make_fewer_words(page: Any, visit: Visit) -> None:
    """An answer with nothing but what §6.3 promises is drawn; of two sources, too."""
    bare = [
        {"router": f"{source}->c", "source": source, "dest": "c", "forwarded_total": 7}
        for source in "ab"
    ]
    page.route("**/v0/routers?*", lambda route: route.fulfill(json={"routers": bare}))
    page.route("**/v0/routers/*", lambda route: route.fulfill(json=bare[0]))
    visit()
    shows(page, "#routers-count", "2")

    assert outline(page) == ["a", "  - a->c", "  c", "b", "  - b->c", "  <- c"]
    assert parts(page, "a->c") == ["every record", "7 forwarded"]


def test_more_than_can_be_drawn_is_told(page: Any, visit: Visit) -> None:
    """A next page is not followed: the first are drawn, and a prefix leads to the others. (§6.3)"""
    first = {"router": "a->b", "source": "a", "dest": "b", "forwarded_total": 0}
    answer = {"routers": [first], "next_cursor": "more"}
    page.route("**/v0/routers?*", lambda route: route.fulfill(json=answer))
    page.route("**/v0/routers/*", lambda route: route.fulfill(json=first))
    visit()

    shows(page, "#routers-count", "1+")
    page.locator("#more-routers").wait_for()


def test_a_server_without_routers_is_asked_once(page: Any, console: Console, visit: Visit) -> None:
    """404 for the list means an older server: no graph, no trouble, no more questions. (§6.3)"""
    console.forgives_failures = True
    asked: list[str] = []

    def refuse(route: Any) -> None:
        asked.append(route.request.url)
        route.fulfill(status=404, json={"error": {"code": "not_found", "message": "no such path"}})

    page.route("**/v0/routers**", refuse)
    page.clock.install()
    with page.expect_response("**/v0/routers?*"):
        visit()
    for _ in range(2):
        with page.expect_response("**/v0/topics?*"):
            page.clock.run_for(2000)

    assert len(asked) == 1
    assert not page.locator("#routers").is_visible()
    assert not page.locator("#trouble").is_visible()


def test_a_key_that_may_not_see_routers_is_told(
    api: Api, page: Any, console: Console, visit: Visit
) -> None:
    """The graph has its own trouble; the topics beside it are shown. (§0.2)"""
    console.forgives_failures = True
    api.put("jobs")
    error = {"code": "forbidden", "message": "not with this key"}
    page.route("**/v0/routers**", lambda route: route.fulfill(status=403, json={"error": error}))
    visit()

    shows(page, "#routers-trouble", "not with this key (403 forbidden)")
    page.locator('tr[data-topic="jobs"]').wait_for()
    assert not page.locator("#trouble").is_visible()
