"""``quire config``: write, check and explain settings."""

import functools
import os
from collections.abc import Callable
from pathlib import Path
from typing import ParamSpec

import click

from quire.cli.output import Column, Output, output_option
from quire.destination import Destination, DestinationKind, checked, split_prefix
from quire.errors import InvalidArgument
from quire.settings import KEYS, commented_file, explain, faults, load
from quire.store.urls import shown

P = ParamSpec("P")

INSECURE = "Bind addresses other than loopback although there are no users."
_FLAGS = {
    "data": ("store.data", "DIR"),
    "store": ("store.url", "URL"),
    "stomp": ("stomp.address", "HOST:PORT"),
    "openwire": ("openwire.address", "HOST:PORT"),
    "http": ("http.address", "HOST:PORT"),
    "memory_limit": ("memory.limit", "SIZE"),
    "sync": ("store.sync", "always|interval|never"),
}


def setting_flags(verb: Callable[P, None]) -> Callable[..., None]:
    """The options that set what ``broker start`` needs most; the verb gets them as ``flags``, by key."""

    @functools.wraps(verb)
    def with_flags(*args: P.args, **kwargs: P.kwargs) -> None:
        flags = {key: kwargs.pop(name) for name, (key, _) in _FLAGS.items()}
        kwargs["flags"] = flags | {"insecure": kwargs.pop("insecure"), "security.enabled": kwargs.pop("secure")}
        verb(*args, **kwargs)

    with_secure = click.option("--secure", flag_value=True, default=None, help=KEYS["security.enabled"].text)(
        with_flags
    )
    wrapped: Callable[..., None] = click.option("--insecure", flag_value=True, default=None, help=INSECURE)(with_secure)
    for name, (key, metavar) in reversed(_FLAGS.items()):
        wrapped = click.option("--" + name.replace("_", "-"), name, metavar=metavar, help=KEYS[key].text)(wrapped)
    return wrapped


@click.group()
@output_option
def config() -> None:
    """Write, check and explain settings."""


@config.command()
@click.argument("file", default="quire.toml")
@click.option("--force", is_flag=True, help="Overwrite an existing file.")
@output_option
@click.pass_obj
def init(output: Output, file: str, force: bool) -> None:
    """Write a settings file with every key, its meaning and its default.

    FILE is quire.toml if it is not given; - writes to standard output.
    """
    if file == "-":
        click.echo(commented_file(), nl=False)
        return
    try:
        with Path(file).open("w" if force else "x", encoding="utf-8") as target:
            target.write(commented_file())
    except OSError as error:
        hint = " --force overwrites it." if isinstance(error, FileExistsError) else ""
        raise InvalidArgument(f"{file} cannot be written: {error.strerror}.{hint}", file=file) from error
    output.done(f"wrote {file}", {"file": file})


@config.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@setting_flags
@output_option
@click.pass_context
def check(context: click.Context, file: Path | None, flags: dict[str, object]) -> None:
    """Check a settings file and the environment as `broker start` reads them, without starting a broker.

    Shows every fault, not only the first.
    """
    output: Output = context.obj
    if found := faults(file, os.environ, flags):
        for error in found:
            output.error(error)
        context.exit(found[0].entry.exit)
    output.done("the settings are valid", {"file": file and str(file), "valid": True})


@config.command("explain")
@click.argument("destination", required=False)
@click.option("--config", "file", type=click.Path(path_type=Path), metavar="FILE", help="A settings file (TOML).")
@setting_flags
@output_option
@click.pass_obj
def explain_settings(output: Output, destination: str | None, file: Path | None, flags: dict[str, object]) -> None:
    """Show every setting, its value and where the value comes from.

    With a DESTINATION (orders, queue://orders, topic://prices), show its policy.
    """
    if destination is None:
        settings = explain(file, os.environ, flags)
    else:
        settings = load(file, os.environ, flags).policies.explain(_destination(destination))
    rows = []
    for setting in settings:
        value = shown(setting.value) if isinstance(setting.value, str) else setting.value
        rows.append(
            {
                "key": setting.key,
                "value": value if output.format != "table" else KEYS[setting.key].kind.write(value),
                "origin": setting.origin,
            }
        )
    output.rows(rows, [Column("key", "Key"), Column("value", "Value"), Column("origin", "Origin")])


def _destination(text: str) -> Destination:
    if text.endswith(".toml") and Path(text).is_file():
        raise InvalidArgument(f"{text} is a file: write --config {text}", destination=text)
    kind, name = split_prefix(text)
    return checked(kind or DestinationKind.QUEUE, name)
