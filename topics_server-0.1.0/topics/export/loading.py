"""What an export holds, as its manifest says: no data file is opened.

Nothing here imports pyarrow, so that `topics export status` answers at once.
"""

from topics.export.lake import Lake
from topics.export.manifest import Catalogue, decode, fold
from topics.export.planning import MANIFEST


class Unusable(Exception):
    """The directory is no export, or not one that these arguments fit; says what to do."""


def load(lake: Lake) -> Catalogue:
    """What the manifest of an export adds up to, without a change; also beside a writer.

    Raises:
        Unusable: There is none.
        Damaged: It does not verify.
    """
    try:
        data = lake.read(MANIFEST)
    except FileNotFoundError:
        data = b""
    entries = decode(data, MANIFEST)[0]
    if not entries:
        # Also where its first line was torn: the run that writes it begins anew.
        raise Unusable(f"{lake.path}: there is no export in it")
    return fold(entries, MANIFEST)
