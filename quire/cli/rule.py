"""``quire rule``: who may do what with which destinations."""

import click

from quire.cli.api import Api, broker_verb, path
from quire.cli.output import Output, columns
from quire.cli.resource import Resource
from quire.errors import InvalidArgument

rule = Resource(
    "rule",
    "List, add, change, remove, explain access rules.\n\n"
    "A rule allows or denies a SUBJECT (user:NAME, role:NAME, or * for all users) some ACTIONS (read, write, create,"
    " manage; with commas between) on destinations: a name or a pattern, with queue://, topic:// or stream:// in front"
    " for one kind only. What no rule allows is refused, and a deny wins over every allow.",
    "rules", "id",
)  # fmt: skip
rule.ls("List the rules.", columns("id:Rule", "effect", "subject", "actions", "destination", "origin"), whole=True)


def _body(subject: str, effect: str, actions: str, destination: str) -> dict[str, object]:
    named = actions.split(",")
    known = ("read", "write", "create", "manage")
    if unknown := [action for action in named if action not in known]:
        raise InvalidArgument(f"{unknown[0]!r} is not an action: write some of {', '.join(known)}", argument="actions")
    return {"subject": subject, effect: named, "destination": destination}


_EFFECT = click.argument("effect", type=click.Choice(["allow", "deny"]))


@rule.command()
@click.argument("subject")
@_EFFECT
@click.argument("actions")
@click.argument("destination")
@broker_verb
def add(api: Api, output: Output, subject: str, effect: str, actions: str, destination: str) -> None:
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
