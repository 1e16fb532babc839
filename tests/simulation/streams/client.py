"""The clients of a stream. They do what the history says, and tell the model what they did and saw."""

from collections.abc import Callable, Sized
from typing import TYPE_CHECKING, NamedTuple

from quire.testing.stepped import Frame, SteppedClient
from tests.simulation.client import SimulatedClient
from tests.simulation.sent import Outcome
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.hands import RETRIES, Grip, Key, Membership, Remembered
from tests.simulation.streams.log import Draft, StreamSent
from tests.simulation.streams.work import Place, States, Work

if TYPE_CHECKING:
    from tests.simulation.streams.world import StreamWorld


class Acknowledged(NamedTuple):
    """A message that was acknowledged in a transaction.

    Attributes:
        consumption: the group.
        work: the message.
        before: where it stood.
    """

    consumption: Consumption
    work: Work
    before: States


class StreamClient(SimulatedClient):
    """A client of streams."""

    def __init__(self, name: str, connection: SteppedClient, world: "StreamWorld") -> None:
        super().__init__(name, connection, world.note)
        self.consumption: Consumption | None = None
        self.membership: Membership | None = None
        self.past: list[tuple[Key, str]] = []
        self.is_subscribed = False
        self._world = world
        self._held: list[Grip] = []

    # It hears.

    def _take_messages(self) -> None:
        for frame in self.connection.take("MESSAGE"):
            if "event" in frame.headers:
                self.note(f"{self.name} is told: {frame.headers}")
            elif self.membership is not None:
                self._take(self.membership, frame)

    def _take(self, member: Membership, frame: Frame) -> None:
        assert self.consumption is not None
        again = ", again" if "redelivered" in frame.headers else ""
        name = frame.body[: frame.body.index(b";")].decode()
        self.note(f"{self.name} gets {name} ({frame.headers['ack']}){again}")
        grip = self._world.lookout(self.consumption).deliver(
            member, frame, self._world.clock.monotonic(), self._world.right.now_ms()
        )
        self.past.append((grip.key, grip.ack))
        if member.ack != "auto":
            memory = self._world.memory(self.consumption, member.id)
            memory[grip.key] = Remembered(grip.ack, grip.work.record)

    # It sends.

    def send(self, draft: Draft, *, receipt: bool) -> None:
        """Send a new message, in the open transaction if there is one."""
        if self.is_stuck:
            return
        log = self._world.log
        sent = StreamSent(f"{self.name}-{len(log.sent) + 1}", draft, len(self._world.stream.partitions))
        log.sent[sent.name] = sent
        headers = {"destination": "/stream/s", **draft.headers()}
        if self._outcome is not None:
            sent.outcome = self._outcome
            headers["transaction"] = "t"
        elif receipt:
            headers |= self.receipt(lambda: setattr(sent, "receipted", True))
        self.note(f"{self.name} sends {sent}, {draft.size} bytes, {headers}")
        self.connection.frame("SEND", headers, f"{sent};".encode() + b"x" * draft.size)
        if self.connection.session.held:  # it is sent when there is room
            sent.partitions = 0

    def receipt(self, confirmed: Callable[[], None]) -> dict[str, str]:
        """Ask for a receipt: when it comes, everything that had happened up to now is durable."""
        moments, moment = self._world.moments, self._world.moments.now

        def came() -> None:
            moments.confirm(moment)
            confirmed()

        return super().receipt(came)

    # It settles.

    @property
    def in_flight(self) -> Sized:
        """What it was given and has not settled."""
        return self.membership.grips if self.membership else ()

    @property
    def free(self) -> Sized:
        """What of that is not settled in its open transaction either."""
        return self.membership.free if self.membership else ()

    @property
    def is_auto(self) -> bool:
        """Whether what it is given is acknowledged by being sent."""
        return self.membership is not None and self.membership.ack == "auto"

    def acknowledge(self, pick: int, *, receipt: bool) -> None:
        """Acknowledge what is in its hands, in the open transaction if there is one."""
        covered = self._pick(pick)
        if not covered or self.consumption is None:
            return
        self.note(f"{self.name} acknowledges {covered}")
        if not self._holds(covered, acknowledged=True):
            for grip in covered:
                self._settle(grip)
                self.consumption.finish(grip.work)
        self._frame("ACK", covered[-1].ack, {}, receipt=receipt)

    def reject(self, pick: int, headers: dict[str, str], delay_ms: int | None, *, letter: bool, receipt: bool) -> None:
        """Reject what is in its hands."""
        covered = self._pick(pick)
        if not covered or self.consumption is None:
            return
        self.note(f"{self.name} rejects {covered} {headers}")
        if self._holds(covered, acknowledged=False):
            headers = {}
        else:
            for grip in covered:
                self._settle(grip)
                if letter:
                    self.consumption.dead_letter(grip.work)
                else:
                    self.consumption.fail(grip.work, self._world.right.now_ms(), delay_ms)
        self._frame("NACK", covered[-1].ack, headers, receipt=receipt)

    def extend(self, pick: int, seconds: float) -> None:
        """Extend the leases on what is in its hands, outside a transaction."""
        covered = self._pick(pick)
        if covered and not self.in_transaction:
            self.note(f"{self.name} extends {covered} by {seconds:g} s")
            for grip in covered:
                grip.extend(self._world.clock.monotonic() + seconds)
            self._frame("NACK", covered[-1].ack, {"extend": str(round(seconds * 1000))}, receipt=False)

    def _pick(self, pick: int) -> list[Grip]:
        member = self.membership
        if member is None or self.is_stuck or not member.free:
            return []
        return member.covered(member.free[pick % len(member.free)])

    def _holds(self, covered: list[Grip], *, acknowledged: bool) -> bool:
        """Whether there is a transaction, which keeps this until its end."""
        if self._outcome is not None:
            self._held += covered
            for grip in covered:
                grip.transacted = acknowledged
        return self._outcome is not None

    def _settle(self, grip: Grip) -> None:
        grip.member.drop(grip)
        self._world.memory(grip.member.consumption, grip.member.id).pop(grip.key, None)

    def _frame(self, command: str, ack: str, headers: dict[str, str], *, receipt: bool) -> None:
        if self._outcome is not None:
            headers = {"transaction": "t"}
        elif receipt:
            headers = headers | self.receipt(lambda: None)
        self.connection.frame(command, {"id": ack, **headers})

    def stray(self, pick: int, *, reject: bool) -> None:
        """Acknowledge or reject again, or late, what it was given once and does not have."""
        if self.is_stuck or self.membership is None or self.consumption is None or self.in_transaction:
            return
        past = [(key, ack) for key, ack in self.past if key not in self.membership.grips]
        if past:
            key, ack = past[pick % len(past)]
            self.note(f"{self.name} {'rejects' if reject else 'acknowledges'} {ack}, which it does not have")
            with self._world.strays.expected(self.consumption, self.membership, key, ack, reject=reject):
                self._frame("NACK" if reject else "ACK", ack, {}, receipt=False)

    # Transactions.

    def _end(self, outcome: Outcome, act: Callable[[], None], *, commit: bool) -> None:
        held, self._held = self._held, []
        done = [done for grip in held if (done := self._end_of(grip, outcome, commit=commit)) is not None]
        self._world.commits.append((self._world.stepped.broker.core.open_commit_number, done))
        act()

    def _end_of(self, grip: Grip, outcome: Outcome, *, commit: bool) -> Acknowledged | None:
        """A transaction ends in which a message was settled.

        If it was taken from the member meanwhile, the end of the transaction has nothing to do with it; only a retry
        that nobody has counts as acknowledged too.
        """
        consumption, work, before = grip.member.consumption, grip.work, grip.work.possible
        is_acknowledged = commit and grip.transacted is True
        if grip.member.grips.get(grip.key) is grip:
            self._settle(grip)
            if not is_acknowledged:
                consumption.fail(work, self._world.right.now_ms())
        else:
            is_waiting = work.holder is None and all([state.place is Place.RETRY for state in work.possible])
            if not is_waiting or grip.key[0] != RETRIES:
                return None
        if not is_acknowledged:
            return None
        work.outcome = outcome
        consumption.finish(work)
        return Acknowledged(consumption, work, before)

    # It goes.

    def _unsubscribe(self) -> None:
        if self.membership is not None and not self.in_transaction:
            self.connection.frame("UNSUBSCRIBE", {"id": "0"})
            self.leave_group(lost=False, for_good=True)
            self.is_subscribed = False

    def closed(self, *, lost: bool = True) -> None:
        """Its connection is gone, without a word or with one."""
        self.forget()
        self._held = []
        self.leave_group(lost=lost, for_good=False)

    def leave_group(self, *, lost: bool, for_good: bool) -> None:
        """It is no member any more, or not connected any more."""
        consumption, member = self.consumption, self.membership
        self.consumption = self.membership = None
        if consumption is None or member is None or consumption.members.get(member.id) is not member:
            return
        now = self._world.clock.monotonic()
        for grip in member.grips.values():
            if grip.transacted is not None:  # the leases of these were extended, a second at a time
                grip.transacted = None
                grip.latest = max(grip.latest, now + 1.0)
        if member.static and not for_good:
            member.client = None
            member.served = {}  # it may have changed before: what it is now, the next look tells
            member.grace_end = now + self._world.setup.grace
        else:
            consumption.give_back(member.grips.values(), now, self._world.right.now_ms(), lost=lost)
            del consumption.members[member.id]
