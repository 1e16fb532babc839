"""The pins that a shard keeps in its own store: which placement keys it has given away, and which it was given.

Only the shard that has a key gives it away, by a commit of its own store, and only then others are told. So a later
owner of the shard knows it too, whatever the database of the cluster tells it; and one that has lost the shard gives
nothing away, since its commit is refused. At any time at most one shard takes messages for a key. While the others are
told, none may: clients get ``shard-moved`` and come again.

The place of a process in its cluster.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from hashlib import blake2b

import msgspec

from quire.broker.broker import Broker
from quire.broker.core.subscription import Confirmation
from quire.broker.routing.addresses import Scope, read_destination
from quire.cluster.cluster_map import SPREAD, ClusterMap, Pin, PinRow, lost_to_another
from quire.destination import Destination, DestinationKind
from quire.errors import DestinationExists, InvalidSettings, QuireError
from quire.store.base import walk_marks

MARK = "pin:"
"""How the marks of pins begin; a digest of the placement key follows."""

PLACEMENT = "placement"
"""The mark that says by which settings destinations were placed when the store was used last."""

STEP = 200
"""So many destinations are looked at in one step."""

_write = msgspec.msgpack.encode
_read = msgspec.msgpack.Decoder(PinRow).decode


def mark_of(row: PinRow) -> tuple[str, bytes]:
    return MARK + blake2b(row.key.encode(), digest_size=16).hexdigest(), _write(row)


class KeptPins:
    """The pins of one shard; ``publish`` has the database of the cluster told of one that is stored here."""

    _broker: Broker

    def __init__(self, cluster_map: ClusterMap, publish: Callable[[PinRow], None]) -> None:
        self._map = cluster_map
        self._publish = publish

    def attach(self, broker: Broker) -> None:
        """Take what the store of the shard says. From then on no destination of another shard is made here."""
        self._broker = broker
        rows = self._stored()
        self._map.keep({row.key: Pin(row.shard, row.version) for row in rows})
        self._check_settings()
        broker.destinations.check_place = self._check_place
        for row in rows:  # a process may have ended before it could have the database told
            if row.shard != self._map.own:
                self._publish(row)

    def give(self, destination: Destination, shard: int, done: Callable[[QuireError | None], None]) -> None:
        """Give a destination that does not exist to another shard, with all that lie together with it.

        ``done`` is called when that is stored, or with the error: the shard has not got it (any more), or something
        that lies together with it exists.
        """
        steps = self._given(destination, shard, done)
        self._broker.core.steps.add(lambda: next(steps, done) is None, "the look for what lies together", stores=False)

    def _stored(self) -> list[PinRow]:
        return [_read(value) for _, value in walk_marks(self._broker.core.store, MARK)]

    def _given(
        self, destination: Destination, shard: int, done: Callable[[QuireError | None], None]
    ) -> Iterator[None]:  # fmt: skip
        key, destinations = self._map.key_of(destination), self._broker.destinations
        made: list[Destination] = []  # meanwhile
        destinations.watch(look := object(), lambda new: made.append(new) if self._map.key_of(new) == key else None)
        try:
            yield from self._look_for(key)
        except DestinationExists as error:
            done(error)
            return
        finally:
            destinations.watch(look, None)
        if made:
            done(_exists(made[0]))
        elif (awaited := self._awaited(key)) is not None:
            text = f"a prepared transaction sends to {awaited}, which lies together with it: wait until it has ended"
            done(DestinationExists(text, destination=str(awaited)))
        elif (lost := lost_to_another(self._map, destination)) is not None:
            done(lost)
        else:
            self._store(destination, key, shard, done)

    def _look_for(self, key: str) -> Iterator[None]:
        for kind in DestinationKind:
            for number, name in enumerate(list(self._broker.destinations.names(kind)), 1):
                if self._map.key_of(destination := Destination(kind, name)) == key:
                    raise _exists(destination)
                if number % STEP == 0:
                    yield

    def _awaited(self, key: str) -> Destination | None:
        """A destination with a placement key that a prepared transaction sends to. It may be gone meanwhile."""
        for text in self._broker.xa.awaited():
            for kind, name, scope in read_destination(text)[0]:
                destination = Destination(kind, name)
                if scope is Scope.COMMON and self._map.key_of(destination) == key:
                    return destination
        return None

    def _store(
        self, destination: Destination, key: str, shard: int, done: Callable[[QuireError | None], None]
    ) -> None:  # fmt: skip
        """Give it in the open commit: from now on it is not here, and once that is stored all are told."""
        before = self._map.newest_pin(key)
        row = PinRow(key, str(destination), shard, before.version + 1 if before else 1)
        self._keep(row)

        def stored(error: QuireError | None) -> None:
            if error is None:
                self._publish(row)
            done(error)

        self._broker.core.confirm(Confirmation(stored), [b""])
        self._broker.core.hurry()

    def _keep(self, row: PinRow) -> None:
        self._broker.core.set_mark(*mark_of(row))
        self._map.keep({row.key: Pin(row.shard, row.version)})

    def _check_place(self, destination: Destination) -> None:
        """A destination is about to be made: refuse it if it is not here, and keep the pin that says that it is."""
        if (lost := lost_to_another(self._map, destination)) is not None:
            raise lost
        key = self._map.key_of(destination)
        pin = None if key == SPREAD else self._map.newest_pin(key)
        if pin is not None and pin != self._map.kept_pin(key):
            self._keep(PinRow(key, str(destination), *pin))

    def _check_settings(self) -> None:
        """With other settings than before: see that they place what is stored where it is."""
        core, digest = self._broker.core, self._map.placement_digest.encode()
        if core.store.mark(PLACEMENT) == digest:
            return
        for kind in DestinationKind:
            for name in self._broker.destinations.names(kind):
                if (lost := lost_to_another(self._map, Destination(kind, name))) is not None:
                    text = (
                        f"by the settings {lost}, where it is stored: start all brokers with [virtual], [[composites]]"
                        " and policies of dead letters as they were, empty it and delete it, then change them"
                    )
                    raise InvalidSettings(text, key="virtual", **lost.data)
        core.set_mark(PLACEMENT, digest)


def _exists(destination: Destination) -> DestinationExists:
    text = f"{destination} is there, and lies together with it: delete it first"
    return DestinationExists(text, destination=str(destination))


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """What a process of a cluster knows of it, besides its own broker; ``store`` is the database of the cluster."""

    map: ClusterMap
    pins: KeptPins
    secret: bytes
    name: str
    store: str
