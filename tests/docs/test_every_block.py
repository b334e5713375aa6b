"""Each block of the pages is run by a test, or stands here with the reason why it is not."""

from typing import Final

from .blocks import Block, blocks
from .test_python import PROGRAMS
from .test_shell import SCRIPTS

ELSEWHERE: Final = {
    ("README.md", "$ "): "test_docs.py sends each request; test_newcomer.py types them",
    ("README.md", "make serve"): "test_newcomer.py",
    (
        "README.md",
        "make demo",
    ): "test_docs.py: each is a target; .ci/run calls demo, test-spark, lint",
    ("api.md", "$ curl"): "test_docs.py sends each request",
    ("arrow.md", "import topics.arrow"): "test_python.py",
    ("arrow.md", "from topics.arrow import scan"): "test_python.py",
    ("arrow.md", "import duckdb, polars"): "test_python.py, where those are installed",
    ("backup.md", "topics restore"): "test_shell.py",
    ("backup.md", "topics inspect DATA_DIR --repair"): "test_shell.py",
    ("cli.md", "printf"): "test_docs.py",
    ("cli.md", "[default]"): "test_shell.py",
    ("cli.md", "$ TOPICS_PORT=4001 topics settings"): "test_docs.py",
    ("client.md", "from topics import Client"): "test_docs.py",
    (
        "client.md",
        'with client.producer("jobs")',
    ): "test_docs.py, and its second part test_python.py",
    ("client.md", "async def resize(job)"): "test_python.py",
    ("client.md", "def test_jobs_expire"): "test_python.py",
    ("client.md", 'client = Client("http://topics.test"'): "test_python.py",
    ("cluster.md", "TOPICS_CLUSTER_KAFKA="): "tests/test_deploy.py finds it in deploy/cluster.env",
    ("cluster.md", "security.protocol="): "tests/server/cluster/kafka/test_settings.py",
    ("export.md", "printf"): "test_docs.py",
    ("export.md", "import "): "test_docs.py, where the library is installed",
    ("export.md", '{"id": "int64"'): "test_python.py",
    ("proxies.md", "# WebSocket is the only"): "tests/contract/test_proxy.py, with nginx",
    ("proxies.md", ":80 {"): "tests/contract/test_proxy.py, with Caddy",
    ("queues.md", "$ curl"): "test_docs.py sends each request",
    ("testing.md", "from topics import Record"): "test_python.py",
    ("testing.md", "def test_"): "test_python.py",
    ("tutorial.md", "$ "): "test_docs.py types each command",
    ("upgrade.md", "systemctl stop topics"): "test_shell.py",
    ("watching.md", "import json"): "test_docs.py",
    ("watching.md", '{"op": "subscribe"'): "test_python.py",
}
"""By page and first words: which test runs it; the name of a file without a path is one of `tests`."""

NOT_RUN: Final = {
    ("api.md", '{"step_ms":10000'): "an answer, shortened; tests/contract/test_openapi.py",
    ("api.md", '{"enabled":false'): "an answer; tests/contract/test_openapi.py, test_examples.py",
    ("cluster.md", "make cluster"): "goes on until interrupted; tests/server/cluster/test_node.py",
    ("cluster.md", "python3 -m venv"): "installs packages; deploy/try_dist.sh does that",
    ("cluster.md", "topics cluster status"): "needs systemd and three machines; tests/killed stops "
    "and starts nodes",
    (
        "cluster.md",
        "docker build",
    ): "needs Docker and Kubernetes; tests/test_deploy.py holds the file",
    ("cluster.md", "docker compose"): "needs Docker; tests/test_deploy.py holds the file",
    (
        "cluster.md",
        "systemctl stop topics",
    ): "needs a service; tests/server/cluster/test_adoption.py",
    ("README.md", 'spark.read.format("topics")'): "needs a JVM; tests/spark reads so",
    ("cli.md", "topics serve"): "the list of commands, half of which do not end; test_shell.py "
    "holds each line against the options that there are",
    (
        "cli.md",
        "topics watch jobs audit --tail",
    ): "goes on until interrupted; tests/cli/test_watch.py",
    ("cli.md", "topics work jobs -- ./resize"): "goes on until interrupted; tests/cli/test_work.py",
    ("cli.md", "topics job sessions"): "needs a JVM; tests/spark",
    ("cli.md", "$ topics backup --data-dir"): "figures of a directory of ten million records; "
    "tests/cli/test_backup.py compares the words",
    ("cli.md", "orders"): "a tree of routers; tests/cli/test_routers.py draws it",
    (
        "export.md",
        "4,750,511 records",
    ): "figures of a large topic; tests/cli/test_export_progress.py",
    ("export.md", "lake/orders/date="): "paths; tests/export holds their form",
    ("export.md", "orders = spark.read.parquet"): "needs a JVM",
    (
        "export.md",
        "topics export orders --to lake --then-delete",
    ): "needs readers that keep cursors; tests/cli/test_export_delete.py",
    (
        "export.md",
        "topics export orders --to lake --path topics-data",
    ): "needs a JVM; tests/spark/test_variant.py",
    ("operations.md", "export TOPICS_DATA_DIR"): "servers that do not end; tests/contract runs the "
    "contract over them",
    ("backup.md", "17 * * * *"): "lines of a crontab",
    ("security.md", "$ topics keys new"): "a secret, new each time; tests/cli/test_keys.py",
    ("spark.md", "pip install"): "installs packages",
    ("spark.md", "from topics.spark import session"): "needs a JVM; tests/spark",
    ("spark.md", 'spark.read.format("topics")'): "needs a JVM; tests/spark",
    ("spark.md", "query = (spark.readStream"): "needs a JVM; tests/spark",
    ("spark.md", "(frame.selectExpr"): "needs a JVM; tests/spark",
    ("spark.md", "topics job sessions"): "needs a JVM; tests/spark",
    ("spark.md", "def fan_out(rows, batch)"): "needs a JVM; tests/spark/test_writing.py",
    ("spark.md", "def work(rows, batch)"): "needs a JVM; tests/spark/test_connect.py",
    ("watching.md", "const answer = await fetch"): "a browser's; the page of tests/browser does so",
    (
        "watching.md",
        "$ curl -N",
    ): "a session's own name; test_docs.py reads the stream of README.md",
    ("watching.md", '{"op":"subscribed"'): "shortened answers; tests/contract/test_ws.py",
}
"""By page and first words: why nothing runs it."""


def keys_of(block: Block) -> list[tuple[str, str]]:
    """The rows of all tables that are of a block; the longest words count where some are longer."""
    rows = [*PROGRAMS, *SCRIPTS, *ELSEWHERE, *NOT_RUN]
    found = [row for row in rows if row[0] == block.page and block.first.startswith(row[1])]
    longest = max((len(words) for _, words in found), default=0)
    return [row for row in found if len(row[1]) == longest]


def test_every_block_has_its_row() -> None:
    """None is forgotten, and none is in two tables."""
    wrong = [
        (block.page, block.first, len(keys_of(block)))
        for block in blocks()
        if len(keys_of(block)) != 1
    ]

    assert wrong == []


def test_every_row_has_its_block() -> None:
    """None is left over from a block that went or changed."""
    used = {key for block in blocks() for key in keys_of(block)}

    assert {*PROGRAMS, *SCRIPTS, *ELSEWHERE, *NOT_RUN} - used == set()
