"""``quire send`` and ``quire receive``: messages from and to the command line."""

import sys
from contextlib import closing
from itertools import chain
from typing import Any, BinaryIO

import click

from quire.cli.api import Api, broker_verb, destination_path, login_at, path, speaks_tls
from quire.cli.output import Output, encode_body, messages, on_terminal, printable, printable_lines
from quire.cli.resource import DURATION
from quire.clock import SystemClock
from quire.destination import DestinationKind, split_options, split_written
from quire.destination_pattern import Pattern
from quire.errors import UnknownDestination
from quire.settings import split_address

SSL = "ssl://"

DEFAULT_OPENWIRE = "127.0.0.1:61616"

NOTHING_RECEIVED = 6  # the exit code of a ``receive`` to which no message came


@click.command()
@click.argument("destination")
@click.argument("text", required=False)
@click.option("--body", metavar="TEXT", help="The body, as TEXT.")
@click.option("--file", type=click.File("rb"), metavar="FILE", help="A file with the body; - for standard input.")
@click.option(
    "--header",
    "--property",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of the message, or a JMS property: in STOMP both are headers. May be repeated.",
)
@click.option("--group", metavar="NAME", help="The message group of the message (JMSXGroupID).")
@click.option("--priority", type=click.IntRange(0, 9), default=4, show_default=True, help="The JMS priority.")
@click.option("--time-to-live", callback=DURATION, metavar="DURATION", help="The time to live: 30s, 5m, 1h.")
@click.option("--delay", callback=DURATION, metavar="DURATION", help="The delay after which the broker sends it.")
@click.option("--period", callback=DURATION, metavar="DURATION", help="The time between two repeats.")
@click.option("--repeat", type=click.IntRange(-1), help="The number of repeats; -1 for no end.")
@click.option("--cron", metavar="ENTRY", help="The cron entry by which the broker sends it, in UTC: '0 6 * * 1'.")
@click.option("--non-persistent", is_flag=True, help="Send it as non-persistent: it is lost when the broker stops.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How many times to send it.")
@broker_verb
def send(
    api: Api, output: Output, /, destination: str, text: str | None, body: str | None, file: BinaryIO | None,
    headers: tuple[str, ...], time_to_live: float | None, non_persistent: bool, priority: int, count: int, **meant: Any,
) -> None:  # fmt: skip
    """Send a message to a queue, a topic or a stream.

    DESTINATION is the name of a queue, or topic://NAME or stream://NAME. The body is TEXT, or comes from --file, or
    from standard input. For a stream --header partition-key=TEXT or --header partition=N determines the partition.
    """
    if text is not None and body is not None:
        raise click.UsageError("give the body once: as TEXT or with --body")
    content, encoding = encode_body(_read_body(text if body is None else body, file))
    message = {
        "body": content,
        "body_encoding": encoding,
        "headers": _read_headers(headers) | _meant(**meant),
        "persistent": not non_persistent,
        "priority": priority,
        "expiration": SystemClock().now_ms() + round(time_to_live * 1000) if time_to_live else 0,
        "count": count,
    }
    result = api.call("POST", destination_path(destination, "messages"), message)
    output.done(
        f"sent {messages(result['sent'])} to {destination}: {result['ids'][0]}" + (" ..." if count > 1 else ""), result
    )


@click.command()
@click.argument("destination")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="The maximum number of messages.")
@click.option("--ack", is_flag=True, help="Acknowledge each message after it is printed.")
@click.option(
    "--timeout",
    callback=DURATION,
    metavar="DURATION",
    default="5s",
    show_default=True,
    help="How long to wait for each message.",
)
@click.option("--selector", metavar="SELECTOR", help="Only messages that match this JMS selector.")
@click.option(
    "--durable",
    metavar="NAME",
    help="Receive as the durable subscription with this name; it is created if it does not exist.",
)
@click.option("--client-id", metavar="ID", help="The client id of the durable subscription.")
@click.option(
    "--group",
    metavar="NAME",
    help="Stream only: receive as a member of this consumer group; it is created if it does not exist.",
)
@click.option(
    "--start", metavar="POSITION", help="Stream only: the start position of a reader or a new group: earliest, ago=1h."
)
@click.option(
    "--openwire",
    metavar="[ssl://]HOST:PORT",
    help="The OpenWire address. Without it, the HTTP API of the broker tells it.",
)
@click.option("--create", is_flag=True, help="Create the destination if it does not exist.")
@broker_verb
def receive(
    api: Api, output: Output, destination: str, count: int, ack: bool, timeout: float, selector: str | None,
    durable: str | None, client_id: str | None, group: str | None, start: str | None, openwire: str | None,
    create: bool,
) -> None:  # fmt: skip
    """Receive messages from a queue, a topic or a stream.

    DESTINATION is the name of a queue, or topic://NAME or stream://NAME; one of a queue or topic may have wildcards.
    Without --ack messages of a queue, a durable subscription or a consumer group are not consumed. Without --group a
    stream is read from --start on, by default from its end, and the broker stores no progress.

    The destination must exist, which the HTTP API is asked for, or --create be given. The exit code is 6 if no message
    arrives.
    """
    if (durable is None) != (client_id is None):
        raise click.UsageError("--durable and --client-id belong together")
    is_stream = split_written(destination)[0] is DestinationKind.STREAM
    if (group is not None or start is not None) and not is_stream:
        raise click.UsageError("--group and --start are for streams")
    # The client library takes a while to import: only this command pays.
    from quire.cli.receiving import destination_of, receiving

    address = destination_of(destination)
    if not create:
        _check_exists(api, destination)
    received = receiving(
        openwire_url(api, openwire), login_at(api, openwire), output, address, count=count, ack=ack, timeout=timeout,
        client_id=client_id or "", selector=selector or "", name=durable or "", group=group or "", start=start or "",
    )  # fmt: skip
    with closing(received) as rows:
        first = next(rows, None)
        output.texts(chain([] if first is None else [first], rows), ["id", "body_encoding", "body"], _show)
    if first is None:
        click.get_current_context().exit(NOTHING_RECEIVED)


def _check_exists(api: Api, destination: str) -> None:
    kind, name = split_written(split_options(destination)[0])
    if not Pattern(name).is_wildcard:
        try:
            api.call("GET", path(f"{kind or DestinationKind.QUEUE}s", name))
        except UnknownDestination as error:
            raise UnknownDestination(f"{error}; --create creates it", **error.data) from error


def openwire_url(api: Api, written: str | None) -> str:
    """The URL of the OpenWire port: with TLS if it is written ``ssl://HOST:PORT``, or the API is reached with it."""
    address = written or str(api.call("GET", "/broker").get("openwire", DEFAULT_OPENWIRE))
    try:
        host, port = split_address(address.removeprefix(SSL))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--openwire") from error
    scheme = SSL if speaks_tls(api, written) else "tcp://"
    return f"{scheme}[{host}]:{port}" if ":" in host else f"{scheme}{host}:{port}"


def _read_body(body: str | None, file: BinaryIO | None) -> bytes:
    if body is not None and file is not None:
        raise click.UsageError("give --body or --file, not both")
    if body is not None:
        return body.encode()
    if file is not None:
        return file.read()
    if on_terminal(sys.stdin):
        raise click.UsageError("give --body or --file, or pipe the body in")
    return sys.stdin.buffer.read()


def _read_headers(headers: tuple[str, ...]) -> dict[str, str]:
    pairs = [header.partition("=") for header in headers]
    for name, equals, _ in pairs:
        if not name or not equals:
            raise click.BadParameter(f"{name!r} is not NAME=VALUE", param_hint="--header")
    return {name: value for name, _, value in pairs}


def _meant(
    group: str | None, delay: float | None, period: float | None, repeat: int | None, cron: str | None
) -> dict[str, str]:
    headers = {
        "JMSXGroupID": group,
        "AMQ_SCHEDULED_DELAY": _milliseconds(delay),
        "AMQ_SCHEDULED_PERIOD": _milliseconds(period),
        "AMQ_SCHEDULED_REPEAT": repeat,
        "AMQ_SCHEDULED_CRON": cron,
    }
    return {name: str(value) for name, value in headers.items() if value is not None}


def _milliseconds(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1000)


def _show(row: Any) -> str:
    lines = [f"{printable(name)}: {printable(value)}" for name, value in row["headers"].items()]
    return "\n".join([*lines, "", printable_lines(row["body"]), ""])
