"""What `deploy/` tells other programs about the server is true of the server."""

import configparser
import json
import re
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
import yaml
from contract.server import until
from docs.pages import find
from packaging.requirements import Requirement
from server.http.test_exchange import Desk

from tests import brokers
from tests.ports import unused_ports
from topics.cli.exits import CORRUPT, UNUSABLE
from topics.server.cluster.figures import HELP as OF_A_NODE
from topics.server.cluster.figures import ROLES
from topics.server.kafka.measures import KafkaMeasures
from topics.settings import TABLE

DEPLOY = Path(__file__).parent.parent / "deploy"
METRIC = re.compile(r"\b((?:topics|process)_[a-z_]+)\b")
SETTINGS = {setting.env for setting in TABLE}


@pytest.fixture(scope="module")
def scraped() -> set[str]:
    """The names of all samples of a server, with Kafka's clients, and of a node of a cluster."""
    desk = Desk()
    desk.ask("PUT", "/v0/topics/a", {})
    text = b"".join(desk.ask("GET", "/v0/metrics").body).decode()
    kinds = [line.split(" ")[2:] for line in text.splitlines() if line.startswith("# TYPE ")]
    kinds += [[each.name, each.kind] for each in KafkaMeasures().families()]
    names = set()
    for name, kind in kinds:
        suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
        names |= {name + suffix for suffix in suffixes}
    return names | {f"topics_cluster_{name}" for name, _, _ in OF_A_NODE}


def dashboard() -> dict[str, Any]:
    found = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    assert isinstance(found, dict)
    return found


def panels() -> list[dict[str, Any]]:
    """Of the dashboard, those of collapsed rows, too."""
    shown = dashboard()["panels"]
    return [panel for each in shown for panel in (each, *each.get("panels", ()))]


def alerts() -> list[dict[str, Any]]:
    found = yaml.safe_load((DEPLOY / "topics-alerts.yml").read_text())
    return [rule for group in found["groups"] for rule in group["rules"]]


def unit() -> configparser.ConfigParser:
    """The unit of systemd, whose keys may stand on several lines: the last is kept."""
    found = configparser.ConfigParser(strict=False, interpolation=None)
    found.optionxform = str  # type: ignore[assignment, method-assign]
    found.read(DEPLOY / "topics.service")
    return found


def test_the_dashboard_shows_metrics_that_there_are(scraped: set[str]) -> None:
    """A panel over a name that was changed would be empty, and nobody would see why."""
    asked = [t["expr"] for p in panels() for t in p.get("targets", ())]
    named = {name for expression in asked for name in METRIC.findall(expression)}

    assert len(named) > 20
    assert named - scraped == set()


def test_the_dashboard_s_panels_do_not_overlap() -> None:
    """On Grafana's grid of 24 columns; each has an id of its own."""
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels())
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels()}) == len(panels())


def paths(value: Any, at: str = "") -> set[str]:
    """Where each value of a JSON document stands, with the value."""
    if isinstance(value, dict):
        return {p for key, each in value.items() for p in paths(each, f"{at}.{key}")}
    if isinstance(value, list):
        return {p for i, each in enumerate(value) for p in paths(each, f"{at}[{i}]")}
    return {f"{at} = {value}"}


def test_grafana_takes_the_dashboard() -> None:
    """Its own types know every field, where its library is installed."""
    models = pytest.importorskip("grafana_foundation_sdk.models.dashboard")
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.cog.plugins import register_default_plugins

    register_default_plugins()
    understood = json.loads(JSONEncoder().encode(models.Dashboard.from_json(dashboard())))

    # What an editor shows of a query of a variable is in no type.
    lost = {p for p in paths(dashboard()) - paths(understood) if ".definition = " not in p}
    assert lost == set()


def test_the_alerts_ask_for_metrics_that_there_are(scraped: set[str]) -> None:
    """An alert over a name that was changed would never ring."""
    named = {name for rule in alerts() for name in METRIC.findall(rule["expr"])}

    assert len(named) > 8
    assert named - scraped == set()


def test_alerts_of_a_cluster_name_roles_that_there_are() -> None:
    """A role that is never told would never ring."""
    named = {role for rule in alerts() for role in re.findall(r'role="(\w+)"', rule["expr"])}

    assert named
    assert named - set(ROLES) == set()


def test_the_queries_are_promql() -> None:
    """Queries of the alerts and of the dashboard, by a parser, where one is installed."""
    promql = pytest.importorskip("promql_parser")
    shown = [t["expr"] for p in panels() for t in p.get("targets", ())]
    asked = [rule["expr"] for rule in alerts()]

    for expression in (*asked, *shown):
        promql.parse(re.sub(r"\$__\w+", "5m", expression))  # what Grafana puts in


def test_each_alert_says_what_it_means() -> None:
    """Its name, how bad it is, one line for whoever is woken."""
    for rule in alerts():
        assert rule["alert"].startswith("Topics")
        assert rule["labels"]["severity"] in ("warning", "critical")
        assert rule["annotations"]["summary"].endswith(".")


def test_prometheus_takes_its_files(tmp_path: Path) -> None:
    """By its own tool, where it is installed; the scrape names the right path."""
    scrape = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())

    assert scrape["scrape_configs"][0]["metrics_path"] == "/v0/metrics"
    assert [(DEPLOY / name).exists() for name in scrape["rule_files"]] == [True]
    if promtool := shutil.which("promtool"):
        for file in DEPLOY.glob("*.yml"):
            shutil.copy(file, tmp_path)
        asked = [promtool, "check", "config", str(tmp_path / "prometheus.yml")]
        subprocess.run(asked, check=True, capture_output=True)


def test_the_unit_does_not_restart_what_a_restart_does_not_help() -> None:
    """The exit codes of docs/operations.md."""
    service = unit()["Service"]

    assert service["RestartPreventExitStatus"] == f"{UNUSABLE} {CORRUPT}"
    assert int(service["TimeoutStopSec"]) > 20
    assert service["ExecReload"] == "/bin/kill -HUP $MAINPID"


def test_every_setting_that_is_named_exists() -> None:
    """In the unit, in the image, and where they are run."""
    for name in (
        "topics.service",
        "cluster.env",
        "Dockerfile",
        "compose.yaml",
        "compose-cluster.yaml",
        "kubernetes.yaml",
        "kubernetes-cluster.yaml",
    ):
        named = set(re.findall(r"\bTOPICS_[A-Z_]+", (DEPLOY / name).read_text()))
        assert named
        assert named - SETTINGS == set(), name


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    """By its own tool, where it is installed."""
    analyze = shutil.which("systemd-analyze")
    if analyze is None:
        pytest.skip("no systemd-analyze")
    text = (DEPLOY / "topics.service").read_text()
    (tmp_path / "topics.service").write_text(
        text.replace("/opt/topics/.venv/bin/topics", "/bin/true")
    )
    asked = [analyze, "verify", "--man=no", str(tmp_path / "topics.service")]
    found = subprocess.run(asked, capture_output=True, text=True)

    assert (found.returncode, found.stderr) == (0, "")


def test_the_image_runs_as_nobody_and_writes_one_directory() -> None:
    """Not root, and a volume for the data."""
    lines = (DEPLOY / "Dockerfile").read_text().splitlines()
    told = [line for line in lines if line and not line.startswith("#")]

    assert "USER 10001:10001" in told
    assert "VOLUME /data" in told
    assert told.index("USER 10001:10001") < told.index('CMD ["serve"]')


def locked(name: str) -> dict[str, list[tuple[Requirement, int]]]:
    """What a lock file installs, by name: each line's requirement, and how many digests it has."""
    found: dict[str, list[tuple[Requirement, int]]] = {}
    for entry in (DEPLOY / name).read_text().replace("\\\n", " ").splitlines():
        text, *digests = entry.split("--hash=sha256:")
        requirement = Requirement(text)
        found.setdefault(requirement.name, []).append((requirement, len(digests)))
    return found


def test_the_image_is_made_of_what_is_locked() -> None:
    """Each package by one version and its digests; the base by its version; nothing else is
    fetched."""
    text = (DEPLOY / "Dockerfile").read_text()
    commands = re.sub(r"#.*", "", text).replace("\\\n", " ")

    for install in re.findall(r"pip (?:install|wheel) ([^&\n]*)", commands):
        assert "--require-hashes" in install or "--no-deps" in install
    assert re.search(r"^ARG PYTHON=python:3\.\d+\.\d+-slim-\w+$", text, re.M)
    assert set(re.findall(r"^FROM (\S+)", text, re.M)) == {"${PYTHON}"}
    for name in ("image.lock", "build.lock"):
        for lines in locked(name).values():
            assert all(str(each.specifier).startswith("==") and digests for each, digests in lines)


def test_the_locks_are_of_what_the_project_asks_for() -> None:
    """`make lock` is due where a requirement was added, or its bounds moved."""
    project = tomllib.loads((DEPLOY.parent / "pyproject.toml").read_text())
    extras = project["project"]["optional-dependencies"]
    asked = [*project["project"]["dependencies"], *extras["server"], *extras["cluster"]]
    needed = {"image.lock": asked, "build.lock": project["build-system"]["requires"]}

    for name, requirements in needed.items():
        there = locked(name)
        for requirement in map(Requirement, requirements):
            if requirement.name != project["project"]["name"]:
                for each, _ in there[requirement.name]:
                    (version,) = (spec.version for spec in each.specifier)
                    assert requirement.specifier.contains(version), (name, str(requirement))


def test_hadolint_takes_the_image() -> None:
    """Where it is installed."""
    hadolint = shutil.which("hadolint") or shutil.which(
        "hadolint", path=str(Path(sys.executable).parent)
    )
    if hadolint is None:
        pytest.skip("no hadolint")
    found = subprocess.run([hadolint, str(DEPLOY / "Dockerfile")], capture_output=True, text=True)

    assert (found.returncode, found.stdout) == (0, "")


def image() -> dict[str, str]:
    """The variables of the image."""
    text = (DEPLOY / "Dockerfile").read_text()
    return dict(re.findall(r"\b(TOPICS_[A-Z_]+)=(\S+)", text))


def test_compose_names_files_and_ports_that_there_are() -> None:
    """What a container is given exists, and the server's ports are open to this machine only."""
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]

    mounted = [v for s in services.values() for v in s["volumes"] if v.startswith("./")]
    ports = [p for s in services.values() for p in s.get("ports", ())]
    variables = services["topics"]["environment"]

    assert [v for v in mounted if not (DEPLOY / v.split(":")[0]).is_file()] == []
    assert len(mounted) == 5
    assert ports
    assert all(port.startswith("127.0.0.1:") for port in ports)
    assert variables.keys() - SETTINGS == set()
    assert services["topics"]["volumes"] == [f"topics:{image()['TOPICS_DATA_DIR']}"]


def test_the_scrape_of_compose_is_the_scrape() -> None:
    """But for the server's name, by which the server lets itself be called."""
    ours = yaml.safe_load((DEPLOY / "compose-prometheus.yml").read_text())
    plain = yaml.safe_load((DEPLOY / "prometheus.yml").read_text())
    services = yaml.safe_load((DEPLOY / "compose.yaml").read_text())["services"]

    (job,) = ours["scrape_configs"]
    (target,) = job.pop("static_configs")[0]["targets"]
    del job["scrape_interval"], plain["scrape_configs"][0]["scrape_interval"]
    del plain["scrape_configs"][0]["static_configs"]

    assert ours == plain
    assert target.partition(":")[0] == services["topics"]["environment"]["TOPICS_ALLOWED_HOSTS"]


def test_kubernetes_runs_one_server_as_the_image_s_user() -> None:
    """A data directory has one process; probes ask what there is; a stop may take its time."""
    service, found = yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text())
    pod = found["spec"]["template"]["spec"]
    (server,) = pod["containers"]

    paths = {server[name]["httpGet"]["path"] for name in server if name.endswith("Probe")}
    desk = Desk()
    statuses = {desk.ask("GET", path).status for path in paths}

    assert (found["kind"], found["spec"]["replicas"]) == ("StatefulSet", 1)
    assert found["spec"]["serviceName"] == service["metadata"]["name"]
    assert found["spec"]["selector"]["matchLabels"] == service["spec"]["selector"]
    assert f"USER {pod['securityContext']['runAsUser']}:" in (DEPLOY / "Dockerfile").read_text()
    assert pod["terminationGracePeriodSeconds"] > 20
    assert paths == {"/v0/health", "/v0/ready"}
    assert statuses == {200}
    assert {each["name"] for each in server["env"]} - SETTINGS == set()
    mounts = {each["name"]: each["mountPath"] for each in server["volumeMounts"]}
    volumes = {each["name"] for each in pod["volumes"] + [
        claim["metadata"] for claim in found["spec"]["volumeClaimTemplates"]
    ]}  # fmt: skip
    assert mounts.keys() == volumes
    assert mounts["data"] == image()["TOPICS_DATA_DIR"]


@pytest.mark.parametrize("name", ["kubernetes.yaml", "kubernetes-cluster.yaml"])
def test_no_pod_is_told_of_its_own_service(name: str) -> None:
    """A Service called `topics` would be `TOPICS_PORT=tcp://…` in each pod."""
    for each in yaml.safe_load_all((DEPLOY / name).read_text()):
        if "template" in each["spec"]:
            assert each["spec"]["template"]["spec"]["enableServiceLinks"] is False


IN_THE_IMAGE = {"python", "topics", "sh"}
"""Commands of the image: python:slim has no procps, so no `kill`, and no `curl`."""


def test_commands_in_a_container_are_in_the_image() -> None:
    """What manifests and pages run in a container or a pod; each word before it is an option."""
    found = {
        word
        for page in (*DEPLOY.glob("*.y*ml"), *DEPLOY.parent.glob("docs/*.md"))
        for line in page.read_text().splitlines()
        if re.search(r"(kubectl|docker|compose) .*exec ", line)
        for word in re.findall(r" exec (?:-\S+ )*[\w-]+ (?:-- )?(\w+)", line)
    }

    assert found
    assert found - IN_THE_IMAGE == set()


def test_a_signal_is_sent_without_kill() -> None:
    """By the line that the manifest shows: it ends with what it is to do to process 1."""
    manifest = (DEPLOY / "kubernetes.yaml").read_text()
    (code,) = re.findall(r"python -c '(.*)'", manifest)
    done = subprocess.run(
        [sys.executable, "-c", f"import os; os.kill = print; {code}"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"1 {signal.SIGHUP!s}\n"
    assert code in (DEPLOY.parent / "docs" / "operations.md").read_text()


def test_kubernetes_runs_a_cluster_of_three() -> None:
    """Each pod has a name by which the others reach it, ready or not; clients reach those that are
    ready; one at a time may be taken away."""
    resources = list(yaml.safe_load_all((DEPLOY / "kubernetes-cluster.yaml").read_text()))
    nodes, clients, budget, found = resources
    pod = found["spec"]["template"]["spec"]
    (server,) = pod["containers"]
    variables = {each["name"]: each for each in server["env"]}
    labels = found["spec"]["selector"]["matchLabels"]
    (port,) = nodes["spec"]["ports"]

    assert (found["kind"], found["spec"]["replicas"]) == ("StatefulSet", 3)
    assert found["spec"]["serviceName"] == nodes["metadata"]["name"]
    assert nodes["spec"]["clusterIP"] == "None"
    assert nodes["spec"]["publishNotReadyAddresses"] is True
    assert "publishNotReadyAddresses" not in clients["spec"]
    assert labels == nodes["spec"]["selector"] == clients["spec"]["selector"]
    assert labels == budget["spec"]["selector"]["matchLabels"]
    assert labels == found["spec"]["template"]["metadata"]["labels"]
    assert budget["spec"]["maxUnavailable"] == 1
    pod_name = f"$({variables['POD_NAME']['name']})"
    url = f"http://{pod_name}.{nodes['metadata']['name']}:{port['port']}"
    assert variables["TOPICS_CLUSTER_URL"]["value"] == url
    # What is put into a value has to be defined before it.
    assert list(variables).index("POD_NAME") < list(variables).index("TOPICS_CLUSTER_URL")
    assert pod["terminationGracePeriodSeconds"] > 20
    assert server["livenessProbe"]["httpGet"]["path"] == "/v0/health"
    assert server["readinessProbe"]["httpGet"]["path"] == "/v0/ready"


def test_a_node_differs_from_a_single_server_by_its_cluster_alone() -> None:
    """On Kubernetes: user, probes, volumes and limits are the same in both files."""
    files = ("kubernetes.yaml", "kubernetes-cluster.yaml")
    single, node = (
        list(yaml.safe_load_all((DEPLOY / name).read_text()))[-1]["spec"] for name in files
    )
    for spec in (single, node):
        (server,) = spec["template"]["spec"]["containers"]
        server["env"] = [each for each in server["env"] if each["name"] == "TOPICS_API_KEYS_FILE"]
    del node["podManagementPolicy"], node["template"]["spec"]["affinity"]
    for name in ("replicas", "serviceName"):
        del single[name], node[name]

    assert node == single


def test_the_settings_of_a_node_are_those_of_the_page() -> None:
    """docs/cluster.md shows deploy/cluster.env but for its comments; the unit reads such a file."""
    block = find("cluster.md", "TOPICS_CLUSTER_KAFKA=").code.splitlines()
    lines = (DEPLOY / "cluster.env").read_text().splitlines()

    assert [line for line in lines if line and not line.startswith("#")] == block
    assert unit()["Service"]["EnvironmentFile"] == "-/etc/topics/env"


def test_the_image_can_be_a_node() -> None:
    """The same image runs a single server and a node."""
    assert "confluent-kafka" in locked("image.lock")


def test_compose_runs_three_nodes_over_one_broker() -> None:
    """The nodes call one another by the names of their services, which each lets itself be called."""
    services = yaml.safe_load((DEPLOY / "compose-cluster.yaml").read_text())["services"]
    broker = services.pop("kafka")["environment"]

    assert len(services) == 3
    for name, service in services.items():
        variables = service["environment"]
        assert variables.keys() - SETTINGS == set()
        assert variables["TOPICS_CLUSTER_URL"] == f"http://{name}:4000"
        assert set(variables["TOPICS_ALLOWED_HOSTS"].split(",")) == set(services)
        assert service["volumes"] == [f"{name}:{image()['TOPICS_DATA_DIR']}"]
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        kafka = variables["TOPICS_CLUSTER_KAFKA"]
        assert broker["KAFKA_ADVERTISED_LISTENERS"] == f"PLAINTEXT://{kafka}"
    assert len({port for service in services.values() for port in service["ports"]}) == 3


@pytest.mark.kafka
def test_a_broker_takes_the_settings_of_compose(tmp_path: Path) -> None:
    """Its image makes lines of them: KAFKA_LOG_DIRS is log.dirs.  With names and ports of this machine a
    broker starts with them."""
    try:
        brokers.java()
        brokers.jars()
    except brokers.NoBrokers as error:
        pytest.skip(str(error))
    services = yaml.safe_load((DEPLOY / "compose-cluster.yaml").read_text())["services"]
    given = services["kafka"]["environment"]
    del given["KAFKA_HEAP_OPTS"]  # is of the image's own script
    client, controller = unused_ports(2)
    lines = "".join(
        f"{name.removeprefix('KAFKA_').lower().replace('_', '.')}={value}\n"
        for name, value in given.items()
    )
    for theirs, ours in (
        ("kafka:9092", f"127.0.0.1:{client}"),
        ("kafka:9093", f"127.0.0.1:{controller}"),
        (":9092", f"127.0.0.1:{client}"),
        (":9093", f"127.0.0.1:{controller}"),
        ("/var/lib/kafka/data", str(tmp_path / "data")),
    ):
        lines = lines.replace(theirs, ours)
    broker = brokers.Broker(tmp_path / "broker", 1, client, lines)
    try:
        broker.format(uuid4().hex[:22])
        broker.start()
        until("a broker takes connections", broker.is_open)
    finally:
        broker.kill()


def test_haproxy_takes_its_configuration(tmp_path: Path) -> None:
    """Where it is installed, with names and a port of this machine."""
    haproxy = shutil.which("haproxy") or shutil.which("haproxy", path="/usr/sbin")
    if haproxy is None:
        pytest.skip("no haproxy")
    text = (DEPLOY / "haproxy.cfg").read_text().replace("bind :80 ", "bind 127.0.0.1:8080 ")
    (tmp_path / "haproxy.cfg").write_text(re.sub(r" [abc]:4000", " 127.0.0.1:4000", text))
    asked = [haproxy, "-c", "-q", "-f", str(tmp_path / "haproxy.cfg")]
    found = subprocess.run(asked, capture_output=True, text=True)

    assert (found.returncode, found.stderr) == (0, "")


@pytest.mark.parametrize("name", ["kubernetes.yaml", "kubernetes-cluster.yaml"])
def test_kubernetes_takes_its_file(name: str) -> None:
    """By its own schemas, where kubernetes-validate is installed."""
    schemas = pytest.importorskip("kubernetes_validate")

    for resource in yaml.safe_load_all((DEPLOY / name).read_text()):
        schemas.validate(resource, schemas.latest_version(), strict=True)
