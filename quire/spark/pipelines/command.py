"""What the pipelines' commands have in common: options, a Spark session, errors, results."""

import json
import os
import re
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import click

from quire.client.remote_error import remote_error
from quire.errors import ERRORS, InvalidArgument, QuireError
from quire.spark.pipelines.place import DEFAULT_URL, Place
from quire.units import parse_duration

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery
    from rich.console import Console

_SUBMITTED = "PYSPARK_GATEWAY_PORT"
"""``spark-submit`` sets it for the programs it starts."""

_TOLD = re.compile(r"^quire\.errors\.\w+: (.+) \[([a-z-]+)\]$", re.MULTILINE)

Command = TypeVar("Command", bound=Callable[..., Any])


class PipelineCommand(click.Command):
    """A command whose errors are Quire's, also those that come back from Spark."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command.

        Raises:
            QuireError: what went wrong, if it was one.
        """
        try:
            return super().invoke(ctx)
        except Exception as error:
            if (told := told_by(error)) is None:
                raise
            raise told from error


def told_by(error: Exception) -> QuireError | None:
    """The error of Quire's that an error of Spark's is about; None if it is about something else.

    Spark shows errors of its workers as text, in which the data source says what to do, and the code.
    """
    found = _TOLD.search(str(error)) if type(error).__module__.startswith("pyspark.") else None
    if found is None or found[2] not in ERRORS:
        return None
    return remote_error(found[2], found[1].removesuffix(f". {ERRORS[found[2]].advice}"), {})


def spark_options(command: Command) -> Command:
    """The options of Spark on this machine; ``spark-submit`` has its own."""
    memory = click.option(
        "--memory", metavar="SIZE", default="1g", show_default=True, help="The heap of Spark on this machine."
    )
    cores = click.option(
        "--cores", type=click.IntRange(1), default=2, show_default=True, help="How many tasks run at once."
    )
    return cores(memory(command))


def place_options(command: Command) -> Command:
    """The options that say where a pipeline reads; ``place_of`` makes a ``Place`` of them."""
    options = [
        click.option("--url", metavar="URL", help=f"A broker's HTTP API.  [env: QUIRE_URL; default: {DEFAULT_URL}]"),
        click.option("--store", metavar="URL", help="A store, whether a broker runs on it or not, instead of --url."),
        click.option("--parquet", metavar="DIR", help="Parquet files, an archive say, instead of --url."),
        click.option(
            "--option",
            "options",
            metavar="NAME=VALUE",
            multiple=True,
            help="An option for the reader. May be repeated.",
        ),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def place_of(url: str | None, store: str | None, parquet: str | None, options: tuple[str, ...]) -> Place:
    """Where to read, as the options say.

    Raises:
        InvalidArgument: they name two places, or an option has no value.
    """
    if not (url or store or parquet):
        url = os.environ.get("QUIRE_URL") or DEFAULT_URL
    return Place(url, store, parquet, pairs(options, "--option"))


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    """Options as ``NAME=VALUE``.

    Raises:
        InvalidArgument: one has no ``=``.
    """
    found = {}
    for text in texts:
        name, mark, value = text.rpartition("=") if option == "--depth" else text.partition("=")
        if not mark or not name:
            raise InvalidArgument(f"{option} {text!r} is not NAME=VALUE", option=option)
        found[name] = value
    return found


output_option = click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="How results are printed.",
)


def duration(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """A click callback: a duration, in seconds."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def start_session(name: str, cores: int, memory: str) -> "SparkSession":
    """The Spark session of a pipeline: that of ``spark-submit``, or else one on this machine.

    Args:
        name: what Spark's pages call it.
        cores: how many tasks run at once on this machine.
        memory: the most that Java takes for its heap on this machine, as Spark writes it.

    Raises:
        UnsupportedEnvironment: Java is missing or too old, or Spark is.
    """
    import quire.spark

    if _SUBMITTED in os.environ:
        from pyspark.sql import SparkSession

        spark = SparkSession.Builder().appName(f"quire {name}").getOrCreate()
        quire.spark.register(spark)
    else:
        spark = quire.spark.session(
            cores, memory, spark__app__name=f"quire {name}", spark__ui__showConsoleProgress="false"
        )
    # Days begin at midnight, UTC, wherever it runs.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def wait_for(query: "StreamingQuery") -> None:
    """Wait until a query has ended; Ctrl-C stops it after its batch, which is no error.

    Raises:
        StreamingQueryException: it failed.
    """
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


def console() -> "Console":
    """Where results are printed; as wide as they need unless it is a terminal."""
    from rich.console import Console

    return Console() if sys.stdout.isatty() else Console(width=200)


def print_json(result: Mapping[str, object]) -> None:
    """Print a result for programs."""
    click.echo(json.dumps(result, ensure_ascii=False, default=str))


def run_alone(command: click.Command) -> None:
    """Run a command as a program of its own: errors are printed, and say what to do; the exit code is theirs."""
    try:
        command.main(prog_name=command.name)
    except QuireError as error:
        click.echo(f"error: {error}\nwhat to do: {error.entry.advice} ({error.code})", err=True)
        sys.exit(error.entry.exit)
