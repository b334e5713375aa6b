"""The API's description at `/v0/docs` in a real browser: to read, and to try (§8.5)."""

from typing import Any

from contract.api import Api
from contract.server import Server


def test_an_operation_is_read_and_tried(api: Api, page: Any, server: Server) -> None:
    """Swagger UI from this origin, under its policy: nothing else is fetched, nothing is refused, and
    a try reaches this server."""
    api.append("jobs", {"n": 1})
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))

    page.goto(f"http://127.0.0.1:{server.port}/v0/docs")
    page.locator("#operations-records-appendRecords").wait_for()
    page.locator("#operations-topics-getTopic button").first.click()
    block = page.locator("#operations-topics-getTopic")
    block.get_by_placeholder("topic").fill("jobs")
    block.get_by_role("button", name="Execute").click()
    block.locator(".live-responses-table pre", has_text='"head_seq": 1').first.wait_for()

    origin = f"http://127.0.0.1:{server.port}/"
    assert [url for url in asked if not url.startswith((origin, "data:"))] == []
    assert f"{origin}v0/topics/jobs?touch=true" in asked
