"""Runs what a broker must pass: ``python -m benchmarks.scenarios NAME``.

Each scenario starts a broker with its data in a temporary directory, and says which promises were kept. The exit code
is 1 if one was broken.
"""

from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

import click

from benchmarks.load import NUMBER_DIGITS
from benchmarks.rig import OwnBroker, temporary_directory, unwind_on_sigterm
from benchmarks.scenarios.groups import Groups
from benchmarks.scenarios.hostile import Hostile
from benchmarks.scenarios.progress import Progress
from benchmarks.scenarios.queues import Depth, Reconnect, Selector
from benchmarks.scenarios.rebalance import Rebalance
from benchmarks.scenarios.scenario import Scenario, report
from benchmarks.scenarios.streams import Leases, Stream, Stuck
from benchmarks.scenarios.wakeups import Wakeups
from quire.cli.output import Output, output_option
from quire.cli.perf.measure import LiveFigures
from quire.clock import SystemClock
from quire.errors import QuireError
from quire.settings import split_address
from quire.units import parse_size
from tests.postgresql_server import run_server


def _size_of(_context: click.Context, option: click.Parameter, value: str) -> int:
    try:
        size = parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error
    if option.name == "size" and size < NUMBER_DIGITS:
        raise click.BadParameter(f"a numbered body has {NUMBER_DIGITS} bytes at least")
    return size


def _address(_context: click.Context, _option: click.Parameter, value: str | None) -> tuple[str, int] | None:
    try:
        return split_address(value) if value else None
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _option(name: str, type: click.IntRange | click.FloatRange, default: float, text: str) -> click.Option:
    return click.Option([name], type=type, default=default, show_default=True, help=text)


def _size(name: str, default: str, text: str) -> click.Option:
    return click.Option([name], callback=_size_of, default=default, show_default=True, metavar="SIZE", help=text)


def _messages(default: int) -> click.Option:
    return _option("--messages", click.IntRange(1000), default, "How many messages.")


def _seed(text: str) -> click.Option:
    return _option("--seed", click.IntRange(), 1, f"Decides {text}.")


_BODY = _size("--size", "1024", "Bytes of a body.")


class Entry(NamedTuple):
    """A scenario, its broker's memory limit unless an option says otherwise, and its own options."""

    scenario: type[Scenario]
    memory_limit: str
    options: list[click.Option]


ENTRIES = {
    "reconnect": Entry(Reconnect, "16MB", [_messages(200_000), _BODY, _seed("when the consumer leaves")]),
    "depth": Entry(Depth, "64MB", [_messages(1_000_000)]),
    "hostile": Entry(Hostile, "64MB", [_messages(100_000)]),
    "selector": Entry(Selector, "64MB", [_messages(1_000_000)]),
    "groups": Entry(Groups, "16MB", [_messages(200_000), _seed("who comes and goes, and when")]),
    "wakeups": Entry(
        Wakeups,
        "64MB",
        [
            _option("--queues", click.IntRange(100), 10_000, "How many queues get messages, and how many are idle."),
            click.Option(["--persistent/--non-persistent"], default=False, help="Whether messages are stored."),
            _option("--seconds", click.FloatRange(1), 5, "How long a measurement takes."),
        ],
    ),
    "progress": Entry(Progress, "64MB", []),
    "stream": Entry(
        Stream,
        "64MB",
        [
            _messages(50_000),
            _BODY,
            click.Option(["--peer"], callback=_address, metavar="HOST:PORT", help="Measure another broker in turn."),
            click.Option(["--login"], default="", help="The user there."),
            click.Option(["--passcode"], default="", envvar="QUIRE_PASSCODE", help="The password."),
        ],
    ),
    "stuck": Entry(Stuck, "64MB", [_messages(50_000), _BODY]),
    "leases": Entry(
        Leases, "64MB", [_option("--count", click.IntRange(1), 10_000, "How many."), _seed("how long each lasts")]
    ),
    "rebalance": Entry(
        Rebalance,
        "64MB",
        [_option("--seconds", click.FloatRange(6), 60, "How long members come and go."), _seed("who leaves")],
    ),
}


@click.group()
@output_option
def main() -> None:
    """Run what a broker must pass, against a broker of its own.

    Each scenario starts a broker with its data in a temporary directory, and says which promises were kept. The exit
    code is 1 if one was broken.
    """


def _command(name: str, entry: Entry) -> click.Command:
    def run(memory_limit: int, store: str | None, keep: bool, **values: Any) -> None:
        context = click.get_current_context()
        output: Output = context.obj
        unwind_on_sigterm()
        flags, tables = {"memory-limit": str(memory_limit)}, None
        try:
            with ExitStack() as stack:
                directory = stack.enter_context(temporary_directory(keep))
                if store == "postgresql":
                    server = stack.enter_context(run_server(durable=True))
                    store, tables = server.url_for(directory), partial(server.size_of, directory)
                if store:
                    flags["store"] = store
                broker = stack.enter_context(OwnBroker(directory, flags, entry.scenario.ENVIRONMENT))
                if keep:
                    output.note(f"the broker's data and log are in {directory}")
                with LiveFigures(output, SystemClock()) as live:
                    scenario = entry.scenario(broker, live, memory_limit, **values)
                    scenario.tables = tables
                    findings = scenario.run()
        except QuireError as error:
            output.error(error)
            context.exit(error.entry.exit)
        context.exit(report(output, findings))

    options: list[click.Parameter] = [
        *entry.options,
        _size("--memory-limit", entry.memory_limit, "The broker's memory.limit."),
        click.Option(["--store"], metavar="URL", help="The broker's store.url; or lmdb, sqlite or postgresql."),
        click.Option(["--keep"], is_flag=True, help="Leave the broker's data and its log behind."),
    ]
    return output_option(click.Command(name, callback=run, params=options, help=entry.scenario.__doc__))


for _name, _entry in ENTRIES.items():
    main.add_command(_command(_name, _entry))

if __name__ == "__main__":
    main()
