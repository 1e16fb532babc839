"""Networks of their own for brokers, where root runs this: their link to the servers can be cut off without a word."""

import subprocess
from contextlib import suppress
from typing import Self


def ip(*arguments: str) -> None:
    """Run the system's program of that name."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


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
        self.server_side = f"10.213.{number}.1"
        self.broker = f"10.214.{number}.2"
        self._database, self._clients = f"quiredb{number}", f"quirecl{number}"
        self._number = number

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
        for link, inside, net in ((self._database, "db", "10.213"), (self._clients, "cl", "10.214")):
            ip("link", "add", link, "type", "veth", "peer", "name", inside, "netns", self.name)
            ip("addr", "add", f"{net}.{self._number}.1/30", "dev", link)
            ip("link", "set", link, "up")
            ip("-n", self.name, "addr", "add", f"{net}.{self._number}.2/30", "dev", inside)
            ip("-n", self.name, "link", "set", inside, "up")
        return self

    def __exit__(self, *_error: object) -> None:
        self._remove()

    def cut_off(self) -> None:
        """Let nothing through between the broker and the servers."""
        ip("link", "set", self._database, "down")

    def mend(self) -> None:
        """Let everything through again."""
        ip("link", "set", self._database, "up")

    def _remove(self) -> None:
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", self.name)
