"""`topics job`: arguments, and how an error of Spark ends on the command line."""

import pytest
from click.testing import CliRunner

from topics.cli import main
from topics.cli.job import _options, last_line


def test_where_it_reads_and_writes() -> None:
    """A path is read in place; records are always written to the server."""
    source, sink = _options("data", "http://h", "sesame", "t")
    assert source["path"].endswith("/data")
    assert source["subscribe"] == "t"
    assert sink == {"url": "http://h", "apiKey": "sesame"}
    assert _options(None, "http://h", None, "t")[0] == {"url": "http://h", "subscribe": "t"}


@pytest.mark.parametrize("more", [[], ["--to", "x", "--in-place"]])
def test_compact_needs_one_end(more: list[str]) -> None:
    """A copy or in place."""
    done = CliRunner().invoke(main, ["job", "compact", "--topic", "t", *more])
    assert (done.exit_code, "give --to or --in-place" in done.stderr) == (2, True)


def test_a_job_of_a_server_that_is_not_there() -> None:
    """Said before Spark is started."""
    arguments = ["job", "compact", "--topic", "t", "--to", "x", "--url", "ftp://nowhere"]
    done = CliRunner().invoke(main, arguments)
    assert done.exit_code == 2
    assert "ftp://nowhere" in done.stderr


def test_the_last_line_of_a_trace() -> None:
    """Our own line, wherever Spark put it; else the first."""
    trace = "[STREAM_FAILED] Query\n  File x\ntopics.spark.errors.SparkFailure: it is lost\nJVM stacktrace"
    assert last_line(ValueError(trace)) == "it is lost"
    assert last_line(ValueError("[X] first\nsecond")) == "[X] first"
    assert last_line(ValueError()) == "ValueError"
