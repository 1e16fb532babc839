"""The API's users: list, add, change, remove; who the caller is."""

import asyncio
from collections.abc import Callable
from typing import Any, Concatenate, ParamSpec, TypeVar

import msgspec

from quire.destination import DestinationKind, written
from quire.errors import AccessRefused, BrokerBusy, QuireError
from quire.http.endpoint import Call, Endpoint, Fields, listing
from quire.http.rights import ADMINISTER, USER
from quire.security import Action, Permission, Principal, Proof
from quire.security.accounts import BUILT_IN, Changed, user_of
from quire.security.authentication import hashed
from quire.settings import User

T = TypeVar("T")
P = ParamSpec("P")


class UserStatus(msgspec.Struct, frozen=True):
    """A user. ``in_file`` says whether it is in the settings file, and is changed there only."""

    name: str
    roles: list[str]
    certificates: list[str]
    has_password: bool
    disabled: bool
    in_file: bool


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


async def done_of(change: Callable[Concatenate[Changed[T], P], None], *arguments: P.args, **_named: P.kwargs) -> T:
    """Make a change (``AccountChanges``), and wait until it is durable."""
    done: asyncio.Future[T | QuireError] = asyncio.get_running_loop().create_future()
    change(lambda outcome: None if done.done() else done.set_result(outcome), *arguments, **_named)
    outcome = await done
    if isinstance(outcome, QuireError):
        raise outcome
    return outcome


async def _hash(call: Call, password: str) -> str:
    """The hash of a new password, made on the thread for that."""
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
    added = await done_of(call.service.security.changes.add_user, user)
    call.audit("user.added", "user {user} was added", user=added.name, roles=sorted(added.roles))
    return _status(added)


async def _change(call: Call) -> UserStatus:
    name, new = call.path["user"], call.body
    given = {key: value for key in ("roles", "certificates", "disabled") if (value := getattr(new, key)) is not None}
    checked = user_of({"name": name, **given})
    fields = {key: getattr(checked, key) for key in given}
    changed = await done_of(call.service.security.changes.change_user, name, fields)
    call.audit("user.changed", "user {user} was changed", user=name, **given)
    return _status(changed)


async def _set_password(call: Call) -> PasswordSet:
    name, principal = call.path["user"], call.access.principal
    if not call.access.may(Permission.ADMINISTER) and (principal.name, principal.proof) != (name, Proof.PASSWORD):
        raise AccessRefused("only an administrator sets the password of another user", user=name)
    password_hash = await _hash(call, call.body.password)
    changed, tokens = await done_of(call.service.security.changes.set_password, name, password_hash)
    call.audit("user.password", "the password of user {user} was changed", user=name)
    return PasswordSet(**msgspec.structs.asdict(_status(changed)), tokens=tokens)


async def _remove(call: Call) -> UserStatus:
    name = call.path["user"]
    removed = await done_of(call.service.security.changes.remove_user, name)
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
    """What the rules allow the caller to do with the destination of the query, or with some destination."""
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
