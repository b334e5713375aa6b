"""Servers that have a name, and which server a command talks to."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from topics.cli import target


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Write the config file of this test, which its owner alone can read."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    def write(text: str, mode: int = 0o600) -> Path:
        path = tmp_path / "topics" / "config.toml"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
        path.chmod(mode)
        return path

    return write


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str | None]]:
    """The URL and the key of each command that was run; it goes no further."""
    seen: list[tuple[str, str | None]] = []

    def refuse(url: str, key: str | None, *_rest: Any) -> Any:
        seen.append((url, key))
        raise KeyboardInterrupt

    monkeypatch.setattr(target, "_client", refuse)
    return seen


TWO = """
[default]
url = "http://dev.test"

[prod]
url = "https://prod.test"
key = "prod-secret"
"""


@pytest.mark.parametrize(
    ("args", "env", "server"),
    [
        (["topics"], {}, ("http://dev.test", None)),
        (["topics"], {"TOPICS_API_KEY": "k"}, ("http://dev.test", "k")),
        (["topics"], {"TOPICS_PROFILE": "prod"}, ("https://prod.test", "prod-secret")),
        (["topics"], {"TOPICS_URL": "http://env.test"}, ("http://env.test", None)),
        (
            ["topics"],
            {"TOPICS_URL": "http://env.test", "TOPICS_PROFILE": "prod"},
            ("http://env.test", None),
        ),
        (["--profile", "prod", "topics"], {}, ("https://prod.test", "prod-secret")),
        (
            ["--profile", "prod", "topics"],
            {"TOPICS_URL": "http://env.test", "TOPICS_API_KEY": "k"},
            ("https://prod.test", "prod-secret"),
        ),
        (["--profile", "prod", "topics", "--api-key", "o"], {}, ("https://prod.test", "o")),
        (
            ["topics", "--url", "http://option.test"],
            {"TOPICS_PROFILE": "prod"},
            ("http://option.test", None),
        ),
    ],
)
def test_which_server_a_command_talks_to(
    run: Any,
    config: Any,
    asked: list[Any],
    args: list[str],
    env: dict[str, str],
    server: tuple[str, str | None],
) -> None:
    """--url, --profile, TOPICS_URL, TOPICS_PROFILE, `default`; and no key of another server."""
    config(TWO)

    run(*args, **env)

    assert asked == [server]


def test_without_a_file_it_is_the_server_of_this_machine(
    run: Any, tmp_path: Path, asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that `topics serve` would start in the same environment."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))

    run("topics")
    run("topics", TOPICS_HOST="::1", TOPICS_PORT="4001")

    assert asked == [("http://127.0.0.1:4000", None), ("http://[::1]:4001", None)]


def test_a_key_may_have_a_file_of_its_own(run: Any, config: Any, asked: list[Any]) -> None:
    """As secrets are handed out by a tool; the config file may be shared then."""
    path = config("", mode=0o644)
    (path.parent / "prod.key").write_text("from-a-file\n")
    path.write_text(f'[prod]\nurl = "https://prod.test"\nkey_file = "{path.parent}/prod.key"\n')

    run("--profile", "prod", "topics")

    assert asked == [("https://prod.test", "from-a-file")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[prod", "Expected ']'"),
        ("[prod]\n", "[prod]: Object missing required field `url`"),
        ('[prod]\nurl = "u"\nkye = "k"', "[prod]: Object contains unknown field `kye`"),
        ("prod = 1", "[prod]: Expected `object`, got `int`"),
        ('[prod]\nurl = "u"\nkey = "k"\nkey_file = "f"', "[prod]: has both key and key_file"),
        ('[prod]\nurl = "u"\nkey_file = "/nowhere/key"', "/nowhere/key: No such file"),
        ('[prd]\nurl = "u"', "no profile 'prod'; did you mean prd?"),
        ('[dev]\nurl = "u"', "no profile 'prod'; there are dev"),
        ("", "no profile 'prod'; the file has none"),
    ],
)
def test_a_file_that_is_not_sound_is_refused_by_name(
    run: Any, config: Any, asked: list[Any], text: str, why: str
) -> None:
    """In one line, and nothing is sent to any server."""
    config(text)

    done = run("--profile", "prod", "topics")

    assert (done.exit_code, asked) == (2, [])
    assert why in done.stderr
    assert done.stderr.count("\n") == 1


def test_a_key_that_others_can_read_is_refused(run: Any, config: Any, asked: list[Any]) -> None:
    """With what mends it."""
    path = config(TWO, mode=0o644)

    done = run("--profile", "prod", "topics")

    assert (done.exit_code, asked) == (2, [])
    assert done.stderr == (f"topics: {path}: holds a key and is open to others; chmod 600 {path}\n")


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_a_file_that_others_may_write_is_refused(
    run: Any, config: Any, asked: list[Any], mode: int
) -> None:
    """They would choose which server gets the key: also where the key is in a file of its own."""
    path = config('[prod]\nurl = "https://prod.test"\n', mode=mode)
    done = run("--profile", "prod", "topics")

    assert (done.exit_code, asked) == (2, [])
    assert done.stderr == f"topics: {path}: others may write it; chmod go-w {path}\n"

    key = path.parent / "prod.key"
    key.write_text("tk_1\n")
    key.chmod(mode)
    config(f'[prod]\nurl = "https://prod.test"\nkey_file = "{key}"\n')
    done = run("--profile", "prod", "topics")

    assert (done.exit_code, asked) == (2, [])
    assert done.stderr == f"topics: {key}: others may write it; chmod go-w {key}\n"


def test_a_url_beside_a_profile_is_refused(run: Any, config: Any, asked: list[Any]) -> None:
    """The key of a profile goes nowhere else."""
    config(TWO)

    done = run("--profile", "prod", "topics", "--url", "http://other.test")

    assert (done.exit_code, done.stderr, asked) == (
        2,
        "topics: give --url or --profile, not both\n",
        [],
    )


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("http://127.0.0.1:4000/", "http://127.0.0.1:4000/"),
        ("http://[::1]:4000", "http://[::1]:4000"),
        ("https://ada@a.test/x:y@z", "https://ada@a.test/x:y@z"),
        ("https://ada:pass@a.test:1/x", "https://ada:***@a.test:1/x"),
        ("https://ada:p:a@ss@a.test", "https://ada:***@a.test"),
    ],
)
def test_a_password_is_not_listed(run: Any, config: Any, url: str, shown: str) -> None:
    """A URL may have one, for the proxy in front of the server."""
    config(f'[a]\nurl = "{url}"\n')

    assert run("profiles").stdout == f"a\t{shown}\n"
    assert json.loads(run("profiles", "--json").stdout)["url"] == shown


def test_profiles_are_listed_without_their_keys(run: Any, config: Any) -> None:
    """And completed by a shell."""
    from click.shell_completion import ShellComplete

    from topics.cli import main

    config(TWO)

    done = run("profiles")
    shell = ShellComplete(main, {}, "topics", "_TOPICS_COMPLETE")

    told = [json.loads(line) for line in run("profiles", "--json").stdout.splitlines()]

    assert done.stdout == "default\thttp://dev.test\nprod\thttps://prod.test\n"
    assert told[1] == {"profile": "prod", "url": "https://prod.test"}
    assert [item.value for item in shell.get_completions(["--profile"], "p")] == ["prod"]
