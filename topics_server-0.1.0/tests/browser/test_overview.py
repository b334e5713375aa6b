"""The overview in a real browser: tiles, charts over time, queues (§8.6)."""

from collections.abc import Callable
from typing import Any

from contract.api import Api

from .conftest import Console, shows

At = Callable[[str], None]


def points(page: Any, chart: str) -> list[float]:
    """The heights of a chart's first line, as pixels from the top."""
    script = """title => {
      const chart = [...document.querySelectorAll(".chart")].find(
        (each) => each.querySelector(".title").textContent === title);
      const points = chart?.querySelector("polyline")?.getAttribute("points") ?? "";
      return points.split(" ").filter(Boolean).map((point) => +point.split(",")[1]);
    }"""
    found: list[float] = page.evaluate(script, chart)
    return found


def test_tiles_say_what_there_is(api: Api, page: Any, at: At) -> None:
    """Topics, records, jobs, routers; they follow what is written."""
    api.put("q", type="queue")
    api.append("q", 1, 2)
    at("/")
    page.wait_for_function(
        "() => document.querySelector('.tile:nth-child(3) b')?.textContent === '2'"
    )
    assert page.locator(".tile .label").all_text_contents() == [
        "Topics", "Records", "Ready jobs", "Routers", "Open streams", "Segments",
    ]  # fmt: skip

    api.append("q", *range(1000))

    page.wait_for_function(
        "() => document.querySelector('.tile:nth-child(2) b')?.textContent === '1,002'"
    )


def test_what_happens_is_drawn(api: Api, page: Any, at: At) -> None:
    """A burst of writes stands out of the line by seconds. (§8.6)"""
    at("/")
    page.locator("#minutes").click()
    api.append("jobs", *range(500))

    page.wait_for_function(
        """() => {
          const line = document.querySelector(".chart polyline");
          const heights = line.getAttribute("points").split(" ").map((point) => +point.split(",")[1]);
          return heights.length > 1 && Math.max(...heights) - Math.min(...heights) > 20;
        }"""
    )
    assert page.locator("#minutes").get_attribute("aria-pressed") == "true"
    assert len(points(page, "Memory")) > 1


def test_the_value_at_the_pointer_is_told(api: Api, page: Any, at: At) -> None:
    """With its time; without a pointer, the last one."""
    api.append("jobs", 1)
    at("/")
    page.locator("#minutes").click()
    page.wait_for_function(
        "() => document.querySelector('.chart polyline')?.getAttribute('points').includes(' ')"
    )
    chart = page.locator(".chart").last
    assert chart.locator(".when").text_content() == ""

    page.locator(".chart .plot").first.hover()

    page.wait_for_function("() => document.querySelector('.chart .when').textContent.includes(':')")


def test_a_queue_has_a_chart_of_its_jobs(api: Api, page: Any, at: At) -> None:
    """The queues that were written to last; one of them is drawn, and a click draws another."""
    for name, jobs in (("a", 3), ("b", 8)):
        api.put(name, type="queue")
        api.append(name, *range(jobs))
    at("/")
    page.wait_for_selector('#queue-list tr[data-topic="b"]')

    page.get_by_role("button", name="b", exact=True).click()

    shows(page, "#queue-chart .title", "Jobs of b")
    shows(page, '#queue-list tr[data-topic="b"] .ready', "8")
    shows(page, "#queue-chart .legend .a b", "8")


def test_a_server_that_does_not_answer_is_told_once(
    api: Api, page: Any, at: At, console: Console
) -> None:
    """What was drawn stays, and no other word contradicts it. (§8.2)"""
    console.forgives_failures = True
    api.append("jobs", 1)
    at("/")
    page.wait_for_selector(".tile")
    page.route("**/v0/**", lambda route: route.abort())

    shows(page, "#phase", "unreachable")
    shows(page, "#overview-trouble", "The server cannot be reached.")
    assert page.locator(".tile").count() == 6
    page.locator("#go-topics").click()
    shows(page, "#trouble", "The server cannot be reached.")
    assert not page.locator("#none").is_visible(), "whether there are topics is not known"
    page.unroute("**/v0/**")
    page.wait_for_selector("#trouble", state="hidden")
