"""The sessions of a process: they tell what it gives to clients, at the moment in which the broker decides that."""

from collections.abc import Callable

from quire.broker.core.subscription import Subscription
from quire.message import Message
from quire.sessions.session import LocalSession

Gave = Callable[[str, str], None]
"""Is told that a client, by the name of its connection, is given a message, by its id."""


def telling(gave: Gave) -> type[LocalSession]:
    """Sessions that tell."""

    class TellingSession(LocalSession):
        def deliver(self, subscription: Subscription, messages: list[Message], first: bool = False) -> None:
            for message in messages:
                gave(self.name, message.id)
            super().deliver(subscription, messages, first)

    return TellingSession
