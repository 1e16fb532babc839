"""Reports as HTML pages, out of the templates in ``templates/``."""

from collections.abc import Sequence

from jinja2 import Environment, PackageLoader, StrictUndefined

from quire.spark.pipelines.audit_printing import consumers, latencies, messages, windows
from quire.spark.pipelines.audit_report import PROBLEMS, AuditReport, Row, Verdict
from quire.spark.pipelines.charts import bar_chart, line_chart
from quire.spark.pipelines.letters_report import LettersReport, groups, sample_table

_COLOURS = {Verdict.OK: "good", Verdict.NO_FAULT: "mixed", Verdict.NOT_OK: "bad"}
_DONE = ("committed", "acknowledged", "redelivered", "dead_lettered", "expired")


def audit_page(report: AuditReport, subtitle: str) -> str:
    """The page of an audit; the subtitle says of what it is, and when it was made."""
    return _rendered(
        "audit.html",
        subtitle=subtitle,
        report=report,
        colour=_COLOURS[report.verdict],
        done=_over_time(report.windows, _DONE),
        wrong=_over_time(report.windows, PROBLEMS),
        messages=messages(report),
        latencies=latencies(report),
        consumers=consumers(report),
        windows=windows(report.bad_windows),
    )


def letters_page(report: LettersReport, subtitle: str) -> str:
    """The page of dead letters; the subtitle says where they are, and when it was made."""
    return _rendered(
        "dead_letters.html",
        subtitle=subtitle,
        report=report,
        groups=[
            (name, bar_chart({row[name]: row["count"] for row in rows[:10]}), groups(rows, name))
            for name, rows in report.groups.items()
        ],
        times=line_chart({"dead letters": {row["start"]: row["count"] for row in report.times}}),
        ages=bar_chart({row["age"]: row["count"] for row in report.ages}),
        samples=sample_table(report),
    )


def _over_time(rows: Sequence[Row], names: Sequence[str]) -> str:
    """A chart of counts of windows, each summed over the destinations."""
    starts = sorted({row["start"] for row in rows})
    sums = {name: dict.fromkeys(starts, 0) for name in names}
    for row in rows:
        for name in names:
            sums[name][row["start"]] += row[name]
    return line_chart({name.replace("_", " "): points for name, points in sums.items()})


def _rendered(template: str, **values: object) -> str:
    """A template with its values, all of which are shown as text, never as HTML."""
    loader = PackageLoader("quire.spark.pipelines")
    environment = Environment(loader=loader, autoescape=True, undefined=StrictUndefined, trim_blocks=True)
    return environment.get_template(template).render(values)
