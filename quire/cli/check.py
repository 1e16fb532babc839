"""``quire check``: is all well? For Nagios, Icinga and Kubernetes probes: one line, and an exit code that says it."""

import functools
from collections.abc import Callable, Iterator
from typing import Any, Concatenate, NamedTuple, ParamSpec

import click

from quire.cli.api import Api, broker_verb, pages, path, queue_path
from quire.cli.output import Output, output_option, printable
from quire.errors import BrokerUnreachable, QuireError
from quire.units import parse_duration

OK, WARNING, CRITICAL, UNKNOWN = range(4)
NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

PATIENCE = 10.0
"""How long the broker may take to answer, in seconds, if the user does not say: it is less than monitors wait."""

P = ParamSpec("P")


class Result(NamedTuple):
    """What a check found."""

    state: int  # the exit code
    text: str  # what is well or not
    values: tuple[tuple[str, str], ...] = ()  # what was measured, by its name


class Checks(click.Group):
    """The checks. What keeps one from being made is an exit code too, as monitors expect it."""

    def invoke(self, ctx: click.Context) -> object:
        """Run a check; a broker that does not answer is critical, and a call that is wrong has an unknown result."""
        try:
            return super().invoke(ctx)
        except BrokerUnreachable as error:
            tell(ctx.ensure_object(Output), Result(CRITICAL, str(error)))
        except QuireError as error:
            tell(ctx.ensure_object(Output), Result(UNKNOWN, f"{error} ({error.code})"))
        except click.UsageError as error:
            tell(ctx.ensure_object(Output), Result(UNKNOWN, error.format_message()))
        return None


def tell(output: Output, result: Result) -> None:
    """Print a result, and end with its exit code."""
    name = NAMES[result.state]
    data = " ".join(f"'{key}'={value}" for key, value in result.values)
    output.done(
        f"QUIRE {name} - {result.text}" + (f" | {data}" if data else ""),
        {"state": name, "text": result.text, **dict(result.values)},
    )
    click.get_current_context().exit(result.state)


def check_verb(verb: Callable[Concatenate[Api, P], Result]) -> Callable[..., None]:
    """A check of a running broker: what it returns is told."""

    @click.option("--timeout", type=click.FloatRange(0.1), default=PATIENCE, show_default=True,
                  help="How long the broker may take to answer, in seconds.")  # fmt: skip
    @broker_verb
    @functools.wraps(verb)
    def checked(api: Api, output: Output, /, *args: P.args, **kwargs: P.kwargs) -> None:
        timeout: Any = kwargs.pop("timeout")
        api.patience = timeout
        tell(output, verb(api, *args, **kwargs))

    return checked


def _duration(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(f"{value!r} is not a duration: write 30s, 5m or 1h") from error


def thresholds(kind: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options ``--warning`` and ``--critical``, which a value must exceed."""

    def with_thresholds(verb: Callable[..., None]) -> Callable[..., None]:
        for name in ("critical", "warning"):
            verb = click.option(f"--{name}", metavar=kind, help=f"{name.capitalize()} above this.", **options)(verb)
        return verb

    return with_thresholds


class Measured(NamedTuple):
    """A value of one thing."""

    name: str  # what it is the value of
    value: float


def judged(
    what: str, unit: str, measured: Iterator[Measured], warning: float | None, critical: float | None
) -> Result:  # fmt: skip
    """The state of the largest value, and which one that is."""
    worst = max(measured, key=lambda each: each.value, default=None)
    if worst is None:
        return Result(OK, f"nothing has a {what}")
    state = OK
    if critical is not None and worst.value > critical:
        state = CRITICAL
    elif warning is not None and worst.value > warning:
        state = WARNING
    value, limits = f"{worst.value:g}", [f"{limit:g}" if limit is not None else "" for limit in (warning, critical)]
    words = f"{worst.value:.0f} s" if unit == "s" else f"{value} messages"
    return Result(state, f"{printable(worst.name)}: {what} {words}", ((what, ";".join([value + unit, *limits])),))


@click.group(cls=Checks)
@output_option
def check() -> None:
    """Check a broker, for Nagios and for probes of Kubernetes.

    Prints one line. Exit codes: 0 OK, 1 warning, 2 critical, 3 unknown. A broker that does not answer is critical.
    """


@check.command()
@check_verb
def live(api: Api) -> Result:
    """Check that the broker answers."""
    status, state = api.probe("/health")
    return Result(OK if status == 200 else CRITICAL, f"the broker answers: {state}")


@check.command()
@check_verb
def ready(api: Api) -> Result:
    """Check that the broker accepts messages: it does not stop, and its store accepts writes."""
    status, state = api.probe("/ready")
    return Result(OK if status == 200 else CRITICAL, f"the state of the broker is {state}")


def _queues(api: Api, queue: str | None) -> Iterator[dict[str, Any]]:
    return pages(api, "/queues", "queues") if queue is None else iter([api.call("GET", queue_path(queue))])


@check.command()
@click.argument("queue", required=False)
@thresholds("N", type=click.IntRange(0))
@check_verb
def depth(api: Api, queue: str | None, warning: int | None, critical: int | None) -> Result:
    """Check how many messages a queue has; without QUEUE, the queue that has most."""
    measured = (Measured(each["name"], each["depth"]) for each in _queues(api, queue))
    return judged("depth", "", measured, warning, critical)


@check.command()
@click.argument("queue", required=False)
@thresholds("DURATION", callback=_duration)
@check_verb
def age(api: Api, queue: str | None, warning: float | None, critical: float | None) -> Result:
    """Check how old the oldest message of a queue is; without QUEUE, of all queues."""
    measured = (Measured(each["name"], each["oldest_message_age_seconds"] or 0) for each in _queues(api, queue))
    return judged("age", "s", measured, warning, critical)


@check.command()
@click.argument("stream", required=False)
@click.argument("group", required=False)
@thresholds("N", type=click.IntRange(0))
@check_verb
def lag(
    api: Api, stream: str | None, group: str | None, warning: int | None, critical: int | None
) -> Result:  # fmt: skip
    """Check the lag of consumer groups: of one, of those of a STREAM, or of all; the largest one counts."""
    if stream is not None and group is not None:
        groups = [api.call("GET", path("groups", stream, group))]
    else:
        known = api.call("GET", "/groups")["groups"]
        groups = [each for each in known if stream in (None, each["stream"])]
    measured = (Measured(f"{each['stream']}/{each['name']}", each["lag"]) for each in groups)
    return judged("lag", "", measured, warning, critical)
