"""A STOMP client that notes what it sends and what it gets. It does one thing at a time, so that nothing is unclear."""

from collections.abc import Callable, Sequence
from functools import partial

from benchmarks.stomp_client import Message
from quire.cli.perf.load import ANSWER_LIMIT, Link, Target
from quire.errors import BrokerUnreachable
from tests.spark.ground_truth.truth import Note, Truths


class Witness:
    """A connection with at most one subscription."""

    def __init__(self, target: Target, truths: Truths, name: str, client_id: str = "") -> None:
        self._truths = truths  # where it notes what it sees
        self._name = name  # no other client has the same
        self._link = Link(target, f"client-id:{client_id}\n" if client_id else "")
        self._receipts = 0
        self._awaited: dict[str, Callable[[], None]] = {}
        self.destination = ""
        self.prefetch = 0
        self.held: list[Message] = []  # what it has and has not settled

    def subscribe(self, destination: str, prefetch: int, headers: str = "") -> None:
        """Consume a destination, written ``queue://orders``; each line of more headers has its newline."""
        self.destination, self.prefetch = destination, prefetch
        self._ask(
            f"SUBSCRIBE\nid:0\ndestination:{_path(destination)}\nack:client-individual\n"
            f"activemq.prefetchSize:{prefetch}\n{headers}"
        )
        self.wait()

    def send(self, destination: str, keys: list[str], headers: str = "") -> None:
        """Ask the broker to store messages; ``wait`` waits until it has."""
        truth = self._truths[destination]
        truth.send(keys)
        for key in keys:
            self._send(destination, key, headers, partial(truth.sent.__setitem__, key, True))

    def transact(self, destination: str, keys: list[str], *, commit: bool) -> None:
        """Send messages in a transaction, and commit or abort it. ``wait`` waits until that is done."""
        truth, name = self._truths[destination], f"t{self._receipts}"
        self._link.send(f"BEGIN\ntransaction:{name}\n\n\0".encode())
        if commit:
            truth.send(keys)
        for key in keys:
            self._send(destination, key, f"transaction:{name}\n", None)
        done = partial(truth.sent.update, dict.fromkeys(keys, True)) if commit else None
        self._ask(f"{'COMMIT' if commit else 'ABORT'}\ntransaction:{name}\n", done)

    def _send(self, destination: str, key: str, headers: str, done: Callable[[], None] | None) -> None:
        size = len(key.encode())
        head = f"SEND\ndestination:{_path(destination)}\npersistent:true\ncontent-length:{size}\n{headers}"
        if done is None:
            self._link.send(f"{head}\n{key}\0".encode())
        else:
            self._ask(head, done, key)

    def acknowledge(self, messages: Sequence[Message]) -> None:
        """Ask the broker to be done with messages; ``wait`` waits until it is."""
        truth = self._truths[self.destination]
        for message in messages:
            key = key_of(message)
            truth.acknowledged[key] = False
            self.held.remove(message)
            self._ask(f"ACK\nid:{message.header('ack')}\n", partial(truth.acknowledged.__setitem__, key, True))

    def reject(self, messages: Sequence[Message]) -> None:
        """Tell the broker that messages cannot be processed; ``wait`` waits until it knows."""
        for message in messages:
            self.held.remove(message)
            self._came_back(message)
            self._ask(f"NACK\nid:{message.header('ack')}\n")

    def take(self, count: int) -> list[Message]:
        while len(self.held) < count:
            self._receive(ANSWER_LIMIT)
        return self.held[:count]

    def look(self) -> None:
        self._receipts += 1
        name = f"look{self._receipts}"
        self._awaited[name] = lambda: None
        self._link.send(f"BEGIN\ntransaction:{name}\nreceipt:{name}\n\n\0ABORT\ntransaction:{name}\n\n\0".encode())
        self.wait()

    def wait(self) -> None:
        while self._awaited:
            self._receive(ANSWER_LIMIT)

    def leave(self) -> None:
        """End the subscription and the connection in order: what it holds comes back."""
        if self.destination:
            self._ask("UNSUBSCRIBE\nid:0\n")
            self.wait()
        self._link.disconnect()
        self.vanish()

    def vanish(self) -> None:
        """End the connection without a word. What it holds comes back."""
        for message in self.held:
            self._came_back(message)
        self._link.close()

    def killed(self) -> None:
        """The broker was killed: take what it had sent before."""
        try:
            while True:
                self._receive(1.0)
        except BrokerUnreachable:
            self._link.close()
        if self.destination:
            self._truths[self.destination].unseen += max(self.prefetch - len(self.held), 0)

    def _came_back(self, message: Message) -> None:
        self._truths[self.destination].returns.append(Note(self._truths.next(), key_of(message)))

    def _ask(self, head: str, done: Callable[[], None] | None = None, body: str = "") -> None:
        """Send a frame; when its receipt comes, what was seen before it is in the ledger."""
        self._receipts += 1
        name, asked, truths = str(self._receipts), self._truths.now, self._truths

        def confirmed() -> None:
            if done is not None:
                truths.confirmed(asked)
                done()

        self._awaited[name] = confirmed
        self._link.send(f"{head}receipt:{name}\n\n{body}\0".encode())

    def _receive(self, seconds: float) -> None:
        data = self._link.receive(seconds)
        if data is None:
            raise BrokerUnreachable(f"the broker sent nothing for {seconds:g} s")
        for frame in data.split(b"\0"):
            head, _, body = frame.lstrip(b"\n").partition(b"\n\n")
            if head.startswith(b"RECEIPT\n"):
                self._awaited.pop(Message(head, b"").header("receipt-id"))()
            elif head.startswith(b"MESSAGE\n"):
                self._take(Message(head, body))

    def _take(self, message: Message) -> None:
        truths = self._truths
        truth = truths[self.destination]
        truth.deliver(truths.next(), key_of(message), self._name, flagged=message.is_redelivered)
        self.held.append(message)


def key_of(message: Message) -> str:
    return message.body.decode()


def _path(destination: str) -> str:
    kind, _, name = destination.partition("://")
    return f"/{kind}/{name}"
