"""What `deploy/` tells other programs about the server is true of the server."""

import configparser
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from server.exchange.test_exchange import Desk

from topics.cli.exits import CORRUPT, UNUSABLE
from topics.settings import TABLE

DEPLOY = Path(__file__).parent.parent / "deploy"
METRIC = re.compile(r"\b((?:topics|process)_[a-z_]+)\b")
SETTINGS = {setting.env for setting in TABLE}


@pytest.fixture(scope="module")
def scraped() -> set[str]:
    """The names of all samples of a server."""
    desk = Desk()
    desk.ask("PUT", "/v0/topics/a", {})
    text = b"".join(desk.ask("GET", "/v0/metrics").body).decode()
    names = set()
    for line in text.splitlines():
        if line.startswith("# TYPE "):
            _, _, name, kind = line.split(" ")
            suffixes = ("_bucket", "_sum", "_count") if kind == "histogram" else ("",)
            names |= {name + suffix for suffix in suffixes}
    return names


def dashboard() -> dict[str, Any]:
    found = json.loads((DEPLOY / "grafana-dashboard.json").read_text())
    assert isinstance(found, dict)
    return found


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
    asked = [t["expr"] for p in dashboard()["panels"] for t in p.get("targets", ())]
    named = {name for expression in asked for name in METRIC.findall(expression)}

    assert len(named) > 20
    assert named - scraped == set()


def test_the_dashboard_s_panels_do_not_overlap() -> None:
    """On Grafana's grid of 24 columns; each has an id of its own."""
    panels = dashboard()["panels"]
    cells = [
        (x, y)
        for place in (panel["gridPos"] for panel in panels)
        for x in range(place["x"], place["x"] + place["w"])
        for y in range(place["y"], place["y"] + place["h"])
    ]

    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in panels}) == len(panels)


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


def test_the_queries_are_promql() -> None:
    """Those of the alerts and of the dashboard, by a parser, where one is installed."""
    promql = pytest.importorskip("promql_parser")
    shown = [t["expr"] for p in dashboard()["panels"] for t in p.get("targets", ())]
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
    """In the unit and in the image."""
    for name in ("topics.service", "Dockerfile", "compose.yaml", "kubernetes.yaml"):
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


def test_kubernetes_takes_its_file() -> None:
    """By its own schemas, where kubernetes-validate is installed."""
    schemas = pytest.importorskip("kubernetes_validate")

    for resource in yaml.safe_load_all((DEPLOY / "kubernetes.yaml").read_text()):
        schemas.validate(resource, schemas.latest_version(), strict=True)
