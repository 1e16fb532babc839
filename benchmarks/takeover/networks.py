"""Networks of their own for brokers, where root runs this: packets on their links can vanish without a word."""

import subprocess
from contextlib import suppress
from typing import Self

NO_MACHINE = "02:00:00:00:00:01"
"""A hardware address that no interface has: what is sent there is lost, as when the machine or a switch is dead."""


def ip(*arguments: str) -> None:
    """Run the system's program of that name."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Link:
    """A link between this machine and the network of a broker.

    Args:
        network: the name of the network.
        name: that of the link on this machine.
        inside: the same in the network.
        addresses: the first three numbers of the addresses on it.

    Attributes:
        outer: the address of this machine.
        inner: that of the broker.
    """

    def __init__(self, network: str, name: str, inside: str, addresses: str) -> None:
        self.outer, self.inner = f"{addresses}.1", f"{addresses}.2"
        self._here: tuple[list[str], str] = ([], name)  # where a command is about, and its device there
        self._there = (["-n", network], inside)

    def make(self) -> None:
        """Make it."""
        (_, name), ((_, network), inside) = self._here, self._there
        ip("link", "add", name, "type", "veth", "peer", "name", inside, "netns", network)
        for (where, device), address in ((self._here, self.outer), (self._there, self.inner)):
            ip(*where, "addr", "add", f"{address}/30", "dev", device)
            ip(*where, "link", "set", device, "up")

    def remove(self) -> None:
        """Remove it, if it is there."""
        with suppress(subprocess.CalledProcessError):
            ip("link", "del", self._here[1])

    def cut(self) -> None:
        """Lose all packets in both directions. Neither side gets an error, and both interfaces stay up."""
        for (where, device), address in self._ways():
            entry = [address, "lladdr", NO_MACHINE, "dev", device, "nud", "permanent"]
            ip(*where, "neigh", "replace", *entry)

    def mend(self) -> None:
        """Let everything through again."""
        for (where, device), address in self._ways():
            ip(*where, "neigh", "del", address, "dev", device)

    def _ways(self) -> list[tuple[tuple[list[str], str], str]]:
        """Who sends, and to which address."""
        return [(self._here, self.inner), (self._there, self.outer)]


class Network:
    """The network of one broker: one link to the servers, one to the clients.

    Args:
        number: makes its names and addresses its own, 1 or 2.

    Attributes:
        prefix: what a command begins with that runs in it.
        server_side: the address of this machine on the link to the servers.
        broker: the address of the broker on the link to the clients.
    """

    def __init__(self, number: int) -> None:
        self.name = f"quire-takeover-{number}"
        self.prefix = ["ip", "netns", "exec", self.name]
        self._servers = Link(self.name, f"quiredb{number}", "db", f"10.213.{number}")
        self._clients = Link(self.name, f"quirecl{number}", "cl", f"10.214.{number}")
        self.server_side = self._servers.outer
        self.broker = self._clients.inner

    @classmethod
    def is_possible(cls) -> bool:
        """Whether networks can be made here: that takes root and ip(8)."""
        with suppress(OSError, subprocess.CalledProcessError):
            ip("netns", "add", "quire-takeover-try")
            ip("netns", "del", "quire-takeover-try")
            return True
        return False

    def __enter__(self) -> Self:
        self._remove()  # a run that was killed has left it
        ip("netns", "add", self.name)
        ip("-n", self.name, "link", "set", "lo", "up")
        self._servers.make()
        self._clients.make()
        return self

    def __exit__(self, *_error: object) -> None:
        self._remove()

    def cut_off(self, *, from_clients: bool = False) -> None:
        """Let nothing through between the broker and the servers; with ``from_clients`` its clients neither."""
        self._servers.cut()
        if from_clients:
            self._clients.cut()

    def mend(self, *, from_clients: bool = False) -> None:
        """Let everything through again."""
        self._servers.mend()
        if from_clients:
            self._clients.mend()

    def _remove(self) -> None:
        for link in (self._servers, self._clients):
            link.remove()  # a process that was left would keep it
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", self.name)
