"""What the pipelines' commands have in common: where they read, options, a Spark session, errors, results.

While Spark works, they show how many tasks of its stages are done, and how far its streams are.
"""

import functools
import importlib.util
import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from threading import Event, Thread
from typing import Any, TypeVar

import click
from py4j.protocol import Py4JError, Py4JJavaError  # type: ignore[import-untyped]
from pyspark import SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from quire.client.remote import remote_error
from quire.clock import SystemClock
from quire.destination import Destination, DestinationKind
from quire.errors import ERRORS, InvalidArgument, QuireError, SparkEnded
from quire.spark.data_source import register, session
from quire.spark.online import Broker, Source
from quire.spark.options import Options, Use
from quire.spark.pipelines.archive_files import COMPACTED
from quire.spark.pipelines.files import is_there, read_or_none, time_text
from quire.spark.pipelines.ledger import unpack
from quire.units import parse_duration, parse_size

DEFAULT_URL = "http://127.0.0.1:8161"

LEDGER = "stream://$quire.ledger"  # the stream that a broker writes its delivery ledger to


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages or ledger rows are: at a broker's HTTP address, in a store, or in a directory of Parquet files.

    Destinations to read stand with commas between them; ``LEDGER`` gives its rows. Parquet files are read whole.
    ``options`` are more options for the reader, and ``login`` those that a broker needs to know who reads.
    """

    url: str | None = None
    store: str | None = None
    parquet: str | None = None
    options: dict[str, str] = field(default_factory=dict)
    login: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if len([place for place in (self.url, self.store, self.parquet) if place]) != 1:
            raise InvalidArgument("give one of --url, --store, --parquet")

    def __str__(self) -> str:
        # A store's URL may have a password.
        return self.url or self.parquet or "the store"

    @property
    def can_stream(self) -> bool:
        """Whether what is added later can be read as it comes."""
        return self.store is None

    def read(self, spark: SparkSession, subscribe: str = "", **options: str) -> DataFrame:
        if self.parquet:
            return self._files(spark)
        return _rows(spark.read.format("quire").options(**self._options(subscribe, options)).load(), subscribe)

    def read_stream(self, spark: SparkSession, subscribe: str = "", **options: str) -> DataFrame:
        if self.parquet:
            if is_there(spark, f"{self.parquet.rstrip('/')}/{COMPACTED}"):
                text = "is an archive that was compacted, whose files a streaming read may read twice"
                raise InvalidArgument(f"{self.parquet} {text}: read it as a batch", directory=self.parquet)
            schema = self._files(spark).schema
            return spark.readStream.schema(schema).options(**self.options).parquet(self.parquet)
        if self.store:
            raise InvalidArgument("a store can be read only once; for new messages read from a broker: give --url")
        given = {"startingOffsets": "earliest"} | self._options(subscribe, options)
        return _rows(spark.readStream.format("quire").options(**given).load(), subscribe)

    def target(self) -> dict[str, str]:
        assert self.url is not None
        return {"broker.url": self.url, **self.login}

    def destinations(self) -> list[str]:
        with Source(self._all()).lanes() as lanes:
            found = [stored for stored in lanes.destinations if stored.kind in list(DestinationKind)]
            return [str(Destination(DestinationKind(stored.kind), stored.name)) for stored in found]

    def policies(self) -> list[dict[str, Any]]:
        """The values that the broker's policies set: what holds everywhere, and of each entry what differs from it."""
        answer = Broker.of(self._all()).get("/policies", dict[str, Any])
        base = {one["key"]: one["value"] for one in answer["base"]}
        return [base, *[base | entry["values"] for entry in answer["entries"]]]

    def _all(self) -> Options:
        given = self._options("", {}) | {"subscribePattern": ">"}
        return Options.of({name: value for name, value in given.items() if name != "subscribe"}, Use.READ)

    def _files(self, spark: SparkSession) -> DataFrame:
        assert self.parquet is not None
        found = read_or_none(spark, self.parquet, self.options)
        if found is None:
            raise InvalidArgument(f"there are no Parquet files in {self.parquet}", directory=self.parquet)
        return found

    def _options(self, subscribe: str, options: dict[str, str]) -> dict[str, str]:
        where = {"broker.url": self.url, **self.login} if self.url else {"store.url": self.store or ""}
        return where | {"subscribe": subscribe} | options | self.options


def _rows(messages: DataFrame, subscribe: str) -> DataFrame:
    return unpack(messages) if subscribe == LEDGER else messages


INTERVAL = 0.5  # how often Spark is asked, in seconds


@contextmanager
def live(spark: SparkSession, text: str) -> Iterator[None]:
    """Show a line on standard error while the context lasts, if that is a terminal."""
    if not sys.stderr.isatty():
        yield
        return
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), TimeElapsedColumn())
    ended = Event()
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        watcher = Thread(target=_watch, args=(spark, text, bar, ended), name="quire-live")
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()


def _watch(spark: SparkSession, text: str, bar: Progress, ended: Event) -> None:
    task = bar.add_task(text, total=None)
    # The thread that waits for Spark reports its end.
    with suppress(ConnectionError, Py4JError):
        while not ended.wait(INTERVAL):
            done, total = _tasks(spark)
            bar.update(task, description=", ".join([text, *_streams(spark)]), completed=done, total=total or None)


def _tasks(spark: SparkSession) -> tuple[int, int]:
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    # A stage may end between the two questions.
    running = [stage for stage in stages if stage is not None]
    return sum(stage.numCompletedTasks for stage in running), sum(stage.numTasks for stage in running)


def _streams(spark: SparkSession) -> list[str]:
    texts = []
    for query in spark.streams.active:
        if progress := query.lastProgress:
            rate = progress.processedRowsPerSecond or 0.0
            texts.append(f"batch {progress.batchId}: {progress.numInputRows} rows, {rate:.0f}/s")
    return texts


_SUBMITTED = "PYSPARK_GATEWAY_PORT"  # ``spark-submit`` sets it for the programs it starts
_OUT_OF_MEMORY = (3, 52)
"""The exit codes of Java without memory: its own (``ExitOnOutOfMemoryError``), and that of Spark's executors."""

_LAST_BREATH = 10.0  # how long Java takes to end after it has closed its connections, in seconds
_TOLD = re.compile(r"^quire\.errors\.[\w.]+: (.+) \[([a-z-]+)\]$", re.MULTILINE)

Command = TypeVar("Command", bound=Callable[..., Any])


class PipelineCommand(click.Command):
    """A command whose errors are Quire's, also those that Spark's workers raise."""

    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except Exception as error:
            if (told := _ended(error, ctx.params) or told_by(error)) is None:
                raise
            raise told from error


def _ended(error: Exception, options: Mapping[str, Any]) -> SparkEnded | None:
    """What ended Spark's Java process, if an error is that it does not answer any more."""
    process = getattr(SparkContext._gateway, "proc", None)
    is_silence = isinstance(error, (ConnectionError, Py4JError)) and not isinstance(error, Py4JJavaError)
    if process is None or not is_silence:
        return None
    try:
        status = process.wait(_LAST_BREATH)
    except subprocess.TimeoutExpired:
        return None
    text = f"it ran out of memory, of which it had {options['memory']} (--memory)"
    if status not in _OUT_OF_MEMORY:
        text = f"it was killed by signal {-status}" if status < 0 else f"its exit code was {status}"
    return SparkEnded(f"Spark's Java process ended: {text}", status=status)


def told_by(error: Exception) -> QuireError | None:
    """Quire's error in the text of a Spark error of a worker; None for any other error."""
    found = _TOLD.search(str(error)) if type(error).__module__.startswith("pyspark.") else None
    if found is None or found[2] not in ERRORS:
        return None
    return remote_error(found[2], found[1].removesuffix(f". {ERRORS[found[2]].advice}"), {})


def duration(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    """A click callback: a duration, in seconds."""
    if value is None:
        return None
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    """A click callback: a size, in bytes."""
    try:
        if (found := parse_size(value)) > 0:
            return found
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    raise click.BadParameter("a size is at least one byte")


def _with_packages(_context: click.Context, _option: click.Parameter, page: Path | None) -> Path | None:
    """A click callback: refuse to write a page if a package for it is missing, before Spark begins to work."""
    for name in ("jinja2", "matplotlib") if page else ():
        if importlib.util.find_spec(name) is None:
            text = f"{name} is not installed, and --report needs it: pip install 'quire[spark,reports]'"
            raise InvalidArgument(text, module=name)
    return page


output_option = click.option(
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="The format of results.",
)
report_option = click.option(
    "--report",
    "page",
    type=click.Path(path_type=Path),
    callback=_with_packages,
    help="Also write the report as an HTML page to this file.",
)
_cores = click.option(
    "--cores", type=click.IntRange(1), default=2, show_default=True, help="The number of tasks that run at once."
)
_memory = click.option(
    "--memory", metavar="SIZE", default="1g", show_default=True, help="The heap size of Spark on this machine."
)
LOGIN = {"user": "user", "password_file": "passwordFile", "token_file": "bearerTokenFile", "tls_ca": "tlsCa"}
"""The options of a broker's login: as the commands have them, and as the data source does."""

_place_options = (
    click.option(
        "--tls-ca", metavar="FILE",
        help="A file with the authorities to trust with TLS.  [env: QUIRE_TLS_CA; default: the system's]",
    ),
    click.option(
        "--token-file", metavar="FILE",
        help="A file with a token to log in with, instead of a user.  [env: QUIRE_TOKEN, the token]",
    ),
    click.option(
        "--password-file", metavar="FILE", help="A file with the user's password.  [env: QUIRE_PASSWORD_FILE]"
    ),
    click.option("--user", metavar="USER", help="The user to log in to the broker as.  [env: QUIRE_USER]"),
    click.option(
        "--option", "options", metavar="NAME=VALUE", multiple=True, help="An option for the reader. May be repeated."
    ),
    click.option(
        "--parquet", metavar="DIR", help="A directory of Parquet files, such as an archive, instead of --url."
    ),
    click.option("--store", metavar="URL", help="A store, with or without a running broker, instead of --url."),
    click.option("--url", metavar="URL", help=f"A broker's HTTP API.  [env: QUIRE_URL; default: {DEFAULT_URL}]"),
)  # fmt: skip


def spark_options(command: Command) -> Command:
    return _cores(_memory(command))


def place_options(command: Callable[..., None]) -> Callable[..., None]:
    """The options that say where a pipeline reads; the command gets them as its ``place``."""

    @functools.wraps(command)
    def with_place(
        url: str | None, store: str | None, parquet: str | None, options: tuple[str, ...], **others: Any
    ) -> None:
        if not (url or store or parquet):
            url = os.environ.get("QUIRE_URL") or DEFAULT_URL
        login = {option: given for name, option in LOGIN.items() if (given := others.pop(name))}
        command(place=Place(url, store, parquet, pairs(options, "--option"), login), **others)

    for option in _place_options:
        option(with_place)
    return with_place


def pairs(texts: tuple[str, ...], option: str) -> dict[str, str]:
    found = {}
    for text in texts:
        name, mark, value = text.rpartition("=") if option == "--depth" else text.partition("=")
        if not mark or not name:
            raise InvalidArgument(f"{option} {text!r} is not NAME=VALUE", option=option)
        found[name] = value
    return found


def start_session(name: str, cores: int, memory: str) -> SparkSession:
    """The Spark session of a pipeline: that of ``spark-submit``, or else one on this machine."""
    if _SUBMITTED in os.environ:
        spark = SparkSession.Builder().appName(f"quire {name}").getOrCreate()
        register(spark)
    else:
        # Where a thread of Spark's driver dies for want of memory, its job would wait forever.
        spark = session(
            cores, memory, spark__app__name=f"quire {name}", spark__ui__showConsoleProgress="false",
            spark__driver__extraJavaOptions="-XX:+ExitOnOutOfMemoryError",
        )  # fmt: skip
    # Days begin at midnight, UTC, wherever it runs.
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    return spark


def wait_for(query: StreamingQuery) -> None:
    """Wait until a query has ended; Ctrl-C stops it after its batch, which is no error."""
    try:
        query.awaitTermination()
    except KeyboardInterrupt:
        query.stop()


def print_json(result: Mapping[str, object]) -> None:
    click.echo(json.dumps(result, ensure_ascii=False, default=str))


def console() -> Console:
    """Where results are printed; as wide as they need unless it is a terminal."""
    return Console() if sys.stdout.isatty() else Console(width=200)


def show(
    found: Any, output: str, print_report: Callable[[Any, Console], None], place: Place, page: Path | None,
    as_page: Callable[[Any, str], str], **more: object,
) -> None:  # fmt: skip
    """Show what was found, a dataclass, in the format that was asked for, and on a page if that was."""
    if page:
        made = time_text(SystemClock().now_ms())
        page.write_text(as_page(found, f"{place}, {made} UTC"), encoding="utf-8")
    if output == "json":
        print_json({**more, **asdict(found)})
    else:
        print_report(found, console())


def run_alone(command: click.Command) -> None:
    """Run a command as a program of its own: errors are printed, and say what to do; the exit code is theirs."""
    try:
        command.main(prog_name=command.name)
    except QuireError as error:
        click.echo(f"error: {error}\nwhat to do: {error.entry.advice} ({error.code})", err=True)
        sys.exit(error.entry.exit)
