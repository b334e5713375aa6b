"""The harness of `bench.frameworks`, once and small, with the client's own worker."""

from pathlib import Path

from bench.frameworks.__main__ import measured, row
from bench.frameworks.contenders import CONTENDERS


def test_each_job_is_enqueued_and_started_once(tmp_path: Path) -> None:
    contender = CONTENDERS[0]
    assert contender.is_installed()

    found = measured(contender, tmp_path, 20)

    assert found.delays_ms.shape == (50,)
    assert found.delays_ms.min() > 0
    assert found.enqueued > 0
    assert found.started > 0
    assert row(contender, [found]).startswith("| topics.Client on topics | ")
