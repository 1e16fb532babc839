"""``quire check``: is all well? For Nagios, Icinga and Kubernetes probes: one line, and an exit code that says it."""

import functools
from collections.abc import Callable, Iterator
from operator import itemgetter
from typing import Any, Concatenate, NamedTuple, ParamSpec

import click

from quire.cli.api import Api, broker_verb, pages, path, queue_path
from quire.cli.output import Output, output_option, printable
from quire.cli.resource import parsed
from quire.errors import BrokerUnreachable, QuireError
from quire.units import parse_duration

OK, WARNING, CRITICAL, UNKNOWN = range(4)
NAMES = ("OK", "WARNING", "CRITICAL", "UNKNOWN")

PATIENCE = 10.0
"""How long the broker may take to answer, in seconds, if the user does not say: it is less than monitors wait."""

P = ParamSpec("P")


class Result(NamedTuple):
    state: int  # the exit code
    text: str  # what is well or not
    values: tuple[tuple[str, str], ...] = ()  # what was measured, by its name


class Checks(click.Group):
    """The checks. A broker that does not answer is critical; what else keeps one from being made is unknown."""

    def invoke(self, ctx: click.Context) -> object:
        try:
            return super().invoke(ctx)
        except BrokerUnreachable as error:
            result = Result(CRITICAL, str(error))
        except QuireError as error:
            result = Result(UNKNOWN, f"{error} ({error.code})")
        except click.UsageError as error:
            result = Result(UNKNOWN, error.format_message())
        tell(ctx.ensure_object(Output), result)
        return None


def tell(output: Output, result: Result) -> None:
    name = NAMES[result.state]
    data = " ".join(f"'{key}'={value}" for key, value in result.values)
    output.done(
        f"QUIRE {name} - {result.text}" + (f" | {data}" if data else ""),
        {"state": name, "text": result.text, **dict(result.values)},
    )
    click.get_current_context().exit(result.state)


def check_verb(verb: Callable[Concatenate[Api, P], Result]) -> Callable[..., None]:

    @click.option("--timeout", type=click.FloatRange(0.1), default=PATIENCE, show_default=True,
                  help="How long the broker may take to answer, in seconds.")  # fmt: skip
    @broker_verb
    @functools.wraps(verb)
    def checked(api: Api, output: Output, /, *args: P.args, **kwargs: P.kwargs) -> None:
        timeout: Any = kwargs.pop("timeout")
        api.patience = timeout
        tell(output, verb(api, *args, **kwargs))

    return checked


def thresholds(metavar: str, **options: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """The options ``--warning`` and ``--critical``, which a value must exceed."""

    def with_thresholds(verb: Callable[..., None]) -> Callable[..., None]:
        for name in ("critical", "warning"):
            verb = click.option(f"--{name}", metavar=metavar, help=f"{name.capitalize()} above this.", **options)(verb)
        return verb

    return with_thresholds


def judged(
    what: str, measured: Iterator[tuple[float, str]], warning: float | None, critical: float | None, unit: str = ""
) -> Result:
    """The state of the largest value, and of what it is the value."""
    worst, name = max(measured, key=itemgetter(0), default=(None, ""))
    if worst is None:
        return Result(OK, f"nothing has a {what}")
    state = OK
    if critical is not None and worst > critical:
        state = CRITICAL
    elif warning is not None and worst > warning:
        state = WARNING
    limits = [f"{limit:g}" if limit is not None else "" for limit in (warning, critical)]
    words = f"{worst:.0f} s" if unit == "s" else f"{worst:g} messages"
    return Result(state, f"{printable(name)}: {what} {words}", ((what, ";".join([f"{worst:g}{unit}", *limits])),))


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
    return judged("depth", ((each["depth"], each["name"]) for each in _queues(api, queue)), warning, critical)


@check.command()
@click.argument("queue", required=False)
@thresholds("DURATION", callback=parsed(parse_duration, "is not a duration: write 30s, 5m or 1h"))
@check_verb
def age(api: Api, queue: str | None, warning: float | None, critical: float | None) -> Result:
    """Check how old the oldest message of a queue is; without QUEUE, of all queues."""
    measured = ((each["oldest_message_age_seconds"] or 0, each["name"]) for each in _queues(api, queue))
    return judged("age", measured, warning, critical, "s")


@check.command()
@click.argument("stream", required=False)
@click.argument("group", required=False)
@thresholds("N", type=click.IntRange(0))
@check_verb
def lag(api: Api, stream: str | None, group: str | None, warning: int | None, critical: int | None) -> Result:
    """Check the lag of consumer groups: of one, of those of a STREAM, or of all; the largest one counts."""
    if stream is not None and group is not None:
        groups = [api.call("GET", path("groups", stream, group))]
    else:
        known = api.call("GET", "/groups")["groups"]
        groups = [each for each in known if stream in (None, each["stream"])]
    measured = ((each["lag"], f"{each['stream']}/{each['name']}") for each in groups)
    return judged("lag", measured, warning, critical)
