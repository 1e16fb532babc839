"""``quire console``: the web console alone, for one or several brokers."""

import os

import click

from quire.cli.api import DEFAULT_URL
from quire.cli.output import Output, output_option
from quire.errors import InvalidArgument
from quire.settings import split_address

DEFAULT_ADDRESS = "127.0.0.1:8162"


@click.command()
@click.option(
    "--url", "urls", multiple=True, metavar="URL",
    help=f"A broker's HTTP API; again for each further broker.  [env: QUIRE_URL; default: {DEFAULT_URL}]",
)  # fmt: skip
@click.option("--address", metavar="HOST:PORT", help=f"Where to listen.  [default: {DEFAULT_ADDRESS}]")
@click.option("--certificate", metavar="FILE", default="", help="Its certificate, PEM: browsers use https:// then.")
@click.option("--key", metavar="FILE", default="", help="The key of the certificate.  [default: the same file]")
@click.option("--insecure", is_flag=True, help="Show brokers without users although others reach the address.")
@click.option(
    "--name", "names", multiple=True, metavar="NAME",
    help="A name of the console, beside addresses and localhost, on loopback or with --insecure; again for each.",
)  # fmt: skip
@output_option
@click.pass_obj
def console(
    output: Output, urls: tuple[str, ...], address: str | None, certificate: str, key: str, insecure: bool,
    names: tuple[str, ...],
) -> None:  # fmt: skip
    """Run the web console in the foreground. SIGINT or SIGTERM stops it."""
    from quire.console.process import run  # what the console needs may not be installed
    from quire.console.session import ConsoleTls

    place = address or DEFAULT_ADDRESS
    try:
        split_address(place)
    except ValueError as error:
        raise InvalidArgument(str(error), argument="address") from error

    tls = ConsoleTls(certificate, key)

    def started(at: str) -> None:
        output.done(f"the console is at {tls.scheme}://{at}/", {"address": at})

    known = urls or (os.environ.get("QUIRE_URL") or DEFAULT_URL,)
    run(place, known, tls, insecure=insecure, started=started, names=" ".join(names))
