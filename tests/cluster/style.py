"""How often each thing happens in a simulated cluster, by kinds of worlds."""

from dataclasses import dataclass, replace


@dataclass(frozen=True)
class Style:
    """How often each thing happens, relative to the others; `trouble` is the share of records that
    do not simply land, `counted` of the nodes that are down and that a trim waits for."""

    ask: float = 8
    end_turn: float = 6
    land: float = 14
    report: float = 14
    read: float = 30
    look: float = 8
    late: float = 0.5
    lead: float = 2
    duel: float = 0.1
    cease: float = 0.1
    give_up: float = 0.2
    pause: float = 0.4
    resume: float = 0.8
    cut_off: float = 0.4
    heal: float = 0.8
    slow: float = 0.3
    quick: float = 0.8
    kill: float = 0.3
    restart: float = 1
    twin: float = 0.0
    sync: float = 3
    checkpoint: float = 0.7
    snapshot: float = 2
    trim: float = 0.3
    trim_lands: float = 0.3
    wipe: float = 0.0
    gap: float = 0.2
    cut: float = 0.0
    trouble: float = 0.1
    counted: float = 0.6


CALM = Style(pause=0.05, cut_off=0.05, kill=0.05, give_up=0.02, trouble=0.0, duel=0.02)
STORM = Style()
KINDS: dict[str, Style] = {
    "calm": CALM,
    "storm": STORM,
    "duel": replace(STORM, duel=1.5, twin=0.2, trouble=0.2, late=2, kill=0.5),
    "twins": replace(STORM, duel=1, twin=1.0, kill=0.6, pause=0.8),
    "trims": replace(
        STORM,
        trim=4,
        trim_lands=4,
        wipe=0.6,
        kill=1.2,
        restart=0.8,
        sync=5,
        checkpoint=2,
        cut_off=0.6,
        counted=0.1,
    ),
    "cuts": replace(STORM, cut=0.1, duel=0.5, late=2, trouble=0.2, slow=1.5, pause=0.8),
}
