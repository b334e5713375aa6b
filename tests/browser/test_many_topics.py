"""A hundred thousand topics of a real server in a real browser: a screenful is loaded, and what is looked for (§1.3)."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from contract.server import Server

from topics.protocol.driver.inline_host import InlineHost
from topics.protocol.faces.http.topics import parse_put
from topics.protocol.model.limits import Limits
from topics.store.files import OsFiles
from topics.store.store import DiskStore

from .conftest import shows

TOPICS: Final = 100_000
AT_A_TIME: Final = 1000
NOW_MS: Final = 1_795_254_071_742


def make_topics(path: Path) -> None:
    """A data directory with `t000000` to `t099999`, made without a server."""
    host = InlineHost(Limits(), DiskStore(OsFiles(path)), NOW_MS)
    host.driver.recover()
    host.driver.start()
    for number in range(TOPICS):
        host.driver.submit(parse_put(f"t{number:06}", b"{}"), lambda reply: None)
        if number % AT_A_TIME == AT_A_TIME - 1:
            host.settle()
    host.driver.stop(lambda error: None)
    host.settle()


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(tmp_path_factory.mktemp("many"))
    server.data.mkdir(parents=True, exist_ok=True)
    make_topics(server.data)
    with server.start():
        yield server


@pytest.fixture
def asked(page: Any) -> list[str]:
    """The queries of what is asked of the list of topics."""
    found: list[str] = []

    def note(request: Any) -> None:
        if "/v0/topics?" in request.url:
            found.append(request.url.partition("?")[2])

    page.on("request", note)
    return found


def names(page: Any) -> list[str]:
    found: list[str] = page.evaluate(
        "() => [...document.querySelectorAll('#topics tr')].map((row) => row.dataset.topic)"
    )
    return found


@pytest.fixture(params=[(1280, 800, "light"), (390, 844, "dark")], ids=["desk", "telephone"])
def open_list(request: pytest.FixtureRequest, many: Server, page: Any) -> Callable[[], None]:
    def open_list() -> None:
        width, height, scheme = request.param
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme=scheme)
        page.goto(f"http://127.0.0.1:{many.port}/#/topics")
        shows(page, "#count", "200+")

    return open_list


def test_a_screenful_is_loaded(open_list: Callable[[], None], page: Any, asked: list[str]) -> None:
    """And the next page as one scrolls; only rows in sight are in the document. (§1.3)"""
    open_list()
    assert names(page)[:2] == ["t000000", "t000001"]
    assert len(names(page)) < 100
    assert {query for query in asked if "cursor" in query} == set()
    page.evaluate(
        "() => { const box = document.getElementById('topics-scroll'); box.scrollTop = box.scrollHeight; }"
    )
    shows(page, "#count", "400+")
    assert page.evaluate("document.documentElement.scrollWidth") <= page.viewport_size["width"]


def test_a_name_is_found_by_its_beginning(
    open_list: Callable[[], None], page: Any, asked: list[str]
) -> None:
    """By the server, in one request. (§1.3)"""
    open_list()
    asked.clear()
    page.locator("#search").fill("t09999")
    shows(page, "#count", "10")
    assert names(page) == [f"t09999{n}" for n in range(10)]
    assert all("prefix=t09999" in query for query in asked[-1:])


def test_a_name_is_found_by_a_part_of_it(
    open_list: Callable[[], None], page: Any, asked: list[str]
) -> None:
    """A thousand names at a time, until there is a screenful; the rest is looked at as one scrolls, or where it takes
    that long. (§1.3)"""
    open_list()
    asked.clear()
    page.locator("#search").fill("*0")
    page.wait_for_function("() => document.querySelectorAll('#topics tr').length > 20")
    page.wait_for_function(
        "() => document.getElementById('count').textContent.endsWith(' of 1,000+')"
    )
    assert len(asked) < 5

    page.locator("#search").fill("*099")
    page.wait_for_function("() => document.querySelectorAll('#topics tr').length > 20")
    assert len(asked) < 60

    page.locator("#search").fill("*99999")
    shows(page, "#count", "1 of 100,000")
    assert names(page) == ["t099999"]
