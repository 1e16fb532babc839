"""``quire token``: bearer tokens."""

import click

from quire.cli.api import Api, broker_verb
from quire.cli.output import Output, columns
from quire.cli.resource import Resource
from quire.units import parse_duration

token = Resource("token", "List, create, revoke tokens.", "tokens", "id")
token.ls(
    "List your tokens; an administrator sees those of all users.",
    columns("id:Token", "owner", "roles", "created", "until", "text"),
    whole=True,
)


def _seconds(_context: click.Context, _option: click.Parameter, value: str) -> float:
    try:
        return parse_duration(value)
    except ValueError as error:
        raise click.BadParameter(str(error)) from error


@token.command()
@click.option("--expires", "life", callback=_seconds, required=True, metavar="DURATION", help="When it ends: 12h, 30d.")
@click.option("--owner", metavar="USER", help="The user whose rights it gives, instead of you; for administrators.")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="Only these roles of the owner, instead of all.")
@click.option("--text", default="", metavar="TEXT", help="What the token is for.")
@broker_verb
def create(api: Api, output: Output, life: float, owner: str | None, roles: tuple[str, ...], text: str) -> None:
    """Create a token and print it. It is shown only now."""
    body = {"expires_in": life, "owner": owner, "roles": roles or None, "text": text}
    created = api.call("POST", "/tokens", body)
    output.done(created["secret"], created)


token.act("revoke", "DELETE", "Revoke a token: its connections end.", "revoked the token {it}")
