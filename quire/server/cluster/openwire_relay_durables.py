"""The durable subscriptions of one OpenWire client: each is at the shard of its topic; the cluster knows it by name."""

from collections.abc import Callable
from functools import partial

from quire.errors import DestinationInUse, LimitExceeded, UnknownSubscription
from quire.protocols.openwire.commands import (
    ConsumerInfo,
    ExceptionResponse,
    RemoveInfo,
    RemoveSubscriptionInfo,
    Response,
)
from quire.protocols.openwire.structures import ActiveMQTopic
from quire.server.cluster.openwire_relay_part import Part
from quire.server.cluster.openwire_relay_parts import Answers, OpenWireRelayParts, code_of, success_anywhere
from quire.server.cluster.openwire_relay_routes import OpenWireRelayRoutes
from quire.server.openwire.openwire_destinations import STREAM


class OpenWireRelayDurables:
    """Finds durable subscriptions by their names alone."""

    def __init__(self, parts: OpenWireRelayParts, routes: OpenWireRelayRoutes) -> None:
        self._parts = parts
        self._routes = routes

    def remove(self, info: RemoveSubscriptionInfo) -> bool | None:
        """The client removes one: which topic it is to is known where that is. As the methods of consumers."""
        parts, name = self._parts, info.subscription_name or ""
        if name.startswith(STREAM):
            (shard, *_) = self._routes.sent(ActiveMQTopic(name))
            asked = [parts.part(shard)]
        else:
            asked = parts.every()
        if asked == [parts.own]:
            return None
        return parts.ask(dict.fromkeys(asked, info), partial(self._removed, info))

    def _removed(self, info: RemoveSubscriptionInfo, answers: Answers) -> None:
        self._parts.answer(info, success_anywhere(answers, UnknownSubscription.code))

    def move(self, info: ConsumerInfo, part: Part, done: Callable[[Response], None]) -> None:
        """A consumer has a durable subscription at a shard: another one of its name goes, as for JMS it has changed.

        A shard without an owner is not waited for: it may keep one.

        Args:
            done: takes the answer for the consumer. It is an error if the name is in use for a topic of another shard;
                then the consumer is over.
        """
        parts = self._parts
        there = [shard for shard in range(parts.cluster.shards) if parts.cluster.peer(shard) is not None]
        command = RemoveSubscriptionInfo(subscription_name=info.subscription_name)
        try:
            others: list[Part] = [parts.own if shard == parts.own.shard else parts.remote(shard) for shard in there]
            commands = {other: command for other in others if other is not part}
            if commands and parts.ask(commands, partial(self._moved, info, part, done)):
                return
        except LimitExceeded:  # the old one stays, as at a shard without an owner
            pass
        done(Response())

    def _moved(self, info: ConsumerInfo, part: Part, done: Callable[[Response], None], answers: Answers) -> None:
        in_use = [
            a for a in answers.values() if isinstance(a, ExceptionResponse) and code_of(a) == DestinationInUse.code
        ]
        if in_use:
            part.tell(RemoveInfo(object_id=info.consumer_id))
            part.tell(RemoveSubscriptionInfo(subscription_name=info.subscription_name))
        done(in_use[0] if in_use else Response())


def is_durable(info: ConsumerInfo) -> bool:
    """Whether a consumer has a durable subscription to a topic; a member of a consumer group has a name too."""
    name = "" if info.destination is None else info.destination.physical_name
    return info.subscription_name is not None and isinstance(info.destination, ActiveMQTopic) and STREAM not in name
