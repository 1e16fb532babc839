"""The API's users, access rules and bearer tokens: list, add, change, remove; who may do what, and why."""

import asyncio
from collections.abc import Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar

import msgspec

from quire.destination import DestinationKind, written
from quire.errors import AccessRefused, BrokerBusy, InvalidArgument, QuireError, UnknownToken, UnknownUser
from quire.http.endpoint import ADMINISTER, USER, Call, Endpoint, Fields, listing
from quire.resources import RuleStatus, TokenStatus, UserStatus
from quire.security import Action, Permission, Principal, Proof
from quire.security.accounts import BUILT_IN, LONGEST_LIFE, SavedState, Token, user_of
from quire.security.authentication import hashed
from quire.settings import Rule, User

T = TypeVar("T")
P = ParamSpec("P")


class NewUser(Fields, frozen=True):
    """A new user; without a password it needs a certificate to log in."""

    name: str
    password: str | None = None
    roles: list[str] = msgspec.field(default_factory=list)
    certificates: list[str] = msgspec.field(default_factory=list)
    disabled: bool = False


class UserChange(Fields, frozen=True):
    """What to change; what is null stays as it is."""

    roles: list[str] | None = None
    certificates: list[str] | None = None
    disabled: bool | None = None


class NewPassword(Fields, frozen=True):
    """The new password. It ends the connections that logged in with the old one, and sessions of the console.

    Tokens that the user has made stay valid.
    """

    password: str


class PasswordSet(UserStatus, frozen=True):
    """The user whose password was set, and how many ``tokens`` of it are valid still."""

    tokens: int


class WhoQuery(Fields, frozen=True):
    """With a ``destination`` (``queue://orders``) the answer has what the caller may do with it."""

    destination: str | None = None


class WhoAmI(msgspec.Struct, frozen=True):
    """The caller, until when its proof is valid (milliseconds since the epoch), and whether clients must log in.

    ``permissions`` are about the broker as a whole. ``may`` are the actions that the rules allow: on the destination of
    the request, or without one on any.
    """

    name: str
    roles: list[str]
    proof: str
    until: int | None
    secured: bool
    permissions: list[str]
    may: list[str]


async def done_of(
    call: Call, edit: Callable[Concatenate[SavedState, P], tuple[SavedState, T]], *arguments: P.args, **named: P.kwargs
) -> T:
    """Make a change (``AccountChanges``), and wait until it is durable."""
    done: asyncio.Future[T | QuireError] = asyncio.get_running_loop().create_future()
    changes = call.service.security.changes
    changes.make(lambda outcome: None if done.done() else done.set_result(outcome), edit, *arguments, **named)
    outcome = await done
    if isinstance(outcome, QuireError):
        raise outcome
    return outcome


async def _hash(call: Call, password: str) -> str:
    done: asyncio.Future[str | Exception] = asyncio.get_running_loop().create_future()
    if not call.service.security.hashing.run(
        lambda: hashed(password), lambda outcome: None if done.done() else done.set_result(outcome)
    ):
        raise BrokerBusy("too many logins wait: try again later")
    outcome = await done
    if isinstance(outcome, Exception):
        raise outcome
    return outcome


def _status(user: User) -> UserStatus:
    return UserStatus(
        user.name, sorted(user.roles), list(user.certificates), bool(user.password_hash), user.disabled, user.in_file
    )


def _users(call: Call) -> list[UserStatus]:
    users = call.service.security.accounts.users
    return [_status(users[name]) for name in sorted(users)]


async def _add(call: Call) -> UserStatus:
    new: NewUser = call.body
    password_hash = "" if new.password is None else await _hash(call, new.password)
    table: dict[str, Any] = {"name": new.name, "roles": new.roles, "certificates": new.certificates}
    user = user_of({**table, "disabled": new.disabled, "password_hash": password_hash})
    added = await done_of(call, call.service.security.changes.add_user, user)
    call.audit("user.added", "user {user} was added", user=added.name, roles=sorted(added.roles))
    return _status(added)


async def _change(call: Call) -> UserStatus:
    name, new = call.path["user"], call.body
    given = {key: value for key in ("roles", "certificates", "disabled") if (value := getattr(new, key)) is not None}
    checked = user_of({"name": name, **given})
    fields = {key: getattr(checked, key) for key in given}
    changed = await done_of(call, call.service.security.changes.change_user, name, fields)
    call.audit("user.changed", "user {user} was changed", user=name, **given)
    return _status(changed)


async def _set_password(call: Call) -> PasswordSet:
    name, principal = call.path["user"], call.access.principal
    if not call.access.may(Permission.ADMINISTER) and (principal.name, principal.proof) != (name, Proof.PASSWORD):
        raise AccessRefused("only an administrator sets the password of another user", user=name)
    password_hash = await _hash(call, call.body.password)
    changed, tokens = await done_of(call, call.service.security.changes.set_password, name, password_hash)
    call.audit("user.password", "the password of user {user} was changed", user=name)
    return PasswordSet(**msgspec.structs.asdict(_status(changed)), tokens=tokens)


async def _remove(call: Call) -> UserStatus:
    name = call.path["user"]
    removed = await done_of(call, call.service.security.changes.remove_user, name)
    call.audit("user.removed", "user {user} was removed", user=name)
    return _status(removed)


def _who(call: Call) -> WhoAmI:
    principal = call.access.principal
    secured = call.service.security.is_enabled
    permissions = sorted([str(permission) for permission in Permission if call.access.may(permission)])
    return WhoAmI(
        principal.name, sorted(principal.roles), principal.proof, principal.expires_at, secured, permissions,
        sorted(_actions(call, principal, secured)),
    )  # fmt: skip


def _actions(call: Call, principal: Principal, secured: bool) -> list[str]:
    if call.query.destination is None:
        subjects = {"*", f"user:{principal.name}", *[f"role:{role}" for role in principal.roles]}
        rules = [rule for rule in (*BUILT_IN, *call.service.security.accounts.rules) if rule.subject in subjects]
        allowed = {action for rule in rules if rule.allow for action in rule.actions}
        return [str(action) for action in Action if action in allowed or not secured]
    destination = written(call.query.destination, DestinationKind.QUEUE)
    return [str(action) for action in Action if call.access.allows(action, destination.kind, destination.name)]


ENDPOINTS = [
    listing("UserList", "/users", ADMINISTER, "List the users.", "users", UserStatus, _users),
    Endpoint("POST", "/users", ADMINISTER, "Add a user.", _add, UserStatus, body=NewUser, status=201),
    Endpoint(
        "PUT", "/users/{user}", ADMINISTER, "Change the roles or certificates of a user, or disable it.", _change,
        UserStatus, body=UserChange,
    ),
    Endpoint(
        "PUT", "/users/{user}/password", USER, "Set the password of a user: an administrator, or the user itself.",
        _set_password, PasswordSet, body=NewPassword,
    ),
    Endpoint("DELETE", "/users/{user}", ADMINISTER, "Remove a user with its tokens.", _remove, UserStatus),
    Endpoint("GET", "/whoami", USER, "Tell who the caller is, and what it may do.", _who, WhoAmI, WhoQuery),
]  # fmt: skip


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


def _rule_status(rule: Rule) -> RuleStatus:
    origin = "built-in" if rule in BUILT_IN else "settings" if rule.in_file else "runtime"
    effect = "allow" if rule.allow else "deny"
    return RuleStatus(rule.id, effect, rule.subject, rule.listed.split(","), rule.destination, origin)


def _table(call: Call) -> dict[str, Any]:
    new: NewRule = call.body
    if (new.allow is None) == (new.deny is None):
        raise InvalidArgument("a rule has either allow or deny", argument="allow")
    effect = {"allow": new.allow} if new.deny is None else {"deny": new.deny}
    return {"subject": new.subject, "destination": new.destination, **effect}


async def _add_rule(call: Call) -> RuleStatus:
    table = _table(call)
    rule = await done_of(call, call.service.security.changes.add_rule, table)
    call.audit("rule.added", "the rule {rule} was added", rule=str(rule))
    return _rule_status(rule)


async def _set(call: Call) -> RuleStatus:
    id, table = call.path["rule"], _table(call)
    rule = await done_of(call, call.service.security.changes.set_rule, id, table)
    call.audit("rule.changed", "the rule is now {rule}", rule=str(rule))
    return _rule_status(rule)


async def _remove_rule(call: Call) -> RuleStatus:
    id = call.path["rule"]
    rule = await done_of(call, call.service.security.changes.remove_rule, id)
    call.audit("rule.removed", "the rule {rule} was removed", rule=str(rule))
    return _rule_status(rule)


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
    rule = None if decision.rule is None else _rule_status(decision.rule)
    overruled = [_rule_status(loser) for loser in decision.losers]
    return Verdict(decision.allowed, str(decision), decision.reason, rule, overruled, decision.hint)


ENDPOINTS += [
    listing(
        "RuleList", "/rules", ADMINISTER, "List the access rules, the built-in ones first.", "rules", RuleStatus,
        lambda call: [_rule_status(rule) for rule in (*BUILT_IN, *call.service.security.accounts.rules)],
    ),
    Endpoint("POST", "/rules", ADMINISTER, "Add a rule.", _add_rule, RuleStatus, body=NewRule, status=201),
    Endpoint(
        "GET", "/rules/check", ADMINISTER, "Explain whether a user may do something with a destination.", _check,
        Verdict, CheckQuery,
    ),
    Endpoint("PUT", "/rules/{rule}", ADMINISTER, "Replace a rule.", _set, RuleStatus, body=NewRule),
    Endpoint("DELETE", "/rules/{rule}", ADMINISTER, "Remove a rule.", _remove_rule, RuleStatus),
]  # fmt: skip


class NewToken(Fields, frozen=True):
    """A token to make: how many seconds it lives, for which user (null for the caller), with which roles at most."""

    expires_in: Annotated[float, msgspec.Meta(gt=0, le=LONGEST_LIFE)]
    owner: str | None = None
    roles: list[str] | None = None
    text: str = ""


class CreatedToken(msgspec.Struct, frozen=True):
    """A new token. ``secret`` is what its user shows; the broker does not keep it."""

    token: TokenStatus
    secret: str


def _token_status(token: Token) -> TokenStatus:
    roles = None if token.roles is None else list(token.roles)
    return TokenStatus(token.id, token.owner, roles, token.created_at, token.expires_at, token.text)


def _may_see(call: Call, token: Token) -> bool:
    return call.access.may(Permission.ADMINISTER) or token.owner == call.access.principal.name


def _tokens(call: Call) -> list[TokenStatus]:
    accounts = call.service.security.accounts
    tokens = [token for token in accounts.state.tokens.values() if not accounts.has_ended(token)]
    return [_token_status(token) for token in tokens if _may_see(call, token)]


async def _create(call: Call) -> CreatedToken:
    new: NewToken = call.body
    principal = call.access.principal
    owner = principal.name if new.owner is None else new.owner
    if not call.access.may(Permission.ADMINISTER):
        if owner != principal.name:
            raise AccessRefused("only an administrator makes tokens of another user", owner=owner)
        if principal.proof not in (Proof.PASSWORD, Proof.CERTIFICATE):  # else it would outlive its revocation
            raise AccessRefused("log in with a password or a certificate to make a token", proof=str(principal.proof))
    elif not owner:
        raise InvalidArgument("name the owner of the token", argument="owner")
    changes = call.service.security.changes
    token, secret = await done_of(call, changes.add_token, owner, new.expires_in, new.roles, new.text)
    call.audit("token.created", "the token {token} of {owner} was made", token=token.id, owner=owner)
    return CreatedToken(_token_status(token), secret)


async def _revoke(call: Call) -> TokenStatus:
    id, security = call.path["token"], call.service.security
    token = security.accounts.state.tokens.get(id)
    if token is None or not _may_see(call, token):
        raise UnknownToken(f"there is no token {id[:60]!r}", token=id[:60])
    revoked = await done_of(call, security.changes.revoke_token, id)
    call.audit("token.revoked", "the token {token} of {owner} was revoked", owner=revoked.owner)
    return _token_status(revoked)


ENDPOINTS += [
    listing(
        "TokenList", "/tokens", USER, "List the caller's tokens; an administrator sees those of all users.", "tokens",
        TokenStatus, _tokens,
    ),
    Endpoint(
        "POST", "/tokens", USER, "Make a token. The answer alone has its secret.", _create, CreatedToken, body=NewToken,
        status=201,
    ),
    Endpoint("DELETE", "/tokens/{token}", USER, "Revoke a token: its connections are closed.", _revoke, TokenStatus),
]  # fmt: skip
