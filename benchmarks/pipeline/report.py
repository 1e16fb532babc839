"""What was measured as a table, and what bounds each way to read."""

from collections.abc import Iterable, Iterator
from pathlib import Path
from statistics import median

from benchmarks.compare import replace_table
from benchmarks.pipeline.reading import Run
from benchmarks.pipeline.speed import STORE, Audited, Beside, Measured

PAGE = Path(__file__).parents[2] / "docs" / "performance.md"

BUSY = 0.9
"""What is busy for so large a part of the time is what bounds a read."""

_HEADS = (
    "Read",
    "To",
    "First",
    "Warm",
    "Rate, warm",
    "Beside Kafka's",
    "Java",
    "Python",
    "Bulk server",
    "Broker",
    "Bounded by",
)


def table(found: Iterable[Measured], cores: int) -> str:
    """The table: seconds, messages a second, the ratio to Kafka's rate, microseconds of processor a message."""
    found = list(found)
    rates = {one.sink: _rate(_warm(one.runs)) for one in found if one.source == "kafka"}
    rows = [_HEADS, ["---"] * len(_HEADS), *[_row(one, rates.get(one.sink), cores) for one in found]]
    return "\n".join([f"| {' | '.join(row)} |" for row in rows])


def beside(found: Beside) -> str:
    alone, with_reader = median(found.alone), median(found.beside)
    return (
        f"`confirm`, the broker on one core, all else on the others: {alone:,.0f}/s alone, {with_reader:,.0f}/s beside "
        f"a reader ({with_reader / alone:.2f}; medians of {len(found.alone)} rounds)."
    )


def audits(found: Iterable[Audited]) -> str:
    rows = [("Messages", "Time", "Messages a second"), ("---", "---", "---")]
    for one in found:
        rate = f"{one.messages / one.seconds:,.0f}" if one.messages else ""
        rows.append((f"{one.messages:,}" if one.messages else "Spark alone", f"{one.seconds:.1f} s", rate))
    return "\n".join([f"| {' | '.join(row)} |" for row in rows])


def write(name: str, text: str) -> None:
    PAGE.write_text(replace_table(PAGE.read_text("utf-8"), name, text), "utf-8")


def _row(one: Measured, kafka: float | None, cores: int) -> Iterator[str]:
    first, warm = one.runs[0], _warm(one.runs)
    yield _name(one)
    yield "Parquet" if one.sink == "parquet" else "nothing"
    yield f"{first.elapsed:.1f} s"
    yield f"{warm.elapsed:.1f} s"
    yield f"{_rate(warm):,.0f}/s"
    yield "" if kafka is None else f"{_rate(warm) / kafka:.2f}"
    for used in (warm.java, warm.python, sum(warm.bulk), warm.server):
        yield f"{used / warm.rows * 1e6:.1f} µs"
    yield bound(warm, cores)


def _name(one: Measured) -> str:
    if one.source == "kafka":
        return "Kafka's source"
    if one.readers == STORE:
        return "the store itself"
    return f"bulk server, {one.readers} process{'es' if one.readers != '1' else ''}"


def _warm(runs: list[Run]) -> Run:
    """The run with the median time of those after the first."""
    later = sorted(runs[1:] or runs, key=lambda run: run.elapsed)
    return later[len(later) // 2]


def _rate(run: Run) -> float:
    return run.rows / run.elapsed


def bound(run: Run, cores: int) -> str:
    own = run.java + run.python + run.server + sum(run.bulk)
    if max(run.bulk, default=0.0) > BUSY * run.elapsed:
        return "the bulk server"
    if run.machine > BUSY * cores * run.elapsed:
        other = run.machine - own
        return "processors" if other < (1 - BUSY) * run.machine else "processors, which had other work"
    return "waiting"
