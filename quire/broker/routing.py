"""Where a message goes that is sent: from the text of a destination to a target."""

from typing import TYPE_CHECKING, Any, Protocol

from quire.errors import InvalidDestination

if TYPE_CHECKING:
    from quire.broker.broker import Broker


class Target(Protocol):
    """What takes messages: a queue, a topic, the schedule, several of them."""

    def send(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> None:
        """Take a message.

        Args:
            content: header lines and body (``quire.message``).
            expiration: milliseconds since the epoch; 0 for never.
            priority: 0 to 9.
            persistent: whether it must survive the broker.
        """
        ...

    def expect_groups(self) -> None:
        """Messages of groups are about to be sent here."""
        ...

    def bring(self, content: bytes, expiration: int = 0, priority: int = 4, persistent: bool = True) -> Any:
        """As ``send``, for what is given up elsewhere in this commit: if it fails, both are in the next one."""
        ...


class Routing:
    """Finds targets.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker

    def target(self, destination: str) -> Target:
        """Where a message goes that is sent to a destination, as a destination header says it.

        Raises:
            InvalidDestination: it is no destination that can be sent to.
        """
        return self._broker.queue(queue_name(destination))


def queue_name(destination: str) -> str:
    """The name in a destination header: ``/queue/NAME``.

    Raises:
        InvalidDestination: it is something else.
    """
    name = destination.removeprefix("/queue/")
    if name == destination:
        raise InvalidDestination(
            f"{destination[:100]!r} is no destination here: write /queue/NAME", destination=destination[:100]
        )
    return name
