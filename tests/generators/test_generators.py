"""Clients that generators make of `/v0/openapi.json` (§8.5): generated, compiled, and used.

Each does the same on a server of its own (`programs`): it appends with tags, meta and a key, reads
by cursor and by tag, deletes, purges without a body, claims and acks a job, meets a tombstone and an
error, and prints what it saw.  What the document says is so held against what each generator
understands of it.  Slow, and from registries: runs where `TOPICS_TESTS_GENERATORS=1` asks for it.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import httpx
import pytest
from contract.server import Server

from . import tools
from .tools import run

pytestmark = [
    pytest.mark.skipif(
        "TOPICS_TESTS_GENERATORS" not in os.environ, reason="it installs generators of clients"
    ),
    pytest.mark.timeout(2 * tools.INSTALL_S),
]

PROGRAMS: Final = Path(__file__).parent / "programs"
SEEN: Final[dict[str, Any]] = {
    "seqs": [1, 2],
    "record": {
        "seq": 1,
        "tag": "eu.open",
        "node": "shop",
        "meta": {"from": ["web", {"a": 1}]},
        "data": {"order": 1, "lines": [1.5, None]},
    },
    "is_recent": True,
    "null_data": None,
    "loss": None,
    "matched": [1],
    "stable": [2],
    "deleted": 1,
    "purged": [True, 1],
    "job": {"seq": 1, "data": {"mail": 1}, "deliveries": 1},
    "acked": 1,
    "tombstone": [1, 2, "cap"],
    "filter": ["tag", "Glob", "eu.*"],
    "metrics": True,
    "error": [404, "topic_not_found"],
}
"""What each program prints, as JSON.  `null_data` is of a record that the test appends: clients that
leave out a field that is null cannot append it."""


class Workshop:
    """A folder in which one client is made.

    Attributes:
        document: The document, as the server sends it.
        url: Of that server.
    """

    def __init__(self, folder: Path, url: str) -> None:
        self.folder = folder
        self.url = url
        self.document = folder / "openapi.json"
        self.document.write_bytes(httpx.get(f"{url}/v0/openapi.json").content)

    def take(self, program: str) -> Path:
        """A program, copied to here."""
        return Path(shutil.copy(PROGRAMS / program, self.folder))

    def openapi_generator(self, name: str, into: str, *more: object) -> Path:
        """What one generator of openapi-generator makes."""
        line = ["java", "-XX:TieredStopAtLevel=1", "-jar", tools.openapi_generator(), "generate"]
        made = self.folder / into
        run([*line, "-g", name, "-i", self.document, "-o", made, *more], self.folder)
        return made

    def run_typescript(self, program: str) -> str:
        """Compile a program with what was generated below `client`, strictly, and run it."""
        self.take(f"{program}.ts")
        modules = tools.node_modules()
        (self.folder / "node_modules").symlink_to(modules)
        options = {
            **{"target": "es2022", "module": "commonjs", "moduleResolution": "node10"},
            **{"strict": True, "skipLibCheck": True, "outDir": "js", "rootDir": "."},
            **{"esModuleInterop": True, "lib": ["es2022", "dom"], "types": ["node"]},
        }
        project = {"compilerOptions": options, "include": ["*.ts"]}
        (self.folder / "tsconfig.json").write_text(json.dumps(project))
        run([modules / ".bin" / "tsc", "-p", "."], self.folder)
        return run(["node", f"js/{program}.js", self.url], self.folder)

    def run_go(self, program: str) -> str:
        """Compile a program with what was generated below `topics`, and run it."""
        self.take(f"{program}.go")
        needed = "".join(f"\t{each}\n" for each in tools.GO_MODULES)
        (self.folder / "go.mod").write_text(f"module try\n\ngo 1.24\n\nrequire (\n{needed})\n")
        run(["go", "mod", "tidy"], self.folder)
        run(["go", "build", "-o", "program", "."], self.folder)
        return run([self.folder / "program", self.url], self.folder)

    def run_python(self, program: str) -> str:
        """Compile what was generated, and run a program with it."""
        interpreter = tools.python() / "python"
        run([interpreter, "-m", "compileall", "-q", "."], self.folder)
        return run([interpreter, self.take(f"{program}.py"), self.url], self.folder)


def openapi_generator_go(shop: Workshop) -> str:
    package = "--additional-properties=packageName=topics,withGoMod=false"
    made = shop.openapi_generator("go", "topics", package)
    shutil.rmtree(made / "test")
    return shop.run_go("openapi_generator")


def openapi_generator_java(shop: Workshop) -> str:
    made = shop.openapi_generator("java", "client")
    libraries = tools.java_libraries(made / "pom.xml")
    sources = [*(made / "src" / "main").rglob("*.java"), shop.take("OpenapiGenerator.java")]
    run(
        ["javac", "-nowarn", "-proc:none", "-d", "classes", "-cp", libraries, *sources], shop.folder
    )
    line = ["java", "-cp", f"classes{os.pathsep}{libraries}", "OpenapiGenerator", shop.url]
    return run(line, shop.folder)


def openapi_generator_typescript_fetch(shop: Workshop) -> str:
    shop.openapi_generator("typescript-fetch", "client")
    return shop.run_typescript("typescript_fetch")


def openapi_generator_typescript_axios(shop: Workshop) -> str:
    shop.openapi_generator("typescript-axios", "client")
    return shop.run_typescript("typescript_axios")


def openapi_generator_python(shop: Workshop) -> str:
    made = shop.openapi_generator("python", "client")
    (made / "openapi_client").rename(shop.folder / "openapi_client")
    return shop.run_python("openapi_generator")


def oapi_codegen(shop: Workshop) -> str:
    (shop.folder / "topics").mkdir()
    line = [tools.go("oapi-codegen"), "-generate", "types,client", "-package", "topics"]
    run([*line, "-o", "topics/topics.go", shop.document], shop.folder)
    return shop.run_go("oapi_codegen")


def ogen(shop: Workshop) -> str:
    run([tools.go("ogen"), "--target", "topics", "--package", "topics", shop.document], shop.folder)
    return shop.run_go("ogen")


def openapi_typescript(shop: Workshop) -> str:
    command = tools.node_modules() / ".bin" / "openapi-typescript"
    run([command, shop.document, "-o", "client/schema.d.ts"], shop.folder)
    return shop.run_typescript("openapi_typescript")


def hey_api(shop: Workshop) -> str:
    command = tools.node_modules() / ".bin" / "openapi-ts"
    run([command, "-i", shop.document, "-o", "client"], shop.folder)
    return shop.run_typescript("hey_api")


def orval(shop: Workshop) -> str:
    command = tools.node_modules() / ".bin" / "orval"
    run([command, "--input", shop.document, "--output", "client/client.ts"], shop.folder)
    return shop.run_typescript("orval")


def openapi_python_client(shop: Workshop) -> str:
    command = [tools.python() / "openapi-python-client", "generate", "--meta", "none"]
    run([*command, "--path", shop.document, "--output-path", "topics_client"], shop.folder)
    return shop.run_python("openapi_python_client")


def datamodel_codegen(shop: Workshop) -> str:
    kind = ["--input-file-type", "openapi", "--output-model-type", "pydantic_v2.BaseModel"]
    command = [tools.python() / "datamodel-codegen", "--input", shop.document, *kind]
    run([*command, "--output", "topics_models.py"], shop.folder)
    return shop.run_python("datamodel_codegen")


GENERATORS: Final[tuple[Callable[[Workshop], str], ...]] = (
    openapi_generator_go,
    openapi_generator_java,
    openapi_generator_typescript_fetch,
    openapi_generator_typescript_axios,
    openapi_generator_python,
    oapi_codegen,
    ogen,
    openapi_typescript,
    hey_api,
    orval,
    openapi_python_client,
    datamodel_codegen,
)


@pytest.fixture
def shop(tmp_path: Path) -> Iterator[Workshop]:
    with Server(tmp_path / "server").start() as server:
        url = f"http://127.0.0.1:{server.port}"
        null = {"records": [{"data": None}]}
        httpx.post(f"{url}/v0/topics/given", json=null).raise_for_status()
        (tmp_path / "client").mkdir()
        yield Workshop(tmp_path / "client", url)


@pytest.mark.parametrize("make", GENERATORS, ids=lambda make: make.__name__)
def test_a_generated_client_works(make: Callable[[Workshop], str], shop: Workshop) -> None:
    """It is compiled, and what it does is what the contract says. (§1 to §5, §8.5, §10)"""
    try:
        printed = make(shop)
    except tools.Missing as missing:
        pytest.skip(str(missing))

    assert json.loads(printed) == SEEN
