"""What a session asks of its connection."""

from typing import Protocol

from quire.client.destinations import ClientDestination
from quire.client.message import Body, Message
from quire.client.received_message import ReceivedMessage
from quire.client.redelivery_policies import RedeliveryPolicies
from quire.client.session_core import SessionCore


class SessionOwner(Protocol):
    """The connection, as its sessions see it."""

    client_id: str
    policies: RedeliveryPolicies
    may_optimize: bool

    async def temporary(self, kind: type[ClientDestination]) -> ClientDestination:
        """A new temporary destination."""

    async def delete_temporary(self, destination: ClientDestination) -> None:
        """Delete a temporary destination."""

    async def unsubscribe(self, name: str) -> None:
        """Delete a durable subscription."""

    async def ask(self, destination: ClientDestination, body: Body | Message, timeout: float | None) -> ReceivedMessage:
        """Send a request and wait for its answer."""

    def session_closed(self, core: SessionCore) -> None:
        """The session is closed."""

    def report(self, error: Exception, message: ReceivedMessage | None = None) -> None:
        """An error that no call raises, and the message whose listener raised it."""
