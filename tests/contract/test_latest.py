"""The latest record of a tag, and of each: a topic as a table (§3.5)."""

from collections.abc import Callable
from typing import Any

import pytest

from .api import Api, tagged
from .keyed import FULL, Desk
from .server import Server
from .wire import Answer, Http1


def ask(api: Api, name: str, query: str = "", **headers: str) -> Answer:
    return api.ask("GET", f"/v0/topics/{name}/latest{query}", headers=headers)


def table(answer: Answer) -> dict[str, Any]:
    return {record["$tag"]: record["data"] for record in answer.json["records"]}


@pytest.mark.every_server
def test_a_topic_is_a_table_by_tag(api: Api, name: str) -> None:
    """The newest record of each, with the epoch; nothing that moves. (§3.5)"""
    api.append(name, tagged("eu.a", 1), tagged("us.a", 2), "none", tagged("eu.a", 3))
    api.append(name, {"data": 4, "tag": "eu.b", "meta": {"m": 1}})

    got = ask(api, name)
    records = api.diff(name, from_seq=1, include_tags=True)["records"]
    assert got.json == {
        "records": [each for each in records if "$tag" in each],
        "epoch": api.state(name)["epoch"],
    }
    assert (got.status, got.headers["cache-control"]) == (200, "no-cache")
    assert table(ask(api, name, "?prefix=eu.")) == {"eu.a": 3, "eu.b": 4}
    assert table(ask(api, name, "?tag=us.a")) == {"us.a": 2}
    bare = ask(api, name, "?tag=eu.b&include_tags=false&include_meta=false").json["records"]
    assert [record.keys() for record in bare] == [{"$seq", "$ts", "data"}]


@pytest.mark.every_server
def test_pages_go_on_behind_their_cursor(api: Api, name: str) -> None:
    """Each tag once, whatever is written meanwhile. (§3.5)"""
    api.append(name, *(tagged(f"t{n}", n) for n in range(7)))
    found, query = dict[str, Any](), "?limit=3"
    while True:
        page = ask(api, name, query)
        assert len(page.json["records"]) <= 3
        found |= table(page)
        if "next_cursor" not in page.json:
            break
        query = f"?limit=3&prefix=t&cursor={page.json['next_cursor']}"
        api.append(name, tagged("t0", "new"))
    assert found == {f"t{n}": n for n in range(7)}
    assert table(ask(api, name, "?max_batch_bytes=1")) == {"t0": "new"}


def test_a_client_that_has_it_gets_304(api: Api, name: str) -> None:
    """Until the tag has a newer record. (§3.5)"""
    api.append(name, tagged("a", 1), tagged("b", 2))
    etag = ask(api, name, "?tag=a").headers["etag"]
    known: Any = {"if-none-match": etag}
    api.append(name, tagged("b", 3))
    assert ask(api, name, "?tag=a", **known).status == 304
    api.append(name, tagged("a", 4))
    got = ask(api, name, "?tag=a", **known)
    assert (got.status, table(got)) == (200, {"a": 4})
    many: Any = {"if-none-match": ask(api, name).headers["etag"]}
    assert ask(api, name, **many).status == 304


def test_what_is_refused(api: Api, name: str) -> None:
    """404 for a tag that no record has; a query that says two things. (§0.6, §3.5)"""
    api.append(name, tagged("a"))
    path = f"/v0/topics/{name}/latest"
    assert api.refused("GET", f"{path}?tag=b") == (404, "record_not_found")
    assert api.refused("GET", f"{path}-x/latest") == (404, "not_found")
    for query in ("tag=a&prefix=b", "tag=a&cursor=x", "tag=", "cursor=x", "limit=x"):
        assert api.refused("GET", f"{path}?{query}") == (400, "invalid_request")
    api.delete(name, match="a")
    assert api.refused("GET", f"{path}?tag=a") == (404, "record_not_found")


def test_it_needs_the_scope_to_read(desk: Desk) -> None:
    """And a name within the key's prefixes. (§0.2)"""
    assert desk.ask(FULL, "GET", "/v0/topics/in.log/latest").status == 200
    assert desk.ask(None, "GET", "/v0/topics/in.log/latest").status == 401
    assert desk.ask("inner-55d0", "GET", "/v0/topics/out.log/latest").status == 403


def test_a_table_outlives_a_restart(private: Callable[..., Server]) -> None:
    """And is read from segments. (§3.5)"""
    server = private(segment_max_records=7)
    api = Api(server.connect(Http1))
    api.put("t", compact=True)
    api.append("t", *[tagged(f"t.{n % 5}", {"n": n}) for n in range(30)])
    want = {f"t.{n % 5}": {"n": n} for n in range(25, 30)}
    server.kill()
    api = Api(server.start().connect(Http1))
    assert table(ask(api, "t")) == want
