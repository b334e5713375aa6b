"""Topics of several partitions, over every carrier (§2.1, 122)."""

from typing import Any

import pytest

from .api import Api

pytestmark = pytest.mark.every_server

COUNT = 3


@pytest.fixture
def topic(api: Api, name: str) -> str:
    api.put(name, partitions=COUNT)
    return name


def at(partition: int, data: object = None, **fields: object) -> dict[str, object]:
    return {"data": data, "partition": partition, **fields}


def test_records_are_written_to_partitions_and_read_there(api: Api, topic: str) -> None:
    """Each has its own numbers, epoch and pages. (§2.1)"""
    path = f"/v0/topics/{topic}"
    answer = api.ok("POST", path, {"records": [at(2, "a"), at(0, "b"), at(2, "c")]})
    assert (answer["seqs"], answer["count"]) == ([1, 1, 2], 3)
    assert answer["partitions"] == [
        {"partition": 0, "first_seq": 1, "last_seq": 1},
        {"partition": 2, "first_seq": 1, "last_seq": 2},
    ]
    assert not {"first_seq", "last_seq", "head_seq"} & answer.keys()

    for partition, datas in ((0, ["b"]), (1, []), (2, ["a", "c"])):
        page = api.ok("POST", f"{path}/diff", {"partition": partition})
        assert [each["data"] for each in page["records"]] == datas
        stable = api.ask("GET", f"{path}/records?partition={partition}")
        assert [each["data"] for each in stable.json["records"]] == datas
        tag = stable.headers["etag"]
        query = f"{path}/records?partition={partition}"
        same = api.ask("GET", query, headers={"if-none-match": tag})
        assert same.status == 304
    state = api.state(topic)
    assert [each["count"] for each in state["partitions"]] == [1, 0, 2]
    assert (state["count"], state["head_seq"]) == (3, 1)
    (listed,) = api.ok("GET", f"/v0/topics?prefix={topic}")["topics"]
    assert (listed["topic"], listed["count"]) == (topic, 3)


def test_seqs_are_listed_where_nothing_else_says_them(api: Api, topic: str) -> None:
    """A client that asks for none has the span of one partition, and of several no other way. (§2, 122)"""
    path = f"/v0/topics/{topic}?return_seqs=false"
    one = api.ok("POST", path, {"records": [at(1), at(1)]})
    assert "seqs" not in one
    assert (one["first_seq"], one["last_seq"]) == (1, 2)
    several = api.ok("POST", path, {"records": [at(2), at(1)]})
    assert several["seqs"] == [1, 3]


@pytest.mark.parametrize(
    ("route", "body"),
    [
        ("diff", {}),
        ("delete", {"before_seq": 1}),
        ("delete", {"before_seq": 1, "match": "a"}),
        ("purge", {"seq": 1}),
        ("purge", {"keep": 1}),
    ],
)
def test_a_partition_has_to_be_named(
    api: Api, topic: str, route: str, body: dict[str, Any]
) -> None:
    """400 without, 404 for one that there is not, 400 for a number that none has. (§2.1)"""
    path = f"/v0/topics/{topic}/{route}"
    for given, status, code in (
        ({}, 400, "partition_required"),
        ({"partition": COUNT}, 404, "partition_not_found"),
        ({"partition": 1000}, 400, "invalid_request"),
        ({"partition": -1}, 400, "invalid_request"),
    ):
        answer = api.ask("POST", path, {**body, **given})
        assert (answer.status, answer.json["error"]["code"]) == (status, code)
        assert "#" not in answer.json["error"]["message"]
    assert api.ask("POST", path, {**body, "partition": 0}).status == 200


def test_a_page_names_its_partition(api: Api, topic: str) -> None:
    path = f"/v0/topics/{topic}/records"
    for query, status in (("", 400), ("?partition=3", 404), ("?partition=x", 400)):
        assert api.ask("GET", path + query).status == status


def test_no_path_names_a_partition(api: Api, topic: str) -> None:
    """Whatever is done to it. (§1.1)"""
    for raw in (f"{topic}%231", f"{topic}%230"):
        assert api.ask("PUT", f"/v0/topics/{raw}", {}).status == 400
        assert api.ask("POST", f"/v0/topics/{raw}", {"records": [{"data": 1}]}).status == 400
        assert api.ask("GET", f"/v0/topics/{raw}").status == 404
        assert api.ask("POST", f"/v0/topics/{raw}/diff", {}).status == 404
        assert api.ask("DELETE", f"/v0/topics/{raw}").status == 400
    router = {"source": f"{topic}#1", "dest": f"{topic}-d"}
    assert api.ask("PUT", f"/v0/routers/{topic}-r", router).status == 400
    letters = {"type": "queue", "dead_letter": f"{topic}#1"}
    assert api.ask("PUT", f"/v0/topics/{topic}-q", letters).status == 400


def test_a_delete_is_of_all_partitions(api: Api, topic: str) -> None:
    """With sums. (§2.1)"""
    path = f"/v0/topics/{topic}"
    api.ok("POST", path, {"records": [at(n, n, tag=tag) for n in range(COUNT) for tag in "ab"]})
    gone = api.ok("POST", f"{path}/delete", {"match": "a", "erase": True})
    assert (gone["deleted"], gone["count"]) == (COUNT, COUNT)
    assert api.ok("POST", f"{path}/purge", {"filter": "b"})["purged"] == COUNT
    assert api.state(topic)["count"] == 0


def test_a_write_is_repeated_where_it_went(api: Api, topic: str) -> None:
    """Also to more partitions than there were. (§0.8)"""
    path = f"/v0/topics/{topic}"
    body = {"records": [{"data": n, "tag": f"k{n}"} for n in range(9)], "idempotency_key": "a"}
    first = api.ok("POST", path, body)
    api.put(topic, partitions=7)
    again = api.ok("POST", path, body)
    assert (again["seqs"], again["deduped"]) == (first["seqs"], True)
    assert again["partitions"] == first["partitions"]
    assert api.ask("PUT", path, {"partitions": 6}).status == 409


def test_what_is_named_for_one_order_has_one_partition(api: Api, topic: str) -> None:
    """409 `partitioned`. (§2.1)"""
    router = {"source": topic, "dest": f"{topic}-d"}
    for method, path, body in (
        ("PUT", f"/v0/routers/{topic}-r", router),
        ("PUT", f"/v0/topics/{topic}-q", {"type": "queue", "partitions": 2}),
        ("PUT", f"/v0/topics/{topic}-q", {"type": "queue", "dead_letter": topic}),
    ):
        answer = api.ask(method, path, body)
        assert (answer.status, answer.json["error"]["code"]) == (409, "partitioned")


def test_a_large_write_goes_to_its_partitions(api: Api, topic: str) -> None:
    """Whoever parsed it. (§2)"""
    path = f"/v0/topics/{topic}"
    records = [{"data": "x" * 1000, "tag": f"k{n}"} for n in range(600)]
    answer = api.ok("POST", path, {"records": records})
    assert len(answer["seqs"]) == answer["count"] == 600
    assert sum(each["count"] for each in api.state(topic)["partitions"]) == 600
