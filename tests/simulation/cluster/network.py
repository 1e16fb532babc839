"""The network between the processes: each connection keeps its order, and the history says whose bytes come next."""

from collections import deque
from collections.abc import Callable
from typing import Protocol

from quire.cluster.cluster_map import Peer
from quire.cluster.link import Link
from quire.errors import ShardMoved
from quire.scheduler import Scheduler

CONNECT_LIMIT = 3.0
"""After how many seconds without an answer a process gives up to connect."""

LOST = None
"""What comes at the end of a connection, in place of bytes."""


class Host(Protocol):
    """A process, as the network sees it.

    Attributes:
        scheduler: its timers.
        is_silent: whether its machine is gone too, so that nothing says that it has ended.
        ends: its ends of connections.
    """

    scheduler: Scheduler
    is_silent: bool
    ends: "dict[LinkEnd, None]"

    @property
    def is_running(self) -> bool:
        """Whether it takes what comes now: it is neither stopped nor dead."""
        ...

    @property
    def is_dead(self) -> bool:
        """Whether it has ended."""
        ...

    def accept(self) -> Link:
        """The link of a process that connects."""
        ...

    def act(self, call: Callable[[], None]) -> None:
        """Have the process do something."""
        ...


class LinkEnd:
    """One end of a connection between two processes (``quire.cluster.link.LinkPort``).

    Args:
        link: whose bytes it carries; None for one that has not been accepted yet.

    Attributes:
        other: the other end; None if no process answers.
        inbox: what has been sent to this end and has not come yet.
    """

    def __init__(self, host: Host, link: Link | None, packet: int) -> None:
        self.host = host
        self.other: LinkEnd | None = None
        self.inbox: deque[bytes | None] = deque()
        self._link = link
        self._packet = packet
        self._wants_output = link is not None
        self._is_closing = False
        host.ends[self] = None

    # The link calls these.

    def wants_output(self) -> None:
        """There is output to take; it is taken when the process has done what it does."""
        self._wants_output = True

    def close(self) -> None:
        """The link is over: what it says last is sent."""
        self._wants_output = self._is_closing = True

    # The process and the network call these.

    @property
    def can_deliver(self) -> bool:
        """Whether something could come here now."""
        return bool(self.inbox) and self.host.is_running

    def flush(self) -> None:
        """Send what the link has for the other side."""
        while self._wants_output and self._link is not None:
            self._wants_output = False
            data = self._link.take_output()
            if self.other is not None:
                self.other.inbox.extend([data[at : at + self._packet] for at in range(0, len(data), self._packet)])
        if self._is_closing:
            self.hang_up()

    def hang_up(self) -> None:
        """Close this end; the other one gets what was sent, and hears of the end."""
        self.host.ends.pop(self, None)
        self.inbox.clear()
        if self.other is not None:
            self.other.inbox.append(LOST)
            self.other.other = None
            self.other = None

    def vanish(self) -> None:
        """The machine of this end is gone: the other one hears nothing."""
        self.host.ends.pop(self, None)
        self.inbox.clear()
        if self.other is not None:
            self.other.other = None

    def cut(self, kept: int) -> None:
        """The connection breaks: of what is under way so many packets come yet, then this end hears of it."""
        while len(self.inbox) > kept:
            self.inbox.pop()
        self.inbox.append(LOST)
        self.other = None

    def take(self) -> None:
        """Take the next packet."""
        data = self.inbox.popleft()
        if self._link is None:
            self._link = self.host.accept()
            self._link.port = self
        if data is LOST:
            self.host.ends.pop(self, None)
            self.inbox.clear()
            self._link.lost(ShardMoved("the connection is lost"))
        else:
            self._link.receive(data)


class Network:
    """All connections between processes.

    Args:
        packet: how many bytes come at once at the most.
    """

    def __init__(self, packet: int) -> None:
        self.hosts: dict[str, Host] = {}
        self._packet = packet

    def connect(self, host: Host, peer: Peer, link: Link) -> None:
        """Connect a link of a process to the process at an address."""
        end = LinkEnd(host, link, self._packet)
        link.port = end
        other = self.hosts.get(peer.address)
        if other is not None and not other.is_dead:
            end.other = LinkEnd(other, None, self._packet)
            end.other.other = end
        elif other is not None and other.is_silent:
            host.scheduler.call_later(CONNECT_LIMIT, lambda: link.lost(ShardMoved("nothing answers")))
        else:
            end.inbox.append(LOST)

    @property
    def ends(self) -> list[LinkEnd]:
        """All ends that there are."""
        return [end for host in self.hosts.values() for end in host.ends]

    def deliver(self, pick: int = 0) -> bool:
        """Have a packet come, if one can; returns whether one did.

        Args:
            pick: to which of the ends where one can come, counted around.
        """
        ready = [end for end in self.ends if end.can_deliver]
        if ready:
            end = ready[pick % len(ready)]
            end.host.act(end.take)
        return bool(ready)

    def cut(self, pick: int, kept: int) -> bool:
        """Break a connection, if there is one; returns whether there was."""
        ends = [end for end in self.ends if end.other is not None]
        if ends:
            end = ends[pick % len(ends)]
            assert end.other is not None
            end.other.cut(kept)
            end.cut(kept)
        return bool(ends)
