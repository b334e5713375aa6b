"""`topics settings`: every setting, its value, and who chose it."""

import json
from typing import Any

from topics.settings import TABLE


def test_config(run: Any) -> None:
    """`topics settings` prints every value and who chose it."""
    done = run("settings", "--data-dir", "/srv/t", "--probe-auth", TOPICS_PORT="5000")

    lines = {line.split()[0]: line.split()[1:] for line in done.stdout.splitlines() if line}
    assert done.exit_code == 0
    assert lines["TOPICS_PORT"] == ["5000", "environment"]
    assert lines["TOPICS_DATA_DIR"] == ["/srv/t", "option"]
    assert lines["TOPICS_PROBE_AUTH"] == ["1", "option"]
    assert lines["TOPICS_HOST"] == ["127.0.0.1", "default"]
    assert {setting.env for setting in TABLE} <= lines.keys()


def test_config_as_json(run: Any) -> None:
    """The same for programs, values as JSON values."""
    rows = json.loads(run("settings", "--json", "--no-probe-auth", "--port", "0").stdout)

    assert rows["port"] == {
        "value": 0,
        "origin": "option",
        "env": "TOPICS_PORT",
        "option": "--port",
    }
    assert rows["probe_auth"]["value"] is False
    assert rows["data_dir"]["value"] == "topics-data"
    assert rows["port_file"]["value"] is None


def test_config_tells_of_a_misspelt_variable(run: Any) -> None:
    """Beside the settings, and not among them."""
    done = run("settings", "--json", TOPICS_DATADIR="/srv")

    assert done.exit_code == 0
    assert "TOPICS_DATADIR (is it TOPICS_DATA_DIR?)" in done.stderr
    assert done.stderr.count("\n") == 1
    assert json.loads(done.stdout)["data_dir"]["origin"] == "default"
