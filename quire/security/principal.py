"""Who a client is, once it has proved it, and what it shows to prove it.

Work that takes long or waits (a check of a password, a write to a file) is done on a thread that the process hands in;
its result comes back to the event loop (``Background``).
"""

import ipaddress
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple, Protocol, TypeVar


class Proof(StrEnum):
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
    """A user, as the broker knows it from a proof."""

    name: str  # empty while there are no users
    roles: frozenset[str] = frozenset()  # those of the user, or fewer if the proof says so
    proof: Proof = Proof.NONE
    expires_at: int | None = None  # when the proof ends, in milliseconds since the epoch
    key: str = field(default="", repr=False, compare=False)  # what the proof was compared with, and ends with

    @property
    def is_administrator(self) -> bool:
        return "administrator" in self.roles

    def may(self, permission: Permission) -> bool:
        return any([permission in _GRANTS.get(role, ()) for role in self.roles])


ANYONE = Principal("", frozenset({"administrator"}))  # every client, while there are no users: it may do everything


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client has shown."""

    login: str = ""
    passcode: str = field(default="", repr=False)  # the password, or a token or an access token in its place
    token: str = field(default="", repr=False)  # a bearer token
    certificate: str = ""  # the subject of the client certificate, which TLS has verified


class Origin(NamedTuple):
    """Where a client comes from."""

    door: str  # ``stomp``, ``openwire``, ``http`` or ``websocket``
    address: str  # ``host:port`` of the client, or the host alone

    @property
    def network(self) -> str:
        """What guesses are counted by: an IPv4 address, or a network of IPv6, of which one client has all addresses."""
        host = self.address.rpartition(":")[0] if self.address.count(":") == 1 else self.address
        if host.startswith("["):
            host = host[1:].partition("]")[0]
        try:
            address = ipaddress.ip_address(host)
        except ValueError:
            # An IPv6 address with a port and without brackets, or no address at all.
            try:
                address = ipaddress.ip_address(self.address.rpartition(":")[0])
            except ValueError:
                return host
        if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped is None:
            return str(ipaddress.ip_network((address, 64), strict=False))
        return str(address)


T = TypeVar("T")


class Background(Protocol):
    """Where such work is done; the process hands it in, and tests one that does it at once."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        """Do some work, and call with its result or its exception; false if too much waits: nothing is done then."""
        ...
