"""Sockets that take connections."""

import socket

from quire.errors import AddressInUse
from quire.settings import split_address

ANYWHERE = ("", "0.0.0.0", "::")  # noqa: S104 - compared with, not bound to

BACKLOG = 1024
"""How many connections may wait to be served."""


def listen(address: str, *, is_shared: bool = False) -> socket.socket:
    """A socket that takes connections from now on, before they are served; port 0 picks a free one.

    Args:
        address: ``host:port``.
        is_shared: whether other processes of the same broker listen there too: the system deals connections out.
    """
    listener = bound(address, is_shared=is_shared)
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def bound(address: str, *, is_shared: bool = False) -> socket.socket:
    """A socket that has an address and takes no connections yet."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if is_shared:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        raise AddressInUse(f"cannot listen on {address}: {error.strerror}", address=address) from error
    return listener


def address_of(listener: socket.socket) -> str:
    """Where a socket listens, ``host:port``."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def advertised(address: str) -> str:
    """Where others reach a socket: by the name of the machine, if it is bound to all addresses."""
    host, port = split_address(address)
    return f"{socket.gethostname()}:{port}" if host in ANYWHERE else address
