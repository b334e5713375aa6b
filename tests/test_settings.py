"""What a server can be told, by whom, and what it refuses."""

from dataclasses import fields
from pathlib import Path

import pytest

from topics.protocol.model.limits import Limits
from topics.settings import TABLE, BadSetting, Origin, Settings, is_loopback, load, shown

CONTRACT_DEFAULTS = {
    "TOPICS_HOST": "127.0.0.1",
    "TOPICS_PORT": 4000,
    "TOPICS_DATA_DIR": Path("topics-data"),
    "TOPICS_MAX_BODY_BYTES": 67_108_864,
    "TOPICS_MAX_BATCH_RECORDS": 10_000,
    "TOPICS_MAX_RECORD_BYTES": 1_048_576,
    "TOPICS_MAX_META_BYTES": 16_384,
    "TOPICS_MAX_TAG_BYTES": 256,
    "TOPICS_MAX_NODE_BYTES": 128,
    "TOPICS_MAX_LIMIT": 1000,
    "TOPICS_MAX_WATCH_TOPICS": 256,
    "TOPICS_MAX_CLAIM": 1000,
    "TOPICS_MAX_TOPICS": 100_000,
    "TOPICS_MAX_ROUTERS": 10_000,
    "TOPICS_MAX_SCHEDULES": 10_000,
    "TOPICS_MAX_WATCH_SESSIONS": 10_000,
    "TOPICS_MAX_SSE_CONNECTIONS": 10_000,
    "TOPICS_MAX_SSE_CONNECTIONS_PER_KEY": 1000,
    "TOPICS_MAX_INFLIGHT_PER_KEY": 1000,
    "TOPICS_MAX_TOTAL_BYTES": 0,
}


def test_contract_defaults() -> None:
    """Every variable of the contract exists, with the contract's default. (§2, §3, §11)"""
    defaults = {setting.env: setting.default for setting in TABLE}

    assert CONTRACT_DEFAULTS.items() <= defaults.items()


def test_defaults_are_those_of_the_core() -> None:
    """A server told nothing has the limits of a core told nothing. (§11)"""
    assert load({}).limits == Limits()


@pytest.mark.parametrize("name", [f.name for f in fields(Limits)])
def test_every_limit_can_be_set(name: str) -> None:
    """Each limit of the core follows its own variable, and no other. (§11)"""
    env = "TOPICS_HOT_MAX_BYTES" if name == "max_hot_bytes" else f"TOPICS_{name.upper()}"
    is_large = name.endswith(("bytes", "memory")) and "tag" not in name and "node" not in name
    value = 64 << 20 if is_large else 77

    limits = load({env: str(value)}).limits

    changed = {f.name for f in fields(Limits) if getattr(limits, f.name) != f.default}
    assert getattr(limits, name) == value
    assert changed <= {name}


@pytest.mark.parametrize("setting", TABLE, ids=lambda s: s.name)
def test_a_row_tells_all(setting) -> None:  # type: ignore[no-untyped-def]
    """Each row has a variable, an option, a group and a line of help; its default is in bounds."""
    assert setting.env == "TOPICS_" + setting.name.upper()
    assert setting.option == "--" + setting.name.replace("_", "-")
    assert setting.help.endswith(".")
    assert len(setting.help) < 80
    if isinstance(setting.default, int) and not setting.is_flag:
        assert setting.parse(str(setting.default)) == setting.default


def test_an_option_wins_over_the_environment() -> None:
    """An option wins over the environment, which wins over the default; each is remembered."""
    settings = load(
        {"TOPICS_PORT": "5000", "TOPICS_HOST": "localhost"}, {"port": "6000", "data_dir": None}
    )

    assert (settings.port, settings.host) == (6000, "localhost")
    assert settings.origin("port") is Origin.OPTION
    assert settings.origin("host") is Origin.ENVIRONMENT
    assert settings.origin("data_dir") is Origin.DEFAULT


def test_an_empty_variable_is_not_set() -> None:
    """`TOPICS_PORT=` is what a deployment writes that leaves the default. (§0.2)"""
    settings = load({setting.env: "" for setting in TABLE})

    assert settings == Settings()


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ("TOPICS_PORT", "http"),
        ("TOPICS_PORT", "65536"),
        ("TOPICS_PORT", "-1"),
        ("TOPICS_PORT", "4000.0"),
        ("TOPICS_PORT", "4_000"),
        ("TOPICS_PORT", "٤٠٠٠"),
        ("TOPICS_MAX_BODY_BYTES", "0"),
        ("TOPICS_MAX_BODY_BYTES", "64MB"),
        ("TOPICS_MAX_TOPICS", "-5"),
        ("TOPICS_MAX_TOTAL_BYTES", str(2**64)),
        ("TOPICS_MAX_TOTAL_BYTES", "9" * 5000),
        ("TOPICS_FLUSH_MS", "0"),
        ("TOPICS_PROBE_AUTH", "maybe"),
        ("TOPICS_HANDLING", "loose"),
        ("TOPICS_ALLOW_INSECURE_NO_AUTH", "2"),
        ("TOPICS_LOG_FORMAT", "xml"),
        ("TOPICS_HOST", "http://localhost"),
        ("TOPICS_HOST", " "),
        ("TOPICS_DATA_DIR", "a\0b"),
        ("TOPICS_ALLOWED_ORIGINS", "rubbish"),
        ("TOPICS_ALLOWED_ORIGINS", "*"),
        ("TOPICS_ALLOWED_ORIGINS", "https://a.test,b.test"),
        ("TOPICS_ALLOWED_ORIGINS", "https://a.test/"),
        ("TOPICS_ALLOWED_ORIGINS", "https://*.a.test"),
        ("TOPICS_ALLOWED_ORIGINS", "https://a.test:"),
        ("TOPICS_ALLOWED_ORIGINS", "https://bücher.test"),
        ("TOPICS_ALLOWED_ORIGINS", "https://a.test https://b.test"),
        ("TOPICS_ALLOWED_HOSTS", "https://a.test"),
        ("TOPICS_ALLOWED_HOSTS", "a.test/x"),
        ("TOPICS_ALLOWED_HOSTS", "*"),
        ("TOPICS_ALLOWED_HOSTS", "::1"),
        ("TOPICS_ALLOWED_HOSTS", "a.test b.test"),
        ("TOPICS_KAFKA_ADVERTISED", "kafka.test"),
        ("TOPICS_KAFKA_ADVERTISED", ":9092"),
        ("TOPICS_KAFKA_ADVERTISED", "kafka.test:0"),
        ("TOPICS_KAFKA_ADVERTISED", "0.0.0.0:9092"),
        ("TOPICS_KAFKA_ADVERTISED", "[::]:9092"),
        ("TOPICS_KAFKA_PORT", "0"),
    ],
)
def test_a_bad_value_names_its_variable(env: str, text: str) -> None:
    """A value that does not parse or is out of bounds refuses to start, naming it in one line."""
    with pytest.raises(BadSetting) as refused:
        load({env: text})

    message = str(refused.value)
    assert message.startswith(f"{env} must be ")
    assert "\n" not in message
    assert len(message) < 200


def test_a_bad_option_names_its_option() -> None:
    """The message names what the user typed."""
    with pytest.raises(
        BadSetting, match=r"^--port must be a whole number from 0 to 65535, not 'x'"
    ):
        load({"TOPICS_PORT": "1"}, {"port": "x"})


@pytest.mark.parametrize(
    ("text", "value"),
    [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("False", False)],
)
def test_flags(text: str, value: bool) -> None:
    """A flag may be spelled as a number or a word."""
    assert load({"TOPICS_PROBE_AUTH": text}).probe_auth is value


def test_lists_are_comma_separated() -> None:
    """Origins and hosts are lists; spaces and empty entries do not count."""
    settings = load({"TOPICS_ALLOWED_ORIGINS": " https://a.test , https://b.test,,"})

    assert settings.allowed_origins == ("https://a.test", "https://b.test")


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ("TOPICS_ALLOWED_ORIGINS", "HTTPS://A.test:8443"),
        ("TOPICS_ALLOWED_ORIGINS", "http://localhost:3000,http://127.0.0.1,http://[::1]:80"),
        ("TOPICS_ALLOWED_ORIGINS", "chrome-extension://abcdefgh"),
        ("TOPICS_ALLOWED_ORIGINS", "null"),
        ("TOPICS_ALLOWED_HOSTS", "a.test,a_b.test:4000,192.168.1.7,[fe80::1],[::1]:4000"),
    ],
)
def test_what_a_request_can_carry_is_allowed(env: str, text: str) -> None:
    """Origins and hosts as they stand in a header, whatever their case."""
    assert ",".join(getattr(load({env: text}), env.removeprefix("TOPICS_").lower())) == text


@pytest.mark.parametrize("name", [s.name for s in TABLE if not s.is_flag])
def test_an_empty_option_is_refused(name: str) -> None:
    """`--data-dir "$UNSET"` is a mistake; it neither means `.` nor goes unnoticed."""
    with pytest.raises(BadSetting, match=f"^--{name.replace('_', '-')} is empty"):
        load({}, {name: ""})


def test_a_misspelt_variable_is_told() -> None:
    """What looks like a setting and is none is told in one line, with what may have been meant."""
    environ = {
        "TOPICS_DATADIR": "/srv",
        "TOPICS_MAX_BODY_BYTE": "7",
        "TOPICS_COLOUR": "red",
        "TOPICS_EMPTY": "",
        "TOPICS_URL": "http://x.test",
        "TOPICS_API_KEY": "k",
        "TOPICS_JOB_SEQ": "7",
        "TOPICS_PORT": "4001",
        "TOPIC_PORT": "4002",
    }

    settings = load(environ)

    assert settings.notes == (
        "in the environment, but no setting: TOPICS_COLOUR, "
        "TOPICS_DATADIR (is it TOPICS_DATA_DIR?), "
        "TOPICS_MAX_BODY_BYTE (is it TOPICS_MAX_BODY_BYTES?)",
    )
    assert settings == load({"TOPICS_PORT": "4001"})
    assert load({"TOPICS_PORT": "4001"}).notes == ()


LINKS = {
    # Kubernetes, of Services called `topics` and `topics-nodes`.
    "TOPICS_PORT": "tcp://10.43.0.7:4000",
    "TOPICS_PORT_4000_TCP": "tcp://10.43.0.7:4000",
    "TOPICS_PORT_4000_TCP_ADDR": "10.43.0.7",
    "TOPICS_PORT_4000_TCP_PORT": "4000",
    "TOPICS_PORT_4000_TCP_PROTO": "tcp",
    "TOPICS_SERVICE_HOST": "10.43.0.7",
    "TOPICS_SERVICE_PORT": "4000",
    "TOPICS_SERVICE_PORT_HTTP": "4000",
    "TOPICS_NODES_PORT": "tcp://10.43.0.8:4000",
    "TOPICS_NODES_SERVICE_PORT": "4000",
    # A link of Docker.
    "TOPICS_NAME": "/web/topics",
    "TOPICS_ENV_PATH": "/usr/bin",
}


def test_what_an_orchestrator_makes_is_passed_over() -> None:
    """A service called `topics` is told to each pod in variables that look like settings: they are
    none, and one warning names them all."""
    settings = load({**LINKS, "TOPICS_HOST": "localhost"})

    assert settings == load({"TOPICS_HOST": "localhost"})
    (note,) = settings.notes
    assert all(name in note for name in LINKS)
    assert "enableServiceLinks" in note


def test_a_port_that_is_no_number_is_still_refused() -> None:
    """Only what an orchestrator writes is passed over, and in the environment alone."""
    for text in ("http://10.43.0.7:4000", "10.43.0.7:4000", "4000/tcp"):
        with pytest.raises(BadSetting, match="TOPICS_PORT"):
            load({"TOPICS_PORT": text})
    with pytest.raises(BadSetting, match="--port"):
        load({}, {"port": LINKS["TOPICS_PORT"]})


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "[::]", "192.168.1.7", "topics.example.com"])
def test_beyond_loopback_needs_a_word(host: str) -> None:
    """Without keys, a public bind is refused unless it is explicitly allowed. (§0.2)"""
    with pytest.raises(BadSetting, match="TOPICS_ALLOW_INSECURE_NO_AUTH=1"):
        load({"TOPICS_HOST": host})
    with pytest.raises(BadSetting):
        load({"TOPICS_HOST": host, "TOPICS_ALLOW_INSECURE_NO_AUTH": "0"})

    allowed = load({"TOPICS_HOST": host, "TOPICS_ALLOW_INSECURE_NO_AUTH": "1"})

    assert allowed.host == host.strip("[]")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "127.8.8.8", "localhost", "LOCALHOST", "::1", "[::1]"]
)
def test_loopback_is_open(host: str) -> None:
    """Loopback without keys stays usable. (§0.2)"""
    assert is_loopback(load({"TOPICS_HOST": host}).host)


@pytest.mark.parametrize("name", ["TOPICS_API_KEYS", "TOPICS_API_KEYS_FILE"])
def test_a_server_with_keys_may_listen_anywhere(name: str) -> None:
    """Beyond loopback there are keys, or the operator's word that there need be none. (§0.2)"""
    assert load({"TOPICS_HOST": "0.0.0.0", name: "hush-77"}).host == "0.0.0.0"
    with pytest.raises(BadSetting, match="there are no API keys"):
        load({"TOPICS_HOST": "0.0.0.0", name: ""})


def test_a_port_for_kafkas_clients_needs_them_served() -> None:
    """And is another than that of both faces. (§7)"""
    with pytest.raises(BadSetting, match="TOPICS_KAFKA=0"):
        load({"TOPICS_KAFKA_PORT": "9092", "TOPICS_KAFKA": "0"})
    with pytest.raises(BadSetting, match="leave it out"):
        load({"TOPICS_KAFKA_PORT": "4000"})
    given = load({"TOPICS_KAFKA_PORT": "9092", "TOPICS_KAFKA_ADVERTISED": "[2001:db8::1]:9092"})
    assert (given.kafka_port, given.kafka_advertised) == (9092, "2001:db8::1:9092")


def test_an_unsafe_combination_cannot_be_built() -> None:
    """The refusal holds for whoever builds settings, not for one way of loading them. (§0.2)"""
    with pytest.raises(BadSetting):
        Settings(host="0.0.0.0")


def test_secrets_are_not_shown() -> None:
    """A secret says only whether it is set, in print and in repr."""
    row = next(setting for setting in TABLE if setting.name == "api_keys")
    holder = object.__new__(Settings)
    object.__setattr__(holder, "api_keys", "hush-77")

    assert shown(row, holder) == "(set)"
    assert "api_keys=" not in repr(Settings())


def test_shown_values_load_again() -> None:
    """What is printed, set as a variable, gives the same settings."""
    environ = {
        "TOPICS_PORT": "0",
        "TOPICS_PROBE_AUTH": "yes",
        "TOPICS_ALLOWED_HOSTS": "a.test,b.test",
        "TOPICS_PORT_FILE": "/run/port",
    }
    settings = load(environ)

    again = load({setting.env: shown(setting, settings) for setting in TABLE})

    assert again == settings


@pytest.mark.parametrize(("is_terminal", "log_format"), [(True, "text"), (False, "json")])
def test_people_read_text(is_terminal: bool, log_format: str) -> None:
    """The log is text on a terminal and JSON otherwise, unless told."""
    assert load({}, is_terminal=is_terminal).log_format == log_format
    assert load({"TOPICS_LOG_FORMAT": "json"}, is_terminal=is_terminal).log_format == "json"


# ---------------------------------------------------------------------- a node of a cluster

NODE = {"TOPICS_CLUSTER_KAFKA": "k1:9092,k2:9092", "TOPICS_CLUSTER_URL": "http://n1:4000/"}


@pytest.fixture
def with_kafka(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka's client is installed, as far as the settings look."""
    monkeypatch.setattr("topics.settings.find_spec", lambda name: object())


@pytest.mark.usefixtures("with_kafka")
def test_a_node_has_the_settings_of_its_cluster() -> None:
    """Their defaults are for three brokers."""
    settings = load(NODE)

    assert (settings.cluster_kafka, settings.cluster_url) == ("k1:9092,k2:9092", "http://n1:4000")
    assert (settings.cluster_name, settings.cluster_shards) == ("topics", 1)
    assert (settings.cluster_replication, settings.cluster_min_isr) == (3, 2)
    assert settings.notes == ()


IMPOSSIBLE = [
    ({"TOPICS_CLUSTER_KAFKA": "k1"}, "host:port"),
    ({"TOPICS_CLUSTER_KAFKA": "k1:9092;k2:9092"}, "host:port"),
    ({"TOPICS_CLUSTER_NAME": "a/b"}, "a name of letters"),
    ({"TOPICS_CLUSTER_SHARDS": "2"}, "this version has one shard"),
    ({"TOPICS_CLUSTER_URL": "n1:4000"}, "an address without a path"),
    ({"TOPICS_CLUSTER_URL": "http://n1:4000/topics"}, "an address without a path"),
    ({"TOPICS_CLUSTER_MIN_ISR": "4"}, "is more than TOPICS_CLUSTER_REPLICATION 3"),
    (
        {"TOPICS_CLUSTER_SESSION_MS": "300000", "TOPICS_CLUSTER_RETAIN_MS": "60000"},
        "is more than TOPICS_CLUSTER_RETAIN_MS",
    ),
    ({"TOPICS_READERS": "2"}, "start more nodes instead"),
    ({"TOPICS_CLUSTER_URL": "", "TOPICS_PORT": "0"}, "set TOPICS_CLUSTER_URL"),
    (
        {
            "TOPICS_CLUSTER_URL": "",
            "TOPICS_HOST": "0.0.0.0",
            "TOPICS_ALLOW_INSECURE_NO_AUTH": "1",
        },
        "set TOPICS_CLUSTER_URL",
    ),
]


@pytest.mark.usefixtures("with_kafka")
@pytest.mark.parametrize(("given", "what"), IMPOSSIBLE)
def test_what_cannot_be_a_node_is_refused(given: dict[str, str], what: str) -> None:
    """With a sentence that says what to change."""
    with pytest.raises(BadSetting, match=what):
        load(NODE | given)


def test_a_node_without_kafkas_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a server without a cluster does not look for it."""
    looked: list[str] = []
    monkeypatch.setattr("topics.settings.find_spec", looked.append)
    load({"TOPICS_CLUSTER_KAFKA": ""})
    assert looked == []

    with pytest.raises(BadSetting, match=r"pip install .*\[cluster\]"):
        load(NODE)
    assert looked == ["confluent_kafka"]


def test_settings_of_a_cluster_alone_are_told_to_have_no_effect() -> None:
    """The server starts, as one that is in no cluster."""
    (note,) = load({"TOPICS_CLUSTER_NAME": "orders", "TOPICS_CLUSTER_MIN_ISR": "1"}).notes
    assert note == (
        "without TOPICS_CLUSTER_KAFKA these have no effect: TOPICS_CLUSTER_NAME, "
        "TOPICS_CLUSTER_MIN_ISR"
    )


def test_a_misspelt_setting_of_a_cluster_is_told() -> None:
    (note,) = load({"TOPICS_CLUSTER_KAFFKA": "k1:9092"}).notes
    assert "TOPICS_CLUSTER_KAFFKA (is it TOPICS_CLUSTER_KAFKA?)" in note


@pytest.mark.parametrize(
    ("variable", "text", "shown"),
    [
        ("TOPICS_CLUSTER_URL", "http://ada:pass@h:1/x", "***@h:1/x"),
        ("TOPICS_CLUSTER_KAFKA", "ada:pass@a:1,bob:pass@b:1", "***@a:1,***@b:1"),
        ("TOPICS_ALLOWED_ORIGINS", "http://ada:p/ass@h", "***@h"),
        ("TOPICS_CLUSTER_NAME", "a@b", "a@b"),
    ],
)
def test_no_refusal_shows_a_password(variable: str, text: str, shown: str) -> None:
    """An address with one is none that a setting takes, and the message ends in a log. (§0.2)"""
    with pytest.raises(BadSetting) as refused:
        load({variable: text}, {}, is_terminal=False)

    assert str(refused.value).endswith(f", not {shown!r}")
