"""The local transactions of a STOMP client in a cluster: each has a part at every shard that it is about.

A part begins with the first work for it. With one part, COMMIT is passed on to it; with several it is a
``SpanningCommit``.
"""

from collections.abc import Callable, Mapping
from functools import partial
from typing import Protocol

from quire.broker.transactions.transaction import check_room
from quire.errors import UnknownTransaction
from quire.protocols.stomp.frames import Head
from quire.server.cluster.owner_session import STEP
from quire.server.cluster.spanning_commit import Seat, SpanningCommit
from quire.server.cluster.stomp_relay import Outcome, StompRelay

HERE = -2
"""Where a part is that the client's own session has. At the own shard there may be a virtual connection too."""


class Own(Protocol):
    """The client's own session, as its transactions see it."""

    def begin_own(self, head: Head) -> None:
        """Begin the part that is here."""

    def step_own(self, name: str, step: str, then: Callable[[], None]) -> bool:
        """Make a step of a transaction over several shards, for the part that is here; False if it has to wait."""

    def go_on(self) -> None:
        """Take input that waits for the relay."""


class RelayTransactions:
    """The transactions of one client."""

    def __init__(self, relay: StompRelay, own: Own) -> None:
        self._relay = relay
        self._own = own
        self._open: dict[str, dict[int, bool]] = {}  # the places of their parts; whether they acknowledge there
        self._ending: dict[str, SpanningCommit[int]] = {}

    def begin(self, head: Head) -> Outcome:
        """A BEGIN frame: the transaction begins where it is about something."""
        name = head.headers["transaction"]
        check_room(len(self._open))
        if name in self._open:
            raise UnknownTransaction(f"there is a transaction {name[:60]!r} already", transaction=name[:60])
        self._open[name] = {}
        return Outcome.DONE

    def place(self, name: str, shard: int) -> int:
        """Where a transaction sends to a shard: to the own one from here, or as it has acknowledged what came from it.

        Raises:
            UnknownTransaction: there is none of this name.
        """
        if shard != self._relay.own:
            return shard
        known = self._places_of(name)
        if HERE in known or (shard not in known and shard not in self._relay.shards):
            return HERE
        return shard

    def join(self, name: str, place: int, *, acknowledges: bool = False) -> None:
        """Something at a shard, or here, is part of a transaction. The shard has room for the frame that begins it.

        Raises:
            UnknownTransaction: there is none of this name.
        """
        known = self._places_of(name)
        if place not in known:
            head = _head(b"BEGIN", name)
            if place == HERE:
                self._own.begin_own(head)
            else:
                self._relay.pass_to(place, head, None)
            known[place] = False
        known[place] = known[place] or acknowledges

    def end(self, head: Head, receipt: bytes | None) -> Outcome:
        """A COMMIT or ABORT frame."""
        name = head.headers["transaction"]
        places = self._places_of(name)
        if head.command == b"COMMIT" and len(places) > 1:
            if not self._commit(name, receipt, places).go_on():
                return Outcome.WAITS
            del self._open[name], self._ending[name]
            return Outcome.DONE
        others: dict[int, Mapping[str, str | None]] = {place: {} for place in places if place != HERE}
        is_here = HERE in places
        if others:
            told = self._relay.pass_to_all(others, _head(head.command, name), None if is_here else receipt)
            if told is Outcome.WAITS:
                return Outcome.WAITS
        if is_here:
            places.clear()
            places[HERE] = False
            return Outcome.OWN
        del self._open[name]
        return Outcome.PASSED if others else Outcome.DONE

    def ended(self, name: str) -> None:
        """A transaction that was here has ended."""
        self._open.pop(name, None)

    def _places_of(self, name: str) -> dict[int, bool]:
        try:
            return self._open[name]
        except KeyError:
            raise UnknownTransaction(f"there is no transaction {name[:60]!r}", transaction=name[:60]) from None

    # Commits of several parts.

    def _commit(self, name: str, receipt: bytes | None, places: dict[int, bool]) -> SpanningCommit[int]:
        """The commit of a transaction, which may be under way.

        The coordinator is the first part that acknowledges: what it acknowledges need not be hidden and shown again if
        another part fails, and the progress of a consumer group cannot be prepared.
        """
        known = self._ending.get(name)
        if known is None:
            coordinator = next((place for place, acknowledges in places.items() if acknowledges), None)
            if coordinator is None:
                coordinator = HERE if HERE in places else next(iter(places))
            others = [place for place in places if place != coordinator]
            ask = partial(self._ask, name, receipt)
            known = self._ending[name] = SpanningCommit(coordinator, others, self._seat, ask, self._own.go_on)
        return known

    def _seat(self, place: int) -> Seat:
        cluster_map = self._relay.links.cluster_map
        if place == HERE:
            return Seat(cluster_map.own, cluster_map.epoch)
        return Seat(place, self._relay.links.epoch(place))

    def _ask(self, name: str, receipt: bytes | None, steps: Mapping[int, str], then: Callable[[], None]) -> bool:
        """Have parts make their steps."""
        waiting = set(steps)

        def answered(place: int) -> None:
            waiting.discard(place)
            if not waiting:
                then()

        if HERE in steps and not self._own.step_own(name, steps[HERE], partial(answered, HERE)):
            return False
        for place, step in steps.items():
            if place != HERE:
                self._relay.ask(place, _head(b"COMMIT", name, step), partial(answered, place), receipt)
        return True


def _head(command: bytes, name: str, step: str | None = None) -> Head:
    """The head of a frame to a shard: nothing of it is the client's but the name."""
    fields = (("transaction", name),)
    return Head(command, fields if step is None else (*fields, (STEP, step)))
