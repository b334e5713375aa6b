"""The settings of a server and their origins.

Owns the one table of settings: a field of `Settings` is a row (name, type, default, bounds, help,
group), and the environment variables, the options of `topics serve`, the output of `topics settings`
and the limits of the core all follow from it.  An option wins over the environment, which wins over
the default.  Knows nothing of what a setting does, and never guesses: a value that does not parse,
or lies outside its bounds, is a `BadSetting`, and the server does not start.

Invariant: no `Settings` exists that would serve strangers without a key (§0.2).
"""

# `_row` is `dataclasses.field` with metadata, so it is no call made once and shared by mistake.
# ruff: noqa: RUF009

import re
from collections.abc import Callable, Mapping
from dataclasses import Field, dataclass, field, fields
from difflib import get_close_matches
from enum import Enum
from importlib.util import find_spec
from ipaddress import ip_address, ip_network
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from topics.distribution import install
from topics.protocol.model.limits import Limits
from topics.service_links import is_service_link

PREFIX: Final = "TOPICS_"
_PASSWORDS: Final = re.compile(r"[^/,\s]*:[^,\s]*@")
"""A user and password, also in one of several addresses."""
NOT_SETTINGS: Final = ("TOPICS_URL", "TOPICS_API_KEY", "TOPICS_PROFILE", "TOPICS_JOB_")
"""Variables of the client commands, and those that `topics work` sets for the commands it runs."""

U64_MAX: Final = 2**64 - 1
Value = str | int | bool | Path | tuple[str, ...] | None


class BadSetting(Exception):
    """A setting that is invalid: one line that names the variable or option (exit code 2)."""


class Origin(Enum):
    """Where a value comes from."""

    DEFAULT = "default"
    ENVIRONMENT = "environment"
    OPTION = "option"


@dataclass(frozen=True, slots=True)
class Setting:
    """One row of the table.

    Attributes:
        name: The field of `Settings`; the variable and the option are spelled from it.
        parse: Text to value; raises ValueError with what was expected.
        is_flag: Takes no value as an option (`--probe-auth`, `--no-probe-auth`).
        is_secret: Never shown, not in an error message either.
    """

    name: str
    group: str
    help: str
    default: Value
    parse: Callable[[str], Value]
    is_flag: bool = False
    is_secret: bool = False

    @property
    def env(self) -> str:
        return PREFIX + self.name.upper()

    @property
    def option(self) -> str:
        return "--" + self.name.replace("_", "-")


def _integer(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        digits = text.strip()
        is_number = digits.isascii() and digits.isdigit() and len(digits) <= 20
        if not (is_number and least <= int(digits) <= most):
            bound = f"from {least}" if most == U64_MAX else f"from {least} to {most}"
            raise ValueError(f"a whole number {bound}")
        return int(digits)

    return parse


def _flag(text: str) -> bool:
    word = text.strip().lower()
    if word in ("1", "true", "yes", "on"):
        return True
    if word in ("0", "false", "no", "off"):
        return False
    raise ValueError("1 or 0 (or true, false, yes, no, on, off)")


def _choice(*words: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in words:
            raise ValueError(" or ".join(words))
        return text

    return parse


def _host(text: str) -> str:
    host = text.strip().removeprefix("[").removesuffix("]")
    if not host or any(c.isspace() or c in "/[]" for c in host):
        raise ValueError("a host name or an address")
    return host


def _advertised(text: str) -> str:
    host, _, port = text.strip().rpartition(":")
    host = _host(host) if host else ""
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError("host:port")
    if host in _ANY:
        raise ValueError("an address that clients can reach, as host:port")
    return f"{host}:{port}"


def _path(text: str) -> Path:
    if "\0" in text:
        raise ValueError("a path")
    return Path(text).expanduser()


def _words(expected: str, shape: str) -> Callable[[str], tuple[str, ...]]:
    """A list of words that match a pattern; a word that no request can match is refused."""
    is_sound = re.compile(shape, re.ASCII | re.IGNORECASE).fullmatch

    def parse(text: str) -> tuple[str, ...]:
        words = tuple(word.strip() for word in text.split(",") if word.strip())
        if not all(map(is_sound, words)):
            raise ValueError(f"{expected}, comma-separated")
        return words

    return parse


def _networks(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    try:
        return tuple(str(ip_network(word, strict=False)) for word in words)
    except ValueError:
        raise ValueError("addresses or networks (10.0.0.0/8), comma-separated") from None


_AUTHORITY: Final = r"(\[[0-9a-f:.]+\]|[\w.~-]+)(:[0-9]{1,5})?"
_origins: Final = _words(
    "origins as browsers send them (scheme://host or scheme://host:port)",
    rf"null|[a-z][a-z0-9+.-]*://{_AUTHORITY}",
)
_hosts: Final = _words("host names or addresses ([::1] in brackets)", _AUTHORITY)


_BROKERS: Final = _words("Kafka's bootstrap servers (host:port)", _AUTHORITY.removesuffix("?"))


def _brokers(text: str) -> str | None:
    return ",".join(_BROKERS(text)) or None


def _cluster_name(text: str) -> str:
    """A prefix of names of Kafka's topics, which have 249 characters at most."""
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,200}", text) or text in (".", ".."):
        raise ValueError("a name of letters, digits, '.', '_' and '-', 200 at most")
    return text


def _one_shard(text: str) -> int:
    if text.strip() != "1":
        raise ValueError("1: this version has one shard")
    return 1


def _node_url(text: str) -> str:
    url = text.strip().rstrip("/")
    if not re.fullmatch(rf"https?://{_AUTHORITY}", url, re.ASCII | re.IGNORECASE):
        raise ValueError("an address without a path (http://host:port)")
    return url


def _row(
    default: Value,
    parse: Callable[[str], Value],
    group: str,
    help: str,
    *,
    is_flag: bool = False,
    is_secret: bool = False,
) -> Any:
    """A field that is a row of the table; typed Any, because the field's annotation is its type."""
    row = {"group": group, "help": help, "parse": parse, "is_flag": is_flag, "is_secret": is_secret}
    return field(default=default, repr=not is_secret, metadata=row)


NETWORK: Final = "Network"
ACCESS: Final = "Access"
_ANY: Final = ("0.0.0.0", "::")
KAFKA: Final = "Kafka's clients"
STORAGE: Final = "Storage"
REQUESTS: Final = "Requests"
QUEUES: Final = "Queues"
RESOURCES: Final = "Resources (0: unlimited)"
LOGGING: Final = "Logging"
CLUSTER: Final = "Cluster"

_COUNT: Final = _integer(1, U64_MAX)
_QUOTA: Final = _integer(0, U64_MAX)
_U32: Final = _integer(1, 2**32 - 1)
_FILE: Final = _integer(64 << 10, 1 << 30)


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings in force, each parsed and inside its bounds.

    Raises:
        BadSetting: The combination would serve strangers without a key, or is no node of a
            cluster.
    """

    host: str = _row("127.0.0.1", _host, NETWORK, "Address to listen on.")
    port: int = _row(4000, _integer(0, 65_535), NETWORK, "Port to listen on; 0 picks a free one.")
    port_file: Path | None = _row(
        None, _path, NETWORK, "File that receives the bound host:port once the socket is open."
    )
    keep_alive_ms: int = _row(
        75_000,
        _integer(1000, 3_600_000),
        NETWORK,
        "How long a connection without a request is kept, ms.",
    )
    allowed_origins: tuple[str, ...] = _row(
        (), _origins, NETWORK, "Origins of web pages that may call, comma-separated."
    )
    allowed_hosts: tuple[str, ...] = _row(
        (), _hosts, NETWORK, "Host names a request may carry besides the address, comma-separated."
    )
    readers: int = _row(
        0,
        _integer(0, 64),
        NETWORK,
        "Processes that serve reads beside the engine's; 0: none.",
    )
    busy_poll_us: int = _row(
        200,
        _integer(0, 10_000),
        NETWORK,
        "How long a lone client's next request is waited for awake, µs; 0: never.",
    )
    trusted_proxies: tuple[str, ...] = _row(
        (), _networks, NETWORK, "Proxies whose X-Forwarded-For is believed, comma-separated."
    )
    handling: str = _row(
        "lenient",
        _choice("strict", "lenient"),
        NETWORK,
        "What is unknown in a request: ignored (lenient), or 400 (strict).",
    )

    api_keys: str | None = _row(
        None, str, ACCESS, "Keys, comma-separated: SECRET[:SCOPES[:PREFIXES]].", is_secret=True
    )
    api_keys_file: Path | None = _row(
        None, _path, ACCESS, "File with one key a line; read again on SIGHUP."
    )
    allow_insecure_no_auth: bool = _row(
        False, _flag, ACCESS, "Listen beyond loopback although there are no keys.", is_flag=True
    )
    probe_auth: bool = _row(
        False, _flag, ACCESS, "Ask for a key on health and readiness too.", is_flag=True
    )

    kafka: bool = _row(True, _flag, KAFKA, "Serve Kafka's clients, on the same port.", is_flag=True)
    kafka_port: int | None = _row(
        None, _integer(1, 65_535), KAFKA, "Another port, for Kafka's clients alone."
    )
    kafka_advertised: str | None = _row(
        None,
        _advertised,
        KAFKA,
        "host:port that Kafka's clients are told; else how they came, or a node's URL.",
    )
    kafka_auto_create: bool = _row(
        True,
        _flag,
        KAFKA,
        "Let a client of Kafka's make a topic by asking for it.",
        is_flag=True,
    )

    kafka_rebalance_delay_ms: int = _row(
        250,
        _integer(0, 60_000),
        KAFKA,
        "How long the first members of a group wait for more, ms.",
    )

    data_dir: Path = _row(
        Path("topics-data"), _path, STORAGE, "Directory of the data; made if it is missing."
    )
    flush_ms: int = _row(
        200, _integer(1, 60_000), STORAGE, "How long a `disk` record may stay unsynced, ms."
    )
    sync_timeout_ms: int = _row(
        30_000,
        _integer(0, 3_600_000),
        STORAGE,
        "A sync or write of the log that takes longer counts as failed, ms; 0: never.",
    )
    wal_file_bytes: int = _row(64 << 20, _FILE, STORAGE, "Size a log file grows up to.")
    reserve_bytes: int = _row(
        64 << 20, _integer(0, 1 << 40), STORAGE, "Space kept back for deletes on a full disk."
    )
    segment_max_records: int = _row(
        65_536, _integer(1, 1 << 24), STORAGE, "Records in a sealed segment."
    )
    segment_max_bytes: int = _row(
        64 << 20, _integer(4 << 10, 1 << 30), STORAGE, "Payload bytes in a sealed segment."
    )
    segment_max_age_ms: int = _row(
        3_600_000, _integer(0, U64_MAX), STORAGE, "Age at which records are sealed, ms; 0: never."
    )
    rewrite_bytes_per_s: int = _row(
        64 << 20,
        _integer(0, U64_MAX),
        STORAGE,
        "Bytes a second that rewrites of segments read and write; 0: no limit.",
    )
    hot_max_bytes: int = _row(
        256 << 20, _integer(1 << 20, U64_MAX), STORAGE, "Memory that unsealed records may hold."
    )

    # A batch is one run, whose rendered text must stay addressable by 31 bits: hence the ends.
    max_body_bytes: int = _row(
        64 << 20, _integer(1, 1 << 30), REQUESTS, "Bytes of one request body."
    )
    max_command_bytes: int = _row(
        256 << 10, _integer(1, 1 << 30), REQUESTS, "Bytes of the body of anything but a write."
    )
    max_batch_records: int = _row(10_000, _integer(1, 1 << 20), REQUESTS, "Records of one write.")
    max_record_bytes: int = _row(
        1 << 20, _integer(1, 1 << 30), REQUESTS, "Bytes of one record's data and meta."
    )
    max_meta_bytes: int = _row(16 << 10, _U32, REQUESTS, "Bytes of one record's meta.")
    max_tag_bytes: int = _row(256, _integer(1, 65_535), REQUESTS, "Bytes of a tag.")
    max_node_bytes: int = _row(128, _integer(1, 65_535), REQUESTS, "Bytes of a node.")
    max_limit: int = _row(1000, _U32, REQUESTS, "Records of one read.")
    max_watch_topics: int = _row(
        256, _COUNT, REQUESTS, "Topics of one watch; each partition counts."
    )
    max_claim: int = _row(1000, _U32, REQUESTS, "Jobs of one claim, ack, nack or extend.")

    dead_letter_after_ms: int = _row(
        5000,
        _integer(0, 86_400_000),
        QUEUES,
        "Time until a job delivered too often moves unclaimed, ms; 0: never.",
    )

    max_topics: int = _row(100_000, _QUOTA, RESOURCES, "Topics.")
    max_routers: int = _row(10_000, _QUOTA, RESOURCES, "Routers.")
    max_schedules: int = _row(10_000, _QUOTA, RESOURCES, "Schedules.")
    max_watch_sessions: int = _row(10_000, _QUOTA, RESOURCES, "Watch sessions.")
    max_sse_connections: int = _row(10_000, _QUOTA, RESOURCES, "Open streams and WebSockets.")
    max_sse_connections_per_key: int = _row(1000, _QUOTA, RESOURCES, "Open streams of one key.")
    max_inflight_per_key: int = _row(1000, _QUOTA, RESOURCES, "Requests in flight of one key.")
    max_connections: int = _row(
        0, _QUOTA, RESOURCES, "Connections; 0: as many as open files allow."
    )
    max_connections_per_ip: int = _row(0, _QUOTA, RESOURCES, "Connections of one address.")
    max_sse_connections_per_ip: int = _row(0, _QUOTA, RESOURCES, "Open streams of one address.")
    max_watch_sessions_per_ip: int = _row(0, _QUOTA, RESOURCES, "Watch sessions of one address.")
    max_inflight_per_ip: int = _row(0, _QUOTA, RESOURCES, "Requests in flight of one address.")
    max_long_polls: int = _row(
        20_000, _QUOTA, RESOURCES, "Reads and claims that wait for records or jobs."
    )
    max_long_polls_per_ip: int = _row(0, _QUOTA, RESOURCES, "The same, of one address.")
    max_watch_bytes: int = _row(
        64 << 20, _QUOTA, RESOURCES, "Memory of sessions and subscriptions, with their filters."
    )
    max_body_memory: int = _row(
        256 << 20, _integer(1 << 20, U64_MAX), REQUESTS, "Bytes of all request bodies in flight."
    )
    max_topic_metrics: int = _row(
        1000, _integer(0, 1_000_000), REQUESTS, "Topics with metrics of their own."
    )
    max_total_bytes: int = _row(0, _QUOTA, RESOURCES, "Bytes of all live records.")
    max_idempotency_keys: int = _row(1_000_000, _QUOTA, RESOURCES, "Idempotency keys remembered.")

    log_format: str = _row(
        "json", _choice("text", "json"), LOGGING, "text or json; by default text on a terminal."
    )
    slow_request_ms: int = _row(
        1000,
        _integer(0, 3_600_000),
        LOGGING,
        "A request that takes longer has a line in the log, ms; 0: none has.",
    )
    trace_meta: bool = _row(
        False, _flag, LOGGING, "Keep an append's traceparent in its records' meta.", is_flag=True
    )

    cluster_kafka: str | None = _row(
        None, _brokers, CLUSTER, "Kafka's bootstrap servers, comma-separated; empty: no cluster."
    )
    cluster_name: str = _row(
        "topics", _cluster_name, CLUSTER, "Prefix of Kafka's topics and of the group."
    )
    cluster_shards: int = _row(1, _one_shard, CLUSTER, "Shards; this version has one.")
    cluster_url: str | None = _row(
        None, _node_url, CLUSTER, "Where other nodes reach this one; empty: http://HOST:PORT."
    )
    cluster_replication: int = _row(
        3, _integer(1, 32_767), CLUSTER, "Copies of the log that Kafka keeps."
    )
    cluster_min_isr: int = _row(
        2, _integer(1, 32_767), CLUSTER, "Copies that have a unit before it is acknowledged."
    )
    cluster_retain_ms: int = _row(
        86_400_000, _integer(60_000, U64_MAX), CLUSTER, "Age below which nothing is trimmed, ms."
    )
    cluster_session_ms: int = _row(
        10_000,
        _integer(1000, 300_000),
        CLUSTER,
        "Silence after which a node counts as away, ms.",
    )
    cluster_start_ms: int = _row(
        60_000, _integer(0, 3_600_000), CLUSTER, "How long a start waits for the brokers, ms."
    )
    cluster_kafka_config: Path | None = _row(
        None, _path, CLUSTER, "File with librdkafka's own settings, key=value (TLS, SASL)."
    )

    origins: Mapping[str, Origin] = field(default_factory=dict, compare=False)
    """The origin of each value, by name; a missing name is a default."""

    notes: tuple[str, ...] = field(default=(), compare=False)
    """Warnings for the operator about a server that starts nevertheless; a line each."""

    def __post_init__(self) -> None:
        _refuse_strangers(self)
        _refuse_half_a_face(self)
        if self.cluster_kafka is not None:
            _refuse_no_node(self)

    def origin(self, name: str) -> Origin:
        return self.origins.get(name, Origin.DEFAULT)

    @property
    def limits(self) -> Limits:
        """The limits of the core."""
        own_name = {"max_hot_bytes": "hot_max_bytes"}
        names = [f.name for f in fields(Limits)]
        return Limits(**{name: getattr(self, own_name.get(name, name)) for name in names})


def _setting(row: Field[Any]) -> Setting:
    default: Any = row.default
    return Setting(name=row.name, default=default, **row.metadata)


TABLE: Final[tuple[Setting, ...]] = tuple(_setting(f) for f in fields(Settings) if f.metadata)
"""Every setting, in reading order."""


def load(
    environ: Mapping[str, str],
    options: Mapping[str, str | None] | None = None,
    *,
    is_terminal: bool = False,
) -> Settings:
    """The settings in force.

    Args:
        environ: The environment; an empty variable counts as one that is not set, and so does one
            that an orchestrator makes of a service called `topics`.
        options: Setting name -> the option's text, None where it was not given; an empty text is
            refused, because it is mostly an unset variable (`--data-dir "$UNSET"`).
        is_terminal: Whether the log goes to a terminal; decides the default of `log_format`.

    Raises:
        BadSetting: A value does not parse, is out of bounds, or is not allowed.
    """
    links = sorted(n for n, v in environ.items() if n.startswith(PREFIX) and is_service_link(n, v))
    environ = {name: value for name, value in environ.items() if name not in links}
    values: dict[str, Any] = {} if not is_terminal else {"log_format": "text"}
    origins: dict[str, Origin] = {}
    for setting in TABLE:
        option = (options or {}).get(setting.name)
        if option == "":
            raise BadSetting(f"{setting.option} is empty; leave it out for what holds without it")
        if option is not None:
            values[setting.name] = _parse(setting, option, setting.option)
            origins[setting.name] = Origin.OPTION
        elif text := environ.get(setting.env, ""):
            values[setting.name] = _parse(setting, text, setting.env)
            origins[setting.name] = Origin.ENVIRONMENT
    notes = (*_linked(links), *_strays(environ), *_idle(origins, values))
    return Settings(**values, origins=MappingProxyType(origins), notes=notes)


def _linked(links: list[str]) -> tuple[str, ...]:
    if not links:
        return ()
    what = "passed over, since an orchestrator makes them of a service called topics"
    return (f"{what}: {', '.join(links)} (in Kubernetes `enableServiceLinks: false` ends that)",)


def _idle(origins: Mapping[str, Origin], values: Mapping[str, Any]) -> tuple[str, ...]:
    """A warning about settings of a cluster without the one that makes a cluster."""
    idle = [s.env for s in TABLE if s.group is CLUSTER and s.name in origins]
    if not idle or values.get("cluster_kafka") is not None:
        return ()
    return (f"without TOPICS_CLUSTER_KAFKA these have no effect: {', '.join(idle)}",)


def _strays(environ: Mapping[str, str]) -> tuple[str, ...]:
    """A warning about variables that look like settings and are none.  A misspelt setting has no
    effect, so it is reported; it is not refused, because the name may be another program's."""
    known = [setting.env for setting in TABLE]
    strays = []
    for name in sorted(environ):
        is_ours = name.startswith(PREFIX) and bool(environ[name])
        if is_ours and name not in known and not name.startswith(NOT_SETTINGS):
            near = get_close_matches(name, known, 1, 0.8)
            strays.append(f"{name} (is it {near[0]}?)" if near else name)
    return (f"in the environment, but no setting: {', '.join(strays)}",) if strays else ()


def shown(setting: Setting, settings: Settings) -> str:
    """A value for display; of a secret only whether it is set."""
    value = getattr(settings, setting.name)
    if setting.is_secret and value is not None:
        return "(set)"
    if value is None or value == ():
        return ""
    if isinstance(value, bool):
        return "1" if value else "0"
    return ",".join(value) if isinstance(value, tuple) else str(value)


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` is reachable from this machine only."""
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


def _parse(setting: Setting, text: str, where: str) -> Value:
    try:
        return setting.parse(text)
    except ValueError as expected:
        given = "" if setting.is_secret else f", not {_PASSWORDS.sub('***@', text)[:80]!r}"
        raise BadSetting(f"{where} must be {expected}{given}") from None


def _refuse_no_node(settings: Settings) -> None:
    """What cannot be a node of a cluster is refused before anything is opened."""
    if find_spec("confluent_kafka") is None:
        raise BadSetting(
            f"TOPICS_CLUSTER_KAFKA is set and Kafka's client is not installed: {install('cluster')}"
        )
    if settings.cluster_min_isr > settings.cluster_replication:
        raise BadSetting(
            f"TOPICS_CLUSTER_MIN_ISR {settings.cluster_min_isr} is more than "
            f"TOPICS_CLUSTER_REPLICATION {settings.cluster_replication}: no write would ever be "
            "acknowledged"
        )
    if settings.cluster_session_ms > settings.cluster_retain_ms:
        raise BadSetting(
            "TOPICS_CLUSTER_SESSION_MS is more than TOPICS_CLUSTER_RETAIN_MS: the log would be "
            "trimmed under nodes that are still there"
        )
    if settings.readers:
        raise BadSetting("TOPICS_READERS is not for a node of a cluster: start more nodes instead")
    if settings.cluster_url is None and (settings.host in _ANY or not settings.port):
        raise BadSetting(
            f"the other nodes cannot reach this one by {settings.host}:{settings.port}: set "
            "TOPICS_CLUSTER_URL to its address"
        )


def _refuse_half_a_face(settings: Settings) -> None:
    if settings.kafka_port is not None and not settings.kafka:
        raise BadSetting(
            "TOPICS_KAFKA_PORT is set and TOPICS_KAFKA=0 serves no client of Kafka's: unset one of them"
        )
    if settings.kafka_port is not None and settings.kafka_port == settings.port:
        raise BadSetting(
            f"TOPICS_KAFKA_PORT {settings.kafka_port} is TOPICS_PORT, which serves Kafka's clients "
            "already: leave it out"
        )


def _refuse_strangers(settings: Settings) -> None:
    has_keys = settings.api_keys is not None or settings.api_keys_file is not None
    if not (has_keys or is_loopback(settings.host) or settings.allow_insecure_no_auth):
        raise BadSetting(
            f"TOPICS_HOST {settings.host} is not loopback and there are no API keys: anyone who "
            "reaches it could read, write and delete; set TOPICS_ALLOW_INSECURE_NO_AUTH=1 to allow it"
        )
