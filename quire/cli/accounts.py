"""``quire user``, ``rule``, ``token``, ``whoami``: who may do what with which destinations."""

import click

from quire.cli.api import Api, broker_verb, new_password, path
from quire.cli.output import Output, columns_of, output_option
from quire.cli.resource import DURATION, Resource
from quire.errors import InvalidArgument
from quire.resources import RuleStatus, TokenStatus, UserStatus

user = Resource(
    "user", "List, add, change, remove users.\n\nThose of the settings file are changed there.", "users", "name"
)
user.ls("List the users with their roles.", columns_of(UserStatus), whole=True)

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


rule = Resource(
    "rule",
    "List, add, change, remove, explain access rules.\n\n"
    "A rule allows or denies a SUBJECT (user:NAME, role:NAME, or * for all users) some ACTIONS (read, write, create,"
    " manage; with commas between) on destinations: a name or a pattern, with queue://, topic:// or stream:// in front"
    " for one kind only. What no rule allows is refused, and a deny wins over every allow.",
    "rules", "id",
)  # fmt: skip
rule.ls("List the rules.", columns_of(RuleStatus), whole=True)


def _body(subject: str, effect: str, actions: str, destination: str) -> dict[str, object]:
    named = actions.split(",")
    known = ("read", "write", "create", "manage")
    if unknown := [action for action in named if action not in known]:
        raise InvalidArgument(f"{unknown[0]!r} is not an action: write some of {', '.join(known)}", argument="actions")
    return {"subject": subject, effect: named, "destination": destination}


_EFFECT = click.argument("effect", type=click.Choice(["allow", "deny"]))


@rule.command("add")
@click.argument("subject")
@_EFFECT
@click.argument("actions")
@click.argument("destination")
@broker_verb
def add_rule(api: Api, output: Output, subject: str, effect: str, actions: str, destination: str) -> None:
    """Add a rule: `quire rule add user:alice allow read,write 'queue://orders.>'`."""
    added = api.call("POST", "/rules", _body(subject, effect, actions, destination))
    output.done(f"added the rule {added['id']}", added)


@rule.command("set")
@click.argument("id")
@click.argument("subject")
@_EFFECT
@click.argument("actions")
@click.argument("destination")
@broker_verb
def replace(api: Api, output: Output, id: str, subject: str, effect: str, actions: str, destination: str) -> None:
    """Replace a rule by another one."""
    changed = api.call("PUT", path("rules", id), _body(subject, effect, actions, destination))
    output.done(f"changed the rule {id}", changed)


rule.act("rm", "DELETE", "Remove a rule.", "removed the rule {it}", ask="Remove the rule {it}?")


@rule.command()
@click.argument("user")
@click.argument("action", type=click.Choice(["read", "write", "create", "manage"]))
@click.argument("destination")
@click.option("--role", "roles", multiple=True, metavar="ROLE", help="As if the user had this role, and no others.")
@broker_verb
def check(api: Api, output: Output, user: str, action: str, destination: str, roles: tuple[str, ...]) -> None:
    """Explain whether a user may do something: `quire rule check alice write orders`."""
    given = ",".join(roles) if roles else None
    verdict = api.call("GET", "/rules/check", user=user, action=action, destination=destination, roles=given)
    output.done(verdict["text"], verdict)


token = Resource("token", "List, create, revoke tokens.", "tokens", "id")
token.ls("List your tokens; an administrator sees those of all users.", columns_of(TokenStatus), whole=True)


@token.command()
@click.option("--expires", "life", callback=DURATION, required=True, metavar="DURATION", help="When it ends: 12h, 30d.")
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


@click.command()
@broker_verb
def whoami(api: Api, output: Output) -> None:
    """Show which user you are to the broker, by which proof, and your roles."""
    output.record(api.call("GET", "/whoami"))
