"""The API's access rules: list, add, replace, remove; who may do what, and why."""

from typing import Any

import msgspec

from quire.destination import DestinationKind, written
from quire.errors import InvalidArgument, UnknownUser
from quire.http.endpoint import Call, Endpoint, Fields, listing
from quire.http.rights import ADMINISTER
from quire.http.users import done_of
from quire.security import Action, Principal
from quire.security.accounts import BUILT_IN
from quire.security.principal import Proof
from quire.settings import Rule


class RuleStatus(msgspec.Struct, frozen=True):
    """A rule. ``effect`` is allow or deny; ``origin`` is settings, runtime or built-in."""

    id: str
    subject: str
    effect: str
    actions: list[str]
    destination: str
    origin: str


class NewRule(Fields, frozen=True):
    """A rule: a subject ``user:NAME``, ``role:NAME`` or ``*``, either ``allow`` or ``deny``, and a destination."""

    subject: str
    destination: str
    allow: list[Action] | None = None
    deny: list[Action] | None = None


class CheckQuery(Fields, frozen=True):
    """Who wants to do what with which destination; ``roles`` with commas, for one who is no user of this broker."""

    user: str
    action: Action
    destination: str
    roles: str | None = None


class Verdict(msgspec.Struct, frozen=True):
    """Whether it is allowed, by which rule, over which others, and what may have been meant instead."""

    allowed: bool
    text: str
    reason: str
    rule: RuleStatus | None
    overruled: list[RuleStatus]
    hint: str


def _status(rule: Rule) -> RuleStatus:
    origin = "built-in" if rule in BUILT_IN else "settings" if rule.in_file else "runtime"
    effect = "allow" if rule.allow else "deny"
    return RuleStatus(rule.id, rule.subject, effect, rule.listed.split(","), rule.destination, origin)


def _table(call: Call) -> dict[str, Any]:
    new: NewRule = call.body
    if (new.allow is None) == (new.deny is None):
        raise InvalidArgument("a rule has either allow or deny", argument="allow")
    effect = {"allow": new.allow} if new.deny is None else {"deny": new.deny}
    return {"subject": new.subject, "destination": new.destination, **effect}


async def _add(call: Call) -> RuleStatus:
    table = _table(call)
    rule = await done_of(call.service.security.changes.add_rule, table)
    call.audit("rule.added", "the rule {rule} was added", rule=str(rule))
    return _status(rule)


async def _set(call: Call) -> RuleStatus:
    id, table = call.path["rule"], _table(call)
    rule = await done_of(call.service.security.changes.set_rule, id, table)
    call.audit("rule.changed", "the rule is now {rule}", rule=str(rule))
    return _status(rule)


async def _remove(call: Call) -> RuleStatus:
    id = call.path["rule"]
    rule = await done_of(call.service.security.changes.remove_rule, id)
    call.audit("rule.removed", "the rule {rule} was removed", rule=str(rule))
    return _status(rule)


def _check(call: Call) -> Verdict:
    query: CheckQuery = call.query
    accounts = call.service.security.accounts
    user = accounts.users.get(query.user)
    if query.roles is not None:
        roles = frozenset(filter(None, query.roles.split(",")))
    elif user is not None:
        roles = user.roles
    else:
        raise UnknownUser(f"there is no user {query.user[:100]!r}: give its roles", user=query.user[:100])
    destination = written(query.destination, DestinationKind.QUEUE)
    principal = Principal(query.user, roles, Proof.PASSWORD)
    decision = accounts.decide(principal, query.action, destination.kind, destination.name)
    rule = None if decision.rule is None else _status(decision.rule)
    overruled = [_status(loser) for loser in decision.losers]
    return Verdict(decision.allowed, str(decision), decision.reason, rule, overruled, decision.hint)


ENDPOINTS = [
    listing(
        "RuleList", "/rules", ADMINISTER, "List the access rules, the built-in ones first.", "rules", RuleStatus,
        lambda call: [_status(rule) for rule in (*BUILT_IN, *call.service.security.accounts.rules)],
    ),
    Endpoint("POST", "/rules", ADMINISTER, "Add a rule.", _add, RuleStatus, body=NewRule, status=201),
    Endpoint(
        "GET", "/rules/check", ADMINISTER, "Explain whether a user may do something with a destination.", _check,
        Verdict, CheckQuery,
    ),
    Endpoint("PUT", "/rules/{rule}", ADMINISTER, "Replace a rule.", _set, RuleStatus, body=NewRule),
    Endpoint("DELETE", "/rules/{rule}", ADMINISTER, "Remove a rule.", _remove, RuleStatus),
]  # fmt: skip
