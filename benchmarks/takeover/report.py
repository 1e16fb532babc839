"""How long it took until messages were confirmed again, as a table by kind."""

from collections import defaultdict
from collections.abc import Iterable

from benchmarks.takeover.rounds import Outage


def table(outages: Iterable[Outage]) -> str:
    """A table in Markdown: each kind, how often, how often the other broker took over, seconds."""
    by_kind: defaultdict[str, list[Outage]] = defaultdict(list)
    for outage in outages:
        by_kind[outage.kind].append(outage)
    lines = ["| kind | rounds | moved | least | median | 95 % | most |", "|---|---|---|---|---|---|---|"]
    for kind, found in sorted(by_kind.items()):
        seconds = sorted([outage.seconds for outage in found])
        shown = [seconds[0], _quantile(seconds, 0.5), _quantile(seconds, 0.95), seconds[-1]]
        moved = sum([outage.moved for outage in found])
        lines.append(f"| {kind} | {len(found)} | {moved} | " + " | ".join([f"{each:.2f} s" for each in shown]) + " |")
    return "\n".join(lines)


def _quantile(ordered: list[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
