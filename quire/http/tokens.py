"""The API's bearer tokens: list, make, revoke."""

from typing import Annotated

import msgspec

from quire.errors import AccessRefused, InvalidArgument, UnknownToken
from quire.http.endpoint import Call, Endpoint, Fields, listing
from quire.http.rights import USER
from quire.http.users import done_of
from quire.security import Permission, Proof
from quire.security.accounts import LONGEST_LIFE, Token


class TokenStatus(msgspec.Struct, frozen=True):
    """A token: when it was made, until when it is valid (milliseconds since the epoch), its only roles or null."""

    id: str
    owner: str
    created: int
    until: int
    roles: list[str] | None
    text: str


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


def _status(token: Token) -> TokenStatus:
    roles = None if token.roles is None else list(token.roles)
    return TokenStatus(token.id, token.owner, token.created_at, token.expires_at, roles, token.text)


def _may_see(call: Call, token: Token) -> bool:
    return call.access.may(Permission.ADMINISTER) or token.owner == call.access.principal.name


def _tokens(call: Call) -> list[TokenStatus]:
    tokens, now = call.service.security.accounts.state.tokens.values(), call.service.clock.now_ms()
    return [_status(token) for token in tokens if token.expires_at > now and _may_see(call, token)]


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
    token, secret = await done_of(changes.add_token, owner, new.expires_in, new.roles, new.text)
    call.audit("token.created", "the token {token} of {owner} was made", token=token.id, owner=owner)
    return CreatedToken(_status(token), secret)


async def _revoke(call: Call) -> TokenStatus:
    id, security = call.path["token"], call.service.security
    token = security.accounts.state.tokens.get(id)
    if token is None or not _may_see(call, token):
        raise UnknownToken(f"there is no token {id[:60]!r}", token=id[:60])
    revoked = await done_of(security.changes.revoke_token, id)
    call.audit("token.revoked", "the token {token} of {owner} was revoked", owner=revoked.owner)
    return _status(revoked)


ENDPOINTS = [
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
