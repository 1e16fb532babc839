"""What a soak found, as figures with the promises about them, and times by what happened."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence

from benchmarks.cluster.soak import Outage, Result
from benchmarks.scenarios.scenario import Finding, at_most, exactly
from quire.cli.output import Column

LIMITS = {"broker killed": 10.0, "broker suspended": 10.0}
"""How long a shard may be without service when its broker is lost, in seconds, also on a machine that is busy."""

OUTAGE_COLUMNS = [
    Column("event", "Event"), Column("shards", "Shards"), Column("least", "Least s"), Column("median", "Median s"),
    Column("most_of_10", "90 % s"), Column("most", "Most s"),
]  # fmt: skip

KINDS = {
    "came back after its acknowledgement": "acknowledged_and_back",
    "came back without the flag": "unflagged_duplicates",
    " was stored ": "stored_twice",
    " only [": "transactions_in_part",
    "out of order": "out_of_order",
    " came after ": "out_of_order",
    "second consumer": "groups_at_two_consumers",
    "does not select": "not_selected",
    "a gap": "stream_gaps",
    "progress of": "progress_back",
}
"""By what a violation says, what it is counted as."""


def kind_of(violation: str) -> str:
    """What a violation is counted as."""
    return next((kind for text, kind in KINDS.items() if text in violation), "other")


def findings(result: Result) -> list[Finding]:
    """All figures."""
    load, java = result.load, result.java.values()
    broken = Counter([kind_of(violation) for violation in result.violations])
    owners = [violation for commits in result.commits for violation in commits.violations]
    counts = {kind: broken[kind] for kind in (*dict.fromkeys(KINDS.values()), "other")}
    counts["unflagged_duplicates"] += sum([outcome.doubled for outcome in java])
    counts["out_of_order"] += sum([outcome.disorder for outcome in java])
    counts["transactions_in_part"] += sum([outcome.torn for outcome in java])
    return [
        Finding("rounds", result.rounds),
        Finding("confirmed", load.confirmed + sum([outcome.confirmed for outcome in java])),
        Finding("received", load.received + sum([outcome.received for outcome in java])),
        Finding("redelivered", load.redelivered + sum([outcome.redelivered for outcome in java])),
        at_most("lost", result.missing + sum([outcome.lost for outcome in java]), 0),
        *[at_most(kind, count, 0) for kind, count in counts.items()],
        exactly("left_in_queues", sum(result.left.values()), 0),
        Finding("dead_letters_of_java_s_own", result.suppressed),
        at_most("two_owners", len(owners), 0),
        Finding("commits", sum([commits.commits for commits in result.commits])),
        Finding("epochs", sum([commits.epochs for commits in result.commits])),
        *[
            at_most(f"{event.replace(' ', '_')}_seconds", max(seconds), LIMITS[event])
            for event, seconds in _by_event(result.outages).items()
            if event in LIMITS
        ],
    ]


def rows(outages: Iterable[Outage]) -> list[dict[str, object]]:
    """How long shards were not served, by what happened."""
    found = []
    for event, seconds in sorted(_by_event(outages).items()):
        shown = [seconds[0], _quantile(seconds, 0.5), _quantile(seconds, 0.9), seconds[-1]]
        least, median, most_of_10, most = [round(each, 2) for each in shown]
        found.append(
            {
                "event": event,
                "shards": len(seconds),
                "least": least,
                "median": median,
                "most_of_10": most_of_10,
                "most": most,
            }
        )
    return found


def _by_event(outages: Iterable[Outage]) -> dict[str, list[float]]:
    """The times of each event, in ascending order."""
    found: defaultdict[str, list[float]] = defaultdict(list)
    for outage in outages:
        found[outage.event].append(outage.seconds)
    return {event: sorted(seconds) for event, seconds in found.items()}


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]
