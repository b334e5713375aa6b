"""What Spark imports: found without a call, and harmless where something is missing."""

import subprocess
import sys

import pyarrow as pa
import pytest

import pyspark_topics
from topics.spark.errors import SparkFailure
from topics.spark.source import TopicsDataSource


def run(code: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)


def test_spark_finds_it_by_its_name() -> None:
    """Every top-level module `pyspark_*` is looked at for this name."""
    assert pyspark_topics.DefaultSource is TopicsDataSource
    assert TopicsDataSource.name() == "topics"


def test_the_lookup_is_cheap() -> None:
    """Spark imports it in a process of its own, for every session: no pyarrow, no client."""
    done = run(
        "import pyspark.sql.datasource, sys; before = set(sys.modules); import pyspark_topics;"
        "print(*sorted({'pyarrow', 'httpx', 'msgspec', 'numpy'} & (set(sys.modules) - before)))"
    )
    assert (done.stdout, done.returncode) == ("\n", 0), done.stderr


def test_a_worker_without_pyarrow_says_what_to_do() -> None:
    """The module is found, so that the error is ours and not that there is no such format."""
    done = run(
        "import sys; sys.modules['pyarrow'] = None\n"
        "import pyspark_topics\n"
        "try:\n    pyspark_topics.DefaultSource({'path': '/d', 'subscribe': 't'}).schema()\n"
        "except RuntimeError as error:\n    print(error)"
    )
    assert done.stdout.startswith(f"the Python of Spark's workers, {sys.executable}: "), done.stderr
    assert "set PYSPARK_PYTHON to one with the extra `spark`" in done.stdout
    assert done.stdout.count("\n") == 1


def test_without_pyspark_nothing_breaks() -> None:
    """Other programs may import every module that they find."""
    done = run(
        "import sys; sys.modules['pyspark'] = None; import pyspark_topics;"
        "print(hasattr(pyspark_topics, 'DefaultSource'))"
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_an_engine_that_only_reads() -> None:
    """Sail names columns by types of Arrow; its tasks have no numbers to make keys of."""
    source = TopicsDataSource({"url": "http://127.0.0.1:9", "topic": "t"})

    with pytest.raises(SparkFailure, match="only Spark writes topics"):
        source.writer(pa.schema([("data", pa.string())]), overwrite=False)
