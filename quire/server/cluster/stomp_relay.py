"""Passes frames of one STOMP client to the owners of other shards, and back what they say."""

from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import partial
from typing import Protocol

from quire.broker.routing.addresses import Address, Scope, read_destination
from quire.broker.routing.temporary import OwnTemporaries
from quire.cluster.cluster_map import FRONT
from quire.cluster.link_frames import Opening
from quire.destination import Destination
from quire.errors import LimitExceeded, QuireError, ShardMoved
from quire.protocols.stomp.encoder import encode_frame
from quire.protocols.stomp.frames import Head
from quire.protocols.stomp.passed_frames import head_lines, passed_frame
from quire.protocols.stomp.versions import Version
from quire.security import Principal
from quire.server.cluster.front_temporaries import NAME
from quire.server.cluster.links import Links
from quire.server.cluster.stomp_shard import StompShard

MAX_PLACES = 1000
"""Of how many destinations it is remembered where they are."""

CLAIMS = "claims-client-id"
"""The header of CONNECT that asks the owner to see that no other connection of the cluster has the client id."""

Part = tuple[int, str]
"""A shard, and what of a destination it has, as a header says it."""


class Outcome(Enum):
    """What became of a frame."""

    OWN = "own"
    """It is this process's own."""
    DONE = "done"
    """It is done; its receipt is not sent yet."""
    PASSED = "passed"
    """It was passed on to shards; its receipt comes when they have done what it says."""
    WAITS = "waits"
    """It has to wait: input goes on when the relay says so."""


ENTRY_ENDED = ShardMoved("the entry has ended the client's connection, which the client has not caused")
"""Tells other shards that a client is gone and has done nothing."""


class Relayed(Protocol):
    """The session of the client, as its relay sees it."""

    name: str
    version: Version
    client_id: str | None
    is_closed: bool
    door: str
    temporaries: OwnTemporaries

    @property
    def principal(self) -> Principal:
        """Who it is."""

    @property
    def takes_output(self) -> bool:
        """Whether its connection takes output now."""

    def confirmed(self, receipts: list[bytes]) -> None:
        """Write receipts."""

    def write(self, data: bytes) -> None:
        """Have something written at the end of the turn."""

    def go_on(self) -> None:
        """Take input that waits for the relay."""

    def refused(self, frame: bytes) -> None:
        """Pass on the error that an owner has told, and close."""

    def fail(self, error: QuireError) -> None:
        """Tell the client what went wrong and close."""


class StompRelay:
    """The shards of one client.

    Attributes:
        links: of the process.
        shards: what the client has at other shards, by number; at the own one, if it is one of several.
        own: the shard of this process.
        inspect: what a MESSAGE frame of a subscription at several shards becomes.
    """

    inspect: Callable[[StompShard, bytes], bytes]

    def __init__(self, links: Links, session: Relayed) -> None:
        self.links = links
        self.shards: dict[int, StompShard] = {}
        self.own = links.cluster_map.own
        self._session = session
        self._owing: dict[StompShard, None] = {}
        self._places: dict[str, tuple[Part, ...]] = {}
        self._generation = links.generation
        self._is_leaving = False
        self._charged = 0

    @property
    def version(self) -> Version:
        """What the client speaks; its shards are spoken to alike."""
        return self._session.version

    # Where destinations are.

    def parts(self, destination: str) -> tuple[Part, ...]:
        """Where messages to a destination go: to one shard, or to each of several a part of a composite one.

        Raises:
            InvalidDestination: it is none.
        """
        if self._generation != self.links.generation:
            self._generation = self.links.generation
            self._places.clear()
        if self.own == FRONT:
            destination = self._session.temporaries.remote_text(destination)
        known = self._places.get(destination)
        if known is None:
            addresses, _ = read_destination(destination)
            shards: dict[int, list[str]] = {}
            for address in addresses:
                shards.setdefault(self.shard_of(address), []).append(str(address))
            known = tuple((shard, ",".join(names)) for shard, names in shards.items())
            if len(known) == 1:
                known = ((known[0][0], destination),)
            if len(self._places) >= MAX_PLACES:
                self._places.clear()
            self._places[destination] = known
        return known

    def shard_of(self, address: Address) -> int:
        """The shard that takes messages for one destination; of a spread one the own, or one that a front chooses."""
        cluster_map = self.links.cluster_map
        if address.scope is Scope.OWN and self.own != FRONT:
            return self.own
        address = self._session.temporaries.remote(address)
        shard = cluster_map.shard_of(Destination(address.kind, address.name))
        return cluster_map.shard_of_client(self._session.name) if shard == FRONT else shard

    def name_at_owner(self, address: Address) -> dict[str, str | None]:
        """What a SUBSCRIBE to a temporary destination tells its owner, if this process has none itself."""
        if self.own != FRONT or address.scope is not Scope.OWN:
            return {}
        return {NAME: self._session.temporaries.remote(address).name}

    def is_spread(self, address: Address) -> bool:
        """Whether a consumer of a destination is subscribed at every shard."""
        common = address.scope is Scope.COMMON
        return common and self.links.cluster_map.is_spread(Destination(address.kind, address.name))

    # Frames to shards.

    def shard(self, number: int) -> StompShard:
        """What the client has at a shard; it is connected if it is not yet.

        Raises:
            LimitExceeded: there are too many virtual connections to the shard.
        """
        shard = self.shards.get(number)
        return self._open(number) if shard is None else shard

    def _open(self, number: int) -> StompShard:
        session, principal = self._session, self._session.principal
        opening = Opening("stomp", principal.name, sorted(principal.roles), session.name, session.door)
        shard = StompShard(self, number)
        shard.connection = self.links.open(number, opening, shard)
        self.shards[number] = shard
        headers = {"accept-version": str(session.version), "host": "/"}
        if session.client_id is not None:
            headers["client-id"] = session.client_id
            if self.links.cluster_map.shard_of_client(session.client_id) == number != self.own:
                headers[CLAIMS] = "true"
        shard.connection.write(encode_frame(b"CONNECT", headers, version=session.version))
        return shard

    def has_room(self, numbers: Iterable[int]) -> bool:
        """Whether shards take input; one without a connection does."""
        shards = [self.shards.get(number) for number in numbers]
        return not any([shard is not None and shard.connection.is_full for shard in shards])

    def pass_to(
        self, number: int, head: Head, receipt: bytes | None, body: bytes | bytearray = b"",
        changes: Mapping[str, str | None] | None = None,
    ) -> Outcome:  # fmt: skip
        """Pass a frame on to one shard, which answers it."""
        if not self.has_room([number]):
            return Outcome.WAITS
        lines = head_lines(head, self._session.version, changes)
        self.shard(number).connection.write(passed_frame(lines, receipt, body))
        return Outcome.PASSED

    def pass_to_all(
        self, frames: Mapping[int, Mapping[str, str | None]], head: Head, receipt: bytes | None,
        body: bytes | bytearray = b"",
    ) -> Outcome:  # fmt: skip
        """Pass a frame on to several shards. Its receipt is sent when all of them have done what it says.

        Args:
            frames: the changes of headers, by shard.
        """
        if not self.has_room(frames):
            return Outcome.WAITS
        waiting = set(frames)
        for number, changes in frames.items():
            shard = self.shard(number)
            asked = receipt
            if receipt is not None and len(frames) > 1:
                asked = shard.when_answered(partial(self._answered, waiting, number, receipt), receipt)
            lines = head_lines(head, self._session.version, changes)
            shard.connection.write(passed_frame(lines, asked, body))
        return Outcome.PASSED

    def ask(self, number: int, head: Head, then: Callable[[], None], receipt: bytes | None) -> None:
        """Pass a frame of the relay's own on to a shard, and make a call when that has done what it says.

        Args:
            receipt: the one that an error is to name, if the shard refuses it.
        """
        shard = self.shard(number)
        asked = shard.when_answered(then, receipt)
        shard.connection.write(passed_frame(head_lines(head, self.version), asked))

    def _answered(self, waiting: set[int], number: int, receipt: bytes) -> None:
        """One of several shards has done what a frame says."""
        waiting.discard(number)
        if not waiting:
            self._session.confirmed([receipt])

    @property
    def is_over_limit(self) -> bool:
        """Whether something waits for a shard while all clients of the process have more under way than they may."""
        return any([shard.connection.is_over_limit for shard in self.shards.values()])

    # What shards say.

    def connected(self, shard: StompShard) -> None:
        """The owner has accepted the client."""
        self._session.go_on()

    def passes(self, frames: bytes) -> None:
        """The owner says something to the client."""
        self._session.write(frames)

    def refused(self, frame: bytes) -> None:
        """The owner has told the client of an error."""
        self._session.refused(frame)

    def shows(self, shard: StompShard, frame: bytes) -> bytes:
        """A MESSAGE frame of a subscription at several shards is about to be passed on."""
        return self.inspect(shard, frame)

    def charges(self, size: int) -> None:
        """So many bytes more, or fewer, have come of frames that are not whole."""
        self._charged += size
        if self.links.charge(size):
            self._session.fail(LimitExceeded("what is sent to clients in parts takes more memory than it may"))

    def owes(self, shard: StompShard, size: int) -> None:
        """So many bytes have come."""
        shard.owed += size
        self._owing[shard] = None
        self.pay()

    def pay(self) -> None:
        """If the client takes more output, its virtual connections get credit for what has come."""
        if self._owing and self._session.takes_output:
            owing, self._owing = self._owing, {}
            for shard in owing:
                size, shard.owed = shard.owed, 0
                shard.connection.taken(size)

    def drained(self) -> None:
        """A shard takes input again."""
        self._session.go_on()

    def lost(self, shard: StompShard, error: QuireError | None) -> None:
        """A virtual connection is over: the client has to connect again, unless it leaves."""
        if self.shards.get(shard.number) is shard:
            del self.shards[shard.number]
        if self._is_leaving and error is None:
            self._session.go_on()
        elif not self._session.is_closed:
            self._session.fail(error or ShardMoved(f"shard {shard.number} has closed the connection"))

    # The end.

    def must_leave(self, head: Head) -> bool:
        """The client disconnects: whether shards have still to do what it has said before."""
        if not self._is_leaving:
            self._is_leaving = True
            for shard in list(self.shards.values()):
                receipt = shard.when_answered(partial(self._left, shard))
                shard.connection.write(passed_frame(b"DISCONNECT\n", receipt))
        return bool(self.shards)

    def _left(self, shard: StompShard) -> None:
        self.shards.pop(shard.number, None)
        shard.connection.close()
        self._session.go_on()

    def leave(self, *, lost: bool, is_blameless: bool) -> None:
        """The client is gone.

        Args:
            lost: whether it vanished without a word.
            is_blameless: whether its connection has ended by no fault of its own: shards hear of that.
        """
        shards, self.shards = list(self.shards.values()), {}
        self._owing.clear()
        self.links.charge(-self._charged)
        self._charged = 0
        for shard in shards:
            if lost or is_blameless:
                shard.connection.abort(ENTRY_ENDED if is_blameless else None)
            else:
                shard.connection.write(passed_frame(b"DISCONNECT\n"))
                shard.connection.close()
