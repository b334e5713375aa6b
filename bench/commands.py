"""What a command of the command line costs: `python -m bench.commands [--other CHECKOUT]`.

The CPU time of whole processes, user and system, from a server on the loopback interface.  A round runs
each command once; with `--other`, another checkout's right after it, with what is installed here.
"""

import os
import resource
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import click

from bench.serving import serve_topics

ROOT: Final = Path(__file__).parents[1]
SETTING_UP: Final = (
    "create jobs --type queue",
    'publish events {"n":1}',
    "export run events --to {lake}",
)
COMMANDS: Final = (
    "--version",
    "topics --json",
    "info events",
    'publish events {"n":1}',
    "append events {lines}",
    "read events --limit 1",
    "peek jobs",
    "stats --once --json",
    "work jobs --drain -- true",
    "export status {lake}",
    "export verify {lake}",
)


def cpu_ms(words: Sequence[str], checkout: Path, url: str) -> float:
    """User and system time of a command.

    Raises:
        subprocess.CalledProcessError: It did not end well.
    """
    environ = {name: v for name, v in os.environ.items() if not name.startswith("TOPICS_")}
    environ |= {"TOPICS_URL": url, "PYTHONPATH": str(checkout), "XDG_CONFIG_HOME": "/nowhere"}
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(
        [sys.executable, "-P", "-c", "from topics.cli import main; main()", *words],
        env=environ,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=True,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def table(found: dict[str, list[list[float]]]) -> Iterator[str]:
    heads = ["this", "other"][: len(next(iter(found.values())))]
    yield "| command | " + " | ".join(f"{head}: least, median" for head in heads) + " |"
    yield "|---" * (1 + len(heads)) + "|"
    for line, columns in found.items():
        cells = [f"{min(each):.0f}, {statistics.median(each):.0f} ms" for each in columns]
        yield f"| `{line}` | " + " | ".join(cells) + " |"


@click.command()
@click.option("--rounds", default=15, show_default=True)
@click.option("--other", type=click.Path(path_type=Path), help="A checkout to compare with.")
def main(rounds: int, other: Path | None) -> None:
    """Print a table."""
    checkouts = [ROOT] if other is None else [ROOT, other.absolute()]
    with tempfile.TemporaryDirectory() as made, serve_topics(Path(made)) as serving:
        url = f"http://127.0.0.1:{serving.port}"
        places = {"{lake}": f"{made}/lake", "{lines}": f"{made}/lines.ndjson"}
        Path(places["{lines}"]).write_text('{"n":1}\n')

        def words(line: str) -> list[str]:
            return [places.get(word, word) for word in line.split()]

        for line in SETTING_UP:
            cpu_ms(words(line), ROOT, url)
        found: dict[str, list[list[float]]] = {line: [[] for _ in checkouts] for line in COMMANDS}
        for _ in range(rounds):
            for line, columns in found.items():
                for checkout, column in zip(checkouts, columns, strict=True):
                    column.append(cpu_ms(words(line), checkout, url))
    print("\n".join(table(found)))


if __name__ == "__main__":
    main()
