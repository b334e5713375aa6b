"""Pages that caches keep: the same records as `diff`, under a tag that names their bytes (§3.4)."""

import gzip
import json
from collections.abc import Callable
from typing import Any

import pytest

from .api import Api, by, tagged
from .keyed import FULL, Desk
from .server import Server
from .wire import Answer, Http1


def page(api: Api, name: str, query: str = "", **headers: str) -> Answer:
    return api.ask("GET", f"/v0/topics/{name}/records{query}", headers=headers)


def seqs(answer: Answer) -> list[int]:
    return [record["$seq"] for record in answer.json["records"]]


@pytest.mark.every_server
def test_a_page_has_nothing_that_moves(api: Api, name: str) -> None:
    """Records, tombstone and cursor, and no more; caches ask again before each use."""
    api.append(name, {"a": 1.0}, {"data": None, "tag": "t", "node": "n", "meta": {"m": 1}})

    got = page(api, name, "?include_tags=true")

    records = api.diff(name, include_tags=True)["records"]
    assert got.json == {"records": records, "tombstone": None, "next_from_seq": 2}
    assert (got.status, got.headers["cache-control"]) == (200, "no-cache")
    assert got.headers["vary"] == "accept-encoding"


@pytest.mark.every_server
def test_a_client_that_has_a_page_gets_304(api: Api, name: str) -> None:
    """For as long as it is as it was; and the connection goes on after it."""
    api.append(name, 1, 2, 3)
    got = page(api, name, "?limit=3")
    etag = got.headers["etag"]

    api.append(name, 4)
    again = page(api, name, "?limit=3", **{"if-none-match": f'"x", W/{etag}'})
    head = api.ask("HEAD", f"/v0/topics/{name}/records?limit=3", headers={"if-none-match": etag})
    api.delete(name, before_seq=2)
    changed = page(api, name, "?limit=3", **{"if-none-match": etag})

    assert (again.status, again.headers["etag"]) == (304, etag)
    assert again.headers["cache-control"] == "no-cache"
    assert (head.status, head.body) == (304, b"")
    assert (changed.status, seqs(changed)) == (200, [2, 3, 4])
    assert changed.headers["etag"] != etag


def test_any_page_is_known_by_a_star(api: Api, name: str) -> None:
    """`If-None-Match: *` is true of what is there, and of nothing else. (RFC 9110 §13.1.2)"""
    api.put(name)

    assert page(api, name, **{"if-none-match": "*"}).status == 304
    assert page(api, "absent", **{"if-none-match": "*"}).status == 404


@pytest.mark.every_server
def test_a_compressed_page_has_a_tag_of_its_own(api: Api, name: str) -> None:
    """Other bytes, another tag; a client that has either has the page."""
    api.append(name, *["x" * 90] * 40)

    plain = page(api, name)
    zipped = page(api, name, **{"accept-encoding": "gzip"})

    assert json.loads(gzip.decompress(zipped.body)) == plain.json
    assert zipped.headers["etag"] != plain.headers["etag"]
    assert zipped.headers["vary"] == plain.headers["vary"] == "accept-encoding"
    for kept in (plain, zipped):
        for coding in ("gzip", "identity"):
            again = page(
                api, name, **{"accept-encoding": coding, "if-none-match": kept.headers["etag"]}
            )
            assert (again.status, again.headers["etag"]) == (304, kept.headers["etag"])


def test_a_page_is_asked_for_by_its_bounds(api: Api, name: str) -> None:
    """With the defaults and bounds of `diff`. (§3)"""
    api.append(name, *[{"data": n, "tag": "t", "meta": {"m": n}} for n in range(300)])

    assert seqs(page(api, name)) == list(range(1, 257))
    assert seqs(page(api, name, "?from_seq=290")) == list(range(291, 301))
    assert seqs(page(api, name, "?from_seq=0&limit=2")) == [1, 2]
    assert len(seqs(page(api, name, "?limit=99999999999999999999999"))) == 300
    assert seqs(page(api, name, "?max_batch_bytes=1")) == [1]
    (record,) = page(api, name, "?limit=1&include_meta=false&include_tags=1").json["records"]
    assert record.keys() == {"$seq", "$ts", "$tag", "data"}


@pytest.mark.parametrize(
    "query",
    ["from_seq=-1", "from_seq=x", "from_seq=", f"from_seq={2**64}", "limit=1.5", "limit=many",
     "max_batch_bytes=-", "include_tags=yes", "include_meta=null"],
)  # fmt: skip
def test_a_bad_parameter_is_400(api: Api, name: str, query: str) -> None:
    """It is named, and nothing is guessed. (§0.6)"""
    api.put(name)

    refused = page(api, name, "?" + query)

    assert (refused.status, refused.code) == (400, "invalid_request")
    assert "etag" not in refused.headers


def test_a_topic_that_is_not_there_is_404(api: Api) -> None:
    """Nothing is made by a read; a name that no topic can have is none. (§1.1)"""
    for name in ("absent", "-", "a%2Fb"):
        assert page(api, name).code == "topic_not_found"


def test_losses_are_told_as_diff_tells_them(api: Api, name: str) -> None:
    """Without the marks that move with the head. (§3.3)"""
    api.put(name, cap_records=3)
    api.append(name, *range(1, 8))

    for cursor in range(8):
        got, said = page(api, name, f"?from_seq={cursor}").json, api.diff(name, cursor)
        gap = said["tombstone"]
        if gap is not None:
            del gap["head_seq"], gap["earliest_seq"]
        assert got["tombstone"] == gap
        assert got["records"] == said["records"]
        assert got["next_from_seq"] == said["next_from_seq"]


def test_a_cursor_of_another_instance_gets_a_tombstone(api: Api, name: str) -> None:
    """Beyond the head, or with another epoch. (§3.3)"""
    api.append(name, 1)
    epoch = api.state(name)["epoch"]
    api.drop(name)
    api.append(name, 2)
    stone = {"gap_from": 1, "gap_to": 1, "reason": "recreated", "missed_estimate": 1}

    assert page(api, name, "?from_seq=9").json["tombstone"] == stone
    assert page(api, name, f"?epoch={epoch}").json["tombstone"] == stone
    now = api.state(name)["epoch"]
    assert page(api, name, f"?epoch={now}").json["tombstone"] is None


def test_what_is_deleted_is_never_served_again(api: Api, name: str) -> None:
    """A delete in the middle splits a page; its tag is another one at once. (§5)"""
    api.append(name, *[tagged(f"t.{n}", n) for n in range(1, 9)])
    before = page(api, name)

    api.delete(name, match="t.4")
    after = page(api, name, **{"if-none-match": before.headers["etag"]})

    assert (after.status, seqs(after)) == (200, [1, 2, 3, 5, 6, 7, 8])


def test_copies_are_there(api: Api, name: str) -> None:
    """A page of a derived topic waits for what its routers owe. (§6)"""
    source, dest = f"{name}-s", f"{name}-d"
    api.put(source)
    api.ok("PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})
    for n in range(1, 4):
        api.append(source, by("w", n))
        assert [r["data"] for r in page(api, dest).json["records"]] == list(range(1, n + 1))


def test_a_read_counts_as_one(api: Api, name: str) -> None:
    """`last_read_ts` moves, with 304 as with 200. (§1.2)"""
    api.append(name, 1)
    assert api.state(name)["last_read_ts"] is None

    assert page(api, name, **{"if-none-match": "*"}).status == 304
    assert api.state(name)["last_read_ts"] is not None


@pytest.mark.parametrize("ending", ["stop", "kill"])
def test_a_tag_outlives_seals_and_restarts(private: Callable[..., Server], ending: str) -> None:
    """It names what the page says, and not where that lies. (§3.4)"""
    server = private(segment_max_records=7)
    api = Api(server.connect(Http1))
    api.append("t", *[tagged(f"t.{n % 5}", {"n": n}) for n in range(30)])
    api.delete("t", match="t.3")
    before = {query: page(api, "t", query) for query in ("?limit=9", "?from_seq=9&limit=9")}

    for _ in range(2):
        server.stop() if ending == "stop" else server.kill()
        api = Api(server.start().connect(Http1))
        for query, kept in before.items():
            etag = kept.headers["etag"]
            assert page(api, "t", query, **{"if-none-match": etag}).status == 304
            assert page(api, "t", query).body == kept.body
        api.append("t", "more")


def test_an_ephemeral_page_is_lost_with_its_process(private: Callable[..., Server]) -> None:
    """The tombstone has another tag than the records had. (§0.10)"""
    server = private()
    api = Api(server.connect(Http1))
    api.put("t", durability="ephemeral")
    api.append("t", 1, 2)
    kept = page(api, "t")

    server.stop()
    api = Api(server.start().connect(Http1))
    lost = page(api, "t", **{"if-none-match": kept.headers["etag"]})

    assert (lost.status, lost.json["records"]) == (200, [])
    assert lost.json["tombstone"]["reason"] == "crash"


def test_with_keys_a_page_is_the_clients_own(desk: Desk) -> None:
    """A cache that others share may not keep what a key was needed for. (§0.2)"""
    target = "/v0/topics/in.log/records"

    got = desk.ask(FULL, "GET", target)
    etag = got.headers["etag"]
    known: Any = {"if-none-match": etag}

    assert got.headers["cache-control"] == "private, no-cache"
    again = desk.ask(FULL, "GET", target, **known)
    assert (again.status, again.headers["cache-control"]) == (304, "private, no-cache")
    assert desk.ask(None, "GET", target, **known).status == 401
    assert desk.ask("inner-55d0", "GET", "/v0/topics/out.log/records", **known).status == 403


def test_refreshes_are_counted_by_their_route(api: Api, name: str) -> None:
    """`topics_http_requests_total` tells pages that were sent from pages that still held. (§8.3)"""
    api.put(name)
    etag = page(api, name).headers["etag"]
    page(api, name, **{"if-none-match": etag})

    text = api.ask("GET", "/v0/metrics").body.decode()

    for status in (200, 304):
        label = f'route="GET /v0/topics/:name/records",status="{status}"'
        assert f"topics_http_requests_total{{{label}}}" in text
