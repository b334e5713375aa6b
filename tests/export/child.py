"""A process that starts exports, each a process of its own that can be killed.

    python -m export.child DATA_DIR LAKE FORMAT BY

For each line of standard input it starts an export and prints its id. The export prints the name of each
call that touches the disk, and waits for a byte of standard input before it makes the call. When the export has
ended, `end` and its status are printed.
"""

import os
import sys
from typing import Any

from topics.arrow.local import LocalSource
from topics.export.engines import FileExport
from topics.export.lake import OsLake
from topics.export.manifest import Settings
from topics.export.planning import Sizer
from topics.export.run import ExportJob, ExportRun
from topics.export.target import open_target

from .exporting import Quiet

TOLD = ("create", "append", "rename", "sync_directory", "unlink")


class Telling(OsLake):
    """A lake of the operating system whose calls wait until the test has heard of them."""

    def __getattribute__(self, name: str) -> Any:
        if name in TOLD:
            # In one call: `print` may write the line and its end in two, with a kill between them.
            os.write(sys.stdout.fileno(), f"{name}\n".encode())
            os.read(sys.stdin.fileno(), 1)
        return super().__getattribute__(name)


def export(data_dir: str, lake: str, format: Any, by: Any) -> None:
    with (
        LocalSource(data_dir) as source,
        open_target(Telling(lake), Settings(format, by)) as target,
    ):
        run = ExportRun(
            source, FileExport(target, target_bytes=1 << 20), ExportJob(("t",)), Quiet()
        )
        run._sizers["t"] = Sizer(1 << 20, 50)
        run.once()


def main() -> None:
    for _ in sys.stdin:
        # No thread has been started yet in here, so a copy of this process is a whole one.
        pid = os.fork()
        if not pid:
            export(*sys.argv[1:])
            os._exit(0)
        print(pid, flush=True)
        _, status = os.waitpid(pid, 0)
        print("end", os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
