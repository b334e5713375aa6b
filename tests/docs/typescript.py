"""The TypeScript of a page: its blocks, in their order, are one module, as a reader would type it.

It is checked by the compiler and run by Node, with the client of the checkout.
"""

import json
import os
import shutil
from pathlib import Path
from typing import Final

import pytest

from .pages import ROOT
from .place import Place, run

PACKAGE: Final = ROOT / "clients" / "typescript"
ENDED: Final = "\0"
CHECKED: Final = {
    **{"strict": True, "noEmit": True, "skipLibCheck": True, "target": "es2022", "types": ["node"]},
    **{"module": "nodenext", "moduleDetection": "force"},
}


def require_node() -> None:
    """Skips the test where the client's packages cannot be had."""
    if not PACKAGE.exists() or shutil.which("npm") is None:
        pytest.skip("the page of the TypeScript client needs its sources, and Node")
    named, installed = PACKAGE / "package.json", PACKAGE / "node_modules/.package-lock.json"
    if installed.exists() and installed.stat().st_mtime >= named.stat().st_mtime:
        return
    npm = ["npm", "install", "--silent", "--no-audit", "--no-fund"]
    try:
        run(npm, PACKAGE, dict(os.environ))
    except AssertionError as error:
        pytest.skip(f"npm cannot install what the page needs: {str(error)[-300:]}")


def printed(codes: list[str], place: Place) -> list[str]:
    """What each block printed.

    Raises:
        AssertionError: The compiler or the program complained.
    """
    folder = place.folder
    tools = PACKAGE / "node_modules"
    client = folder / "client"
    bundle = ["--bundle", "--format=esm", "--log-level=error"]
    esbuild = str(tools / ".bin/esbuild")
    run(
        [esbuild, str(PACKAGE / "src/index.ts"), *bundle, f"--outfile={client}/index.js"],
        *_at(place),
    )
    (folder / "page.ts").write_text(
        "\n".join(f"{place.here(code)}\nconsole.log({json.dumps(ENDED)});" for code in codes)
    )
    paths = {"topics-client": [str(PACKAGE / "src/index.ts")]}
    options = {**CHECKED, "paths": paths, "typeRoots": [str(tools / "@types")]}
    project = {"compilerOptions": options, "include": ["page.ts"]}
    (folder / "tsconfig.json").write_text(json.dumps(project))
    (folder / "package.json").write_text('{"type": "module"}')
    run([str(tools / ".bin/tsc"), "-p", "tsconfig.json"], *_at(place))
    alias = f"--alias:topics-client={client}/index.js"
    run([esbuild, "page.ts", *bundle, alias, "--outfile=page.mjs"], *_at(place))
    return run(["node", "page.mjs"], *_at(place)).split(ENDED)


def _at(place: Place) -> tuple[Path, dict[str, str]]:
    return place.folder, place.environment
