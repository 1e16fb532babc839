"""``quire user``: the users of a broker."""

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.login import new_password
from quire.cli.output import Output, columns, output_option
from quire.cli.resource import Resource

user = Resource(
    "user", "List, add, change, remove users.\n\nThose of the settings file are changed there.", "users", "name"
)
user.ls(
    "List the users with their roles.",
    columns("name:User", "roles", "certificates", "has_password:Password", "disabled", "in_file:In settings"),
    whole=True,
)

_PASSWORD_FILE = click.option(
    "--new-password-file", metavar="FILE",
    help="A file whose first line is the password; - for standard input. Without it the password is typed.",
)  # fmt: skip


@user.command()
@click.argument("name")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="administrator, operator, monitor, or another.")
@click.option(
    "--certificate", "certificates", multiple=True, metavar="SUBJECT", help="The subject of a client certificate."
)
@click.option("--no-password", is_flag=True, help="The user logs in with a certificate only.")
@_PASSWORD_FILE
@broker_verb
def add(
    api: Api, output: Output, name: str, roles: tuple[str, ...], certificates: tuple[str, ...], no_password: bool,
    new_password_file: str | None,
) -> None:  # fmt: skip
    """Add a user. From the first user on, all clients of the broker must log in."""
    password = None if no_password else new_password(new_password_file)
    body = {"name": name, "password": password, "roles": roles, "certificates": certificates}
    output.done(f"added {name}", api.call("POST", "/users", body))


@user.command()
@click.argument("name")
@_PASSWORD_FILE
@broker_verb
def passwd(api: Api, output: Output, name: str, new_password_file: str | None) -> None:
    """Set the password of a user. Connections that logged in with the old one end; tokens stay."""
    body = {"password": new_password(new_password_file)}
    result = api.call("PUT", path("users", name, "password"), body)
    tokens = result["tokens"]
    left = f"; {tokens} of its tokens are still valid: `quire token ls`, `quire token revoke ID`" if tokens else ""
    output.done(f"set the password of {name}{left}", result)


@user.command()
@click.argument("name")
@click.argument("roles", nargs=-1)
@broker_verb
def role(api: Api, output: Output, name: str, roles: tuple[str, ...]) -> None:
    """Give a user exactly these roles; without any it has none."""
    result = api.call("PUT", path("users", name), {"roles": roles})
    output.done(f"{name} has the roles: {', '.join(result['roles']) or 'none'}", result)


user.act("rm", "DELETE", "Remove a user with its tokens.", "removed {it}", ask="Remove {it} with its tokens?")


@user.command("hash")
@_PASSWORD_FILE
@output_option
@click.pass_obj
def hash_password(output: Output, new_password_file: str | None) -> None:
    """Print the hash of a password, for a user of the settings file."""
    from quire.security.authentication import hashed

    text = hashed(new_password(new_password_file))
    output.done(text, {"password_hash": text})
