"""When a session acknowledges messages."""

from enum import IntEnum

from quire.client.arguments import refused


class AckMode(IntEnum):
    """The acknowledgement mode of a session, with the numbers of JMS.

    - ``AUTO``: the session acknowledges a message before ``receive`` returns it, or after the listener returned.
    - ``DUPS_OK``: as ``AUTO`` for queues; for topics, acknowledgements are sent in batches of half the prefetch.
    - ``CLIENT``: ``message.acknowledge()`` acknowledges everything that the session has delivered so far.
    - ``INDIVIDUAL``: ``message.acknowledge()`` acknowledges that message alone.
    - ``SESSION_TRANSACTED``: the commit acknowledges; the rollback delivers again.
    """

    SESSION_TRANSACTED = 0
    AUTO = 1
    CLIENT = 2
    DUPS_OK = 3
    INDIVIDUAL = 4


def ack_mode(value: object) -> AckMode:
    """The mode that an application gave: one of ``AckMode``, or its number in JMS.

    Raises:
        InvalidArgument: it is none of them.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value in set(AckMode):
        return AckMode(value)
    raise refused("ack", value, ", ".join([f"AckMode.{mode.name}" for mode in AckMode]))
