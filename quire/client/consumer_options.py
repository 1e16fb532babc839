"""The options of a consumer: what a destination's name writes as ``?consumer.NAME=value``."""

from dataclasses import dataclass

from quire.client.destinations import ClientDestination
from quire.client.options import read_options, unknown_option

PREFIX = "consumer."


@dataclass(frozen=True, slots=True)
class ConsumerOptions:
    """The options that a destination's name may have; -1 and None: not given there.

    Attributes:
        prefetch_size: how many messages the broker may give ahead.
        maximum_pending_message_limit: how many messages a slow consumer of a topic may have waiting at the broker.
        no_local: without messages of the same connection.
        dispatch_async: the broker dispatches from another thread.
        retroactive: also messages from before the subscription, if the broker keeps some.
        selector: a selector.
        exclusive: the only one that gets messages while it is there.
        priority: consumers with a higher one get messages first.
    """

    prefetch_size: int = -1
    maximum_pending_message_limit: int = 0
    no_local: bool = False
    dispatch_async: bool = True
    retroactive: bool = False
    selector: str = ""
    exclusive: bool = False
    priority: int = 0


def consumer_options(destination: ClientDestination) -> ConsumerOptions:
    """The options in a destination's name.

    Raises:
        InvalidArgument: one is unknown, or its value is invalid.
    """
    own = {}
    for name, value in destination.options.items():
        if not name.startswith(PREFIX):
            raise unknown_option(name, [PREFIX + "prefetchSize", PREFIX + "selector", PREFIX + "exclusive"])
        own[name.removeprefix(PREFIX)] = value
    return read_options(ConsumerOptions, own, PREFIX)
