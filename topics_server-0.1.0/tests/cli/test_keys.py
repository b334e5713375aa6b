"""`topics keys`: keys are made, and digests of keys (§0.2)."""

import json
from hashlib import sha256
from typing import Any

import pytest

from topics.server.access.keys import Entry, parse_line


def parsed(text: str) -> Entry:
    buffer = bytearray(text.encode())
    (entry,) = parse_line(buffer, 0, len(buffer), "here")
    return entry


def test_a_new_key(run: Any) -> None:
    """The secret for the client, the entry for the server; each is another one. (§0.2)"""
    secrets = set()
    for _ in range(2):
        done = run("keys", "new", "--scopes", "rw", "--prefix", "t1:", "--prefix", "shared.")
        lines = dict(line.split() for line in done.stdout.splitlines())
        secrets.add(lines["secret"])
        entry = parsed(lines["entry"])
        assert entry == parsed(f"{lines['secret']}:read+write:t1:|shared.")
        assert entry.digest == sha256(lines["secret"].encode()).digest()

    assert len(secrets) == 2
    assert all(len(secret) > 40 for secret in secrets)


def test_a_new_key_for_a_program(run: Any) -> None:
    """The same two lines as one JSON object. (§0.2)"""
    made = json.loads(run("keys", "new", "--scopes", "read", "--json").stdout)

    assert made.keys() == {"secret", "entry"}
    assert parsed(made["entry"]) == parsed(f"{made['secret']}:read")


def test_digests_of_keys(run: Any) -> None:
    """Line by line, with what each may do; comments and blank lines are left out. (§0.2)"""
    done = run("keys", "hash", input="# mine\n\nalpha\nbeta:read:t1:\n gamma , delta:d\n")

    assert done.exit_code == 0
    assert list(map(parsed, done.stdout.splitlines())) == [
        parsed(text) for text in ("alpha", "beta:read:t1:", "gamma", "delta:delete")
    ]
    for secret in ("alpha", "beta", "gamma", "delta:"):
        assert secret not in done.stdout


def test_rights_for_secrets_alone(run: Any) -> None:
    """The options are for lines that have none. (§0.2)"""
    done = run("keys", "hash", "--scopes", "read", input="alpha\n")

    assert parsed(done.stdout.strip()) == parsed("alpha:read")
    refused = run("keys", "hash", "--scopes", "read", input="alpha\nhush-77:write\n")
    assert refused.exit_code == 2
    assert "line 2" in refused.stderr
    assert "hush" not in refused.output


@pytest.mark.parametrize(
    ("args", "given"),
    [
        (["new", "--scopes", "bogus"], ""),
        (["new", "--scopes", "read:x"], ""),
        (["new", "--prefix", "a,b"], ""),
        (["new", "--prefix", "a b"], ""),
        (["hash"], "hush-77:bogus\n"),
        (["hash"], "hush 77\n"),
    ],
)
def test_what_is_malformed_ends_with_2(run: Any, args: list[str], given: str) -> None:
    """One line, and nothing of a secret in it. (§0.2)"""
    done = run("keys", *args, input=given)

    assert done.exit_code == 2
    assert done.stderr.startswith("topics: ")
    assert done.stderr.count("\n") == 1
    assert "hush" not in done.output
    assert done.stdout == ""


def test_a_server_takes_what_was_made(run: Any, tmp_path: Any) -> None:
    """`topics settings` reads the keys that `topics serve` would. (§0.2)"""
    file = tmp_path / "keys"
    file.write_text(run("keys", "hash", input="alpha:read\n").stdout)

    assert run("config", "--api-keys-file", file).exit_code == 0
    file.write_text("alpha:bogus\n")
    assert run("config", "--api-keys-file", file).exit_code == 2
