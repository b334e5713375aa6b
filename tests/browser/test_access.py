"""Keys and pages of other origins in a real browser: what a page may do with a server (§0.2, §0.11)."""

import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from contract.api import Api, dumps
from contract.server import Server
from contract.wire import Http1, ask

from .conftest import Console, shows

KEY = "s3cret-key"


class Site:
    """Another web server of this machine, with one page."""

    def __init__(self) -> None:
        self.page = b""
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.send_header("content-type", "text/html; charset=utf-8")
                self.end_headers()
                self.wfile.write(site.page if self.path == "/" else b"")

            def log_message(self, *_: object) -> None:
                return

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.origin = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever)
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def site() -> Iterator[Site]:
    """Asked for before `page`, so that it outlives the page: a browser asks for the site's icon when it
    likes, and complains of a site that went away meanwhile."""
    site = Site()
    yield site
    site.close()


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Starts a server with settings, which ends with the test."""
    servers: list[Server] = []

    def start(**settings: object) -> Server:
        servers.append(Server(tmp_path / f"server{len(servers)}", **settings).start())
        return servers[-1]

    yield start
    for server in servers:
        server.__exit__(None, None, None)


def test_a_page_on_another_port_is_leased_no_job(
    api: Api, server: Server, site: Site, page: Any, console: Console
) -> None:
    """An image or a frame of it reaches the server without a preflight, and is refused. (§10.8, §0.11)"""
    console.forgives_failures = True
    api.put("q", type="queue")
    api.append("q", 1, 2, 3)
    work = f"http://127.0.0.1:{server.port}/v0/topics/q/work?node="
    site.page = f"""<img src="{work}image"><iframe src="{work}frame"></iframe>
        <script src="{work}script"></script><link rel=stylesheet href="{work}style">""".encode()
    statuses: list[int] = []
    page.on("response", lambda answer: "/work" in answer.url and statuses.append(answer.status))

    page.goto(site.origin)
    page.wait_for_function("() => document.images[0].complete")

    assert set(statuses) == {403}
    assert api.state("q")["queue"] == {"ready": 3, "in_flight": 0, "dead_lettered": 0}


def test_the_address_bar_is_leased_no_job(
    api: Api, server: Server, page: Any, console: Console
) -> None:
    """Who types the address of a stream of jobs, or follows a bookmark, is no worker. (§10.8)"""
    console.forgives_failures = True
    api.put("q", type="queue")
    api.append("q", 1)

    answer = page.goto(f"http://127.0.0.1:{server.port}/v0/topics/q/work?node=person")

    assert answer.status == 403
    assert api.state("q")["queue"]["in_flight"] == 0


CALLS = """async (server) => {
  const headers = { Authorization: "Bearer KEY", "Content-Type": "application/json" };
  const call = async (method, path, body) => {
    const answer = await fetch(server + path, { method, headers, body: body && JSON.stringify(body) });
    return [answer.status, await answer.json()];
  };
  const put = await call("PUT", "/v0/topics/a", {});
  const missing = await call("GET", "/v0/topics/missing");
  await call("POST", "/v0/topics/a", { records: [{ data: "seen" }] });
  const [, session] = await call("POST", "/v0/watch", { topics: { a: {} } });
  const source = new EventSource(server + session.stream_url + "?token=KEY");
  const record = await new Promise((done) => source.addEventListener("record", done));
  source.close();
  return [put[0], missing[0], JSON.parse(record.data).records[0].data];
}""".replace("KEY", KEY)


def test_a_page_that_was_named_may_call(
    start: Callable[..., Server], site: Site, page: Any, console: Console
) -> None:
    """With a key in a header, after a preflight; and reads an event stream with the key in its
    address. Answers that are refusals are read, too. (§0.11, §7.1)"""
    console.forgives_failures = True
    server = start(api_keys=KEY, allowed_origins=site.origin)
    page.goto(site.origin)

    assert page.evaluate(CALLS, f"http://127.0.0.1:{server.port}") == [201, 404, "seen"]


def test_a_page_that_was_not_named_may_not(
    start: Callable[..., Server], site: Site, page: Any, console: Console
) -> None:
    """Not even with a key. (§0.11)"""
    server = start(api_keys=KEY)
    page.goto(site.origin)
    url = f"http://127.0.0.1:{server.port}"

    with pytest.raises(Exception, match="Failed to fetch"):
        page.evaluate(CALLS, url)

    assert all("CORS" in line or "Failed to load" in line for line in console.lines)
    console.lines.clear()


def test_the_page_asks_for_a_key_where_the_server_does(
    start: Callable[..., Server], page: Any, console: Console
) -> None:
    """The form is there once a request was refused for want of a key, a wrong key is called one, a key may be
    pasted with spaces around it, and one that may not see routers shows topics all the same. (§0.2)"""
    console.forgives_failures = True
    server = start(api_keys=f"{KEY}:rw+a:in.")
    wire = server.connect(Http1)
    head = {"authorization": f"Bearer {KEY}"}
    ask(wire, "POST", "/v0/topics/in.jobs", dumps({"records": [{"data": "x"}]}), head)
    page.goto(f"http://127.0.0.1:{server.port}/#/topics")

    shows(page, "#trouble", "This server asks for a key. Type it in above.")
    page.locator("#access").wait_for()
    page.locator("#key").fill("wrong")
    page.keyboard.press("Enter")
    shows(page, "#trouble", "The server does not know this key.")
    page.locator("#key").fill(f" {KEY} ")
    page.keyboard.press("Enter")
    page.get_by_role("link", name="in.jobs").click()

    page.wait_for_selector('.record[data-seq="1"]')
    assert not page.locator("#topic-trouble").is_visible()
    page.locator("#access").wait_for()
    assert KEY not in page.url


def test_a_key_lasts_as_long_as_its_tab(
    start: Callable[..., Server], page: Any, console: Console
) -> None:
    """A reload keeps it, and another tab has none; signed out, the page asks anew and shows no empty charts.
    (§0.2)"""
    console.forgives_failures = True
    server = start(api_keys=KEY)
    url = f"http://127.0.0.1:{server.port}/"
    page.goto(url)
    shows(page, "#overview-trouble", "This server asks for a key. Type it in above.")
    assert not page.locator("#charts").is_visible()
    page.locator("#key").fill(KEY)
    page.keyboard.press("Enter")
    page.locator("#charts").wait_for(state="visible")

    page.reload()
    page.locator("#charts").wait_for(state="visible")
    assert page.evaluate("Object.keys(localStorage).length + document.cookie.length") == 0
    other = page.context.new_page()
    other.goto(url)
    shows(other, "#overview-trouble", "This server asks for a key. Type it in above.")
    other.close()

    page.locator("#key-forget").click()
    shows(page, "#overview-trouble", "This server asks for a key. Type it in above.")
    page.locator("#charts").wait_for(state="hidden")
    assert page.evaluate("sessionStorage.length") == 0


def test_the_page_asks_for_no_key_where_there_are_none(
    api: Api, page: Any, visit: Callable[..., None]
) -> None:
    """The form is not there. (§0.2)"""
    api.append("jobs", "x")
    visit("jobs")

    assert not page.locator("#access").is_visible()
