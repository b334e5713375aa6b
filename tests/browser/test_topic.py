"""A topic's page in a real browser: counters, publishing, configuration, deleting, redrive."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from contract.api import Api
from contract.server import Server
from contract.wire import Http1

from .conftest import Console, shows

At = Callable[[str], None]


def fact(page: Any, label: str) -> str:
    found = page.locator("#facts > div", has=page.get_by_text(label, exact=True)).locator("dd")
    found.wait_for()
    text: str = found.text_content()
    return text


def until_fact(page: Any, label: str, text: str) -> None:
    """Return once a fact of the topic says so."""
    page.wait_for_function(
        """([label, text]) => [...document.querySelectorAll("#facts > div")].some(
             (fact) => fact.children[0].textContent === label && fact.children[1].textContent === text)""",
        arg=[label, text],
    )


# ---------------------------------------------------------------------- counters


def test_its_counters_and_what_is_left(api: Api, page: Any, at: At) -> None:
    """Head, floor, records, and how far the topic is from losing one. (§0.10, §1.2)"""
    api.put("ring", cap_records=1000)
    api.append("ring", 1, 2, 3)
    at("/topics/ring")

    until_fact(page, "Distance to loss", "997 records until the oldest go")
    assert [fact(page, each) for each in ("Head", "Earliest", "Records")] == ["3", "1", "3"]
    assert fact(page, "Lost so far") == "nothing that a reader from the start would be told of"
    assert page.text_content("#kind") == "log, disk"


def test_what_was_lost_is_told(api: Api, page: Any, at: At) -> None:
    """As a reader from the start would be: which records, and why. (§3.3)"""
    api.put("ring", cap_records=2)
    api.append("ring", *range(6))
    at("/topics/ring")

    until_fact(page, "Lost so far", "Lost records 1 to 4: the topic reached its cap (cap).")
    assert fact(page, "Distance to loss") == "at its cap: the oldest go with each write"


def test_what_was_lost_in_the_last_day_is_told(api: Api, page: Any, at: At) -> None:
    """By reason, also where every reader was told long ago; a topic that lost nothing says so.
    (§1.2, §3.3)"""
    api.put("ring", cap_records=2)
    api.append("calm", 1)
    api.append("ring", *range(6))
    at("/topics/ring")
    page.wait_for_function(
        """() => [...document.querySelectorAll("#facts > .warn")].some((fact) =>
             /^Lost in the last day4 records by cap, last at \\d\\d:\\d\\d:\\d\\d$/.test(fact.textContent))"""
    )

    at("/topics/calm")
    until_fact(page, "Lost in the last day", "nothing")
    assert page.locator("#facts > .warn").count() == 0


def test_what_lies_on_the_disk_is_counted(server: Server, page: Any) -> None:
    """Bytes, and the segment files that hold them; what is in the log alone is in none. (§1.2)"""
    wire = server.connect(Http1)
    Api(wire).append("jobs", *range(40))
    page.goto(f"http://127.0.0.1:{server.port}/#/topics/jobs")
    until_fact(page, "Segments", "0")
    assert fact(page, "On disk") == "0 B"

    page.goto("about:blank")
    assert server.stop() == 0  # which seals what it holds
    server.start()
    page.goto(f"http://127.0.0.1:{server.port}/#/topics/jobs")
    until_fact(page, "Segments", "1")
    assert fact(page, "On disk") != "0 B"


def test_a_time_of_another_day_has_its_date(api: Api, page: Any, at: At) -> None:
    """The time of day alone would be read as today's."""
    api.append("jobs", 1)
    page.clock.install(time="2031-05-06T12:00:00")
    at("/topics/jobs")

    page.wait_for_selector(".record")
    assert page.locator(".record time").text_content().startswith("20")
    assert fact(page, "Oldest record").startswith("20")


# ---------------------------------------------------------------------- publishing


def test_what_is_typed_is_published_byte_for_byte(api: Api, page: Any, at: At) -> None:
    """Data and meta as JSON, with a tag and a node; the answer links to the record. (§2)"""
    api.put("jobs")
    at("/topics/jobs/publish")
    page.locator("#publish-data").fill('{"n": 12345678901234567890, "e": 1e400}')
    page.locator("#publish-tag").fill("eu.de")
    page.locator("#publish-node").fill("n1")
    page.locator("#publish-meta").fill('{"trace": "z"}')
    page.locator("#publish-data").press("Control+Enter")

    page.locator("#published a").click()
    page.wait_for_selector('.record[data-seq="1"].open')
    line = page.locator('.record[data-seq="1"] .detail').text_content()
    assert '{"n": 12345678901234567890, "e": 1e400}' in line
    (record,) = api.diff("jobs", from_seq=0, include_tags=True)["records"]
    assert (record["$tag"], record["$node"], record["meta"]) == ("eu.de", "n1", {"trace": "z"})


def test_a_job_is_published_with_its_options(api: Api, page: Any, at: At, console: Console) -> None:
    """Where the topic is a queue; a key that another job has makes none. (§2)"""
    console.forgives_failures = True
    api.put("log")
    api.put("mails", type="queue")
    at("/topics/log/publish")
    page.wait_for_selector("#publish-data")
    assert not page.locator("#publish-priority").is_visible()
    at("/topics/mails/publish")
    page.locator("#publish-priority").wait_for()
    options = {"delay-ms": "60000", "priority": "-7", "group": "acme", "unique": "k"}
    for name, value in {"data": "1", **options, "expires-ms": "5"}.items():
        page.locator(f"#publish-{name}").fill(value)
    page.locator("#publish-send").click()
    shows(page, "#published li:first-child", "Record 1 written.")
    page.locator("#publish-send").click()
    shows(page, "#published li:first-child", "Record 1 was there already.")
    until_fact(page, "Jobs", "0 ready · 0 in flight · 1 delayed · 0 dead-lettered")

    page.locator("#publish-priority").fill("high")
    page.locator("#publish-send").click()
    page.locator("#publish-trouble", has_text="$.records[0].priority").wait_for()


def test_a_time_and_a_unique_key_are_published(api: Api, page: Any, at: At) -> None:
    """A time in the zone that the page names; what a key does where it is held is asked once there is one.
    (§2, §10.2)"""
    api.put("mails", type="queue")
    at("/topics/mails/publish")
    page.locator("#publish-unique").wait_for()
    assert (
        page.text_content("#zone")
        in page.locator("#publish label", has_text="Not before").text_content()
    )
    assert not page.locator("#publish-on-conflict").is_visible()
    page.locator("#publish-data").fill("1")
    page.locator("#publish-not-before").fill("2031-05-06T12:00:07")
    page.locator("#publish-unique").fill("k")
    page.locator("#publish-send").click()
    shows(page, "#published li:first-child", "Record 1 written.")
    at_ms = page.evaluate("new Date('2031-05-06T12:00:07').getTime()")
    assert api.ok("GET", "/v0/topics/mails/jobs/1")["ready_at"] == at_ms

    page.locator("#publish-on-conflict").select_option("replace")
    page.locator("#publish-for-ms").fill("60000")
    page.locator("#publish-send").click()

    shows(page, "#published li:first-child", "Record 2 written, in place of 1.")
    api.ok("POST", "/v0/topics/mails/jobs/2/promote")
    api.ok("POST", "/v0/topics/mails/claim", {"node": "w"})
    api.ok("POST", "/v0/topics/mails/ack", {"node": "w", "seqs": [2]})
    page.locator("#publish-on-conflict").select_option("keep")
    page.locator("#publish-send").click()
    shows(page, "#published li:first-child", "Record 2 was there already.")


def test_a_queue_s_order_is_set(api: Api, page: Any, at: At, console: Console) -> None:
    """Fields that a config does not have are there to be given, and are taken away again. (§0.10)"""
    console.forgives_failures = True
    api.put("mails", type="queue", order="group", backoff={"base_ms": 5})
    at("/topics/mails/settings")
    page.locator('#settings [name="rate"]').fill('{"max": 9, "per_ms": 1000}')
    page.locator('#settings [name="order"]').select_option("")
    page.locator('#settings [name="fair"]').select_option("true")
    page.locator("#settings-save").click()
    shows(page, "#settings-done", "Saved.")
    config = api.state("mails")["config"]
    assert (config["rate"], config["fair"]) == ({"max": 9, "per_ms": 1000}, True)
    assert (config.get("order"), config["backoff"]["base_ms"]) == (None, 5)
    page.locator('#settings [name="rate"]').fill("fast")
    page.locator("#settings-save").click()
    page.locator("#settings-trouble", has_text="$.rate").wait_for()


def test_what_waits_for_its_group_is_shown(api: Api, page: Any, at: At) -> None:
    """And what nobody claimed in time. (§10.7)"""
    api.put("mails", type="queue", order="group")
    api.append("mails", *({"data": n, "group": "g"} for n in range(3)))
    at("/topics/mails")
    until_fact(page, "Jobs", "3 ready · 0 in flight · 2 blocked · 0 dead-lettered")


def test_text_is_sent_as_text_and_what_is_no_json_is_not_sent(api: Api, page: Any, at: At) -> None:
    """The page says what is wrong before anything is written."""
    api.put("jobs")
    at("/topics/jobs/publish")
    page.locator("#publish-data").fill('say "hi", {')
    page.locator("#publish-send").click()
    shows(page, "#publish-trouble", "The data is not JSON. Send it as text, or mend it.")
    assert api.state("jobs")["head_seq"] == 0

    page.locator("#publish-as").select_option("text")
    page.locator("#publish-send").click()
    page.wait_for_selector("#published a")

    assert [record["data"] for record in api.diff("jobs", from_seq=0)["records"]] == ['say "hi", {']
    shows(page, "#publish-trouble", "")


def test_a_refusal_is_told(api: Api, page: Any, at: At, console: Console) -> None:
    """In the server's words, with the code. (§0.5)"""
    console.forgives_failures = True
    api.put("full", cap_records=1, discard="reject")
    api.append("full", 1)
    at("/topics/full/publish")
    page.locator("#publish-data").fill("2")
    page.locator("#publish-send").click()

    page.get_by_text("(422 topic_full)").wait_for()


# ---------------------------------------------------------------------- configuration


def test_the_configuration_is_changed_and_nothing_else(api: Api, page: Any, at: At) -> None:
    """A PUT replaces the whole, so fields that were not touched keep every digit. (§1.1)"""
    api.put("jobs", ttl_ms=2**64 - 1, durability="fsync", dead_letter="dead")
    before = api.state("jobs")["config"]
    at("/topics/jobs/settings")
    page.locator("[name=cap_records]").fill("77")
    page.locator("#settings-save").click()

    shows(page, "#settings-done", "Saved.")
    assert api.state("jobs")["config"] == before | {"cap_records": 77}


def test_a_queue_has_its_own_fields(api: Api, page: Any, at: At) -> None:
    """Fields of a queue are shown only there; an empty dead-letter topic is none. (§0.10)"""
    api.put("q", type="queue", dead_letter="q.dead", max_deliveries=3)
    api.put("log")
    at("/topics/log/settings")
    page.wait_for_selector("[name=ttl_ms]")
    assert page.locator("[name=lease_ms]").count() == 0
    at("/topics/q/settings")
    page.locator("[name=dead_letter]").fill("")
    page.locator("[name=leases_durable]").select_option("true")
    page.locator("#settings-save").click()

    shows(page, "#settings-done", "Saved.")
    config = api.state("q")["config"]
    assert (config["dead_letter"], config["leases_durable"]) == (None, True)
    assert (config["type"], config["max_deliveries"]) == ("queue", 3)


def test_a_change_of_another_is_not_overwritten(api: Api, page: Any, at: At) -> None:
    """The form is filled anew with what is in force."""
    api.put("jobs")
    at("/topics/jobs/settings")
    page.locator("[name=cap_records]").fill("77")
    api.put("jobs", cap_records=5, ttl_ms=9)
    page.locator("#settings-save").click()

    page.get_by_text("It was changed by another meanwhile.").wait_for()
    assert page.locator("[name=cap_records]").input_value() == "5"
    assert api.state("jobs")["config"]["cap_records"] == 5


def test_a_field_that_is_wrong_is_named(api: Api, page: Any, at: At, console: Console) -> None:
    """400 in the server's words, and nothing is changed. (§0.3)"""
    console.forgives_failures = True
    api.put("jobs")
    at("/topics/jobs/settings")
    page.locator("[name=cap_records]").fill("many")
    page.locator("#settings-save").click()

    page.get_by_text("(400 invalid_request)").wait_for()
    assert "cap_records" in page.text_content("#settings-trouble")
    assert api.state("jobs")["config"]["cap_records"] == 0


# ---------------------------------------------------------------------- deleting


def confirm(page: Any, text: str, name: str) -> None:
    shows(page, "#confirm-text", text)
    assert page.locator("#confirm-go").is_disabled()
    page.locator("#confirm-typed").fill(name[:-1])
    assert page.locator("#confirm-go").is_disabled()
    page.locator("#confirm-typed").fill(name)
    page.locator("#confirm-go").click()


def test_a_delete_counts_first_and_hits_what_it_counted(api: Api, page: Any, at: At) -> None:
    """By tag; what is written after the count stays. (§5)"""
    api.append("jobs", *({"data": n, "tag": f"t{n % 2}.x"} for n in range(10)))
    at("/topics/jobs/manage")
    page.locator("#delete-tag").fill("t1.*")
    page.locator("#delete-records button").click()
    shows(page, "#confirm-text", "5 records of 10 in jobs would be deleted.")
    api.append("jobs", {"data": "late", "tag": "t1.x"})
    confirm(page, "5 records of 10 in jobs would be deleted.", "jobs")

    shows(page, "#removal-done", "5 records deleted.")
    assert [r["$seq"] for r in api.diff("jobs", from_seq=0)["records"]] == [1, 3, 5, 7, 9, 11]


def test_a_delete_erases_the_bytes(server: Server, api: Api, page: Any, at: At) -> None:
    """The answer comes once no file has them. (§5)"""
    api.append("jobs", {"data": "kept", "tag": "a"}, {"data": "a secret", "tag": "b"})
    at("/topics/jobs/manage")
    page.locator("#delete-tag").fill("b")
    page.locator("#delete-erase").check()
    page.locator("#delete-records button").click()
    told = "1 record of 2 in jobs would be deleted. Their bytes, and those of all that was deleted before, would be erased."
    confirm(page, told, "jobs")

    shows(page, "#removal-done", "1 record deleted, and the bytes are erased.")
    files = [each for each in server.data.rglob("*") if each.is_file()]
    assert files
    assert not any(b"a secret" in each.read_bytes() for each in files)


def test_a_delete_before_a_seq_needs_no_tag(api: Api, page: Any, at: At) -> None:
    """And one of neither is refused before anything is asked. (§5)"""
    api.append("jobs", *range(10))
    at("/topics/jobs/manage")
    page.locator("#delete-records button").click()
    page.get_by_text("A tag or a seq is needed").wait_for()
    page.locator("#delete-before").fill("4")
    page.locator("#delete-records button").click()
    confirm(page, "3 records of 10 in jobs would be deleted.", "jobs")

    shows(page, "#removal-done", "3 records deleted.")
    assert api.state("jobs")["earliest_seq"] == 4


def test_a_purge_matches_tokens_and_keeps_the_newest(api: Api, page: Any, at: At) -> None:
    """`*` is one token; the newest of those that match stay. (§5)"""
    tags = ("o.1.eu", "o.2.eu", "o.3.us", "o.4.eu", "o.5.6.eu")
    api.append("jobs", *({"data": tag, "tag": tag} for tag in tags))
    at("/topics/jobs/manage")
    page.locator("#purge-filter").fill("o.*.eu")
    page.locator("#purge-keep").fill("1")
    page.locator("#purge button").click()
    confirm(page, "2 records of 5 in jobs would be purged, and what is written until then.", "jobs")

    shows(page, "#removal-done", "2 records purged.")
    assert [r["$seq"] for r in api.diff("jobs", from_seq=0)["records"]] == [3, 4, 5]


def test_a_topic_is_deleted_with_its_routers(api: Api, page: Any, at: At, console: Console) -> None:
    """Both are named before; the page then says that it is gone. (§1.4)"""
    console.forgives_failures = True
    api.append("jobs", 1)
    api.ok("PUT", "/v0/routers/copy", {"source": "jobs", "dest": "other"})
    at("/topics/jobs/manage")
    page.locator("#drop button").click()
    confirm(page, "The topic jobs with 1 record and 1 router (copy) would be deleted.", "jobs")

    shows(page, "#removal-done", "The topic jobs is deleted.")
    page.get_by_text('topic "jobs" does not exist (404 topic_not_found)').wait_for()
    assert [topic["topic"] for topic in api.ok("GET", "/v0/topics")["topics"]] == ["other"]


def test_escape_takes_a_deletion_back(api: Api, page: Any, at: At) -> None:
    """Nothing was done, and the question is gone."""
    api.append("jobs", 1)
    at("/topics/jobs/manage")
    page.locator("#drop button").click()
    page.locator("#confirm-typed").fill("jobs")
    page.keyboard.press("Escape")

    page.wait_for_selector("#confirm", state="hidden")
    assert api.state("jobs")["count"] == 1


# ---------------------------------------------------------------------- dead letters


@pytest.mark.parametrize("kind", ["log", "queue"])
def test_dead_letters_go_back_each_once(api: Api, page: Any, at: At, kind: str) -> None:
    """As they were, without the marks, and away from here; counted first. (§10.6)"""
    api.put("q.dead", type=kind)
    api.put("q", type="queue", max_deliveries=1, dead_letter="q.dead")
    api.append("q", *({"data": n, "tag": f"t{n}", "meta": {"n": n}} for n in range(3)))
    claim = {"node": "w", "max": 3}
    api.ok("POST", "/v0/topics/q/claim", claim)
    api.ok("POST", "/v0/topics/q/nack", {"node": "w", "seqs": [1, 2, 3]})
    api.ok("POST", "/v0/topics/q/claim", claim)
    assert api.state("q.dead")["count"] == 3
    at("/topics/q.dead/manage")
    page.wait_for_function("() => document.getElementById('redrive-to').value === 'q'")

    page.locator("#redrive-go").click()
    shows(page, "#redrive-done", "3 would be moved to q. Tick the box to move them.")
    assert api.state("q")["count"] == 0
    page.locator("#redrive-sure").check()
    page.locator("#redrive-go").click()

    shows(page, "#redrive-done", "3 letters moved to q.")
    page.wait_for_function("() => document.getElementById('redrive-go').textContent === 'Redrive'")
    assert api.state("q.dead")["count"] == 0
    records = api.diff("q", from_seq=3, include_tags=True)["records"]
    assert [(r["data"], r["$tag"], r["meta"]) for r in records] == [
        (n, f"t{n}", {"n": n}) for n in range(3)
    ]


def test_a_topic_without_dead_letters_offers_no_redrive(api: Api, page: Any, at: At) -> None:
    """There is nothing that knows where it came from."""
    api.append("jobs", {"data": 1, "meta": {"a": 1}})
    at("/topics/jobs/manage")
    until_fact(page, "Records", "1")

    assert not page.locator("#redrive").is_visible()


def test_strictness_is_asked_for_throughout(api: Api, page: Any, at: At, server: Server) -> None:
    """Each request of the console has the server refuse what it does not know. (decision 90)"""
    asked: list[Any] = []
    page.on("request", lambda request: "/v0/" in request.url and asked.append(request))
    api.append("jobs", json.loads("1"))
    for place in ("/", "/topics", "/topics/jobs", "/topics/jobs/settings"):
        at(place)
        page.wait_for_load_state("networkidle")

    plain = [r for r in asked if "/v0/console/" not in r.url]
    assert plain
    assert {r.headers.get("prefer") for r in plain} == {"handling=strict"}


@pytest.mark.parametrize(
    ("name", "trouble"),
    [
        ("none", 'topic "none" does not exist (404 topic_not_found)'),
        ("..", "No topic can have such a name."),
        ("%2e%2e%2fjobs", "No topic can have such a name."),
    ],
)
def test_what_is_no_topic_has_no_forms(
    api: Api, page: Any, at: At, console: Console, name: str, trouble: str
) -> None:
    """No form is in sight that would act on the topic that was open before, no counter and no tab;
    they are back with a topic that there is."""
    console.forgives_failures = True
    api.append("jobs", 1)
    at("/topics/jobs/manage")
    page.wait_for_selector("#drop")

    at(f"/topics/{name}/manage")

    shows(page, "#topic-trouble", trouble)
    for each in ("#drop", "#facts", "#tabs", "#kind"):
        assert not page.locator(each).is_visible()

    at("/topics/jobs")
    until_fact(page, "Records", "1")
    page.locator("#tabs").wait_for()


# ---------------------------------------------------------------------- partitions


def test_a_partition_is_chosen(api: Api, page: Any, at: At) -> None:
    """Its records and numbers are shown, and a topic with one partition offers no choice. (§2.1)"""
    api.put("wide", partitions=3)
    api.put("one")
    records = [{"data": n, "partition": n % 3} for n in (0, 2, 2)]
    api.ok("POST", "/v0/topics/wide", {"records": [*records, {"data": "x", "partition": 0}]})
    at("/topics/wide")

    until_fact(page, "Records", "4")
    assert page.locator("#partition option").all_text_contents() == ["0", "1", "2"]
    page.wait_for_function("() => document.querySelectorAll('#records .record').length === 2")
    assert "of 3: 2 records" in page.text_content("#partition-facts")

    page.select_option("#partition", index=1)
    shows(page, "#no-records", "No records.")
    page.select_option("#partition", index=2)
    page.wait_for_function("() => document.querySelectorAll('#records .record').length === 2")
    assert page.locator("#records .data").all_text_contents() == ["2", "2"]
    assert "earliest 1, head 2" in page.text_content("#partition-facts")

    page.get_by_role("link", name="Manage", exact=True).click()
    page.fill("#delete-before", "2")
    page.click("#delete-records button")
    shows(page, "#confirm-text", "1 record of 2 in wide, partition 2 would be deleted.")

    at("/topics/one")
    until_fact(page, "Records", "0")
    assert page.locator("#partition-of").is_hidden()
