"""No bytes on the disk make a start fail otherwise than by naming the file, and none that the server
did not write is ever served.  (F13-F20)"""

from hypothesis import given
from hypothesis import strategies as st
from store.disks import CORRUPT, copy_of, outcome, small_directory

from topics.protocol.model.errors import Unusable
from topics.store.inspect import inspect
from topics.store.layout import IDENTITY_NAME

from .mutation import damaged, fuzzed

DIRECTORIES = [small_directory(clean=clean) for clean in (False, True)]
NAMES = sorted(DIRECTORIES[0][0].tree())
WRITTEN = {
    (topic, seq): text
    for _, history in DIRECTORIES
    for content in history
    for topic, records in content.items()
    for seq, text in records.items()
}
"""Every record that there ever was, deleted ones too."""


@fuzzed
@given(st.data(), st.sampled_from([0, 1]), st.sampled_from(NAMES))
def test_a_damaged_file(data: st.DataObject, which: int, name: str) -> None:
    """A start refuses it with the name of a file, or finds records that were written, each with the
    text that was written."""
    files = copy_of(DIRECTORIES[which][0])
    tree = files.tree()
    files.put(name, data.draw(damaged([tree.get(name, b"")])))

    found = outcome(files)

    if isinstance(found, str):
        assert "sim/" in found or name.endswith(".ckpt")
        return
    assert found != CORRUPT
    for topic, records in found.items():
        for seq, text in records.items():
            assert WRITTEN[topic, seq] == text


@fuzzed
@given(st.data(), st.sampled_from(NAMES))
def test_an_inspection_of_a_damaged_file(data: st.DataObject, name: str) -> None:
    """`topics inspect` reports and changes nothing; it refuses only what is no directory of ours."""
    files = copy_of(DIRECTORIES[0][0])
    files.put(name, data.draw(damaged([files.tree()[name]])))
    tree = files.tree()

    try:
        inspect(files)
    except Unusable:
        assert name == IDENTITY_NAME

    assert files.tree() == tree


@fuzzed
@given(st.binary(max_size=60), st.sampled_from(["wal", "seg", "ckpt", "torn", "tmp", ""]))
def test_a_file_of_any_name(content: bytes, ending: str) -> None:
    """A name that looks like the store's is one of its own or refused; another is left alone."""
    files = copy_of(DIRECTORIES[0][0])
    name = f"0000000099.{ending}" if ending else "notes"
    files.put(name, content)

    found = outcome(files)

    if ending in ("", "tmp"):
        assert found == DIRECTORIES[0][1][-1]
    elif isinstance(found, str):
        assert "sim/" in found
