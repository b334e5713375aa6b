"""Topics, queues and routers that are made in a real browser (§1.1, §6.1)."""

from collections.abc import Callable
from typing import Any

from contract.api import Api

from .conftest import Console, shows

At = Callable[[str], None]


def test_a_log_and_a_queue_are_made(api: Api, page: Any, at: At, console: Console) -> None:
    """With their type, class and the rest as JSON; a name that is taken is not replaced. (§1.1)"""
    console.forgives_failures = True
    at("/topics")
    page.locator("#topic-new").click()
    page.locator("#topic-name").fill("orders")
    page.locator("#topic-durability").select_option("fsync")
    page.locator("#topic-more").fill('{"cap_records": 500}')
    page.locator("#topic-form .main").click()
    page.wait_for_selector("[name=ttl_ms]")
    config = api.state("orders")["config"]
    assert (config["type"], config["durability"], config["cap_records"]) == ("log", "fsync", 500)

    at("/topics")
    page.locator("#topic-new").click()
    page.locator("#topic-name").fill("orders")
    page.locator("#topic-form .main").click()
    shows(page, "#topic-form-trouble", "There is a topic orders already.")
    page.locator("#topic-name").fill("mails")
    page.locator("#topic-type").select_option("queue")
    page.locator("#topic-letters").fill("mails.dead")
    page.locator("#topic-form .main").click()
    shows(page, "#kind", "queue, disk")
    assert api.state("mails")["config"]["dead_letter"] == "mails.dead"
    assert api.state("orders")["config"]["cap_records"] == 500


def test_what_the_server_refuses_stands_in_the_form(
    api: Api, page: Any, at: At, console: Console
) -> None:
    """A name that is none, and a config that is no object. (§1.1)"""
    console.forgives_failures = True
    at("/topics")
    page.locator("#topic-new").click()
    page.locator("#topic-name").fill("orders")
    page.locator("#topic-more").fill("7")
    page.locator("#topic-form .main").click()
    shows(page, "#topic-form-trouble", "The rest of the configuration is not a JSON object.")
    page.locator("#topic-more").fill('{"durability": "paper"}')
    page.locator("#topic-form .main").click()

    page.locator("#topic-form-trouble", has_text="400 invalid_request").wait_for()
    page.locator("#topic-form-cancel").click()
    assert not page.locator("#topic-form").is_visible()


def test_a_name_is_sent_as_it_was_typed(api: Api, page: Any, at: At, console: Console) -> None:
    """What a URL would end at is a part of the name, and the server refuses it. (§1)"""
    console.forgives_failures = True
    at("/topics")
    page.locator("#topic-new").click()
    for name in ("orders?a=1", "orders#a", "orders/a"):
        page.locator("#topic-name").fill(name)
        page.locator("#topic-form .main").click()
        page.wait_for_function(
            "name => document.querySelector('#topic-form-trouble').textContent.includes(name)",
            arg=name,
        )

    assert api.ok("GET", "/v0/topics")["topics"] == []


def test_a_router_is_made_and_deleted(api: Api, page: Any, at: At) -> None:
    """Its name is that of its ends where none is given; a delete asks first. (§6.1, §6.4)"""
    api.append("orders", 1)
    at("/topics")
    page.locator("#router-new").click()
    page.locator("#router-source").fill("orders")
    page.locator("#router-dest").fill("eu")
    page.locator("#router-filter").fill("eu.*")
    page.locator("#router-form .main").click()
    page.wait_for_selector("#graph .router")
    made = api.ok("GET", "/v0/routers/orders-%3Eeu")
    assert (made["dest"], made["filter"]) == ("eu", ["tag", "Glob", "eu.*"])

    page.locator("#graph summary").click()
    delete = page.get_by_role("button", name="Delete router orders->eu")
    delete.click()
    page.get_by_role("button", name="Keep it").click()
    delete.click()
    page.get_by_role("button", name="Delete orders->eu").click()

    page.locator("#graph .router").wait_for(state="detached")
    assert api.ok("GET", "/v0/routers")["routers"] == []
