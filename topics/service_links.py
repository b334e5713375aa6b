"""Variables that an orchestrator makes of a service that is called `topics`, and nobody set.

Kubernetes tells each pod of every Service (`TOPICS_PORT=tcp://10.0.0.7:4000`,
`TOPICS_SERVICE_HOST`), Docker each container of its links (`TOPICS_NAME`, `TOPICS_ENV_PATH`).  The
names are those of settings, or look like such; what they say is of no use to a server or a client.
"""

import re
from typing import Final

_ADDRESS: Final = re.compile(r"(?:tcp|udp|sctp)://")
_NAME: Final = re.compile(
    r"""TOPICS_(?:\w+_)?  # a service may be called topics-nodes
    (?: SERVICE_HOST | SERVICE_PORT(?:_\w+)?  # Kubernetes, with the name of a port
      | PORT_\d+_(?:TCP|UDP|SCTP)(?:_(?:PROTO|PORT|ADDR))? )
    | TOPICS_(?: NAME | ENV_\w+ )  # Docker
    """,
    re.VERBOSE,
)


def is_service_link(name: str, value: str) -> bool:
    """Whether a variable is one that an orchestrator makes: by its name, or by its value, which is no
    value of any setting."""
    return bool(_ADDRESS.match(value) or _NAME.fullmatch(name))
