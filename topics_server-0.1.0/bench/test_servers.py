"""A short version of `python -m bench.servers`."""

from click.testing import CliRunner

from bench.servers import main


def test_every_server_appends() -> None:
    """All four answer, and each has its row."""
    done = CliRunner().invoke(main, ["--requests", "3", "--rounds", "1"], catch_exceptions=False)

    rows = [line.split(" | ")[0].strip("| ") for line in done.output.splitlines() if "µs" in line]
    assert rows == ["topics serve", "topics serve --server hypercorn", "uvicorn", "granian"]
