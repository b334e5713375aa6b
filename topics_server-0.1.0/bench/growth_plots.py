"""Draws what `bench.growth` measured: `python -m bench.growth_plots [--dir DIR]`, an SVG for each chart.

Both axes are logarithmic.  What should be flat is a level line, and what should be linear is drawn for
each unit, so that it is level, too.  A dashed line stands where a cost is first more than `BREAK` times
the least of the sizes before it.
"""

from pathlib import Path
from typing import Final

import click
import matplotlib
import msgspec
from matplotlib.figure import Figure
from matplotlib.ticker import NullLocator

from bench.growth import DATA, PLOTS, Chart, Figures, Line

BREAK: Final = 3.0
"""Less is the difference between a cache that is warm and one that is not."""
INCHES: Final = (7.5, 4.2)


def per_unit(line: Line) -> list[float]:
    """The line as a level one, where it grows as it should."""
    if line.growth == "flat":
        return line.points
    return [cost / size for size, cost in zip(line.sizes, line.points, strict=True)]


def break_of(line: Line) -> int | None:
    """The size at which a line is no longer level; None where it stays so."""
    costs = per_unit(line)
    for i in range(1, len(costs)):
        if costs[i] > BREAK * min(costs[:i]):
            return line.sizes[i]
    return None


def drawn(chart: Chart, machine: str) -> Figure:
    figure = Figure(figsize=INCHES, layout="constrained")
    axes = figure.add_subplot()
    for line in chart.lines:
        unit = "" if line.growth == "flat" else " (each)"
        (shown,) = axes.loglog(
            line.sizes, per_unit(line), marker="o", markersize=3, label=line.name + unit
        )
        if (at := break_of(line)) is not None:
            axes.axvline(at, color=shown.get_color(), linestyle="--", linewidth=0.8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_minor_locator(NullLocator())
    axes.set_xlabel(chart.over)
    axes.set_ylabel("CPU time, microseconds")
    axes.grid(visible=True, which="major", linewidth=0.3)
    axes.set_ylim(bottom=min(0.1, *(min(per_unit(line)) for line in chart.lines)))
    axes.set_title(machine, fontsize=6, loc="right")
    figure.legend(loc="outside right upper", fontsize=7)
    return figure


@click.command()
@click.option("--dir", "where", type=click.Path(path_type=Path), default=PLOTS, show_default=True)
def main(where: Path) -> None:
    """Draw every chart, and say where a line breaks."""
    # Text stays text, and the same figures give the same bytes.
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "topics"})
    found = msgspec.json.decode((where / DATA).read_bytes(), type=Figures)
    for chart in found.charts:
        metadata = {"Date": None, "Creator": None}
        drawn(chart, found.machine).savefig(where / f"{chart.name}.svg", metadata=metadata)
        for line in chart.lines:
            at = break_of(line)
            told = "level" if at is None else f"breaks at {at:,}"
            click.echo(f"{chart.name}: {line.name}, {line.growth}: {told}")


if __name__ == "__main__":
    main()
