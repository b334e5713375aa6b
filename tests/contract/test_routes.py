"""Paths and methods: the endpoint index, 404, 405 with `Allow`, HEAD, names (§0.6, §9)."""

import pytest

from .api import Api
from .conftest import MAX_BODY_BYTES
from .server import Server
from .wire import Answer, Http1, ask, check

ROUTES = {
    "/": {"GET"},
    "/v0/topics": {"GET"},
    "/v0/topics/{name}": {"GET", "PUT", "POST", "DELETE"},
    "/v0/topics/{name}/diff": {"POST"},
    "/v0/topics/{name}/records": {"GET"},
    "/v0/topics/{name}/latest": {"GET"},
    "/v0/topics/{name}/delete": {"POST"},
    "/v0/topics/{name}/purge": {"POST"},
    "/v0/health": {"GET"},
    "/healthz": {"GET"},
    "/v0/ready": {"GET"},
    "/readyz": {"GET"},
    "/v0/metrics": {"GET"},
    "/v0/limits": {"GET"},
    "/v0/openapi.json": {"GET"},
    "/v0/docs": {"GET"},
    "/v0/docs/swagger-ui.css": {"GET"},
    "/v0/console/main.js": {"GET"},
    "/v0/stats/history": {"GET"},
    "/v0/clients": {"GET"},
    "/v0/cluster": {"GET"},
    "/v0/cluster/trim": {"POST"},
}
METHODS = ("GET", "HEAD", "PUT", "POST", "DELETE", "PATCH", "OPTIONS", "TRACE", "BREW")


@pytest.mark.parametrize("path", ROUTES)
def test_every_method_on_a_path(api: Api, name: str, path: str) -> None:
    """A route answers, any other method is 405 and `Allow` names exactly what is there. (§0.6)"""
    allowed = ROUTES[path] | ({"HEAD"} if "GET" in ROUTES[path] else set())
    for method in METHODS:
        api.put(name)

        answer = api.ask(method, path.format(name=name), b"{}")

        if method in allowed:
            assert answer.status not in (404, 405), method
        elif method != "HEAD":
            assert (answer.status, answer.code) == (405, "method_not_allowed"), method
        if answer.status == 405:
            assert set(answer.headers["allow"].split(", ")) == allowed


GETS = [path for path, methods in ROUTES.items() if "GET" in methods]


@pytest.mark.every_server
@pytest.mark.parametrize("path", GETS)
@pytest.mark.parametrize("accept", ["", "gzip"])
def test_head_answers_like_get_without_a_body(api: Api, name: str, path: str, accept: str) -> None:
    """Same status, same headers, no body. (§0.6)"""
    api.put(name)
    target = path.format(name=name)
    headers = {"accept-encoding": accept, "content-type": ""}

    got, head = (api.ask(method, target, headers=headers) for method in ("GET", "HEAD"))

    assert head.status == got.status == 200
    assert set(head.headers) == set(got.headers)
    assert head.headers["content-type"] == got.headers["content-type"]
    assert head.body == b""
    # The performance figures in it may take another digit.
    assert int(head.headers["content-length"]) > 0


@pytest.mark.every_server
def test_head_of_what_is_missing_has_the_status_of_get(api: Api) -> None:
    """404 for a topic or a path that does not exist. (§0.6)"""
    assert api.ask("HEAD", "/v0/topics/missing").status == 404
    assert api.ask("HEAD", "/v0/nothing").status == 404
    assert api.ask("HEAD", "/v0/topics?page_size=x").status == 400


@pytest.mark.every_server
@pytest.mark.parametrize(
    "path",
    [
        "/v0", "/v0/", "/v0/topic", "/v0/Topics", "/V0/topics", "/v1/topics", "/v0/topics/",
        "/v0/topics/a/", "/v0/topics/a/b", "/v0/topics/a/diff/", "/v0/topics/a/diff/x",
        "/v0/topics//diff", "//v0/topics", "/v0//topics", "/v0/./topics", "/v0/topics/../health",
        "/healthz/", "/metrics", "/health", "/v0/healthz", "/v0/:/a", "/v0/topics/a/:",
        "/v0/%74opics", "/favicon.ico", "/index.html", "/topics/a", "/v0/topics/a/DIFF", "/v0;x/topics",
    ],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "OPTIONS"])
def test_any_other_path_is_not_found(api: Api, path: str, method: str) -> None:
    """404 `not_found`, whatever the method: 405 would claim that the path exists. (§0.6)"""
    assert api.refused(method, path, b"{}") == (404, "not_found")


GOOD_NAMES = ["a", "Z", "0", "a.b", "a_b", "a:b", "a-b", "render-queue:tenantA", "x" * 255, "a.."]

BAD_NAMES = [
    "-a", ".a", "_a", ":a", ":", "a%20b", "a%2Fb", "a%2fb", "%2F", "%2e%2e", "a%00", "a%0a", "%ff",
    "a%C3%A9", "a~b", "a!b", "a*b", "a%25b", "a%", "a%2", "a%zz", "x" * 256, "a+b", "a%3Fb", "a>b",
    "a->b", "%3A", "a%EF%BC%8E", "a,b", "a;b=c", "a@b", "(a)", "a%5Cb",
]  # fmt: skip


@pytest.mark.parametrize("topic", GOOD_NAMES)
def test_a_name_of_the_charset_is_a_name(api: Api, topic: str) -> None:
    """1 to 255 characters, first alphanumeric, then also . _ : - (§1.1)"""
    assert api.put(topic)["topic"] == topic
    assert api.state(topic)["topic"] == topic
    assert api.drop(topic)["deleted"] is True


@pytest.mark.parametrize("topic", BAD_NAMES)
def test_a_bad_name_is_400_on_writes_and_404_on_reads(api: Api, topic: str) -> None:
    """A name is decoded once, before the check; `%2F` is one of its characters. (§1.1)"""
    path = f"/v0/topics/{topic}"
    append = {"records": [{"data": 1}]}

    assert api.refused("PUT", path, {}) == (400, "invalid_request")
    assert api.refused("POST", path, append) == (400, "invalid_request")
    assert api.refused("DELETE", path) == (400, "invalid_request")
    assert api.refused("POST", f"{path}/delete", {"before_seq": 1}) == (400, "invalid_request")
    assert api.refused("POST", f"{path}/purge", {}) == (400, "invalid_request")
    assert api.refused("GET", path) == (404, "topic_not_found")
    assert api.refused("POST", f"{path}/diff", {}) == (404, "topic_not_found")


@pytest.mark.every_server
def test_escapes_name_the_same_topic(api: Api, name: str) -> None:
    """Percent-encoded letters, digits and signs name the same topic as plain ones. (§1.1)"""
    api.put(f"{name}:a-b")
    escaped = "".join(f"%{byte:02X}" for byte in f"{name}:a-b".encode())

    assert api.state(escaped)["topic"] == f"{name}:a-b"
    assert api.state(escaped.lower())["topic"] == f"{name}:a-b"


@pytest.mark.every_server
def test_escapes_are_decoded_once(api: Api, name: str) -> None:
    """`%2561` is the text `%61`, which is not a valid name. (§1.1)"""
    assert api.refused("PUT", f"/v0/topics/{name}%2561", {}) == (400, "invalid_request")


def test_names_are_byte_exact(api: Api, name: str) -> None:
    """Upper and lower case are two topics. (§1.1)"""
    api.put(f"{name}x")

    assert api.refused("GET", f"/v0/topics/{name}X") == (404, "topic_not_found")


def test_topics_may_be_called_like_what_is_done_to_them(api: Api) -> None:
    """`diff` and `topics` are valid names. (§1.1)"""
    for topic in ("diff", "topics", "delete", "v0"):
        api.append(topic, 1)
        assert api.seqs(topic) == [1]
        api.drop(topic)


@pytest.mark.parametrize("query", ["?touch=maybe", "?touch=", "?touch=TRUE", "?touch=2"])
def test_a_boolean_of_the_query_is_a_boolean(api: Api, name: str, query: str) -> None:
    """Anything but true and false is 400. (§1.2)"""
    api.put(name)
    assert api.refused("GET", f"/v0/topics/{name}{query}") == (400, "invalid_request")
    assert api.refused("GET", f"/v0/topics{query}") == (400, "invalid_request")


def test_every_boolean_of_a_query_is_checked(api: Api, name: str) -> None:
    """`return_seqs` of an append and `if_empty` of a delete too; nothing is applied. (§1.4, §2)"""
    body = {"records": [{"data": 1}]}
    path = f"/v0/topics/{name}"

    assert api.refused("POST", f"{path}?return_seqs=no", body) == (400, "invalid_request")
    assert api.refused("GET", path) == (404, "topic_not_found")
    api.put(name)
    assert api.refused("DELETE", f"{path}?if_empty=yes") == (400, "invalid_request")
    assert api.state(name)["head_seq"] == 0


def test_unknown_parameters_are_ignored(api: Api, name: str) -> None:
    """Within a version clients and servers may add parameters. (§0.1)"""
    api.put(name)

    assert api.state(name, "?touch=false&pretty&x=%FF&x=y&=&&")["topic"] == name


@pytest.mark.every_server
def test_a_foreign_page_is_kept_out(api: Api, name: str) -> None:
    """A page of another origin, or a foreign host name that resolves to this server, is 403 before
    any other check. (§0.11)"""
    foreign = [
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"host": "evil.example"},
        {"host": "evil.example:4000"},
        {"sec-fetch-site": "cross-site"},
    ]
    for headers in foreign:
        for path in ("/v0/health", "/v0/nothing", f"/v0/topics/{name}"):
            answer = api.ask("PUT", path, b"not json", headers)
            assert (answer.status, answer.code) == (403, "forbidden")
    own = {"origin": f"http://localhost:{api.wire.port}"}
    assert api.ask("PUT", f"/v0/topics/{name}", b"{}", own).status == 201


def test_several_lines_of_accept_are_one(server: Server, name: str) -> None:
    """The media types that a client accepts may be on any number of lines (RFC 9110 §5.3). (§7.3,
    §8.3)"""
    wire = Http1(server.port)
    for path, lines, status, kind in (
        ("/v0/watch/nobody", (b"text/html", b"text/event-stream"), 404, b"application/json"),
        ("/v0/watch/nobody", (b"text/event-stream;q=0", b"*/*"), 406, b"application/json"),
        ("/v0/metrics", (b"text/html", b"application/json"), 200, b"application/json"),
    ):
        accept = b"".join(b"Accept: %b\r\n" % line for line in lines)
        head = b"GET %b HTTP/1.1\r\nHost: localhost\r\n%b\r\n" % (path.encode(), accept)
        wire.send_raw("GET", head)
        answer = check(wire.receive())
        assert (answer.status, answer.headers["content-type"].encode()) == (status, kind)
    wire.reset()


def test_a_target_may_name_the_server(server: Server) -> None:
    """As requests to a proxy do; it counts as the Host, and a foreign one is refused. (§0.11)"""
    wire = Http1(server.port)
    for target, host, status in (
        (f"http://localhost:{server.port}/v0/health", "evil.example", 200),
        ("http://evil.example/v0/health", "localhost", 403),
    ):
        wire.send("GET", target, headers={"host": host})
        assert check(wire.receive()).status == status
    wire.reset()


# The order in which a request is refused (§0.6).


def test_what_a_client_takes_comes_before_what_it_sends(api: Api, name: str) -> None:
    """406 before 413, on each stream. (§0.6)"""
    api.put(name, type="queue")
    big = b"x" * (MAX_BODY_BYTES + 1)
    for path in (f"/v0/topics/{name}/work", "/v0/watch/nobody"):
        for accept, refusal in (
            ("application/json", (406, "not_acceptable")),
            ("text/event-stream", (413, "payload_too_large")),
        ):
            answer = ask(api.wire, "GET", path, big, {"accept": accept})
            api.wire.reset()
            assert (answer.status, answer.code) == refusal


def test_refusals_come_in_order(api: Api, name: str) -> None:
    """Each request has all faults of the next one, and one more."""
    api.put(name, discard="reject", cap_records=1)
    wrong = {"content-type": "text/plain"}
    path = f"/v0/topics/{name}"

    def told(method: str, target: str, body: bytes, headers: dict[str, str]) -> tuple[int, str]:
        answer: Answer = ask(api.wire, method, target, body, headers)
        api.wire.reset()
        return answer.status, answer.code

    body, big = b"{" * 100, b"{" * (MAX_BODY_BYTES + 1)
    huge = wrong | {"content-encoding": "br"}
    full = b'{"records":[{"data":1},{"data":2}]}'
    evil = huge | {"origin": "http://evil.example"}
    table = [
        (("PATCH", "/v0/nothing", big, evil), (403, "forbidden")),
        (("PATCH", "/v0/nothing", big, huge), (404, "not_found")),
        (("PATCH", path, big, huge), (405, "method_not_allowed")),
        (("POST", path, big, huge), (413, "payload_too_large")),
        (("POST", path, body, wrong), (415, "unsupported_media_type")),
        (("POST", path, body, {"content-encoding": "br"}), (415, "unsupported_media_type")),
        (("POST", f"{path}?return_seqs=no", body, {}), (400, "invalid_request")),
        (("POST", path, body, {}), (400, "invalid_request")),
        (("POST", path, full, {}), (422, "topic_full")),
    ]
    for request, refusal in table:
        assert told(*request) == refusal, request
    assert api.state(name)["head_seq"] == 0
