"""``quire doctor``: examines settings, machine and broker, and says in words what to mend."""

import os
from pathlib import Path

import click

from quire.cli.config import setting_flags
from quire.cli.output import Output, output_option, printable
from quire.errors import QuireError
from quire.settings import load

SIGNS = {"ok": "ok      ", "note": "note    ", "warning": "WARNING ", "problem": "PROBLEM "}


@click.command()
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@setting_flags
@output_option
@click.pass_context
def doctor(context: click.Context, file: Path | None, flags: dict[str, object]) -> None:
    """Examine settings, machine and broker, and say what to mend.

    Give the options of `broker start`. It works with the broker up or down. The exit code is 1 if there is a problem.
    """
    output = context.ensure_object(Output)
    from quire.cli.examination import Examination, Finding  # it needs the stores
    from quire.store.disk import private_files

    try:
        findings = Examination(load(file, os.environ, flags), file=file).findings()
    except QuireError as error:
        findings = iter([Finding("settings", "problem", str(error), error.entry.advice)])
    worst = "ok"

    def told() -> "list[Finding]":
        nonlocal worst
        with private_files():  # a look at a store writes to its lock file
            found = list(findings)
        worst = max((finding.state for finding in found), key=list(SIGNS).index, default="ok")
        return found

    output.texts(
        (finding._asdict() for finding in told()),
        ["check", "state", "text", "advice"],
        lambda row: _line(row["check"], row["state"], row["text"], row["advice"]),
    )
    context.exit(1 if worst == "problem" else 0)


def _line(check: str, state: str, text: str, advice: str) -> str:
    line = f"{SIGNS[state]}{check}: {printable(text)}"
    return f"{line}\n        what to do: {printable(advice)}" if advice else line
