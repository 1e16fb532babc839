"""A consumer that is subscribed at several shards: of what is spread, of wildcards, of a list of destinations.

Each shard numbers its messages by itself. The client gets them with numbers that the relay makes, and what it says of
these goes back to the shards.
"""

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice, takewhile
from typing import NamedTuple

from quire.errors import InvalidArgument, UnknownMessage
from quire.protocols.openwire.commands import AckType, ConsumerInfo, MessageAck, MessageDispatch, RemoveInfo
from quire.protocols.openwire.structures import ActiveMQDestination, MessageId
from quire.server.cluster.openwire_relay_part import Part
from quire.server.cluster.openwire_relay_routes import Parts, is_advisory

SETTLED = frozenset({AckType.POISON, AckType.STANDARD, AckType.INDIVIDUAL, AckType.UNMATCHED, AckType.EXPIRED})
"""What ends a message for its consumer."""

MOST_EXTENDED = 100
"""So many messages of a shard are told as delivered at once, so that it goes on."""

UNKNOWN, NONE = -2, -1
"""What a client says instead of the last message that its application has seen."""


class Given(NamedTuple):
    """A message that the client has: its shard, its number there, and where it comes from."""

    part: Part
    sequence: int
    destination: ActiveMQDestination | None


class SpreadConsumer:
    """A consumer of several shards.

    Args:
        info: what the client asks for.
        shares: what it consumes at each shard.
        stirred: where it enters itself when a shard may have to go on: then ``extensions`` are to be asked for.

    Attributes:
        parts: the shards at which it is subscribed.
        is_advisory: whether it consumes advisories alone: it goes on if a shard is lost.
    """

    def __init__(self, info: ConsumerInfo, shares: Parts, stirred: "dict[SpreadConsumer, None]") -> None:
        assert info.destination is not None
        self.info = info
        self.shares = shares
        self._stirred = stirred
        self.parts: dict[int, Part] = {}
        self.is_advisory = is_advisory(info.destination)
        self._given: dict[int, Given] = {}
        self._delivered: set[int] = set()  # what the client has told of, and not settled
        self._taking: dict[Part, dict[int, None]] = {}  # what takes credit at its shard
        self._had_before: dict[int, None] = {}  # what the client, which has failed over, had at first
        self._in_transactions: set[int] = set()
        self._last_number = 0
        self._browsing: set[Part] = set()

    def info_for(self, shard: int) -> ConsumerInfo:
        """What it asks for at a shard."""
        return replace(self.info, destination=self.shares[shard], prefetch_size=self.share(self.info.prefetch_size))

    def share(self, prefetch: int) -> int:
        """What of a prefetch each shard gets."""
        return max(prefetch // len(self.shares), 1) if prefetch > 0 else 0

    def subscribed(self, part: Part) -> None:
        """It is subscribed at a shard."""
        self.parts[part.shard] = part
        self._taking[part] = {}
        part.spread += 1
        if self.info.browser:
            self._browsing.add(part)

    def lost(self, part: Part) -> None:
        """It is not subscribed at a shard any more: what it has of that is gone."""
        if self.parts.pop(part.shard, None) is None:
            return
        part.spread -= 1
        self._browsing.discard(part)
        for number in [number for number, given in self._given.items() if given.part is part]:
            self._forget(number)
        del self._taking[part]

    def leave(self) -> None:
        """It is over."""
        for part in list(self.parts.values()):
            self.lost(part)

    # Its messages.

    def dispatched(self, part: Part, dispatch: MessageDispatch) -> MessageDispatch | None:
        """What the client gets for what a shard has sent; None for nothing."""
        if dispatch.message is None:
            self._browsing.discard(part)
            return None if self._browsing else replace(dispatch, destination=self.info.destination)
        id = dispatch.message.message_id
        assert id is not None
        self._last_number += 1
        self._given[self._last_number] = Given(part, id.broker_sequence_id, dispatch.destination)
        self._taking[part][self._last_number] = None
        if self._lacks(part):
            self._stirred[self] = None
        dispatch.message.message_id = replace(id, broker_sequence_id=self._last_number)
        return dispatch

    def acknowledged(self, ack: MessageAck) -> tuple[list[int], dict[Part, list[MessageAck]]]:
        """What the shards are told for an acknowledgement of the client, and which messages it is about.

        Raises:
            UnknownMessage: the client does not have the message.
            InvalidArgument: the first message came after the last one.
        """
        numbers = self._covered(ack)
        self._stirred[self] = None
        if ack.ack_type == AckType.DELIVERED:
            self._delivered.update(numbers)
            for number, given in numbers.items():
                self._taking[given.part].pop(number, None)
        elif ack.ack_type in SETTLED:
            if ack.transaction_id is None:
                for number in numbers:
                    self._forget(number)
            else:
                self._in_transactions.update(numbers)
        acks: dict[Part, list[MessageAck]] = {}
        for given in numbers.values():
            acks.setdefault(given.part, []).append(_ack_of(ack, given))
        return list(numbers), acks

    def _covered(self, ack: MessageAck) -> dict[int, Given]:
        """The messages of an acknowledgement; a client that has failed over names those first that it had before."""
        assert ack.last_message_id is not None
        last = ack.last_message_id.broker_sequence_id
        if last not in self._given:
            if self.is_advisory and 0 < last <= self._last_number:  # it came from a shard that was lost
                return {}
            raise UnknownMessage(f"message {last} is not in flight on {self.info.consumer_id}", sequence=last)
        if ack.ack_type == AckType.DELIVERED and ack.first_message_id is None and ack.message_count == 1:
            self._had_before[last] = None
        if ack.ack_type == AckType.INDIVIDUAL or ack.message_count == 1:
            return {last: self._given[last]}
        first = 0 if ack.first_message_id is None else ack.first_message_id.broker_sequence_id
        if first in self._had_before:
            others = [] if last in self._had_before else self._up_to(last)
            covered = [*self._had_before, *[number for number in others if number not in self._had_before]]
        elif first > last:
            raise InvalidArgument(f"message {first} was dispatched after message {last}", argument="first")
        else:
            covered = [number for number in self._up_to(last) if number >= first]
        return {number: self._given[number] for number in covered if number not in self._in_transactions}

    def _up_to(self, last: int) -> list[int]:
        return list(takewhile(lambda number: number <= last, self._given))

    def transaction_ended(self, numbers: list[int], *, is_committed: bool) -> None:
        """A transaction is over in which messages were acknowledged."""
        self._in_transactions.difference_update(numbers)
        self._stirred[self] = None
        if is_committed:
            for number in numbers:
                self._forget(number)

    def _forget(self, number: int) -> None:
        """The client does not have a message any more."""
        given = self._given.pop(number, None)
        if given is not None:
            self._taking[given.part].pop(number, None)
            self._delivered.discard(number)
            self._had_before.pop(number, None)

    # Its prefetch.

    def set_prefetch(self, prefetch: int) -> None:
        """How many messages the client takes in all, from now on."""
        self.info.prefetch_size = prefetch
        self._stirred[self] = None

    @property
    def _room(self) -> int:
        """How many more messages the client takes in all."""
        return self.info.prefetch_size - (len(self._given) - len(self._delivered))

    def _lacks(self, part: Part) -> bool:
        """Whether a shard has given its share, and the client takes more."""
        return self._room > 0 and len(self._taking[part]) >= self.share(self.info.prefetch_size)

    def extensions(self) -> Iterator[tuple[Part, MessageAck]]:
        """What makes shards go on that have given their shares.

        A client that settles messages together tells of deliveries when it has a part of its whole prefetch: with
        messages of one shard it would never have as many.
        """
        some = min(max(self.share(self.info.prefetch_size) // 2, 1), MOST_EXTENDED)
        for part in [part for part in self.parts.values() if not self.info.browser and self._lacks(part)]:
            for number in list(islice(self._taking[part], min(some, self._room))):
                given = self._given[number]
                del self._taking[part][number]
                id = MessageId(broker_sequence_id=given.sequence)
                yield part, MessageAck(
                    destination=given.destination, consumer_id=self.info.consumer_id, ack_type=AckType.DELIVERED,
                    first_message_id=id, last_message_id=id, message_count=1,
                )  # fmt: skip

    def removed(self, info: RemoveInfo) -> dict[Part, RemoveInfo]:
        """What the shards are told when the client closes it."""
        last_seen = info.last_delivered_sequence_id
        return {
            part: replace(info, last_delivered_sequence_id=self._seen(part, last_seen)) for part in self.parts.values()
        }

    def _seen(self, part: Part, last_seen: int) -> int:
        """The number of the last message of a shard that the application has seen."""
        if last_seen in (UNKNOWN, NONE):
            return last_seen
        seen = [g.sequence for number, g in self._given.items() if number <= last_seen and g.part is part]
        return seen[-1] if seen else NONE


def _ack_of(ack: MessageAck, given: Given) -> MessageAck:
    """The acknowledgement of one message as its shard knows it: of an id the shard looks at the number alone."""
    assert ack.last_message_id is not None
    id = replace(ack.last_message_id, broker_sequence_id=given.sequence)
    return replace(
        ack, destination=given.destination, first_message_id=id, last_message_id=id, message_count=1, command_id=0,
        response_required=False,
    )  # fmt: skip
