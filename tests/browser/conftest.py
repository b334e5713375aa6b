"""A real browser without a window, where one is installed, and a page of it for each test."""

import os
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from contract.api import Api
from contract.server import Server
from contract.wire import Http1

NAMES: Final = (
    *("chromium-headless-shell", "chromium", "chromium-browser"),
    *("google-chrome-stable", "google-chrome"),
)
"""The first is Chromium without its own windows: a page costs it a fifth of the processor time."""
ARGUMENTS: Final = (
    "--no-sandbox",  # root may not have one, and CI is root; it only ever opens our own page
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)
DEADLINE_MS: Final = 200_000
"""Bounds a hang.  A browser beside much other work takes its time for anything at all."""
FAILED: Final = "Failed to load resource"
"""What Chromium itself writes for each request that fails."""


@dataclass
class Console:
    """What the browser complained of: errors, warnings, what the policy refused.

    `forgives_failures` is for a test in which requests have to fail.
    """

    lines: list[str] = field(default_factory=list)
    forgives_failures: bool = False

    @property
    def alarms(self) -> list[str]:
        return [line for line in self.lines if not (self.forgives_failures and FAILED in line)]


def executable() -> str | None:
    """The browser to drive: `CHROMIUM`, or the first that is on the path."""
    return os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)


# Of the module, as the driver's event loop would be in the way of tests that run their own.
@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    driver = pytest.importorskip(
        "playwright.sync_api", reason="playwright is not installed; it is one of the dev extras"
    )
    path = executable()
    if path is None:
        pytest.skip(f"no browser: CHROMIUM is not set, and none of {', '.join(NAMES)} is installed")
    with driver.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=path, args=ARGUMENTS, timeout=DEADLINE_MS
        )
        yield browser
        browser.close()


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    with Server(tmp_path / "server") as server:
        yield server


@pytest.fixture
def console() -> Console:
    return Console()


@pytest.fixture
def page(request: pytest.FixtureRequest, browser: Any, console: Console) -> Iterator[Any]:
    """An empty page, in a profile of its own.  Whatever a test does, the console stays clean."""
    if "server" in request.fixturenames:
        request.getfixturevalue("server")  # which ends after the page: that may be loading still
    context = browser.new_context()
    context.set_default_timeout(DEADLINE_MS)
    page = context.new_page()
    page.on("console", lambda message: console.lines.append(f"{message.type}: {message.text}"))
    page.on("pageerror", lambda error: console.lines.append(f"uncaught: {error}"))
    yield page
    context.close()
    assert console.alarms == []


@pytest.fixture
def api(server: Server) -> Iterator[Api]:
    wire = Http1(server.port)
    yield Api(wire)
    wire.reset()


@pytest.fixture
def visit(server: Server, page: Any) -> Callable[..., None]:
    """Open the list of topics, and tail a topic if one is named, once the first records are there."""

    def visit(topic: str = "", state: str = "live") -> None:
        page.goto(f"http://127.0.0.1:{server.port}/#/topics")
        shows(page, "#phase", "ready")
        if topic:
            page.get_by_role("link", name=topic, exact=True).click()
            page.get_by_role("link", name="Live", exact=True).click()
            shows(page, "#state", state)

    return visit


@pytest.fixture
def at(server: Server, page: Any) -> Callable[[str], None]:
    """Open a place of the console: what stands behind its `#`."""

    def at(place: str) -> None:
        page.goto(f"http://127.0.0.1:{server.port}/#{place}")
        shows(page, "#phase", "ready")

    return at


def shows(page: Any, selector: str, text: str) -> None:
    """Return once the element's whole text is this."""
    page.wait_for_function(
        "([selector, text]) => document.querySelector(selector)?.textContent === text",
        arg=[selector, text],
    )
