"""What an export holds, by its manifest: read beside a writer, without a change, without pyarrow."""

import subprocess
import sys
from pathlib import Path

import pytest

from topics.export.lake import OsLake
from topics.export.loading import Unusable, load
from topics.export.manifest import Damaged, Settings
from topics.export.planning import MANIFEST
from topics.export.target import open_target

SETTINGS = Settings("parquet", "date")


def test_the_settings_of_an_export_are_in_its_manifest(tmp_path: Path) -> None:
    """Also while another process writes it."""
    with open_target(OsLake(tmp_path), SETTINGS):
        found = load(OsLake(tmp_path)).settings

    assert (found.format, found.by) == ("parquet", "date")


@pytest.mark.parametrize("torn", [None, b"", b'{"kind":"exp'])
def test_where_no_run_has_begun_there_is_none(tmp_path: Path, torn: bytes | None) -> None:
    """Nor where a crash tore the first line: the next run begins anew."""
    if torn is not None:
        (tmp_path / MANIFEST).parent.mkdir(parents=True)
        (tmp_path / MANIFEST).write_bytes(torn)

    with pytest.raises(Unusable, match="there is no export in it"):
        load(OsLake(tmp_path))


def test_a_damaged_manifest_is_not_believed(tmp_path: Path) -> None:
    """A line that does not verify, with another behind it."""
    with open_target(OsLake(tmp_path), SETTINGS):
        pass
    line = (tmp_path / MANIFEST).read_bytes()
    (tmp_path / MANIFEST).write_bytes(line.replace(b"parquet", b"parquot") + line)

    with pytest.raises(Damaged):
        load(OsLake(tmp_path))


def test_a_manifest_takes_no_pyarrow(tmp_path: Path) -> None:
    """Which would take longer to load than all else that `topics export status` does."""
    code = (
        "import sys, topics.export.loading, topics.export.lake\n"
        "assert not {'pyarrow', 'numpy', 'httpx'} & set(sys.modules)\n"
        "import topics.export\n"
        "assert callable(topics.export.dataset) and 'pyarrow' in sys.modules"
    )

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert (done.returncode, done.stderr) == (0, "")
