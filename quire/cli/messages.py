"""``quire send`` and ``quire receive``: messages from and to the command line."""

import base64
import sys
from collections.abc import Iterator
from typing import Any, BinaryIO

import click

from quire.cli.api import Api, broker_verb, queue_name, queue_path
from quire.cli.output import Output, messages, on_terminal, printable, printable_lines
from quire.client.connection import Connection, Frame, connect
from quire.clock import SystemClock
from quire.settings import split_address
from quire.units import parse_duration

DEFAULT_STOMP = "127.0.0.1:61613"


def _seconds(_context: click.Context, _option: click.Parameter, value: str | None) -> float | None:
    try:
        return None if value is None else parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@click.command()
@click.argument("queue")
@click.option("--body", metavar="TEXT", help="The body.")
@click.option("--file", type=click.File("rb"), metavar="FILE", help="A file with the body; - for standard input.")
@click.option(
    "--header",
    "--property",
    "headers",
    multiple=True,
    metavar="NAME=VALUE",
    help="A header of the message, or a JMS property: in STOMP both are headers. May be repeated.",
)
@click.option("--priority", type=click.IntRange(0, 9), default=4, show_default=True, help="The JMS priority.")
@click.option("--time-to-live", callback=_seconds, metavar="DURATION", help="How long until it expires: 30s, 5m, 1h.")
@click.option("--non-persistent", is_flag=True, help="Do not store it: it is lost when the broker stops.")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How often to send it.")
@broker_verb
def send(
    api: Api,
    output: Output,
    queue: str,
    body: str | None,
    file: BinaryIO | None,
    headers: tuple[str, ...],
    priority: int,
    time_to_live: float | None,
    non_persistent: bool,
    count: int,
) -> None:
    """Send a message to a queue.

    The body comes from --body, from --file, or from standard input.
    """
    text, encoding = encode_body(_read_body(body, file))
    message = {
        "body": text,
        "body_encoding": encoding,
        "headers": _read_headers(headers),
        "persistent": not non_persistent,
        "priority": priority,
        "expiration": SystemClock().now_ms() + round(time_to_live * 1000) if time_to_live else 0,
        "count": count,
    }
    result = api.call("POST", queue_path(queue, "messages"), message)
    output.done(
        f"sent {messages(result['sent'])} to {queue}: {result['ids'][0]}" + (" ..." if count > 1 else ""), result
    )


@click.command()
@click.argument("queue")
@click.option("--count", type=click.IntRange(1), default=1, show_default=True, help="How many messages at the most.")
@click.option("--ack", is_flag=True, help="Acknowledge each after it is printed, so that it leaves the queue.")
@click.option(
    "--timeout",
    callback=_seconds,
    metavar="DURATION",
    default="5s",
    show_default=True,
    help="How long to wait for each.",
)
@click.option("--stomp", metavar="HOST:PORT", help="Where STOMP listens; otherwise the broker is asked.")
@broker_verb
def receive(api: Api, output: Output, queue: str, count: int, ack: bool, timeout: float, stomp: str | None) -> None:
    """Receive messages from a queue.

    Without --ack they are shown and stay in the queue.
    """
    try:
        host, port = split_address(stomp or str(api.call("GET", "/broker").get("stomp", DEFAULT_STOMP)))
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--stomp") from error
    with connect(host, port) as connection:
        connection.subscribe(f"/queue/{queue_name(queue)}", prefetch=count)
        rows = _received(connection, output, count, ack, timeout)
        output.texts(rows, ["id", "body_encoding", "body"], _show)


def encode_body(body: bytes) -> tuple[str, str]:
    """A body as JSON can carry it.

    Returns:
        The text and ``text``, or base64 and ``base64`` when the body is not UTF-8.
    """
    try:
        return body.decode(), "text"
    except UnicodeDecodeError:
        return base64.b64encode(body).decode(), "base64"


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


def _received(
    connection: Connection, output: Output, count: int, ack: bool, timeout: float
) -> Iterator[dict[str, Any]]:
    for _ in range(count):
        frame = connection.receive(timeout)
        if frame is None:
            output.note(f"no message came in {timeout:g} s")
            break
        yield _row(frame)
        # The row is printed when the caller asks for the next one.
        if ack:
            connection.ack(frame)
    connection.disconnect()


def _row(frame: Frame) -> dict[str, Any]:
    body, encoding = encode_body(frame.body)
    return {"id": frame.headers["message-id"], "headers": frame.headers, "body": body, "body_encoding": encoding}


def _show(row: Any) -> str:
    lines = [f"{printable(name)}: {printable(value)}" for name, value in row["headers"].items()]
    return "\n".join([*lines, "", printable_lines(row["body"]), ""])
