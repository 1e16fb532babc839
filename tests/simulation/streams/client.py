"""The clients of a stream. They do what the history says, and tell the model what they did and saw."""

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from quire.testing.stepped import Frame, SteppedClient
from tests.simulation.promises import Outcome
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.hands import RETRIES, Grip, Key, Membership, Remembered
from tests.simulation.streams.log import Draft, Sent
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


class StreamClient:
    """A client, from its connection to its end.

    Args:
        name: its name; a client that comes back has the same.
        connection: how it talks to the broker.
        world: everything else.

    Attributes:
        name: as given.
        connection: as given.
        receipts: what each outstanding receipt confirms.
        consumption: the group it is a member of; None while it is of none.
        membership: what it is there.
        past: what it ever was given on this connection, and the ids to acknowledge that by.
        is_subscribed: whether the broker knows a subscription of this connection, be it another one's member by now.
    """

    def __init__(self, name: str, connection: SteppedClient, world: "StreamWorld") -> None:
        self.name = name
        self.connection = connection
        self.receipts: dict[str, Callable[[], None]] = {}
        self.consumption: Consumption | None = None
        self.membership: Membership | None = None
        self.past: list[tuple[Key, str]] = []
        self.is_subscribed = False
        self._world = world
        self._held: list[Grip] = []
        self._outcome: Outcome | None = None
        self._next_receipt = 0

    @property
    def is_gone(self) -> bool:
        """Whether its connection is closed."""
        return self.connection.connection.closed

    @property
    def is_stuck(self) -> bool:
        """Whether it can do nothing but wait or go: it is held in a send, or gone."""
        return self.is_gone or self.connection.session.held

    @property
    def in_transaction(self) -> bool:
        """Whether it has a transaction open."""
        return self._outcome is not None

    # It hears.

    def read(self, *, on: bool) -> None:
        """Let its connection take output, or none. What it has taken is read at once."""
        if not self.is_gone:
            self._world.note(f"{self.name} reads {'on' if on else 'no more'}")
            self.connection.connection.is_writable = on
            if on:
                self.connection.session.output_drained()

    def listen(self) -> None:
        """Look at what has come since the last step."""
        if not self.connection.connection.output:
            return
        for receipt in self.connection.receipts():
            self._world.note(f"{self.name} gets receipt {receipt}")
            self.receipts.pop(receipt)()
        for code in self.connection.errors():
            self._world.note(f"{self.name} gets error {code}")
        for frame in self.connection.take("MESSAGE"):
            if "event" in frame.headers:
                self._world.note(f"{self.name} is told: {frame.headers}")
            elif self.membership is not None:
                self._take(self.membership, frame)

    def _take(self, member: Membership, frame: Frame) -> None:
        assert self.consumption is not None
        again = ", again" if "redelivered" in frame.headers else ""
        name = frame.body[: frame.body.index(b";")].decode()
        self._world.note(f"{self.name} gets {name} ({frame.headers['ack']}){again}")
        grip = self._world.lookout(self.consumption).deliver(
            member, frame, self._world.clock.monotonic(), self._world.clock.now_ms()
        )
        self.past.append((grip.key, grip.ack))
        if member.ack != "auto":
            memory = self._world.memory(self.consumption, member.id)
            memory[grip.key] = Remembered(grip.ack, grip.work.record)

    # It sends.

    def send(self, draft: Draft, *, receipt: bool) -> None:
        """Send a new message, in the open transaction if there is one.

        Args:
            draft: the message.
            receipt: whether to ask for one, outside a transaction.
        """
        if self.is_stuck:
            return
        log = self._world.log
        sent = Sent(f"{self.name}-{len(log.sent) + 1}", draft, len(self._world.stream.partitions))
        log.sent[sent.name] = sent
        headers = {"destination": "/stream/s", **draft.headers()}
        if self._outcome is not None:
            sent.outcome = self._outcome
            headers["transaction"] = "t"
        elif receipt:
            headers |= self.receipt(lambda: setattr(sent, "receipted", True))
        self._world.note(f"{self.name} sends {sent}, {draft.size} bytes, {headers}")
        self.connection.frame("SEND", headers, f"{sent};".encode() + b"x" * draft.size)
        if self.connection.session.held:  # it is sent when there is room
            sent.partitions = 0

    def receipt(self, confirmed: Callable[[], None]) -> dict[str, str]:
        """Ask for a receipt: when it comes, everything that had happened up to now is durable."""
        moments, moment = self._world.moments, self._world.moments.now
        self._next_receipt += 1

        def came() -> None:
            moments.confirm(moment)
            confirmed()

        self.receipts[f"r{self._next_receipt}"] = came
        return {"receipt": f"r{self._next_receipt}"}

    # It settles.

    def acknowledge(self, pick: int, *, receipt: bool) -> None:
        """Acknowledge what is in its hands, in the open transaction if there is one.

        Args:
            pick: which message, counted around.
            receipt: whether to ask for one, outside a transaction.
        """
        covered = self._pick(pick)
        if not covered or self.consumption is None:
            return
        self._world.note(f"{self.name} acknowledges {covered}")
        if not self._holds(covered, acknowledged=True):
            for grip in covered:
                self._settle(grip)
                self.consumption.finish(grip.work)
        self._frame("ACK", covered[-1].ack, {}, receipt=receipt)

    def reject(self, pick: int, headers: dict[str, str], delay_ms: int | None, *, letter: bool, receipt: bool) -> None:
        """Reject what is in its hands.

        Args:
            pick: which message, counted around.
            headers: of the NACK frame, outside a transaction.
            delay_ms: the delay that they ask for.
            letter: whether they ask for a dead letter.
            receipt: whether to ask for one, outside a transaction.
        """
        covered = self._pick(pick)
        if not covered or self.consumption is None:
            return
        self._world.note(f"{self.name} rejects {covered} {headers}")
        if self._holds(covered, acknowledged=False):
            headers = {}
        else:
            for grip in covered:
                self._settle(grip)
                if letter:
                    self.consumption.bury(grip.work)
                else:
                    self.consumption.fail(grip.work, self._world.clock.now_ms(), delay_ms)
        self._frame("NACK", covered[-1].ack, headers, receipt=receipt)

    def extend(self, pick: int, seconds: float) -> None:
        """Extend the leases on what is in its hands, outside a transaction."""
        covered = self._pick(pick)
        if covered and not self.in_transaction:
            self._world.note(f"{self.name} extends {covered} by {seconds:g} s")
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
        """Acknowledge or reject again, or late, what it was given once and does not have.

        Args:
            pick: which message, counted around.
            reject: whether to reject.
        """
        if self.is_stuck or self.membership is None or self.consumption is None or self.in_transaction:
            return
        past = [(key, ack) for key, ack in self.past if key not in self.membership.grips]
        if past:
            key, ack = past[pick % len(past)]
            self._world.note(f"{self.name} {'rejects' if reject else 'acknowledges'} {ack}, which it does not have")
            with self._world.strays.expected(self.consumption, self.membership, key, ack, reject=reject):
                self._frame("NACK" if reject else "ACK", ack, {}, receipt=False)

    def settle_all(self) -> bool:
        """Acknowledge everything there is, and commit it.

        Returns:
            Whether there was anything.
        """
        member = self.membership
        found = self.in_transaction or bool(member and member.grips)
        while member is not None and member.free and not self.is_stuck:
            self.acknowledge(len(member.free) - 1, receipt=False)
        self.end(commit=True)
        return found

    # Transactions.

    def begin(self) -> None:
        """Begin a transaction, if none is open."""
        if self._outcome is None and not self.is_stuck:
            self._world.note(f"{self.name} begins a transaction")
            self._outcome = Outcome()
            self.connection.frame("BEGIN", {"transaction": "t"})

    def end(self, *, commit: bool) -> None:
        """Commit or abort the transaction, if one is open."""
        if self._outcome is None or self.is_stuck:
            return
        outcome, self._outcome = self._outcome, None
        self._world.note(f"{self.name} {'commits' if commit else 'aborts'}")
        held, self._held = self._held, []
        done = [done for grip in held if (done := self._end(grip, outcome, commit=commit)) is not None]
        self._world.commits.append((self._world.stepped.broker.core.open_commit_number, done))
        headers = {"transaction": "t"}
        if commit:
            headers |= self.receipt(lambda: outcome.decide(True, f"{self.name} has the receipt"))
        else:
            outcome.decide(False, f"{self.name} aborts")
        self.connection.frame("COMMIT" if commit else "ABORT", headers)

    def _end(self, grip: Grip, outcome: Outcome, *, commit: bool) -> Acknowledged | None:
        """A transaction ends in which a message was settled.

        If it was taken from the member meanwhile, the end of the transaction has nothing to do with it; only a retry
        that nobody has counts as acknowledged too.
        """
        consumption, work, before = grip.member.consumption, grip.work, grip.work.possible
        is_acknowledged = commit and grip.transacted is True
        if grip.member.grips.get(grip.key) is grip:
            self._settle(grip)
            if not is_acknowledged:
                consumption.fail(work, self._world.clock.now_ms())
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

    def leave(self, how: str) -> None:
        """Go.

        Args:
            how: ``vanish``, ``disconnect``, or ``unsubscribe`` and stay connected.
        """
        self.listen()
        if how != "vanish" and self.is_stuck:
            return
        self._world.note(f"{self.name} leaves: {how}")
        if how == "vanish":
            self.connection.vanish()
            self.closed()
        elif how == "disconnect":
            self.connection.frame("DISCONNECT")
            self.connection.vanish()
            self.closed(lost=False)
        elif self.membership is not None and not self.in_transaction:
            self.connection.frame("UNSUBSCRIBE", {"id": "0"})
            self.leave_group(lost=False, for_good=True)
            self.is_subscribed = False

    def closed(self, *, lost: bool = True) -> None:
        """Its connection is gone.

        Args:
            lost: whether it went without a word.
        """
        if self._outcome is not None:
            self._outcome.decide(False, f"{self.name} is gone")
            self._outcome = None
            self._held = []
        self.receipts.clear()
        self.leave_group(lost=lost, for_good=False)

    def leave_group(self, *, lost: bool, for_good: bool) -> None:
        """It is no member any more, or not connected any more.

        Args:
            lost: whether it went without a word.
            for_good: whether it is not awaited, even if it has a name.
        """
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
            consumption.give_back(member.grips.values(), now, self._world.clock.now_ms(), lost=lost)
            del consumption.members[member.id]

    def die(self) -> None:
        """The broker has crashed."""
        if self.membership is not None and self.membership.ack == "auto":
            # Their acknowledgement may be written already. What a crash loses on the way is a risk of this mode.
            self.connection.session.flush()
        self.listen()
        self.connection.connection.closed = True
        if self._outcome is not None:
            self._outcome.decide(False, f"{self.name} is gone")
