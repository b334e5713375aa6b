"""Profiles: servers that have a name, in `~/.config/topics/config.toml`.

Owns the file's form and which server a command talks to.  A table of the file is a profile:

    [default]                      # where nothing else names a server
    url = "http://127.0.0.1:4000"

    [prod]                         # topics --profile prod ...
    url = "https://topics.example.com"
    key_file = "~/.config/topics/prod.key"

Invariant: the key of a profile is sent to the URL of that profile and to no other.
"""

import json
import os
import re
import stat
from typing import TYPE_CHECKING, Final

import click
import msgspec

from topics.cli.exits import UNUSABLE, Stop
from topics.cli.printing import say_fields, say_json
from topics.cli.typed import is_typed
from topics.service_links import is_service_link
from topics.visible import without_password

if TYPE_CHECKING:
    from pathlib import Path

_PASSWORD: Final = re.compile(r"^(\w+://[^:@/?#]*:)[^/?#]*(?=@)")
"""Of a URL: what stands between the name of a user and the last @ before the path."""
_PLAIN: Final = re.compile(r"\w+://([^:@/?#]*@)?(\[[^\]@]*\]|[^:@/?#]*)(:\d*)?([/?#]|$)")
"""A URL without a password."""

DEFAULT: Final = "default"
"""The profile of a command that is told of no server."""


class Profile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A server with a name.

    Attributes:
        url: Where it is.
        key: Its API key; the file must be its owner's alone then.
        key_file: A file whose first line is the key; `~` is the home directory.
    """

    url: str
    key: str | None = None
    key_file: str | None = None

    def secret(self) -> str | None:
        """The API key, if the profile has one.

        Raises:
            Stop: `key_file` cannot be read, or others may write it.
        """
        if self.key_file is None:
            return self.key
        from pathlib import Path

        path = Path(self.key_file).expanduser()
        try:
            with path.open(encoding="utf-8") as file:
                _require_trust(path, os.fstat(file.fileno()))
                lines = file.read().split()
        except (OSError, ValueError) as error:
            what = error.strerror if isinstance(error, OSError) else "is not text"
            raise Stop(f"{path}: {what}", UNUSABLE) from None
        if len(lines) != 1:
            raise Stop(f"{path}: expected one API key", UNUSABLE)
        return lines[0]


def config_file() -> "Path":
    """Where profiles are: `$XDG_CONFIG_HOME/topics/config.toml`, by default in `~/.config`."""
    from pathlib import Path

    return Path(_config_file())


def _config_file() -> str:
    above = os.environ.get("XDG_CONFIG_HOME") or "~/.config"
    return os.path.join(os.path.expanduser(above), "topics", "config.toml")


def load_profiles(path: "Path") -> dict[str, Profile]:
    """The profiles of a file; none where there is no file.

    Raises:
        Stop: The file cannot be read, or is not as this module's docstring says; or others may write
            it; or it holds a key and others may read it.
    """
    import tomllib

    try:
        with path.open("rb") as file:
            status = os.fstat(file.fileno())
            _require_trust(path, status)
            tables = tomllib.load(file)
    except (FileNotFoundError, NotADirectoryError):
        return {}
    except OSError as error:
        raise Stop(f"{path}: {error.strerror}", UNUSABLE) from None
    except ValueError as error:  # TOML, or the encoding
        raise Stop(f"{path}: {error}", UNUSABLE) from None
    found = {}
    for name, table in tables.items():
        try:
            found[name] = msgspec.convert(table, Profile)
        except msgspec.ValidationError as error:
            raise Stop(f"{path}: [{name}]: {error}", UNUSABLE) from None
        if found[name].key is not None and found[name].key_file is not None:
            raise Stop(f"{path}: [{name}]: has both key and key_file", UNUSABLE)
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO) and any(each.key for each in found.values()):
        raise Stop(f"{path}: holds a key and is open to others; chmod 600 {path}", UNUSABLE)
    return found


def _require_trust(path: "Path", status: os.stat_result) -> None:
    """Raises Stop: Others may write the file, and so choose which server gets the key."""
    from topics.trust import refusal_of

    if (reason := refusal_of(path, status, is_personal=True)) is not None:
        raise Stop(f"{path}: {reason}", UNUSABLE)


def find_profile(name: str) -> Profile:
    """The profile with a name.

    Raises:
        Stop: There is none, or the file is not sound.
    """
    path = config_file()
    profiles = load_profiles(path)
    if name in profiles:
        return profiles[name]
    from difflib import get_close_matches

    near = get_close_matches(name, profiles, 1)
    there = f"there are {', '.join(profiles)}" if profiles else "the file has none"
    hint = f"did you mean {near[0]}?" if near else there
    raise Stop(f"{path}: no profile {name!r}; {hint}", UNUSABLE)


def choose_server(
    context: click.Context, url: str | None, api_key: str | None
) -> tuple[str, str | None]:
    """The URL and the API key of the server that a command talks to.

    The first of these that is given names the server: `--url`, `--profile`, `TOPICS_URL`,
    `TOPICS_PROFILE`, the profile `default`, the server that `topics serve` starts here.  A key that
    is given by `--api-key` wins; that of `TOPICS_API_KEY` is for a server that is not a profile's,
    or whose profile has none.

    Raises:
        Stop: As `find_profile`; or both `--url` and `--profile` are given.
    """
    root = context.find_root()
    name: str | None = root.params.get("profile")
    is_named = is_typed("profile", root)
    if is_named and is_typed("url", context):
        raise Stop("give --url or --profile, not both", UNUSABLE)
    if url is not None and not is_named:
        return url, api_key
    profile = find_profile(name) if name else _default_profile()
    if profile is None:
        return local_url(), api_key
    if is_typed("api_key", context):
        return profile.url, api_key
    return profile.url, profile.secret() or api_key


def _default_profile() -> Profile | None:
    try:
        os.stat(_config_file())
    except (FileNotFoundError, NotADirectoryError):
        return None  # as on most machines, so that what reads the file is not imported there
    except OSError:
        pass  # what is wrong is said where the file is read
    return load_profiles(config_file()).get(DEFAULT)


def local_url() -> str:
    """The URL of the server that `topics serve` would start in the same environment."""
    host = os.environ.get("TOPICS_HOST") or "127.0.0.1"
    port = os.environ.get("TOPICS_PORT") or "4000"
    if is_service_link("TOPICS_PORT", port):
        port = "4000"
    shown = f"[{host}]" if ":" in host and not host.startswith("[") else host
    return f"http://{shown}:{port}"


@click.command("profiles")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
def command(as_json: bool) -> None:
    """List the profiles of the config file: NAME and URL, one a line; keys and passwords are never shown.

    \b
    topics profiles
    topics --profile prod read orders
    """
    for name, profile in load_profiles(config_file()).items():
        url = _shown(profile.url)
        if as_json:
            say_json(json.dumps({"profile": name, "url": url}))
        else:
            say_fields(name, url)


def _shown(url: str) -> str:
    shown = _PASSWORD.sub(r"\1***", url)
    if shown != url or _PLAIN.match(url):
        return shown
    return without_password(url)
