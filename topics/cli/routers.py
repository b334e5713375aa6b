"""`topics routers`: the routers, as a table or as a graph."""

from collections import defaultdict
from typing import TYPE_CHECKING, Final

import click

from topics.cli.completion import topic_option
from topics.cli.exits import UNUSABLE, Stop, output
from topics.cli.printing import print_table, say_json, say_lines, styled
from topics.cli.target import with_client

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from topics.cli.printing import Part
    from topics.client import Client, RouterSummary

BRANCH: Final = "\u251c\u2500\u2500 "
LAST: Final = "\u2514\u2500\u2500 "


@click.command("routers")
@click.option("--prefix", default="", metavar="TEXT", help="Only names that begin with it.")
@topic_option("--source", metavar="TOPIC", help="Only routers that forward from it.")
@topic_option("--dest", metavar="TOPIC", help="Only routers that forward to it.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object a line.")
@click.option("--graph", is_flag=True, help="Draw what flows where, from the topics it begins in.")
@with_client
def command(
    client: "Client",
    prefix: str,
    source: str | None,
    dest: str | None,
    as_json: bool,
    graph: bool,
) -> None:
    """List the routers: what they forward, how far behind they are, and what blocks them.

    \b
    topics routers --source orders
    topics routers --graph
    """
    if as_json and graph:
        raise Stop("--json and --graph exclude each other", UNUSABLE)
    output()
    found = client.routers(prefix=prefix, source=source, dest=dest)
    if as_json:
        import msgspec

        for router in found:
            say_json(msgspec.json.encode(router))
    elif graph:
        say_lines(drawing(found))
    else:
        _print_table(found)


def _print_table(routers: "Iterable[RouterSummary]") -> None:
    print_table(
        *("<router", "<source", "<dest", "<filter", "<guarantee", ">forwarded", ">lag", "<blocked"),
        rows=map(_row, routers),
    )


def _row(router: "RouterSummary") -> "list[Part]":
    return [
        router.router,
        router.source,
        router.dest,
        filter_of(router),
        router.guarantee,
        f"{router.forwarded_total:,}",
        f"{router.lag:,}",
        styled(router.blocked.code if router.blocked is not None else "", fg="red"),
    ]


def filter_of(router: "RouterSummary") -> str:
    """The tags that a router forwards, as a person would write them; empty for all."""
    match router.filter:
        case None:
            return ""
        case str(pattern):
            return pattern
        case (_, "Eq", pattern) if pattern.endswith("*"):
            return f"= {pattern}"
        case (_, _, pattern):
            return pattern


def drawing(routers: "Iterable[RouterSummary]") -> "Iterator[list[Part]]":
    """The lines of the graph, as trees: one from each topic that is a source and no destination; and
    for the routers that are left, which lie on rings or behind them, one from the first topic of each
    ring."""
    edges: dict[str, list[RouterSummary]] = defaultdict(list)
    source_of: dict[str, str] = {}
    for router in sorted(routers, key=lambda router: router.router):
        edges[router.source].append(router)
        source_of[router.dest] = router.source
    drawn: set[str] = set()
    for topic in sorted(edges, key=lambda topic: (topic in source_of, topic)):
        if topic not in drawn:
            root = _upstream(topic, source_of)
            yield [styled(root, bold=True, fg="cyan")]
            yield from _grown(root, edges, drawn)


def _upstream(topic: str, source_of: dict[str, str]) -> str:
    """The first topic upstream of a topic: one without a source, or the first of a ring by name."""
    seen: dict[str, int] = {}
    while topic not in seen:
        seen[topic] = len(seen)
        if topic not in source_of:
            return topic
        topic = source_of[topic]
    return min(list(seen)[seen[topic] :])


def _grown(
    root: str, edges: "dict[str, list[RouterSummary]]", drawn: set[str]
) -> "Iterator[list[Part]]":
    """The lines of all that is downstream of a root, the branches of each topic once.

    With an explicit stack, because a chain may be longer than Python's recursion limit.
    """
    drawn.add(root)
    path = [root]
    stack = _branches(edges, root, "", 1)
    while stack:
        depth, before, corner, router = stack.pop()
        topic = router.dest
        del path[depth:]
        line: list[Part] = [styled(before + corner, dim=True), *_edge(router)]
        if topic in path:
            line.append(styled("  (a ring)", bold=True))
        elif topic in drawn:
            line += ["  (drawn above)"] if topic in edges else []
        else:
            drawn.add(topic)
            path.append(topic)
            stem = before + ("\u2502   " if corner == BRANCH else "    ")
            stack += _branches(edges, topic, stem, depth + 1)
        yield line


def _branches(
    edges: "dict[str, list[RouterSummary]]", topic: str, stem: str, depth: int
) -> "list[tuple[int, str, str, RouterSummary]]":
    """What hangs on a topic, the last one first."""
    found = edges.get(topic, ())
    last = len(found) - 1
    made = [(depth, stem, LAST if n == last else BRANCH, each) for n, each in enumerate(found)]
    return made[::-1]


def _edge(router: "RouterSummary") -> "list[Part]":
    parts: list[Part] = [
        styled(f"{router.router} -> ", dim=True),
        styled(router.dest, fg="cyan"),
    ]
    if only := filter_of(router):
        parts.append(styled(f"  only {only}", fg="magenta"))
    if router.lag:
        parts.append(styled(f"  lag {router.lag:,}", fg="yellow"))
    if router.blocked is not None:
        parts.append(styled(f"  blocked: {router.blocked.code}", fg="red"))
    return parts
