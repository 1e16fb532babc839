"""Who a client is, once it has proved it."""

from dataclasses import dataclass, field
from enum import StrEnum


class Proof(StrEnum):
    """How a client proved which user it is."""

    NONE = "none"  # no proof is needed while there are no users
    PASSWORD = "password"  # noqa: S105 - a word, not a secret
    CERTIFICATE = "certificate"
    TOKEN = "token"  # noqa: S105
    JWT = "jwt"
    LOCAL = "local"  # the command line, on the broker's machine
    PEER = "peer"  # another process of the cluster says so, where the client has logged in


class Permission(StrEnum):
    """What one may do with the broker as a whole; roles give it, rules do not."""

    MONITOR = "monitor"  # see states and metrics
    OPERATE = "operate"  # change what is not a destination: the schedule, transactions, producers
    ADMINISTER = "administer"  # users, rules, tokens; stop the broker


_GRANTS = {
    "administrator": frozenset(Permission),
    "operator": frozenset({Permission.MONITOR, Permission.OPERATE}),
    "monitor": frozenset({Permission.MONITOR}),
}


_INCLUDES = {"administrator": {"operator", "monitor"}, "operator": {"monitor"}}


def with_included(roles: frozenset[str]) -> frozenset[str]:
    """Roles, with those that may do a part of what they may: a token of an administrator may be one for a monitor."""
    return roles.union(*[_INCLUDES.get(role, ()) for role in roles])


@dataclass(frozen=True, slots=True)
class Principal:
    """A user, as the broker knows it from a proof.

    Attributes:
        name: the user; empty while there are no users.
        roles: the roles that count: those of the user, or fewer if the proof says so.
        proof: how it proved which user it is.
        expires_at: when the proof ends, in milliseconds since the epoch; None if it does not.
        key: what the proof was compared with; when that changes, the proof has ended.
    """

    name: str
    roles: frozenset[str] = frozenset()
    proof: Proof = Proof.NONE
    expires_at: int | None = None
    key: str = field(default="", repr=False, compare=False)

    @property
    def is_administrator(self) -> bool:
        """Whether it has the role that may do everything."""
        return "administrator" in self.roles

    def may(self, permission: Permission) -> bool:
        """Whether a role of it gives a permission."""
        return any([permission in _GRANTS.get(role, ()) for role in self.roles])


ANYONE = Principal("", frozenset({"administrator"}))
"""Every client, while there are no users: it may do everything."""
