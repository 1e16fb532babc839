"""``quire perf``: measure any STOMP broker, and run scenarios that a broker must pass."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, TypeVar

import click

from quire.cli.api import Api, broker_verb, queue_path
from quire.cli.messages import DEFAULT_STOMP
from quire.cli.output import Output, output_option
from quire.cli.perf.crew import Counts, Tick
from quire.cli.perf.depth import Depth
from quire.cli.perf.findings import Finding, report
from quire.cli.perf.groups import Groups
from quire.cli.perf.hostile import Hostile
from quire.cli.perf.leases import Leases
from quire.cli.perf.live import LiveFigures
from quire.cli.perf.load import NUMBER_DIGITS, SCENARIOS, Load, Target
from quire.cli.perf.measure import measure
from quire.cli.perf.own_broker import OwnBroker, scenario_directory, unwind_on_sigterm
from quire.cli.perf.progress import Progress
from quire.cli.perf.rebalance import Rebalance
from quire.cli.perf.reconnect import Reconnect
from quire.cli.perf.selector import Selector
from quire.cli.perf.stream import Stream
from quire.cli.perf.stream_load import StreamLoad
from quire.cli.perf.stream_stuck import StuckStream
from quire.cli.perf.wakeups import Wakeups
from quire.clock import Clock, SystemClock
from quire.settings import split_address
from quire.units import parse_size

_MESSAGES = 50_000
_LATENCY_MESSAGES = 1_000
_STORES = {"lmdb": "lmdb://%s/store", "sqlite": "sqlite:///%s/store.db"}

Verb = TypeVar("Verb", bound=Callable[..., object])
Work = Callable[[OwnBroker, LiveFigures], list[Finding]]


def _size(_context: click.Context, _option: click.Parameter, value: str) -> int:
    try:
        return parse_size(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


def _count(name: str, default: int | None, text: str, lowest: int = 1) -> Callable[[Any], Any]:
    return click.option(name, type=click.IntRange(lowest), default=default, show_default=default is not None, help=text)


_size_option = click.option(
    "--size", callback=_size, default="1024", show_default=True, metavar="SIZE", help="Bytes of a body."
)


@click.group()
@output_option
def perf() -> None:
    """Measure a broker."""


@perf.command(epilog="\b\n" + "\n".join(f"{name:13}  {scenario.text}" for name, scenario in SCENARIOS.items()))
@click.option("--scenario", type=click.Choice(list(SCENARIOS)), default="confirm", show_default=True, help="See below.")
@click.option(
    "--messages", "-n", type=click.IntRange(1), help=f"How many.  [default: {_MESSAGES}; latency {_LATENCY_MESSAGES}]"
)
@_size_option
@_count("--producers", None, "How many producers, instead of the scenario's.")
@_count("--consumers", None, "How many consumers, instead of the scenario's.")
@_count("--window", None, "How many messages of a producer may be without receipt, instead of the scenario's.")
@click.option("--persistent/--non-persistent", default=None, help="Whether they are stored, instead of the scenario's.")
@click.option("--rate", type=click.FloatRange(0), default=0, help="Messages per second at the most; 0 for no limit.")
@click.option("--stomp", metavar="HOST:PORT", help="Where STOMP listens; otherwise the broker is asked. Any broker's.")
@click.option("--login", default="", metavar="NAME", help="The user.")
@click.option("--passcode", default="", metavar="TEXT", envvar="QUIRE_PASSCODE", show_envvar=True, help="The password.")
@broker_verb
def run(
    api: Api,
    output: Output,
    /,
    scenario: str,
    messages: int | None,
    stomp: str | None,
    login: str,
    passcode: str,
    **changes: Any,
) -> None:
    """Send and receive messages through a queue of its own, and say how fast that went.

    A figure counts from the first SEND until the last message is acknowledged and the last receipt has come. Latency is
    that of every hundredth message.
    """
    target = _target(api, stomp, login, passcode)
    load = _load(scenario, messages, changes)
    try:
        with LiveFigures(output, SystemClock()) as live:
            figures = measure(target, load, _tick(live, load, SystemClock()))
    finally:
        if stomp is None:
            api.call("DELETE", queue_path(load.queue), force="true")
    output.record({"scenario": scenario, "size": load.size, **figures.record()})


@perf.group()
@output_option
def scenario() -> None:
    """Run what a broker must pass, against a broker of its own.

    Each scenario starts a broker with its data in a temporary directory, and says which promises were kept. The exit
    code is 1 if one was broken.
    """


def _broker_options(memory_limit: str) -> Callable[[Verb], Verb]:
    """The options of every scenario, with its default."""
    options = [
        click.option(
            "--memory-limit",
            callback=_size,
            default=memory_limit,
            show_default=True,
            metavar="SIZE",
            help="The broker's memory.limit.",
        ),
        click.option("--store", metavar="URL", help="The broker's store.url; or lmdb or sqlite."),
        click.option("--keep", is_flag=True, help="Leave the broker's data and its log behind."),
        output_option,
    ]

    def decorate(verb: Verb) -> Verb:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return decorate


def _seed_option(text: str) -> Callable[[Any], Any]:
    return click.option("--seed", type=int, default=1, show_default=True, help=f"Decides {text}.")


def _messages_option(default: int) -> Callable[[Verb], Verb]:
    return _count("--messages", default, "How many messages.", lowest=1000)


@scenario.command()
@_messages_option(200_000)
@_broker_options("16MB")
@_size_option
@_seed_option("when the consumer leaves")
@click.pass_context
def reconnect(
    context: click.Context, messages: int, memory_limit: int, store: str | None, keep: bool, size: int, seed: int
) -> None:
    """Let a consumer come and go while a queue fills that does not fit into memory.

    Nothing may be lost, nothing may come out of order, and what comes twice must be flagged as redelivered.
    """
    if size < NUMBER_DIGITS:
        raise click.BadParameter(f"a numbered body has {NUMBER_DIGITS} bytes at least", param_hint="--size")

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        load = Load(messages, size, consumers=0, numbered=True)
        return Reconnect(broker, load, memory_limit, seed, live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep, Reconnect.ENVIRONMENT))


@scenario.command()
@_messages_option(1_000_000)
@_broker_options("64MB")
@click.pass_context
def depth(context: click.Context, messages: int, memory_limit: int, store: str | None, keep: bool) -> None:
    """Fill a queue, kill the broker, start it again, drain the queue.

    Memory, the time of the restart and the speed of draining may not depend on how many messages wait.
    """

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        return Depth(broker, Load(messages), live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep))


@scenario.command()
@_messages_option(100_000)
@_broker_options("64MB")
@click.pass_context
def hostile(context: click.Context, messages: int, memory_limit: int, store: str | None, keep: bool) -> None:
    """Measure a client alone and beside attackers, in turn; --messages is for each measurement.

    The attackers send garbage, half frames, too long heads and bodies, send or receive slowly, or say nothing.
    """

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        return Hostile(broker, Load(messages), memory_limit, live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep, Hostile.ENVIRONMENT))


@scenario.command()
@_messages_option(1_000_000)
@_broker_options("64MB")
@click.pass_context
def selector(context: click.Context, messages: int, memory_limit: int, store: str | None, keep: bool) -> None:
    """Look for a few messages behind all others, after a kill and a restart.

    Only the last ones match the selector of the first consumer. The others are for a second one, which has none.
    """

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        return Selector(broker, Load(messages), live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep))


@scenario.command()
@_messages_option(200_000)
@_broker_options("16MB")
@_seed_option("who comes and goes, and when")
@click.pass_context
def groups(context: click.Context, messages: int, memory_limit: int, store: str | None, keep: bool, seed: int) -> None:
    """Let consumers of a thousand message groups come and go.

    Each group must keep its order and be with one consumer at a time; and consumers must have equally many groups.
    """

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        return Groups(broker, Load(messages), seed, live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep, Groups.ENVIRONMENT))


@scenario.command()
@_count("--queues", 10_000, "How many queues get a message every second, and how many idle ones there are.", lowest=100)
@click.option("--persistent/--non-persistent", default=False, show_default=True, help="Whether messages are stored.")
@click.option("--seconds", type=click.FloatRange(1), default=5, show_default=True, help="How long a measurement takes.")
@_broker_options("64MB")
@click.pass_context
def wakeups(
    context: click.Context,
    queues: int,
    persistent: bool,
    seconds: float,
    memory_limit: int,
    store: str | None,
    keep: bool,
) -> None:
    """Send a message every second to each of many queues, beside as many idle ones.

    What the broker has to do must depend on how many messages move, not on how many queues and consumers there are.
    """

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        return Wakeups(broker, queues, persistent, seconds, live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep))


@scenario.command()
@_broker_options("64MB")
@click.pass_context
def progress(context: click.Context, memory_limit: int, store: str | None, keep: bool) -> None:
    """Kill a group's consumer, the broker, or both, while one message of 100 is stuck.

    The others are acknowledged: none of them may come again, whoever was killed.
    """

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        return Progress(broker, live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep, Progress.ENVIRONMENT))


@scenario.command()
@_messages_option(50_000)
@click.option("--stuck", is_flag=True, help="Leave one message unacknowledged: nobody may notice, the lag is exact.")
@click.option("--peer", metavar="HOST:PORT", help="Measure another broker's queues as well, in turn.")
@click.option("--login", default="", metavar="NAME", help="The user there.")
@click.option("--passcode", default="", metavar="TEXT", envvar="QUIRE_PASSCODE", show_envvar=True, help="The password.")
@_broker_options("64MB")
@_size_option
@click.pass_context
def stream(
    context: click.Context, messages: int, stuck: bool, peer: str | None, login: str, passcode: str, memory_limit: int,
    store: str | None, keep: bool, size: int,
) -> None:  # fmt: skip
    """Measure a stream: batches of 32 messages with a receipt, a group that acknowledges 32 at a time."""
    if stuck and peer:
        raise click.UsageError("--stuck compares the stream with itself: --peer is not for it")
    other = _address(peer, "--peer", login, passcode) if peer else None

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        load = StreamLoad(messages, size)
        return StuckStream(broker, load, live).run() if stuck else Stream(broker, load, other, live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep))


@scenario.command()
@_count("--count", 10_000, "How many leases.")
@_broker_options("64MB")
@_seed_option("how long each lease lasts")
@click.pass_context
def leases(context: click.Context, count: int, memory_limit: int, store: str | None, keep: bool, seed: int) -> None:
    """Let thousands of leases end, each at a time of its own, while 5,000 messages a second flow."""

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        return Leases(broker, count, seed, live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep, Leases.ENVIRONMENT))


@scenario.command()
@click.option(
    "--seconds", type=click.FloatRange(6), default=60, show_default=True, help="How long members come and go."
)
@_broker_options("64MB")
@_seed_option("who leaves")
@click.pass_context
def rebalance(
    context: click.Context, seconds: float, memory_limit: int, store: str | None, keep: bool, seed: int
) -> None:
    """Let the members of a group grow from 2 to 20 and shrink to 2 again, and restart members that have names.

    A partition must have one owner at a time, and keep its order. Those that are only restarted keep theirs.
    """

    def work(broker: OwnBroker, live: LiveFigures) -> list[Finding]:
        return Rebalance(broker, seconds, seed, live).run()

    context.exit(_execute(context.obj, work, _flags(memory_limit, store), keep, Rebalance.ENVIRONMENT))


def _flags(memory_limit: int, store: str | None) -> dict[str, str]:
    return {"memory-limit": str(memory_limit)} | ({"store": store} if store else {})


def _execute(
    output: Output, work: Work, flags: Mapping[str, str], keep: bool, environment: Mapping[str, str] | None = None
) -> int:
    """Run a scenario against a broker of its own, and print what it found.

    Returns:
        The exit code.
    """
    unwind_on_sigterm()
    with scenario_directory(keep) as directory:
        if (store := flags.get("store")) in _STORES:
            flags = {**flags, "store": _STORES[store] % directory}
        with OwnBroker(directory, flags, environment) as broker, LiveFigures(output, SystemClock()) as live:
            findings = work(broker, live)
        if keep:
            output.note(f"the broker's data and log are in {directory}")
    return report(output, findings)


def _target(api: Api, stomp: str | None, login: str, passcode: str) -> Target:
    return _address(stomp or str(api.call("GET", "/broker").get("stomp", DEFAULT_STOMP)), "--stomp", login, passcode)


def _address(text: str, option: str, login: str, passcode: str) -> Target:
    try:
        host, port = split_address(text)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint=option) from error
    return Target(host, port, login, passcode)


def _load(scenario: str, messages: int | None, changes: Mapping[str, Any]) -> Load:
    """The scenario's load, with what the options change."""
    given = {name: value for name, value in changes.items() if value is not None}
    load = Load(messages or _MESSAGES, **SCENARIOS[scenario].changes)
    if not load.latency:
        return replace(load, **given)
    if given.keys() & {"producers", "consumers", "window"} or given["rate"]:
        raise click.UsageError(
            "latency has one message in flight: --producers, --consumers, --window, --rate are not for it"
        )
    return replace(load, messages=messages or _LATENCY_MESSAGES, **given)


def _tick(live: LiveFigures, load: Load, clock: Clock) -> Tick:
    """Shows how far a load is and how fast."""
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
