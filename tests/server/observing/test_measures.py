"""Counts of requests by route, status and code (§8.3), with a bounded number of labels."""

from prometheus_client.parser import text_string_to_metric_families

from topics.protocol.faces.http.routes import ROUTES
from topics.protocol.model.errors import ErrorCode
from topics.server.observing import metrics
from topics.server.observing.measures import BOUNDS_S, LABELS, RequestMeasures, label_of

APPEND = "POST /v0/topics/:name"


def parsed(measures: RequestMeasures) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """The scrape as the parser of Prometheus' own client reads it: (name, labels) -> value."""
    text = metrics.as_text(measures.families()).decode()
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_answers_are_counted_by_route_and_status() -> None:
    """Three appends, of which one was refused."""
    measures = RequestMeasures()
    for status in (200, 200, 429):
        measures.answered(APPEND, status, 0.001)

    found = parsed(measures)

    name = "topics_http_requests_total"
    assert found[name, (("route", APPEND), ("status", "200"))] == 2
    assert found[name, (("route", APPEND), ("status", "429"))] == 1


def test_the_histogram_is_cumulative_and_ends_with_all() -> None:
    """A time on a bound belongs to it; one beyond the last is in +Inf alone."""
    measures = RequestMeasures()
    for took_s in (BOUNDS_S[0], BOUNDS_S[1], BOUNDS_S[-1] + 1):
        measures.answered(APPEND, 200, took_s)

    found = parsed(measures)

    name = "topics_http_request_duration_seconds"
    counts = [
        found[f"{name}_bucket", (("le", str(bound)), ("route", APPEND))]
        for bound in (*BOUNDS_S, "+Inf")
    ]
    assert counts == [1, *[2] * (len(BOUNDS_S) - 1), 3]
    assert found[f"{name}_count", (("route", APPEND),)] == 3
    assert (
        found[f"{name}_sum", (("route", APPEND),)] == BOUNDS_S[0] + BOUNDS_S[1] + BOUNDS_S[-1] + 1
    )


def test_a_wait_that_was_asked_for_is_counted_and_not_timed() -> None:
    """A long poll of half a minute says nothing of the server's speed."""
    measures = RequestMeasures()
    measures.answered("POST /v0/topics/:name/diff", 200, None)

    found = parsed(measures)

    labels = (("route", "POST /v0/topics/:name/diff"), ("status", "200"))
    assert found["topics_http_requests_total", labels] == 1
    assert not [name for name, _ in found if name.startswith("topics_http_request_duration")]


def test_refusals_are_counted_by_the_code_of_their_envelope() -> None:
    """§0.6's codes are the labels."""
    measures = RequestMeasures()
    measures.refused(ErrorCode.THROTTLED)
    measures.refused(ErrorCode.THROTTLED)
    measures.refused(ErrorCode.NOT_FOUND)

    found = parsed(measures)

    assert found["topics_http_refusals_total", (("code", "throttled"),)] == 2
    assert found["topics_http_refusals_total", (("code", "not_found"),)] == 1


def test_every_route_has_a_label_of_its_own() -> None:
    """Which names no topic: `:name` stands for whichever it is."""
    labels = [label_of(route) for route in ROUTES]

    assert len(set(labels)) == len(ROUTES)
    assert "POST /v0/topics/:name/claim" in labels
    assert {LABELS[id(route)] for route in ROUTES} == set(labels)


def test_routes_together_have_totals_and_one_histogram() -> None:
    """Requests, those of them that answer with records, and all times in the same buckets. (§8.6)"""
    measures = RequestMeasures()
    assert measures.totals() == (0, 0)
    assert measures.buckets() == [0] * (len(BOUNDS_S) + 1)
    measures.answered(APPEND, 200, 0.0001)
    measures.answered("POST /v0/topics/:name/diff", 200, 0.0001)
    measures.answered("POST /v0/topics/:name/diff", 200, None)
    measures.answered("GET /v0/health", 200, 100.0)

    assert measures.totals() == (4, 2)
    assert (measures.buckets()[0], measures.buckets()[-1], sum(measures.buckets())) == (2, 1, 3)
