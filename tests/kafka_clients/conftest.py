"""A real server, and Kafka's clients as their users install them."""

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from contract.server import Server

HERE = Path(__file__).parent
BUILT = Path(__file__).parents[2] / "build" / "kafka-clients"
RUN_S = 120


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("server")).start() as made:
        yield made
        made.assert_log_is_quiet()


@pytest.fixture(scope="module")
def bootstrap(server: Server) -> str:
    return f"127.0.0.1:{server.port}"


@pytest.fixture
def http(server: Server) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}/v0/") as client:
        yield client


@pytest.fixture
def topic(request: pytest.FixtureRequest, bootstrap: str) -> str:
    """A topic of the test's own, which a client of Kafka's has made."""
    from confluent_kafka.admin import AdminClient, NewTopic

    name = f"t-{abs(hash(request.node.nodeid)):x}"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(30)
    return name


def run(*line: object, stdin: str = "", **environment: str) -> str:
    """What a program prints."""
    import os

    done = subprocess.run(
        [str(each) for each in line],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-2000:]
    return done.stdout


@pytest.fixture(scope="session")
def go() -> Callable[[str], Path]:
    """A program of Go, built once."""
    program = shutil.which("go")
    if program is None:
        pytest.skip("needs Go")
    sources = HERE / "programs" / "go"
    (BUILT / "go").mkdir(parents=True, exist_ok=True)
    names = ("franz", "sarama", "segment")
    done = subprocess.run(
        [program, "build", "-C", str(sources), "-o", str(BUILT / "go"), *(f"./{n}" for n in names)],
        capture_output=True,
        text=True,
        timeout=280,
        check=False,
    )
    if done.returncode:
        pytest.skip(f"the clients in Go cannot be built: {done.stderr.strip()[-200:]}")
    return lambda name: BUILT / "go" / name


@pytest.fixture(scope="session")
def kafkajs() -> Path:
    """A folder of modules that has kafkajs."""
    npm = shutil.which("npm")
    if npm is None:
        pytest.skip("needs Node")
    folder = BUILT / "js"
    if not (folder / "node_modules" / "kafkajs").exists():
        folder.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(
            [
                npm,
                "install",
                "--silent",
                "--no-audit",
                "--no-fund",
                "--prefix",
                folder,
                "kafkajs@2",
            ],
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        if done.returncode:
            pytest.skip(f"kafkajs cannot be had: {done.stderr.strip()[-200:]}")
    return folder / "node_modules"
