"""What a client shows to prove which user it is, and where it comes from."""

import ipaddress
from dataclasses import dataclass, field
from typing import NamedTuple


@dataclass(frozen=True, slots=True)
class Credentials:
    """What a client has shown.

    Attributes:
        login: the name of the user; empty if it gave none.
        passcode: the password; a token or an access token in its place is one.
        token: a bearer token.
        certificate: the subject of the client certificate, which TLS has verified.
    """

    login: str = ""
    passcode: str = field(default="", repr=False)
    token: str = field(default="", repr=False)
    certificate: str = ""


class Origin(NamedTuple):
    """Where a client comes from.

    Attributes:
        door: ``stomp``, ``openwire``, ``http`` or ``websocket``.
        address: ``host:port`` of the client, or the host alone.
    """

    door: str
    address: str

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
