"""Sockets that take connections."""

import socket

from quire.errors import AddressInUse
from quire.settings import split_address

BACKLOG = 1024
"""How many connections may wait to be served."""


def listen(address: str) -> socket.socket:
    """A socket that takes connections from now on, before they are served; port 0 picks a free one."""
    host, port = split_address(address)
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise AddressInUse(f"cannot listen on {address}: {error.strerror}", address=address) from error
    listener.setblocking(False)
    return listener


def address_of(listener: socket.socket) -> str:
    """Where a socket listens, as host:port."""
    host, port = listener.getsockname()[:2]
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
