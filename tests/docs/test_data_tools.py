"""docs/data-tools.md: what Debezium posts is there once, and the DAG processes each record once."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from topics import Client

from .place import Place
from .programs import served, tools, write_files


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(tmp_path, tools()) as place:
        write_files("data-tools.md", place)
        yield place


def change(op: str, row: dict[str, Any], lsn: int) -> dict[str, Any]:
    """What Debezium's HTTP sink posts for a row of Postgres, without schemas."""
    source = {"connector": "postgresql", "name": "shop", "schema": "public", "table": "orders"}
    ends = {"before": row, "after": None} if op == "d" else {"before": None, "after": row}
    return {**ends, "source": {**source, "lsn": lsn}, "op": op, "ts_ms": 1}


def test_a_change_that_debezium_repeats_is_there_once(place: Place) -> None:
    """Rows of a snapshot have one place in the log of the database. (§0.8)"""
    sent = [
        change("r", {"id": 1, "total": 30}, 100),
        change("r", {"id": 2, "total": 12}, 100),
        change("u", {"id": 1, "total": 31}, 120),
        change("d", {"id": 1, "total": None}, 140),
    ]
    with served("changes:app", place) as url:
        for each in [*sent[:3], *sent[1:]]:
            assert httpx.post(url, json=each).status_code == 204
        assert httpx.post(url).status_code == 204  # a tombstone of Kafka

    with Client(place.environment["TOPICS_URL"]) as client:
        found = list(client.read("shop.public.orders", include_tags=True))
    assert [(r.tag, r.data["op"]) for r in found] == [
        ("1", "r"),
        ("2", "r"),
        ("1", "u"),
        ("1", "d"),
    ]


@pytest.mark.skipif(
    not os.environ.get("TOPICS_TESTS_AIRFLOW"), reason="TOPICS_TESTS_AIRFLOW=1 installs Airflow"
)
def test_the_dag_counts_each_record_once(place: Place) -> None:
    """Each run has the records since the last one; nothing new gives no second total."""
    venv = Path(__file__).parents[2] / "build" / "airflow"
    python = str(venv / "bin" / "python")
    if not Path(python).exists():
        subprocess.run([sys.executable, "-m", "venv", str(venv)], check=True)
    quiet = ["--quiet", "--disable-pip-version-check"]
    here = str(Path(__file__).parents[2])
    install = [python, "-m", "pip", "install", *quiet, "apache-airflow-task-sdk==1.3.2", "-e", here]
    subprocess.run(install, check=True)
    environment = {
        **place.environment,
        "AIRFLOW_HOME": str(place.folder / "airflow"),
        "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
        "AIRFLOW__CORE__DAGS_FOLDER": str(place.folder / "dags"),
    }

    def run(*words: str) -> None:
        done = subprocess.run(
            [python, *words], cwd=place.folder, env=environment, text=True,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout

    run("-m", "airflow", "db", "migrate")
    with Client(place.environment["TOPICS_URL"]) as client:
        for sales in ([30, 12], [5], []):
            for total in sales:
                client.append("dag-sales", {"shop": "berlin", "total": total})
            run("dags/daily_totals.py")
        found = [record.data for record in client.read("dag-totals")]
    assert found == [{"berlin": 42}, {"berlin": 5}], json.dumps(found)
