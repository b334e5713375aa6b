"""The types of the TypeScript client, from the document of the API; `make generate` runs it.

    python -m tests.clients.generate

It needs npm. Without it nothing is changed, and it says so.
"""

import shutil
import subprocess
from pathlib import Path
from typing import Final

from topics.protocol.faces.http.openapi.document import document

PACKAGE: Final = Path(__file__).parents[2] / "clients" / "typescript"


def main() -> None:
    npm = shutil.which("npm")
    if npm is None:
        print("no npm: the types of the TypeScript client stay as they are")
        return
    subprocess.run([npm, "install", "--silent", "--no-audit", "--no-fund"], cwd=PACKAGE, check=True)
    line = ["node", "scripts/generate.mjs", "-"]
    subprocess.run(line, cwd=PACKAGE, input=document(), check=True)


if __name__ == "__main__":
    main()
