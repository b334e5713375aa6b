"""The pictures of the console in `docs/images`: a server with things to see, and a browser that looks.

`make screenshots`.  Owns what is shown; the pictures are for people, and no test compares them.
"""

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from contract.api import Api
from contract.server import Server
from contract.wire import Http1
from playwright.sync_api import Page, sync_playwright

from browser.conftest import ARGUMENTS, DEADLINE_MS, executable

IMAGES: Final = Path(__file__).parents[2] / "docs" / "images"
WIDE: Final = {"width": 1280, "height": 800}
NARROW: Final = {"width": 390, "height": 844}
BUSY_S: Final = 25


def orders(n: int) -> Iterator[dict[str, Any]]:
    for i in range(n):
        region = ("eu.de", "eu.fr", "us.ny", "apac.jp")[i % 4]
        item = ("lamp", "desk", "chair")[i % 3]
        data = {"order": 100_000 + i, "total": round(9.5 + i % 90, 2), "items": [{"sku": item}]}
        yield {
            "data": data,
            "tag": region,
            "node": f"shop-{i % 3 + 1}",
            "meta": {"trace": f"t{i:05}"},
        }


def fill(api: Api) -> None:
    """Topics, queues and routers as a small shop has them."""
    api.put("orders", durability="fsync", cap_records=5000, ttl_ms=86_400_000)
    for name, more in (
        ("payments", {"type": "queue", "max_deliveries": 2, "dead_letter": "payments-failed"}),
        ("archive", {"cap_records": 3, "discard": "reject"}),
        ("eu.orders", {}),
        ("pageviews", {"durability": "memory", "cap_records": 500}),
    ):
        api.put(name, **more)
    for i in range(40):
        api.put(f"tenant{i:02}.events", durability=("disk", "memory", "fsync")[i % 3])
        api.append(f"tenant{i:02}.events", *range(1 + i * 7 % 23))
    fill_jobs(api)
    for source, dest, more in (
        ("orders", "eu.orders", {"filter": "eu.*"}),
        ("orders", "payments", {"guarantee": "exactly_once"}),
        ("eu.orders", "mails", {}),
        ("orders", "archive", {}),
    ):
        api.ok("PUT", f"/v0/routers/{source}->{dest}", {"source": source, "dest": dest, **more})


def fill_jobs(api: Api) -> None:
    """A queue with jobs in every state."""
    api.put("mails", type="queue", max_deliveries=3, dead_letter="mails-failed", keep_done=100)
    letters = [
        {"data": {"to": f"c{n}@example.org"}, "tag": f"acme:{n % 3}", "group": f"customer-{n % 4}"}
        for n in range(9)
    ]
    api.append("mails", *letters)
    api.append("mails", *({"data": n, "delay_ms": 3_600_000 * n, "priority": n} for n in (1, 2, 3)))
    asked = {"node": "worker-1", "max": 4, "lease_ms": 600_000}
    held = api.ok("POST", "/v0/topics/mails/claim", asked)["claimed"]
    for call, job, fields in (
        ("extend", held[0], {"lease_ms": 600_000, "progress": {"percent": 40}}),
        ("ack", held[1], {"result": {"message": "<7f3a@example.org>"}}),
        ("nack", held[2], {"delay_ms": 300_000, "reason": "mx.example.org does not answer"}),
        ("nack", held[3], {"dead": True, "reason": "no such address"}),
    ):
        body = {"node": "worker-1", "seqs": [job["$seq"]], **fields}
        api.ok("POST", f"/v0/topics/mails/{call}", body)


def live(api: Api, seconds: float) -> None:
    """Traffic for a while, so that charts have something to draw."""
    records, end, n = list(orders(6000)), time.monotonic() + seconds, 0
    while time.monotonic() < end:
        size = 10 + n % 17
        api.append("orders", *records[n : n + size])
        api.append("pageviews", *range(size * 2))
        n += size
        claimed = api.ok(
            "POST", "/v0/topics/payments/claim", {"node": "w", "max": 6, "lease_ms": 600_000}
        )["claimed"]
        seqs = [job["$seq"] for job in claimed]
        if seqs[1:]:
            api.ok("POST", "/v0/topics/payments/ack", {"node": "w", "seqs": seqs[1:]})
        if seqs:
            api.ok("POST", "/v0/topics/payments/nack", {"node": "w", "seqs": seqs[:1]})
        api.diff("orders", from_seq=max(n - 50, 0))
        time.sleep(0.15)


def shoot(page: Page, url: str, name: str, path: str, ready: str) -> None:
    page.goto("about:blank")
    page.goto(url + path)
    page.wait_for_selector(ready)
    page.wait_for_function("() => document.querySelector('#phase').textContent === 'ready'")
    page.wait_for_load_state("networkidle")
    page.screenshot(path=IMAGES / f"console-{name}.png")


def main() -> None:
    IMAGES.mkdir(parents=True, exist_ok=True)
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else BUSY_S
    with tempfile.TemporaryDirectory() as home, Server(Path(home) / "server") as server:
        api = Api(Http1(server.port))
        fill(api)
        live(api, seconds)
        url = f"http://127.0.0.1:{server.port}/"
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(
                executable_path=executable(), args=list(ARGUMENTS), timeout=DEADLINE_MS
            )
            dark = browser.new_page(viewport=WIDE, color_scheme="dark")
            shoot(dark, url, "overview-dark", "#/", ".plot polyline")
            page = browser.new_page(viewport=WIDE)
            shoot(page, url, "overview", "#/", ".plot polyline")
            shoot(page, url, "topics", "#/topics", "#graph .router")
            shoot(page, url, "topic", "#/topics/orders", ".record")
            page.locator(".record button.line").nth(3).click()
            page.screenshot(path=IMAGES / "console-topic.png")
            shoot(page, url, "jobs", "#/topics/mails/jobs", "#jobs tr")
            shoot(page, url, "manage", "#/topics/payments-failed/manage", "#redrive")
            page.locator("#delete-tag").fill("eu.*")
            page.locator("#delete-records button").click()
            page.wait_for_selector("#confirm", state="visible")
            page.screenshot(path=IMAGES / "console-manage.png")
            narrow = browser.new_page(viewport=NARROW)
            shoot(narrow, url, "narrow", "#/topics/orders", ".record")
            browser.close()
        api.wire.reset()
    sys.stdout.write(json.dumps([path.name for path in sorted(IMAGES.glob("console-*"))]) + "\n")


if __name__ == "__main__":
    main()
