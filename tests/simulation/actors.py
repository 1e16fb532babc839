"""The clients of a simulation: producers and consumers that do something at random when it is their turn."""

from collections.abc import Callable
from random import Random

from quire.testing.stepped import Frame, SteppedClient
from tests.simulation.promises import DEAD_LETTERS, Broken, Promises, Sent


class Actor:
    """A client and what it waits for.

    Args:
        client: its connection.
        promises: the ledger.
        random: where its choices come from.
        note: writes the history.

    Attributes:
        client: as given; a new one after a reconnect.
        receipts: what each outstanding receipt confirms.
    """

    def __init__(self, client: SteppedClient, promises: Promises, random: Random, note: Callable[[str], None]) -> None:
        self.client = client
        self.receipts: dict[str, Callable[[], None]] = {}
        self._promises = promises
        self._random = random
        self._note = note
        self._transaction: list[Sent] | None = None
        self._next_receipt = 0

    @property
    def name(self) -> str:
        """Who it is in the history."""
        return self.client.connection.peer

    @property
    def is_gone(self) -> bool:
        """Whether its connection is closed."""
        return self.client.connection.closed

    def listen(self) -> None:
        """Look at what has come."""
        for receipt in self.client.receipts():
            self.receipts.pop(receipt)()
        for code in self.client.errors():
            self._note(f"{self.name} gets error {code}")

    def leave(self, *, vanish: bool) -> None:
        """Go, with or without a word. What was not committed is withdrawn."""
        self._note(f"{self.name} {'vanishes' if vanish else 'disconnects'}")
        if not vanish:
            self.client.frame("DISCONNECT")
        self.client.vanish()
        self.lose()

    def lose(self) -> None:
        """The connection is gone."""
        self.listen()
        self._end_transaction()
        self.receipts.clear()

    def _end_transaction(self) -> None:
        for sent in self._transaction or ():
            sent.withdrawn = True
        self._transaction = None

    def _receipt(self, confirmed: Callable[[], None]) -> dict[str, str]:
        self._next_receipt += 1
        self.receipts[f"r{self._next_receipt}"] = confirmed
        return {"receipt": f"r{self._next_receipt}"}

    def _commit(self, confirmed: Callable[[], None]) -> None:
        sends = self._transaction or []
        self._transaction = None

        def done() -> None:
            for sent in sends:
                sent.confirmed = True
            confirmed()

        self._note(f"{self.name} commits")
        self.client.frame("COMMIT", {"transaction": "t", **self._receipt(done)})


class Producer(Actor):
    """Sends to two queues; a numbered one sends again what was not confirmed when its connection was lost.

    Args:
        number: its number, in the names of its messages.
        numbered: whether it numbers its sends.
        now_ms: the time, for expirations.
    """

    def __init__(
        self, client: SteppedClient, promises: Promises, random: Random, note: Callable[[str], None], *,
        number: int, numbered: bool, now_ms: Callable[[], int],
    ) -> None:  # fmt: skip
        super().__init__(client, promises, random, note)
        self._number = number
        self._numbered = numbered
        self._now_ms = now_ms
        self._sends = 0
        self._unconfirmed: dict[Sent, bytes] = {}

    def act(self) -> None:
        """Do something."""
        self.listen()
        choice = self._random.random()
        if self._transaction is None and choice < 0.1 and not self._numbered:
            self._transaction = []
            self.client.frame("BEGIN", {"transaction": "t"})
        elif self._transaction is not None and choice < 0.15:
            self._commit(lambda: None)
        elif self._transaction is not None and choice < 0.2:
            self._note(f"{self.name} aborts")
            self.client.frame("ABORT", {"transaction": "t"})
            self._end_transaction()
        else:
            self._send_new()

    def come_back(self, client: SteppedClient) -> None:
        """Connect again, and send again what was not confirmed."""
        self.client = client
        for sent, body in self._unconfirmed.items():
            sent.epoch = self._promises.epoch
            self._send(sent, body)

    def _send_new(self) -> None:
        random = self._random
        self._sends += 1
        persistent = self._numbered or random.random() < 0.7
        sent = self._promises.send(
            self._number, self._sends, random.choice("ab"), persistent=persistent, expires=random.random() < 0.05
        )
        self._send(sent, sent.name + b"x" * random.choice((0, 10, 200, 900)))

    def _send(self, sent: Sent, body: bytes) -> None:
        headers = {} if sent.persistent else {"persistent": "false"}
        if sent.expires:
            headers["expires"] = str(self._now_ms() + 2000)
        if self._numbered:
            headers |= {"producer-id": f"p{self._number}", "producer-sequence": str(sent.number)}
            self._unconfirmed[sent] = body
        if self._transaction is not None:
            self._transaction.append(sent)
            headers["transaction"] = "t"
        elif self._numbered or self._random.random() < 0.5:
            headers |= self._receipt(lambda: self._confirmed(sent))
        self._note(f"{self.name} sends {sent.name!r} to {sent.queue}, {len(body)} bytes, {headers}")
        self.client.send(sent.queue, body, headers)

    def _confirmed(self, sent: Sent) -> None:
        sent.confirmed = True
        self._unconfirmed.pop(sent, None)


class Consumer(Actor):
    """Takes from one queue.

    Args:
        queue: which.
        ack: how it acknowledges.
        prefetch: how many messages it may have.
        alone: whether nobody else consumes the queue now.
        gets_back: whether a message that it rejects comes again; otherwise it is a dead letter.

    Attributes:
        queue: as given.
        alone: whether nobody else consumes the queue as long as it does, and it gives nothing back; then it gets
            everything in order.
        rejected: what it has rejected, being alone, and what is therefore next.
    """

    def __init__(
        self, client: SteppedClient, promises: Promises, random: Random, note: Callable[[str], None], *,
        queue: str, ack: str, prefetch: int, alone: bool, gets_back: bool,
    ) -> None:  # fmt: skip
        super().__init__(client, promises, random, note)
        self.queue = queue
        self.alone = alone
        self.rejected: set[Sent] = set()
        self._gets_back = gets_back
        self._ack_mode = ack
        self._most = prefetch
        self._unsettled: dict[Sent, Frame] = {}
        self._held: dict[Sent, Frame] = {}
        self._acknowledged: list[Sent] = []
        self._last: dict[int, int] = {}
        self._note(f"{self.name} subscribes to {queue}, {ack}, prefetch {prefetch}")
        client.subscribe(queue, ack, headers={"activemq.prefetchSize": str(prefetch)})

    def listen(self) -> None:
        """Look at what has come: is it in order, and no more than may be in flight?"""
        super().listen()
        for frame in self.client.take("MESSAGE"):
            sent = self._promises.deliver(self.queue, frame)
            self._note(f"{self.name} gets {sent.name!r}")
            self.rejected.discard(sent)
            if self.rejected and "redelivered" not in frame.headers:
                raise Broken(f"{sent.name!r} came before {[one.name for one in self.rejected]}, which came back")
            if self.alone and self.queue != DEAD_LETTERS:  # letters come as messages fail, in no order of their senders
                if sent.number <= self._last.get(sent.producer, 0):
                    raise Broken(f"{sent.name!r} is out of order")
                self._last[sent.producer] = sent.number
            if self._ack_mode == "auto":
                sent.settled[self.queue] = self._promises.epoch
            else:
                self._unsettled[sent] = frame
        if len(self._unsettled) > self._most:
            raise Broken(f"{self.name} has more in flight than its prefetch allows")

    def act(self, *, rejects: bool) -> None:
        """Do something.

        Args:
            rejects: whether it may reject messages.
        """
        self.listen()
        choice = self._random.random()
        if self._transaction is None and choice < 0.1:
            self._transaction = []
            self.client.frame("BEGIN", {"transaction": "t"})
        elif self._transaction is not None and choice < 0.2:
            self._end()
        elif self._transaction is not None and choice < 0.25:
            self._abort()
        elif self._unsettled:
            self._settle(rejects=rejects and choice > 0.8)

    def settle_all(self) -> bool:
        """Acknowledge everything there is, and commit it.

        Returns:
            Whether there was anything.
        """
        self.listen()
        found = bool(self._unsettled) or self._transaction is not None
        while self._unsettled:
            self._settle(rejects=False)
        if self._transaction is not None:
            self._end()
        return found

    def _settle(self, *, rejects: bool) -> None:
        sent = self._random.choice(list(self._unsettled))
        frame, covered = self._unsettled[sent], self._covered(sent)
        transaction = {} if self._transaction is None else {"transaction": "t"}
        does = "rejects" if rejects else "acknowledges"
        self._note(f"{self.name} {does} {sent.name!r} {self._ack_mode} {transaction}")
        frames = {one: self._unsettled.pop(one) for one in covered}
        if transaction:
            self._held |= frames
        if rejects:
            if self.alone and self._gets_back and not transaction:
                self.rejected |= {one for one in covered if one.written[self.queue] == 1 and not one.expires}
            self.alone = False
            self.client.nack(frame, transaction)
            return
        if transaction:
            self._acknowledged += covered
            self.client.ack(frame, transaction)
            return
        self.client.ack(frame, self._receipt(lambda: self._confirmed(covered)) if self._random.random() < 0.5 else {})
        if not self.client.connection.paused and not self.is_gone:
            for one in covered:
                one.settled[self.queue] = self._promises.epoch

    def _covered(self, sent: Sent) -> list[Sent]:
        if self._ack_mode != "client":
            return [sent]
        names = list(self._unsettled)
        return names[: names.index(sent) + 1]

    def _end(self) -> None:
        settled, self._acknowledged, self._held = self._acknowledged, [], {}
        self.alone = False  # a transaction that fails brings earlier messages back
        self._commit(lambda: self._confirmed(settled))
        if self._random.random() < 0.2:
            self.leave(vanish=True)

    def _abort(self) -> None:
        self._note(f"{self.name} aborts")
        self.client.frame("ABORT", {"transaction": "t"})
        self._end_transaction()
        self._unsettled = self._held | self._unsettled
        self._acknowledged, self._held = [], {}
        self._most = max(self._most, len(self._unsettled))

    def _confirmed(self, settled: list[Sent]) -> None:
        for sent in settled:
            sent.gone.add(self.queue)
