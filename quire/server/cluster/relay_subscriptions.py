"""The subscriptions of a STOMP client in a cluster: at the shard of their destination, or at several."""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from quire.broker.core.subscription import AckMode
from quire.broker.routing.addresses import Address, read_destination
from quire.destination import Destination, DestinationKind
from quire.errors import InvalidHeader, LimitExceeded, ShardMoved
from quire.protocols.stomp.frames import Head
from quire.protocols.stomp.passed_frames import header_of
from quire.protocols.stomp.versions import Version
from quire.server.cluster.stomp_relay import Outcome, StompRelay
from quire.server.cluster.stomp_shard import StompShard
from quire.server.stomp.stomp_consumers import MAX_SUBSCRIPTIONS, PULL
from quire.server.stomp.stomp_subscribe import durable_name, is_true, read_prefetch
from quire.settings import Policies

PREFETCH = "activemq.prefetchSize"

MAX_GIVEN = 100_000
"""How many messages in flight of subscriptions at several shards a connection may have, if it must be known who has
given them: those acknowledged cumulatively, and in 1.0 and 1.1."""


@dataclass(slots=True)
class Several:
    """A subscription at several shards.

    Attributes:
        browsing: the shards whose messages it is still shown; None if it is no browser.
        order: the shard and the id of each message that it was given, in their order; None unless an acknowledgement is
            about all messages before it.
    """

    browsing: set[int] | None
    order: deque[tuple[int, bytes]] | None


@dataclass(slots=True)
class Places:
    """Where the subscriptions of one id are.

    Attributes:
        shards: at which other shards; at the own one too, if it is one of several.
        is_own: whether there is one here.
        several: what is known of one at several shards; None of all others.
        addresses: what they are subscribed to at other shards.
    """

    shards: dict[int, None] = field(default_factory=dict)
    is_own: bool = False
    several: Several | None = None
    addresses: list[Address] = field(default_factory=list)


class RelaySubscriptions:
    """The subscriptions of one client."""

    def __init__(self, relay: StompRelay, policies: Callable[[], Policies]) -> None:
        self._relay = relay
        self._policies = policies
        self._places: dict[str, Places] = {}
        self._durables: dict[str, int] = {}  # at which shard durable subscriptions are, by name
        self._given: dict[bytes, int] = {}  # which shard has given a message, by its id, if that has to be known
        relay.inspect = self._inspect

    def is_at(self, id: str) -> Places | None:
        """Where the subscriptions of an id are; None if there are none."""
        return self._places.get(id)

    # Frames of the client.

    def subscribe(self, head: Head, receipt: bytes | None) -> Outcome:
        """A SUBSCRIBE frame."""
        addresses, options = read_destination(head.headers["destination"])
        headers = {**options, **head.headers}
        id = headers.get("id", headers["destination"])
        if len(self._places) >= MAX_SUBSCRIPTIONS and id not in self._places:
            text = f"{MAX_SUBSCRIPTIONS} subscriptions are the limit of a connection"
            raise LimitExceeded(text, limit=MAX_SUBSCRIPTIONS)
        shards = self._shards(addresses)
        if not self._relay.has_room(shards):
            return Outcome.WAITS
        places = self._places.get(id) or Places()
        if shards.keys() != {self._relay.own}:
            places.addresses += addresses
        if len(shards) > 1:
            self._subscribe_several(head, receipt, headers, shards, places)
        elif (shard := next(iter(shards))) != self._relay.own:
            self._relay.pass_to(shard, head, receipt, changes=self._relay.name_at_owner(addresses[0]))
            places.shards[shard] = None
            if self._relay.version is Version.V1_0:  # its acknowledgements need not say of which subscription they are
                self._relay.shard(shard).frames.one_by_one = True
            self._note_durable(headers, addresses, shard)
        else:
            places.is_own = True
            self._places[id] = places
            return Outcome.OWN
        self._places[id] = places
        return Outcome.PASSED

    def unsubscribe(self, head: Head, receipt: bytes | None) -> Outcome:
        """An UNSUBSCRIBE frame."""
        headers = head.headers
        id = headers.get("id", headers.get("destination", ""))
        places = self._places.get(id)
        if places is None:
            return self._remove_durable(head, receipt)
        if not places.shards:
            del self._places[id]
            return Outcome.OWN
        if not self._relay.has_room(places.shards):
            return Outcome.WAITS
        shards: dict[int, dict[str, str | None]] = {shard: {} for shard in places.shards}
        if places.is_own:  # another one with this id is here: the shard that is left answers
            places.is_own = False
            self._relay.pass_to_all(shards, head, None)
            places.shards.clear()
            del self._places[id]
            return Outcome.OWN
        del self._places[id]
        return self._relay.pass_to_all(shards, head, receipt)

    def pull(self, head: Head, receipt: bytes | None) -> Outcome:
        """A SEND frame to ``/pull/ID``."""
        places = self._places.get(head.headers["destination"].removeprefix(PULL))
        if places is None or not places.shards:
            return Outcome.OWN
        return self._relay.pass_to(next(iter(places.shards)), head, receipt)

    # Acknowledgements.

    def covered(self, id: bytes, subscription: str | None, shard: int) -> list[tuple[int, bytes]]:
        """What an acknowledgement is about that a shard gave the id for: with ``client``, of each shard the last one.

        Args:
            subscription: the id of the subscription, if the frame has it.
        """
        for key, places in self._places.items():
            order = None if places.several is None or subscription not in (None, key) else places.several.order
            if order is not None and (shard, id) in order:
                last: dict[int, bytes] = {}
                while True:
                    at, given = order.popleft()
                    last[at] = given
                    if (at, given) == (shard, id):
                        return list(last.items())
        return [(shard, id)]

    @property
    def is_cumulative(self) -> bool:
        """Whether an acknowledgement may be about messages of several shards."""
        several = [places.several for places in self._places.values()]
        return any([known is not None and known.order is not None for known in several])

    def take_shard_of(self, id: bytes) -> int | None:
        """Which shard has given a message that is acknowledged now, by its id; None if that is not known."""
        return self._given.pop(id, None)

    def moved(self) -> ShardMoved | None:
        """Why the client must connect again: something it is subscribed to has moved; None if nothing has."""
        for places in self._places.values():
            if places.addresses and not self._shards(places.addresses).keys() <= {*places.shards}:
                text = f"{places.addresses[0]} or another one of this subscription has moved to another shard"
                return ShardMoved(text, destination=str(places.addresses[0]))
        return None

    # Inside.

    def _shards(self, addresses: list[Address]) -> dict[int, list[Address]]:
        """At which shards destinations are subscribed to, and which of them at each."""
        relay, shards = self._relay, dict[int, list[Address]]()
        for address in addresses:
            everywhere = relay.is_spread(address)
            for shard in range(relay.links.cluster_map.shards) if everywhere else [relay.shard_of(address)]:
                shards.setdefault(shard, []).append(address)
        return shards

    def _subscribe_several(
        self, head: Head, receipt: bytes | None, headers: Mapping[str, str], shards: Mapping[int, list[Address]],
        places: Places,
    ) -> None:  # fmt: skip
        """Subscribe at several shards: one subscription to the client, whose prefetch they share."""
        browses = is_true(headers, "browser")
        share = self._share(headers, next(iter(shards.values()))[0], len(shards))
        frames: dict[int, Mapping[str, str | None]] = {}
        for shard, addresses in shards.items():
            at_shard: dict[str, str | None] = {**headers, "destination": ",".join([str(each) for each in addresses])}
            at_shard |= {"id": headers.get("id", headers["destination"]), "prefetch-count": None}
            frames[shard] = at_shard if browses else {**at_shard, PREFETCH: str(share)}
        self._relay.pass_to_all(frames, head, receipt)
        for shard in shards:
            places.shards[shard] = None
            self._relay.shard(shard).frames.one_by_one = True
        cumulative = headers.get("ack", "auto").strip().lower() == AckMode.CLIENT
        places.several = Several(set(shards) if browses else None, deque() if cumulative else None)

    def _share(self, headers: Mapping[str, str], first: Address, shards: int) -> int:
        """The prefetch at each of several shards."""
        whole = read_prefetch(headers)
        if whole == 0:
            text = "activemq.prefetchSize:0 needs a destination at one shard: a pull from several is not possible"
            raise InvalidHeader(text, header="destination")
        if whole is None:
            policy = self._policies().of(Destination(first.kind, first.name))
            whole = policy.queue_prefetch if first.kind is DestinationKind.QUEUE else policy.topic_prefetch
        return max(whole // shards, 1)

    def _note_durable(self, headers: Mapping[str, str], addresses: list[Address], shard: int) -> None:
        name = durable_name(headers, of_queue=addresses[0].kind is not DestinationKind.TOPIC)
        if name is not None:
            if len(self._durables) >= MAX_SUBSCRIPTIONS:
                self._durables.clear()
            self._durables[name] = shard

    def _remove_durable(self, head: Head, receipt: bytes | None) -> Outcome:
        """An UNSUBSCRIBE frame without a subscription: it may name a durable one that is not active."""
        name = durable_name(head.headers, of_queue=False)
        shard = None if name is None else self._durables.get(name)
        if shard is None and name is not None and "destination" in head.headers:
            shard = next(iter(self._shards(read_destination(head.headers["destination"])[0])))
        if shard is None or shard == self._relay.own:
            return Outcome.OWN
        return self._relay.pass_to(shard, head, receipt)

    def _inspect(self, shard: StompShard, frame: bytes) -> bytes:
        """Note a MESSAGE frame; the end of a browse is passed on when it is the end at all shards."""
        id = header_of(frame, b"subscription")
        places = None if id is None else self._places.get(id.decode())
        several = None if places is None else places.several
        if several is None:
            self._note_given(shard, header_of(frame, b"message-id"))
            return frame
        if several.browsing is not None and header_of(frame, b"browser") == b"end":
            several.browsing.discard(shard.number)
            return b"" if several.browsing else frame
        given = header_of(frame, b"ack") or header_of(frame, b"message-id")
        if several.order is not None and given is not None:
            several.order.append((shard.number, given))
        self._note_given(shard, given)
        return frame

    def _note_given(self, shard: StompShard, id: bytes | None) -> None:
        """Note who has given a message, if acknowledgements do not say it."""
        if id is not None and self._relay.version is not Version.V1_2:
            if len(self._given) >= MAX_GIVEN:
                self._given.clear()
            self._given[id] = shard.number
