"""What the application wants of a consumer, and how the broker is told."""

from dataclasses import dataclass

from quire.client.arguments import check_flag, check_text, check_whole
from quire.client.consumer_options import consumer_options
from quire.client.destinations import ClientDestination, Stream
from quire.client.prefetch_policy import checked_prefetch
from quire.client.session_core import SessionCore
from quire.client.wire_destinations import to_wire
from quire.errors import InvalidArgument, InvalidDestination
from quire.protocols.openwire.commands import ConsumerInfo
from quire.protocols.openwire.structures import ConsumerId
from quire.selectors.message_selector import selector as checked_selector


@dataclass(frozen=True, slots=True)
class ConsumerRequest:
    """The arguments of ``Session.consumer`` and ``Session.browser`` that the broker is told."""

    destination: ClientDestination
    selector: str = ""
    name: str = ""
    no_local: bool = False
    prefetch: int | None = None
    exclusive: bool = False
    group: str = ""
    start: str = ""
    browser: bool = False

    def check(self) -> None:
        """See that the arguments are what they should be, and fit each other.

        Raises:
            InvalidDestination: the destination has no durable subscriptions.
            InvalidArgument: an argument is not what it should be, or not for this kind of destination.
        """
        for text in ("selector", "name", "group", "start"):
            check_text(text, getattr(self, text))
        for flag in ("no_local", "exclusive"):
            check_flag(flag, getattr(self, flag))
        if self.prefetch is not None:
            check_whole("prefetch", self.prefetch, 0)
        if isinstance(self.destination, Stream):
            if self.name:
                raise InvalidArgument(f"{self.destination} has no durable subscriptions: give a group", argument="name")
        elif self.group or self.start:
            text = f"{self.destination} is no stream: only streams have consumer groups and a start"
            raise InvalidArgument(text, argument="group" if self.group else "start")
        elif self.name and not self.destination.is_topic:
            raise InvalidDestination(f"{self.destination} is no topic: only topics have durable subscriptions")

    def info(self, core: SessionCore, number: int, client_id: str, *, optimize: bool) -> ConsumerInfo:
        """What the broker is told.

        Args:
            core: the session.
            number: of the consumer in the session.
            client_id: the connection's.
            optimize: whether acknowledgements are optimized.

        Raises:
            InvalidSelector: the selector cannot be read.
            InvalidArgument: an option or the prefetch is invalid.
        """
        given, options = consumer_options(self.destination), core.options
        wanted = self.selector or given.selector
        if wanted:
            checked_selector(wanted)
        name = self.group or self.name
        prefetch = self.prefetch
        if prefetch is None:
            prefetch = given.prefetch_size if given.prefetch_size >= 0 else options.prefetch_policy.prefetch(
                self.destination.is_topic, self.browser, bool(name), optimize
            )  # fmt: skip
        return ConsumerInfo(
            consumer_id=ConsumerId(core.id.connection_id, core.id.value, number), browser=self.browser,
            destination=to_wire(self.destination, start=self.start), prefetch_size=checked_prefetch(prefetch),
            dispatch_async=given.dispatch_async, maximum_pending_message_limit=given.maximum_pending_message_limit,
            selector=wanted or None, client_id=client_id, subscription_name=name or None,
            no_local=self.no_local or given.no_local,
            exclusive=self.exclusive or given.exclusive or options.exclusive_consumer,
            retroactive=given.retroactive or options.use_retroactive_consumer, priority=given.priority,
            optimized_acknowledge=optimize,
        )  # fmt: skip
