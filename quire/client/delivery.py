"""A message that the broker gave to a consumer of this connection."""

from quire.protocols.openwire.commands import MessageDispatch
from quire.protocols.openwire.messages import Message


class Delivery:
    """A message on its way through a consumer.

    Attributes:
        dispatch: as the broker sent it.
        message: the message in it.
        redeliveries: how often it was delivered again, rollbacks on this connection included.
        cause: why its listener failed; None if it did not.
    """

    __slots__ = ("cause", "dispatch", "message", "redeliveries")

    def __init__(self, dispatch: MessageDispatch, message: Message) -> None:
        self.dispatch = dispatch
        self.message = message
        self.redeliveries = dispatch.redelivery_counter
        self.cause: BaseException | None = None
