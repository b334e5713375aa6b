"""`topics routers`: the routers, as a table or as a graph."""

import sys
from collections import defaultdict
from typing import TYPE_CHECKING

import click

from topics.cli.completion import topic_option
from topics.cli.exits import UNUSABLE, Stop, output, print_rich
from topics.cli.target import with_client
from topics.cli.watch import visible

if TYPE_CHECKING:
    from collections.abc import Iterable

    from rich.console import Console
    from rich.text import Text
    from rich.tree import Tree

    from topics.client import Client, RouterSummary


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
            click.echo(msgspec.json.encode(router))
    elif graph:
        print_rich(_console(), *drawings(found))
    else:
        _print_table(list(found))


def _console() -> "Console":
    from rich.console import Console

    # Into a pipe a name is never folded: the program that reads it needs the whole name.
    return Console(
        file=sys.stdout, width=None if sys.stdout.isatty() else 1000, highlight=False, markup=False
    )


def _print_table(routers: "Iterable[RouterSummary]") -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in ("router", "source", "dest", "filter", "guarantee"):
        table.add_column(name, overflow="fold")
    for name in ("forwarded", "lag"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("blocked", style="red")
    for router in routers:
        table.add_row(
            router.router,
            router.source,
            router.dest,
            filter_of(router),
            router.guarantee,
            f"{router.forwarded_total:,}",
            f"{router.lag:,}",
            router.blocked.code if router.blocked is not None else "",
        )
    print_rich(_console(), table)


def filter_of(router: "RouterSummary") -> str:
    """The tags that a router forwards, as a person would write them; empty for all."""
    match router.filter:
        case None:
            return ""
        case str(pattern):
            return visible(pattern)
        case (_, "Eq", pattern) if pattern.endswith("*"):
            return f"= {visible(pattern)}"
        case (_, _, pattern):
            return visible(pattern)


def drawings(routers: "Iterable[RouterSummary]") -> "list[Tree]":
    """The graph as trees: one from each topic that is a source and no destination; and for the
    routers that are left, which lie on rings or behind them, one from the first topic of each
    ring."""
    from rich.text import Text
    from rich.tree import Tree

    edges: dict[str, list[RouterSummary]] = defaultdict(list)
    source_of: dict[str, str] = {}
    for router in sorted(routers, key=lambda router: router.router):
        edges[router.source].append(router)
        source_of[router.dest] = router.source
    drawn: set[str] = set()
    trees = []
    for topic in sorted(edges, key=lambda topic: (topic in source_of, topic)):
        if topic not in drawn:
            root = _upstream(topic, source_of)
            tree = Tree(Text(root, style="bold cyan"))
            _grow(tree, root, edges, drawn)
            trees.append(tree)
    return trees


def _upstream(topic: str, source_of: dict[str, str]) -> str:
    """The first topic upstream of a topic: one without a source, or the first of a ring by name."""
    seen: dict[str, int] = {}
    while topic not in seen:
        seen[topic] = len(seen)
        if topic not in source_of:
            return topic
        topic = source_of[topic]
    return min(list(seen)[seen[topic] :])


def _grow(
    tree: "Tree", root: str, edges: "dict[str, list[RouterSummary]]", drawn: set[str]
) -> None:
    """Add all that is downstream of a root to its tree, the branches of each topic once.

    With an explicit stack, because a chain may be longer than Python's recursion limit.
    """
    from rich.text import Text

    path: list[str] = []
    stack: list[tuple[int, str, Tree, Text]] = [(0, root, tree, Text())]
    while stack:
        depth, topic, branch, label = stack.pop()
        del path[depth:]
        if topic in path:
            label.append("  (a ring)", style="not dim bold")
        elif topic in drawn:
            label.append("  (drawn above)" if topic in edges else "")
        else:
            drawn.add(topic)
            path.append(topic)
            labels = [(router.dest, _edge(router)) for router in edges.get(topic, ())]
            below = [(depth + 1, dest, branch.add(text), text) for dest, text in labels]
            stack += reversed(below)


def _edge(router: "RouterSummary") -> "Text":
    from rich.text import Text

    text = Text(f"{router.router} -> ", style="dim")
    text.append(router.dest, style="not dim cyan")
    if only := filter_of(router):
        text.append(f"  only {only}", style="not dim magenta")
    if router.lag:
        text.append(f"  lag {router.lag:,}", style="not dim yellow")
    if router.blocked is not None:
        text.append(f"  blocked: {router.blocked.code}", style="not dim red")
    return text
