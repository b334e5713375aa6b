"""Entries: what is a key, what it may do, and what makes a server refuse to start (§0.2)."""

import os
from hashlib import sha256
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from topics.protocol.model.access import SCOPES
from topics.server.access import keys
from topics.server.access.keys import BadKeys, Entry, parse_line, source_of


def parsed(text: str) -> list[Entry]:
    buffer = bytearray(text.encode())
    return parse_line(buffer, 0, len(buffer), "here")


def digest(secret: str) -> bytes:
    return sha256(secret.encode()).digest()


@pytest.mark.parametrize(
    ("text", "scopes", "prefixes"),
    [
        ("k", SCOPES, ()),
        ("k:", SCOPES, ()),
        ("k::", SCOPES, ()),
        ("k:read", {"read"}, ()),
        ("k:r", {"read"}, ()),
        ("k:w", {"write"}, ()),
        ("k:d", {"delete"}, ()),
        ("k:a", {"admin"}, ()),
        ("k:rw", {"read", "write"}, ()),
        ("k:rw+d", {"read", "write", "delete"}, ()),
        ("k:read+read", {"read"}, ()),
        ("k:r+w+d+a", SCOPES, ()),
        ("k::tenant42:|shared.", SCOPES, ("tenant42:", "shared.")),
        ("k:read:tenant42:", {"read"}, ("tenant42:",)),
        ("k::a->b", SCOPES, ("a->b",)),
        ("  k:read  ", {"read"}, ()),
    ],
)
def test_an_entry(text: str, scopes: set[str], prefixes: tuple[str, ...]) -> None:
    """A secret, what it may do, and with which names; an empty field restricts nothing. (§0.2)"""
    (entry,) = parsed(text)

    assert (entry.digest, entry.scopes, entry.prefixes) == (digest("k"), scopes, prefixes)


def test_entries_are_separated_by_commas() -> None:
    """Spaces around one do not count, and a secret may have any other visible sign. (§0.2)"""
    assert [each.digest for each in parsed("a, o+d/d=&%k:read ,c")] == [
        digest("a"), digest("o+d/d=&%k"), digest("c")
    ]  # fmt: skip


BAD = [
    "", " ", ":read", "a,,b", "a,", ",a", "k:reed", "k:R", "k:+", "k:read+", "k:+read", "k:read write",
    "k:wr", "k:rwd", "k:*", "k:all", "k:read|write", "k:p1.:read", "k::|", "k::a|", "k::|a", "k::.a",
    "k::a b", "k::a/b", "k::" + "a" * 300, "two words", "k\x00", "k\x7f", "kéy", "k::é",
    "sha256=", "sha256=xyz", "sha256=" + "0" * 63, "sha256=" + "0" * 65,
]  # fmt: skip


@pytest.mark.parametrize("text", BAD)
def test_a_malformed_entry_is_refused(text: str) -> None:
    """Never is a key granted something else than was meant; nothing of it is told. (§0.2)"""
    with pytest.raises(BadKeys, match=r"^here, entry ") as refused:
        parsed(text.replace("k", "hush-77"))

    assert "hush" not in str(refused.value)


def test_a_digest_stands_for_its_secret() -> None:
    """The server need not be told the secret; the digest is no key. (§0.2)"""
    (entry,) = parsed(f"sha256={digest('k').hex().upper()}:read:in.")

    assert entry == parsed("k:read:in.")[0]


@given(
    st.sets(st.sampled_from(sorted(SCOPES)), min_size=1),
    st.lists(st.from_regex(r"[A-Za-z0-9][a-z.:>-]{0,9}", fullmatch=True), max_size=3),
)
def test_an_entry_can_be_written_down_again(scopes: set[str], prefixes: list[str]) -> None:
    """With the digest in place of the secret it means the same. (§0.2)"""
    (entry,) = parsed(f"k:{'+'.join(scopes)}:{'|'.join(prefixes)}")

    assert parsed(entry.text) == [entry]


# Settings.


def test_no_settings_are_no_keys() -> None:
    """A server without keys is open. (§0.2)"""
    assert source_of(None, None) is None


def test_a_file_of_keys(tmp_path: Path) -> None:
    """A line an entry, or several; lines that are blank or begin with # do not count; whatever ends
    them. (§0.2)"""
    file = tmp_path / "keys"
    file.write_bytes(b"# one\n\nalpha:read\r\n   # two\n beta::in. , gamma\n\t\ndelta")
    source = source_of("env", file)
    assert source is not None

    found = [entry.digest for entry in source.read()]

    assert found == [digest(secret) for secret in ("env", "alpha", "beta", "gamma", "delta")]


def test_a_secret_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The buffer that held it holds nothing afterwards, whether its entries are good or not. (§12)"""
    wiped: list[bytearray] = []
    wipe = keys._wipe

    def noted(buffer: bytearray) -> None:
        assert b"hush-77" in buffer
        wipe(buffer)
        wiped.append(buffer)

    monkeypatch.setattr(keys, "_wipe", noted)
    file = tmp_path / "keys"
    for text in ("hush-77", "hush-77:bogus"):
        file.write_text(text)
        source = source_of(None, file)
        assert source is not None
        if ":" in text:
            with pytest.raises(BadKeys):
                source.read()
        else:
            source.read()
    source_of("hush-77", None)

    assert [bytes(buffer).strip(b"\0") for buffer in wiped] == [b"", b"", b""]


def _unreadable(file: Path) -> None:
    os.mkfifo(file)


FILES = {
    "none": lambda file: None,
    "a directory": lambda file: file.mkdir(),
    "a pipe": _unreadable,
    "nothing in it": lambda file: file.write_text("\n# nothing\n"),
    "too much in it": lambda file: file.write_text("# comment\n" * 150_000 + "k\n"),
    "a secret twice": lambda file: file.write_text("k\nk:read\n"),
    "a secret and its digest": lambda file: file.write_text(f"k\nsha256={digest('k').hex()}\n"),
    "the secret of the setting": lambda file: file.write_text("env\n"),
    "a bad line": lambda file: file.write_text("k\nhush-77:bogus\n"),
}


@pytest.mark.parametrize("what", FILES)
def test_a_file_that_cannot_be_used(what: str, tmp_path: Path) -> None:
    """It is named, and the server does not go on with a part of it. (§0.2)"""
    file = tmp_path / "keys"
    FILES[what](file)
    source = source_of("env", file)
    assert source is not None

    with pytest.raises(BadKeys, match="TOPICS_API_KEYS_FILE") as refused:
        source.read()

    assert str(file) in str(refused.value)
    assert "hush" not in str(refused.value)
    assert ("line 2" in str(refused.value)) is (what == "a bad line")


def test_a_file_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """Whoever writes it makes keys: the message has what mends it. (§0.2)"""
    path = tmp_path / "keys"
    path.write_text("full\n")
    path.chmod(0o646)
    source = source_of(None, path)
    assert source is not None

    with pytest.raises(BadKeys) as refused:
        source.read()

    assert str(refused.value) == (
        f"TOPICS_API_KEYS_FILE {path}: others may write it; chmod go-w {path}"
    )
