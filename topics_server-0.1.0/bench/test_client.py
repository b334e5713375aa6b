"""The Python client over sockets, as a benchmark that is short enough to run with the others."""

from pathlib import Path

import pytest

from bench.client import JOBS, Job, run_job
from bench.serving import serve_topics


@pytest.mark.parametrize("job", JOBS, ids=[job.name for job in JOBS])
def test_client(job: Job, tmp_path: Path) -> None:
    """Each row of `bench.client` runs; its figures are those of `python -m bench.client`."""
    with serve_topics(tmp_path / "server") as serving:
        row = run_job(job, serving, rounds=1, scale=0.02)

    assert row.startswith(f"{job.name} | ")
