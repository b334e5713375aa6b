"""dramatiq's own tests, over the broker and the backends of topics, and the page that says which pass.

The tests are those of the version that is installed (`suites`).  They take two minutes: they run where
`TOPICS_TESTS_SUITES=1` asks for them.  With `TOPICS_TESTS_SUITES=write` the page is written anew.
"""

import json
import os
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Final

import pytest

from ..suites import Case, run, source

HERE: Final = Path(__file__).parent
PAGE: Final = HERE / "SUITE.md"
LIMIT_S: Final = 900

pytestmark = [
    pytest.mark.skipif("TOPICS_TESTS_SUITES" not in os.environ, reason="it gets dramatiq's tests"),
    pytest.mark.timeout(LIMIT_S),
]

STUB = "it looks into the `StubBroker`'s own queues"
RABBIT = "it is about connections, channels and declarations of RabbitMQ"
REDIS = "it reads or changes keys of Redis"
PROCESS = "it starts processes with brokers of their own, none of them this one"
LEFT_OUT: Final[dict[str, str]] = {
    "test_cli.py": PROCESS,
    "test_pidfile.py": PROCESS,
    "test_watch.py": PROCESS,
    "test_broker.py::test_broker_uses_rabbitmq_if_not_set": "it is about dramatiq's default broker",
    "test_broker.py::test_can_instantiate_brokers_without_middleware": "it makes the other brokers",
    "test_worker.py::test_workers_process_messages_in_order": (
        "it expects a message in the worker a millisecond after it was sent"
    ),
    **{
        f"test_actors.py::{name}": STUB
        for name in (
            "test_actors_can_be_sent_messages",
            "test_worker_handles_non_numeric_eta_and_logs_warning",
            "test_worker_handles_none_eta",
        )
    },
    **{
        f"test_stub_broker.py::test_stub_broker_{name}": STUB
        for name in (
            "can_be_flushed",
            "flush_all_does_not_break_dead_letters",
            "respects_prefetch",
        )
    },
    **{
        f"test_stub_broker.py::test_stub_broker_raises_queue_error_when_{name}": (
            "a queue may be declared by another program: it need not be declared to be sent to"
        )
        for name in (
            "enqueueing_messages_on_undeclared_queues",
            "joining_on_undeclared_queues",
        )
    },
    **{
        f"test_rabbitmq.py::test_{name}": RABBIT
        for name in (
            "rabbitmq_broker_raises_an_error_if_given_invalid_parameter_combinations",
            "rabbitmq_broker_can_be_passed_a_semicolon_separated_list_of_uris",
            "rabbitmq_broker_can_be_passed_a_list_of_uri_for_failover",
            "rabbitmq_broker_can_be_passed_a_list_of_parameters_for_failover",
            "rabbitmq_broker_stops_retrying_declaring_queues_when_max_attempts_reached",
            "rabbitmq_broker_reconnects_after_enqueue_failure",
            "rabbitmq_workers_handle_rabbit_failures_gracefully",
            "rabbitmq_connections_can_be_deleted_multiple_times",
            "rabbitmq_channels_can_be_deleted_multiple_times",
            "rabbitmq_consumers_ignore_unknown_messages_in_ack_and_nack",
            "ignore_scary_logs_filter_ignores_logs",
            "rabbitmq_close_only_registers_ignore_filter_once",
            "rabbitmq_broker_retries_declaring_queues_when_connection_related_errors_occur",
            "rabbitmq_broker_consuming_messages_re_declares_queues_when_declared_queue_disappears",
            "rabbitmq_broker_enqueueing_message_re_declares_queues_when_declared_queue_disappears",
            "rabbitmq_messages_that_failed_to_decode_are_rejected",
        )
    },
    **{
        f"test_redis.py::test_redis_{name}": REDIS
        for name in (
            "unacked_messages_can_be_requeued",
            "messages_can_be_dead_lettered",
            "dead_lettered_messages_are_cleaned_up",
            "messages_belonging_to_missing_actors_are_rejected",
            "requeues_unhandled_messages_on_shutdown",
            "requeues_unhandled_delay_messages_on_shutdown",
            "broker_can_connect_via_url",
            "broker_can_connect_via_client",
            "consumer_ack_can_retry_on_connection_error",
            "consumer_nack_can_retry_on_connection_error",
            "join_race_condition",
        )
    },
}
"""Tests that are not run, or files of them, and why."""

HEAD: Final = """# dramatiq's own tests

What dramatiq {version} tests of its brokers and backends, run over those of topics: its fixtures `stub_broker`,
`redis_broker` and `rabbitmq_broker` are a `TopicsBroker`, `result_backend` is a `TopicsBackend`, and
`rate_limiter_backend` a `TopicsRateLimiterBackend`. `test_suite.py` runs them (`TOPICS_TESTS_SUITES=1`), writes this page
(`TOPICS_TESTS_SUITES=write`) and holds it against what it saw.

{passed} pass, {skipped} are left out. The source distribution has no tests of middleware; those of the repository of
dramatiq (`tests/middleware`) were run by hand in the same way with 2.2.1: 53 passed, 2 need gevent.

| left out | why |
|---|---|
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """dramatiq's source distribution, with a `conftest.py` of ours beside its tests."""
    found = source("dramatiq", version("dramatiq"), tmp_path)
    shutil.copy(HERE / "suite_conftest.py", found / "tests" / "conftest.py")
    shutil.copy(HERE / "suite_common.py", found / "tests" / "common.py")
    (found / "tests" / "__init__.py").touch()
    (found / "tests" / "left_out.json").write_text(json.dumps(LEFT_OUT))
    return found


def test_dramatiqs_tests_pass(project: Path, url: str) -> None:
    """All but those that are left out pass, and the page says which."""
    options = ("-p", "no:cacheprovider", "-o", "addopts=", "--timeout=90", "--tb=short")
    report = project.parent / "report.xml"
    cases, said = run(project, "tests", report, *options, env=os.environ | {"TOPICS_URL": url})
    assert not any(case.failed for case in cases), said[-20_000:]

    page = told(cases)

    if os.environ["TOPICS_TESTS_SUITES"] == "write":
        PAGE.write_text(page)
    assert PAGE.read_text() == page


def told(cases: list[Case]) -> str:
    """The page, from what became of each test."""
    why = {
        (name := named(case)): LEFT_OUT.get(name)
        or LEFT_OUT.get(name.partition("::")[0])
        or case.skipped
        for case in cases
        if case.skipped is not None
    }
    skipped = sum(case.skipped is not None for case in cases)
    rows = [f"| `{name}` | {reason} |" for name, reason in sorted(why.items())]
    passed = [f"- `{name}`" for name in sorted({named(case) for case in cases} - why.keys())]
    head = HEAD.format(version=version("dramatiq"), passed=len(cases) - skipped, skipped=skipped)
    return head + "\n".join([*rows, "", "What passes:", "", *passed, ""])


def named(case: Case) -> str:
    """`test_file.py::test_name`, without parameters."""
    return case.name.partition("[")[0].replace("::", ".py::")
