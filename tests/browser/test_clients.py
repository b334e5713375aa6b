"""Who is connected, and what happens with one topic, in a real browser (§8.9)."""

import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from contract.api import Api
from contract.keyed import FULL
from contract.server import Server
from contract.streams import Client, Sse1, Ws
from contract.streams import until as until_news
from contract.wire import Http1

from .conftest import Console, shows
from .test_looks import luminance

At = Callable[[str], None]
SCREENS = [
    (width, height, scheme)
    for width, height in ((1280, 800), (390, 844))
    for scheme in ("light", "dark")
]


@pytest.fixture(params=SCREENS, ids=lambda screen: f"{screen[0]}-{screen[2]}")
def screen(request: pytest.FixtureRequest, page: Any) -> int:
    """A desk and a telephone, light and dark; its width."""
    width, height, scheme = request.param
    page.set_viewport_size({"width": width, "height": height})
    page.emulate_media(color_scheme=scheme)
    found: int = width
    return found


@pytest.fixture
def keep() -> Iterator[Callable[[Any], Any]]:
    """Connections that end with the test."""
    sockets: list[socket.socket] = []

    def keep(client: Client) -> Client:
        sockets.append(client.socket)
        return client

    yield keep
    for each in sockets:
        each.close()


@pytest.fixture
def connected(server: Server, api: Api, keep: Callable[[Any], Any]) -> Api:
    """A topic with a stream, a WebSocket, a router in and two out, one of which is blocked; a queue
    with a worker."""
    api.put("q", type="queue")
    api.put("full", cap_records=1, discard="reject")
    for source, dest in (("orders", "copy"), ("orders", "full"), ("raw", "orders")):
        api.ok("PUT", f"/v0/routers/{source}->{dest}", {"source": source, "dest": dest})
    api.append("orders", 1, 2, 3)
    api.append("q", 1, 2)
    begin = {"topics": {"orders": {"from_seq": 0}}}
    stream = keep(Sse1(server.port, api.ok("POST", "/v0/watch", begin)["wid"]))
    until_news(stream, "caught-up")
    worker = keep(Sse1(server.port, "/v0/topics/q/work?node=mailer-7&max=2"))
    until_news(worker, "job")
    talk = keep(Ws(server.port))
    talk.say(op="subscribe", topic="orders", from_seq=0)
    until_news(talk, "caught-up")
    return api


def fits(page: Any, width: int) -> None:
    """Nothing is wider than the screen, and nothing keeps the colours of the other scheme."""
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    is_dark = page.evaluate("matchMedia('(prefers-color-scheme: dark)').matches")
    ink = luminance(page, ".view:not([hidden]) td", "color")
    assert ink > 0.6 if is_dark else ink < 0.4


def test_all_who_are_connected(connected: Api, page: Any, at: At, screen: int) -> None:
    """A row for each: what it does, who it is, where it is, and what it holds. (§8.9)"""
    at("/clients")
    page.wait_for_function("() => document.querySelectorAll('#clients tbody tr').length === 3")
    rows = page.locator("#clients tbody tr")
    cells = [[cell.text_content() for cell in row.locator("td").all()] for row in rows.all()]
    found = {cell[0]: cell for cell in cells}
    assert set(found) == {"stream", "worker", "WebSocket"}
    assert (found["worker"][1], found["worker"][6], found["worker"][7].strip()) == (
        "mailer-7",
        "2",
        "q",
    )
    assert (found["stream"][3], found["stream"][5]) == ("127.0.0.1", "0")
    assert found["stream"][7] == "orders at 3"
    shows(page, "#clients .range", "page 1, 3 clients")
    fits(page, screen)

    page.locator("#clients-topic").fill("q")
    page.locator("#clients-find button").click()
    shows(page, "#clients .range", "page 1, 1 clients")
    page.locator("#clients-topic").fill("nobody")
    page.locator("#clients-find button").click()
    page.locator("#clients .empty").wait_for(state="visible")


def test_what_happens_with_a_topic(connected: Api, page: Any, at: At, screen: int) -> None:
    """Its charts grow while they are on show; its routers and its clients stand below. (§6.2, §8.9)"""
    at("/topics/orders/activity")
    page.wait_for_function("() => document.querySelectorAll('#topic-routers tr').length === 3")
    rows = [row.inner_text() for row in page.locator("#topic-routers tr").all()]
    assert [row for row in rows if "in from" in row and "raw" in row]
    [blocked] = [row for row in rows if "blocked since" in row]
    assert 'topic "full" is full' in blocked
    assert page.locator("#topic-routers .bad").count() == 1
    page.wait_for_function(
        "() => document.querySelectorAll('#topic-clients tbody tr').length === 2"
    )

    connected.append("orders", *range(500))

    page.wait_for_function(
        """() => {
          const charts = [...document.querySelectorAll("#topic-charts .chart")].filter((each) => !each.hidden);
          const points = charts.map((each) => each.querySelector("polyline").getAttribute("points").split(" "));
          const heights = points[0].map((point) => +point.split(",")[1]);
          return charts.length === 3 && points[0].length > 1 && Math.max(...heights) - Math.min(...heights) > 10;
        }"""
    )
    titles = page.locator("#topic-charts .chart:not([hidden]) .title").all_text_contents()
    assert titles == ["Records per second", "Bytes", "Lag, records"]
    page.wait_for_function(
        "() => document.querySelector('#topic-charts .chart:nth-child(3) .b b').textContent === '502'"
    )
    fits(page, screen)


def test_a_queue_draws_its_jobs(connected: Api, page: Any, at: At) -> None:
    """Beside records, bytes and lag. (§10.7)"""
    at("/topics/q/activity")
    shows(page, "#topic-charts .chart:nth-child(4) .b b", "2")


def test_pages_of_clients(page: Any, at: At) -> None:
    """One at a time; short and empty ones are passed over. (§8.9)"""
    asked: list[str] = []

    def answer(route: Any) -> None:
        asked.append(route.request.url.partition("?")[2])
        after = route.request.url.partition("after=")[2].partition("&")[0] or "0-0"
        first = int(after.split("-")[1])
        client = {"kind": "read", "address": "192.0.2.1", "since_ms": 1, "topic_count": 20}
        topics = [{"topic": f"t{n}", "partition": 1, "seq": 1, "lag": 1000} for n in range(16)]
        clients = [
            {**client, "client": f"0-{n}", "lag": 16_000, "topics": topics}
            for n in range(first + 1, first + 26)
        ]
        route.fulfill(
            json={
                "clients": [] if first == 25 else clients,
                "next_after": None if first >= 75 else f"0-{first + 25}",
            }
        )

    page.route("**/v0/clients?*", answer)
    at("/clients")
    shows(page, "#clients .range", "page 1, 50+ clients")
    assert asked[:3] == ["limit=50", "limit=25&after=0-25", "limit=25&after=0-50"]
    assert page.locator("#clients tbody tr").first.locator(".wide").inner_text().endswith("4 more")
    page.locator("#clients").get_by_role("button", name="Next").click()
    shows(page, "#clients .range", "page 2, 25 clients")
    assert page.locator("#clients").get_by_role("button", name="Next").is_disabled()
    page.locator("#clients").get_by_role("button", name="First").click()
    shows(page, "#clients .range", "page 1, 50+ clients")


def test_a_key_that_may_not_know_is_told(tmp_path: Any, page: Any, console: Console) -> None:
    """Without a key, one is asked for and no chart is empty; one without `admin` sees the rest. (§0.2)"""
    console.forgives_failures = True
    with Server(tmp_path / "keyed", api_keys=f"{FULL},reader-1:r").start() as server:
        wire = Http1(server.port)
        wire.send(
            "POST",
            "/v0/topics/orders",
            b'{"records":[{"data":1}]}',
            {"authorization": f"Bearer {FULL}", "content-type": "application/json"},
        )
        assert wire.receive().status == 201
        wire.reset()
        page.goto(f"http://127.0.0.1:{server.port}/#/clients")
        shows(page, "#clients .trouble", "This server asks for a key. Type it in above.")
        page.goto(f"http://127.0.0.1:{server.port}/#/topics/orders/activity")
        page.locator("#topic-trouble").wait_for(state="visible")
        assert page.locator("#topic-charts").is_hidden()

        page.locator("#key").fill("reader-1")
        page.get_by_role("button", name="Use", exact=True).click()
        page.locator("#topic-charts").wait_for(state="visible")
        page.wait_for_function(
            "() => document.querySelector('#topic-clients .trouble').textContent.includes('admin')"
        )
        page.locator("#key-forget").click()
        page.locator("#topic-charts").wait_for(state="hidden")

        page.locator("#key").fill(FULL)
        page.get_by_role("button", name="Use", exact=True).click()
        page.locator("#topic-clients .empty").wait_for(state="visible")
        page.reload()
        page.locator("#topic-charts").wait_for(state="visible")
