"""What a scenario found: figures, and whether the promises about them were kept."""

from collections.abc import Sequence
from typing import NamedTuple

from quire.cli.output import Column, Output, readable

_COLUMNS = [
    Column("figure", "Figure"), Column("value", "Measured"), Column("promise", "Promised"), Column("kept", "Kept"),
]  # fmt: skip


class Finding(NamedTuple):
    """One figure.

    Attributes:
        figure: its name; ends with the unit, as ``_bytes`` or ``_seconds``.
        value: what was measured.
        promise: what it must be, in words; empty if nothing is promised.
        kept: whether it is; None if nothing is promised.
    """

    figure: str
    value: float
    promise: str = ""
    kept: bool | None = None


def at_most(figure: str, value: float, limit: float) -> Finding:
    """A figure with an upper limit."""
    return Finding(figure, value, f"at most {readable(figure, limit)}", value <= limit)


def at_least(figure: str, value: float, limit: float) -> Finding:
    """A figure with a lower limit."""
    return Finding(figure, value, f"at least {readable(figure, limit)}", value >= limit)


def exactly(figure: str, value: int, wanted: int) -> Finding:
    """A figure that must be what it is."""
    return Finding(figure, value, f"exactly {wanted}", value == wanted)


def report(output: Output, findings: Sequence[Finding]) -> int:
    """Print what was found; the exit code is 1 if a promise was broken."""
    rows = []
    for finding in findings:
        row = finding._asdict()
        if output.format == "table":
            row["value"] = readable(finding.figure, finding.value)
        rows.append(row)
    output.rows(rows, _COLUMNS)
    return int(any(finding.kept is False for finding in findings))
