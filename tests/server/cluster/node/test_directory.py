"""The data directory of a node: whose it is."""

import os
import stat
from pathlib import Path

import pytest

from topics.protocol.model.errors import InUse, Unusable
from topics.server.cluster.node.directory import NodeDirectory

CLUSTER = bytes(range(16))


def joined(path: Path) -> str:
    """The id of the node that joined with this directory."""
    directory = NodeDirectory(path, "c")
    directory.belong(CLUSTER)
    directory.close()
    return directory.membership.node


def refusal(path: Path, name: str = "c") -> str:
    before = sorted(path.iterdir()) if path.exists() else []
    with pytest.raises(Unusable) as refused:
        NodeDirectory(path, name)
    assert (sorted(path.iterdir()) if path.exists() else []) == before
    return str(refused.value)


def test_a_node_keeps_its_id_and_its_cluster_with_its_directory(tmp_path: Path) -> None:
    """An empty directory is of a new node, which gets an id; the cluster's comes when it has joined,
    in a file that nobody else may read. (§6)"""
    path = tmp_path / "new"
    first = NodeDirectory(path, "c")
    assert first.membership.cluster is None
    assert not list(path.iterdir())

    first.belong(CLUSTER)
    first.belong(CLUSTER)
    first.close()

    again = NodeDirectory(path, "c")
    assert again.membership == first.membership
    assert again.membership.cluster == CLUSTER
    assert stat.S_IMODE((path / "node.json").stat().st_mode) == 0o600
    assert [entry.name for entry in path.iterdir()] == ["node.json"]
    again.close()
    assert NodeDirectory(tmp_path / "other", "c").membership.node != first.membership.node


def test_the_clusters_id_is_not_shown(tmp_path: Path) -> None:
    """It is what nodes know one another by."""
    directory = NodeDirectory(tmp_path, "c")
    directory.belong(CLUSTER)
    assert CLUSTER.hex() not in repr(directory.membership)
    assert str(CLUSTER) not in repr(directory.membership)


def test_a_directory_of_another_cluster_is_refused(tmp_path: Path) -> None:
    """By the cluster's name; its id is compared with Kafka's when the node joins. (§6)"""
    joined(tmp_path)
    assert 'of cluster "c", and TOPICS_CLUSTER_NAME is "d"' in refusal(tmp_path, "d")


def test_a_single_servers_directory_is_refused(tmp_path: Path) -> None:
    """Its topics would not be in the log. (§6)"""
    (tmp_path / "topics.id").touch()
    (tmp_path / "0000000001.wal").touch()
    assert "of a single server" in refusal(tmp_path)


def test_what_is_no_directory_of_a_node_is_refused(tmp_path: Path) -> None:
    """And left as it is."""
    (tmp_path / "lost+found").mkdir()
    NodeDirectory(tmp_path, "c").close()
    (tmp_path / "thesis.tex").touch()
    assert 'it holds "thesis.tex"' in refusal(tmp_path)
    file = tmp_path / "thesis.tex"
    with pytest.raises(Unusable):
        NodeDirectory(file, "c")


def test_one_process_has_it(tmp_path: Path) -> None:
    """Before anything in it is opened: two processes must not speak under one node's id."""
    first = NodeDirectory(tmp_path, "c")
    with pytest.raises(InUse):
        NodeDirectory(tmp_path, "c")
    first.close()
    NodeDirectory(tmp_path, "c").close()


def test_a_closed_one_is_free_though_a_child_has_its_descriptors(tmp_path: Path) -> None:
    """A process that is being started has those of its parent until it runs its program."""
    folder = os.open(tmp_path, os.O_RDONLY)
    os.close(folder)  # the lowest that is free: the next to be opened
    first = NodeDirectory(tmp_path, "c")
    childs = os.dup(folder)
    assert Path(f"/proc/self/fd/{childs}").samefile(tmp_path)
    first.close()
    NodeDirectory(tmp_path, "c").close()
    os.close(childs)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"format": 1, "name": "c", "node": "n"}', "cannot be read"),
        ('{"format": 1, "name": "c", "cluster": "00", "node": "n"}', "cannot be read"),
        (
            '{"format": 1, "name": "c", "cluster": "00", "node": ""}'.replace("00", "00" * 16),
            "cannot",
        ),
        ('{"format": 2}', "newer"),
    ],
)
def test_a_file_that_cannot_be_read_is_told(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "node.json").write_text(text)
    assert what in refusal(tmp_path)


def test_a_start_that_was_killed_while_it_wrote_the_file_begins_again(tmp_path: Path) -> None:
    """The file has its name once it is durable."""
    (tmp_path / "node.json.tmp").write_text('{"form')
    directory = NodeDirectory(tmp_path, "c")
    assert directory.membership.cluster is None
    directory.belong(CLUSTER)
    directory.close()
    assert NodeDirectory(tmp_path, "c").membership.cluster == CLUSTER


def test_a_new_node_may_begin_with_a_copy_of_anothers_store(tmp_path: Path) -> None:
    """It is a node of its own: its id is another one. (§6)"""
    first = joined(tmp_path / "first")
    (tmp_path / "second" / "store").mkdir(parents=True)

    second = NodeDirectory(tmp_path / "second", "c")

    assert second.membership.node != first
    assert second.membership.cluster is None
    assert second.store == tmp_path / "second" / "store"
