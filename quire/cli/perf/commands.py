"""``quire perf``: measure any STOMP broker."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import click

from quire.cli.api import Api, broker_verb, login_at, queue_path, speaks_tls
from quire.cli.output import Output, output_option
from quire.cli.perf.load import SCENARIOS, Load, Target
from quire.cli.perf.measure import Counts, LiveFigures, Tick, measure
from quire.cli.resource import parsed
from quire.clock import Clock, SystemClock
from quire.settings import split_address
from quire.units import parse_size

DEFAULT_STOMP = "127.0.0.1:61613"
_MESSAGES = 50_000
_LATENCY_MESSAGES = 1_000


def _count(name: str, text: str) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(1), help=f"{text}, instead of the scenario's.")


@click.group()
@output_option
def perf() -> None:
    """Measure a broker."""


@perf.command(epilog="\b\n" + "\n".join(f"{name:13}  {scenario.text}" for name, scenario in SCENARIOS.items()))
@click.option("--scenario", type=click.Choice(list(SCENARIOS)), default="confirm", show_default=True, help="See below.")
@click.option(
    "--messages",
    "-n",
    type=click.IntRange(1),
    help=f"The number of messages.  [default: {_MESSAGES}; latency {_LATENCY_MESSAGES}]",
)
@click.option(
    "--size",
    callback=parsed(parse_size),
    default="1024",
    show_default=True,
    metavar="SIZE",
    help="The size of a body in bytes.",
)
@click.option("--random", is_flag=True, help="Bodies of random bytes, which no store makes smaller.")
@_count("--producers", "The number of producers")
@_count("--consumers", "The number of consumers")
@_count("--window", "How many messages of a producer may wait for a receipt")
@click.option(
    "--persistent/--non-persistent", default=None, help="Whether messages are persistent, instead of the scenario's."
)
@click.option(
    "--rate", type=click.FloatRange(0), default=0, help="The maximum number of messages per second; 0 for no limit."
)
@click.option(
    "--stomp",
    metavar="[ssl://]HOST:PORT",
    help="The STOMP address, of any broker. Without it, the HTTP API of the broker tells it.",
)
@broker_verb
def run(api: Api, output: Output, /, scenario: str, messages: int | None, stomp: str | None, **changes: Any) -> None:
    """Send and receive messages through a queue of its own, and show rates and latencies.

    A run lasts from the first SEND until the last acknowledgement and the last receipt. The latency is
    that of every hundredth message.
    """
    target = _target(api, stomp)
    load = _load(scenario, messages, changes)
    try:
        with LiveFigures(output, SystemClock()) as live:
            figures = measure(target, load, _tick(live, load, SystemClock()))
    finally:
        if stomp is None:
            api.call("DELETE", queue_path(load.queue), force="true")
    output.record({"scenario": scenario, "size": load.size, **figures.record()})


def _target(api: Api, stomp: str | None) -> Target:
    text = stomp or str(api.call("GET", "/broker").get("stomp", DEFAULT_STOMP))
    login = login_at(api, stomp)
    try:
        host, port = split_address(text.removeprefix("ssl://"))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--stomp") from error
    return Target(host, port, login.user, login.passcode, speaks_tls(api, stomp))


def _load(scenario: str, messages: int | None, changes: Mapping[str, Any]) -> Load:
    given = {name: value for name, value in changes.items() if value is not None}
    load = Load(messages or _MESSAGES, **SCENARIOS[scenario].changes)
    if not load.latency:
        return replace(load, **given)
    if given.keys() & {"producers", "consumers", "window"} or given["rate"]:
        raise click.UsageError(
            "the scenario latency has one message in flight: leave out --producers, --consumers, --window and --rate"
        )
    return replace(load, messages=messages or _LATENCY_MESSAGES, **given)


def _tick(live: LiveFigures, load: Load, clock: Clock) -> Tick:
    began = clock.monotonic()

    def tick(counts: Counts) -> None:
        elapsed = clock.monotonic() - began
        text = (
            f"sent {counts.sent}, received {counts.received}, "
            f"on average {counts.sent / elapsed:.0f}/s and {counts.received / elapsed:.0f}/s"
        )
        done = counts.sent + counts.received
        live.show(text, done / (2 * load.messages))

    return tick
