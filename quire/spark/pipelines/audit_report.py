"""What an audit found: as plain values, the verdict over it, and as tables, printed for people."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from rich.console import Console
from rich.text import Text

from quire.spark.pipelines.files import Table, print_table, time_text
from quire.spark.pipelines.judgement import COUNTS, LATENCIES, PERCENTILES

Row = dict[str, Any]

PROBLEMS = ("lost", "duplicated_flagged", "duplicated_unflagged", "out_of_order")
"""The counts of what is not as it should be."""


_NAMED = 10
"""How many of the destinations that were left out a note names."""


class Verdict(StrEnum):
    """What an audit says in the end."""

    OK = "ok"
    """Every committed message was acknowledged, in order, and delivered once."""
    NO_FAULT = "no fault"
    """The broker did nothing wrong, as far as the ledger goes; but not every message was delivered, or some twice."""
    NOT_OK = "not ok"
    """Something is lost, came twice without the flag or after its end, or out of order; or nothing is proved."""


@dataclass(frozen=True, slots=True)
class Expectations:
    """What an audit expects: the depths of destinations (``drained``: 0 for all others), and whether order counts.

    ``subscriber`` is whose deliveries of topics and streams are judged; with ``destinations`` only these are.
    """

    depths: Mapping[str, int] = field(default_factory=dict)
    drained: bool = False
    any_order: bool = False
    subscriber: str | None = None
    destinations: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AuditReport:
    """What an audit found: counts and latencies, as lists of percentiles in milliseconds or None.

    ``windows`` has them for each ``destination`` and ``start``; ``final`` says whether one is over. ``consumers``
    begins with the slowest; ``window`` is the length of a window in seconds. ``late`` events came later than the delay
    allows; they are judged all the same.
    """

    total: Row
    destinations: list[Row]
    windows: list[Row]
    consumers: list[Row]
    late: int = 0
    reasons: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    any_order: bool = False
    window: float = 60.0

    @property
    def verdict(self) -> Verdict:
        """The verdict, as far as the ledger goes."""
        if self.reasons:
            return Verdict.NOT_OK
        return Verdict.NO_FAULT if self._exceptions() else Verdict.OK

    @property
    def sentence(self) -> str:
        """The verdict, in words, with what keeps it from being OK."""
        match self.verdict:
            case Verdict.NOT_OK:
                found = [*self._faults(), *self._exceptions()]
                return f"NOT OK: {', '.join(found) if self._faults() else 'nothing is proved'}"
            case Verdict.NO_FAULT:
                return f"NO FAULT, but not all were delivered once: {', '.join(self._exceptions())}"
            case Verdict.OK:
                return f"OK: {self.total['committed']} delivered,{'' if self.any_order else ' in order,'} once"

    @property
    def faults(self) -> list[str]:
        """The names of the counts that are faults."""
        return [name for name in PROBLEMS if not (name == "out_of_order" and self.any_order)]

    @property
    def bad_windows(self) -> list[Row]:
        return [row for row in self.windows if any([row[name] for name in self.faults])]

    def _faults(self) -> list[str]:
        return [f"{self.total[name]} {_FAULTS[name]}" for name in self.faults if self.total[name]]

    def _exceptions(self) -> list[str]:
        return [f"{self.total[name]} {text}" for name, text in _EXCEPTIONS.items() if self.total[name]]


_FAULTS = {
    "lost": "lost",
    "duplicated_unflagged": "delivered again without the flag",
    "duplicated_flagged": "delivered again after the acknowledgement",
    "out_of_order": "out of order",
}
"""What is a fault, in words."""

_EXCEPTIONS = {
    "redelivered": "redelivered",
    "dead_lettered": "dead-lettered",
    "expired": "expired",
    "removed": "removed",
    "open": "open",
}
"""What is no fault, and yet not a message that was delivered once."""


def compared(
    total: Row, destinations: Sequence[Row], windows: list[Row], consumers: list[Row], late: int, wanted: Expectations,
    left_out: Sequence[str] = (),
) -> AuditReport:  # fmt: skip
    """The report: what was counted, compared with what is expected; ``left_out`` names what was not counted."""
    rows, notes, reasons = list[Row](), list[str](), list[str]()
    for row in destinations:
        depth = wanted.depths.get(row["destination"], 0 if wanted.drained else None)
        compared = row if depth is None else _with_depth(row, depth, notes)
        rows.append(compared)
        reasons += _reasons(compared, compared["lost"] - row["lost"], wanted)
    sums = {name: sum(row[name] for row in rows) for name in ("open", "lost")}
    unknown = {*wanted.depths, *wanted.destinations} - {*left_out, *[row["destination"] for row in rows]}
    notes += [f"the ledger has no events of {name}" for name in sorted(unknown)]
    if not any(row["committed"] for row in rows):
        reasons.append("the ledger has no committed messages: nothing is proved")
    for row in rows:
        notes += _notes(row)
    if left_out:
        names = ", ".join([*left_out[:_NAMED], *(["..."] if len(left_out) > _NAMED else [])])
        who = wanted.subscriber or "the subscriber"
        notes.append(f"{who} received nothing of {names}: not audited; --destination NAME audits what it should read")
    if late:
        notes.append(f"{late} events arrived later than the delay allows; the audit includes them")
    return AuditReport(total | sums, rows, windows, consumers, late, reasons, notes, wanted.any_order)


def _with_depth(row: Row, depth: int, notes: list[str]) -> Row:
    """A destination's counts when it is known how many messages it still has: how many are lost, but not which.

    What precedes all that a subscriber received stays open: it may have subscribed later.
    """
    waiting = row["open"] - row["before"]
    if depth > waiting:
        notes.append(
            f"{row['destination']} has {depth - waiting} more messages than are open in the ledger, which may have "
            "begun later"
        )
    missing = max(waiting - depth, 0)
    return row | {"open": row["open"] - missing, "lost": row["lost"] + missing, "depth": depth}


def _reasons(row: Row, missing: int, wanted: Expectations) -> list[str]:
    """What is wrong with a destination; ``missing`` of its lost messages are in excess of its depth."""
    depth = row.get("depth")
    option = f"--depth {depth}" if row["destination"] in wanted.depths else "--drained"
    found = [
        (row["lost"] - missing, "lost: committed, without an end, and not in the destination"),
        (missing, f"lost: committed, without an end, and more than the {depth} that are left according to {option}"),
        (row["duplicated_unflagged"], "delivered again without the redelivered flag"),
        (row["duplicated_flagged"], "delivered again after their acknowledgement, with the redelivered flag"),
        (0 if wanted.any_order else row["out_of_order"], "delivered out of order"),
    ]
    return [f"{row['destination']}: {count} {text}" for count, text in found if count]


def _notes(row: Row) -> list[str]:
    found = [
        (max(row["sent"] - row["committed"], 0), "sent but not committed: the broker confirmed none of them"),
        (row["earlier"], "older than the ledger: the audit does not check their ends"),
        (
            0 if "depth" in row else row["open"] - row["before"],
            "open; with --depth, --drained or --browse the audit tells whether they are lost",
        ),
        (row["before"], "open, sent before all that the subscriber received: lost, or older than its subscription"),
        (row["redelivered"], "deliveries with the redelivered flag: a consumer may have received the message before"),
        (row["dead_lettered"], "dead-lettered"),
        (row["expired"], "expired"),
        (row["removed"], "removed by an operator or by retention"),
    ]
    return [f"{row['destination']}: {count} {text}" for count, text in found if count]


_PRINTED = 20
_STYLES = {Verdict.OK: "bold green", Verdict.NO_FAULT: "bold yellow", Verdict.NOT_OK: "bold red"}
_HEADINGS = [name.replace("_", " ") for name in COUNTS]
_PERCENTILES = [f"p{round(share * 100)}" if share < 1 else "max" for share in PERCENTILES]


def print_report(report: AuditReport, console: Console) -> None:
    """Print a report: verdict, counts, latencies, slow consumers, and the windows in which something is wrong."""
    print_table(console, "Messages", _side_by_side(report))
    print_table(console, "Latency (ms)", latencies(report))
    print_table(console, "Slowest consumers (ms)", consumers(report))
    if bad := report.bad_windows:
        title = f"Windows with problems: {len(bad)} of {len(report.windows)}"
        print_table(console, title, windows(bad[:_PRINTED], COUNTS[-4:]))
    for note in report.notes:
        console.print(Text(f"note: {note}", style="dim"))
    for reason in report.reasons:
        console.print(Text(f"- {reason}", style="red"))
    console.print(Text(report.sentence, style=_STYLES[report.verdict]))


def messages(report: AuditReport) -> Table:
    """The counts of each destination, and of all."""
    rows = [*report.destinations, report.total | {"destination": "all"}]
    return Table(["destination", *_HEADINGS], [[row["destination"], *_counts(row)] for row in rows])


def latencies(report: AuditReport) -> Table:
    """The percentiles of each latency that a destination has."""
    rows = [
        [row["destination"], text, *row[name]]
        for row in report.destinations
        for name, text in LATENCIES.items()
        if row[name] is not None
    ]
    return Table(["destination", "latency", *_PERCENTILES], rows)


def consumers(report: AuditReport) -> Table:
    rows = [[row["destination"], row["consumer"], row["acknowledged"], *row["handled"]] for row in report.consumers]
    return Table(["destination", "consumer", "acknowledged", *_PERCENTILES], rows)


def windows(rows: Sequence[Row], names: Sequence[str] = COUNTS) -> Table:
    headings = ["window", "destination", *[name.replace("_", " ") for name in names]]
    return Table(headings, [[_when(row), row["destination"], *[row[name] for name in names]] for row in rows])


def _side_by_side(report: AuditReport) -> Table:
    """One column per destination: there are more counts than fit beside each other."""
    columns = messages(report).rows[:-1][:_PRINTED]
    if len(report.destinations) > 1:
        columns = [*columns, messages(report).rows[-1]]
    headings, *rows = [list(row) for row in zip(["", *_HEADINGS], *columns, strict=True)]
    return Table([str(heading) for heading in headings], rows)


def _counts(row: Row) -> list[int]:
    return [row[name] for name in COUNTS]


def _when(row: Row) -> str:
    return time_text(row["start"]) + ("" if row["final"] else " (not complete)")
