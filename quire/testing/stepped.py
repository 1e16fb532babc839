"""A broker that moves only when a test says so: its time, its turns and its commits are steps of the test.

``SteppedBroker`` is the real core with real STOMP sessions, on any store. There is no thread, no socket and no event
loop; work of threads is done at once (``Inline``). So a test decides what is under way when something else happens, and
the same steps give the same history::

    stepped = SteppedBroker()
    producer = stepped.connect()
    producer.send("orders", b"one", {"receipt": "r"})
    stepped.turn()                      # the commit is under way
    stepped.commit(StoreFull("full"))   # and fails
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any, NamedTuple, TypeVar

from quire.broker.broker import Broker
from quire.broker.core.core import Announcement, Commit, Tracer
from quire.broker.dead_letter import dead_letter_names
from quire.broker.queues.queue import Queue
from quire.broker.turns import Turns
from quire.clock import ManualClock
from quire.cursors.spool import Spool
from quire.errors import QuireError
from quire.protocols.stomp.decoder import Decoder, Limits
from quire.protocols.stomp.frames import SERVER_COMMANDS, Version, encode_frame
from quire.scheduler import Scheduler
from quire.security import Security
from quire.server.connection import ConnectedDoor, MakesSession
from quire.server.listener import Accepted, Admission
from quire.server.stomp.stomp_door import StompDoor
from quire.sessions.rights import Gate
from quire.sessions.session import LocalSession
from quire.settings import LimitSettings, Settings
from quire.store.base import Store, WriteBatch
from quire.store.memory import MemoryStore
from quire.testing.faults import StoreOnTop

T = TypeVar("T")


class Inline:
    """Does all work at once (``quire.security.principal.Background``)."""

    def run(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> bool:
        """Do it, and call with its result or with the exception that it raised."""
        try:
            result: Any = work()
        except Exception as error:
            result = error
        done(result)
        return True


MAX_STEPS = 100_000
"""A broker that has not come to rest after so many steps never will."""


class SteppedWriter:
    """A writer that keeps its batch until the test says what becomes of it."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.batch: WriteBatch | None = None  # the batch under way; None while there is none

    def submit(self, batch: WriteBatch) -> None:
        """Take a batch; the one before must be done."""
        if self.batch is not None:
            raise RuntimeError("a batch was submitted before the one before it was done")
        self.batch = batch

    def apply(self) -> WriteBatch:
        """Put the batch into the store without an announcement: a crash after the commit. Returns the batch."""
        batch = self.drop()
        self._store.apply(batch)
        return batch

    def drop(self) -> WriteBatch:
        """Forget the batch: a crash before its commit. Returns the batch."""
        batch, self.batch = self.batch, None
        if batch is None:
            raise RuntimeError("no batch is under way")
        return batch


class RecordingConnection:
    """A connection that keeps what was written to it."""

    def __init__(self, peer: str) -> None:
        self.peer = peer
        self.is_writable = True  # set it and call the session's ``output_drained``, as a transport does
        self.output = bytearray()
        self.writes = 0
        self.closed = False
        self.paused: set[str] = set()  # the reasons not to read
        self.unread = 0
        self.has_ended: bool | None = False  # whether the client has gone, and the broker has not been told
        self.accepted = Accepted(Admission(LimitSettings()), "stomp", "127.0.0.1")

    def write(self, data: bytes) -> None:
        """Keep bytes; after ``close`` they are dropped, as a transport does."""
        if not self.closed:
            self.output += data
            self.writes += 1

    def close(self) -> None:
        """Close."""
        self.closed = True

    def abort(self) -> None:
        """Close at once."""
        self.closed = True

    def pause_reading(self, reason: str) -> None:
        """Read no more."""
        self.paused.add(reason)

    def resume_reading(self, reason: str) -> None:
        """A reason not to read is gone."""
        self.paused.discard(reason)


class Frame(NamedTuple):
    """A frame that the broker sent."""

    command: str  # ``MESSAGE`` say
    headers: dict[str, str]  # by name, unescaped
    body: bytes  # its body


class SteppedClient:
    """A STOMP client of a stepped broker, under the name of its connection."""

    def __init__(self, stepped: "SteppedBroker", name: str) -> None:
        self.connection = RecordingConnection(name)  # the transport's half
        self.session = stepped.new_session(self.connection)  # the broker's half
        stepped.sessions[self] = self.session
        self.version = Version.V1_2  # the version it speaks, once it has connected
        self.beats = 0  # how many line ends came between frames
        self._decoder = Decoder(Limits(), SERVER_COMMANDS)
        self._frames: list[Frame] = []
        self._unread = b""

    def feed(self, data: bytes) -> None:
        """Send raw bytes. They wait while the broker does not read, and go nowhere once it has closed."""
        self._unread += data
        self.pump()

    def pump(self) -> bool:
        """Let the broker read what waits, if it does read; returns whether there was something."""
        if self.connection.closed:
            self._unread = b""
        if not self._unread or self.connection.paused:
            return False
        data, self._unread = self._unread, b""
        self.session.receive(data)
        return True

    def frame(self, command: str, headers: Mapping[str, str] | None = None, body: bytes = b"") -> None:
        """Send a frame."""
        self.feed(encode_frame(command.encode(), headers or {}, body, self.version))

    def send(self, queue: str, body: bytes, headers: Mapping[str, str] | None = None) -> None:
        """Send a SEND frame."""
        self.frame("SEND", {"destination": f"/queue/{queue}", **(headers or {})}, body)

    def subscribe(
        self, queue: str, ack: str = "client-individual", id: str = "0", headers: Mapping[str, str] | None = None
    ) -> None:
        """Send a SUBSCRIBE frame."""
        self.frame("SUBSCRIBE", {"destination": f"/queue/{queue}", "id": id, "ack": ack, **(headers or {})})

    def ack(self, message: Frame, headers: Mapping[str, str] | None = None) -> None:
        """Acknowledge a message in the way of the version."""
        self.frame("ACK", {**self._ack_headers(message), **(headers or {})})

    def nack(self, message: Frame, headers: Mapping[str, str] | None = None) -> None:
        """Reject a message in the way of the version."""
        self.frame("NACK", {**self._ack_headers(message), **(headers or {})})

    def vanish(self) -> None:
        """Lose the connection without a word."""
        self.connection.closed = True
        self.session.closed()

    def take(self, command: str) -> list[Frame]:
        """The frames of a command that have come since they were taken last; others wait for their own call."""
        output = bytes(self.connection.output)
        self.connection.output.clear()
        self.beats += len(output) if not output.strip(b"\n") else 0
        self._decoder.receive(output)
        while events := self._decoder.next_events():
            self._frames += [Frame(head.command.decode(), head.headers, bytes(body)) for head, _, body in events]
        taken = [frame for frame in self._frames if frame.command == command]
        self._frames = [frame for frame in self._frames if frame.command != command]
        return taken

    def messages(self) -> list[bytes]:
        """The bodies of the messages that have come since the last call."""
        return [frame.body for frame in self.take("MESSAGE")]

    def receipts(self) -> list[str]:
        """The receipts that have come since the last call."""
        return [frame.headers["receipt-id"] for frame in self.take("RECEIPT")]

    def errors(self) -> list[str]:
        """The codes of the errors that have come since the last call."""
        return [frame.headers["code"] for frame in self.take("ERROR")]

    def _ack_headers(self, message: Frame) -> dict[str, str]:
        if self.version is Version.V1_2:
            return {"id": message.headers["ack"]}
        names = ("message-id", "subscription")
        return {name: message.headers[name] for name in names if name in message.headers}


class _NoReads:
    """Refuses reads of the stores while the broker announces a commit."""

    def __init__(self) -> None:
        self._are_refused = False

    @contextmanager
    def now(self) -> Iterator[None]:
        """While it does so."""
        self._are_refused = True
        try:
            yield
        finally:
            self._are_refused = False

    def check(self) -> None:
        """Refuse a read of a store now: it may fail, and what follows from a commit may not."""
        if self._are_refused:
            raise AssertionError("a store is read while a commit is announced")


class _StrictTurns(Turns):
    """Turns that cannot read the stores while they announce what has become of a commit."""

    no_reads: _NoReads

    def _complete(self, commit: Commit, announcement: Announcement) -> None:
        with self.no_reads.now():
            super()._complete(commit, announcement)

    def _fail(self, commit: Commit, error: QuireError, announcement: Announcement) -> None:
        with self.no_reads.now():
            super()._fail(commit, error, announcement)


class _StrictBroker(Broker):
    """A broker with strict turns."""

    def __init__(self, no_reads: _NoReads, *arguments: Any) -> None:
        self._no_reads = no_reads
        super().__init__(*arguments)

    def _turns(self, call_later: Callable[[float], None] | None) -> Turns:
        turns = _StrictTurns(self.core, self.ledger, self.producers, self.failure, self.disks, call_later)
        turns.no_reads = self._no_reads
        return turns


class SteppedBroker:
    """A broker that moves a step at a time. What follows from a commit needs no read: one then is an error of its own.

    Args:
        settings: its settings; the defaults if None.
        store: its store, open; a new one in memory if None.
        clock: the time; a new one if None.
        spool_store: what the spool is kept in, open and empty; a new one in memory if None.
        tracer: makes spans of traced messages; None for no tracing.

    Attributes:
        broker: the core.
        clock: the time; ``advance`` moves it and makes the calls that are due.
        store: the store.
        spool: the spool, in memory.
        writer: what becomes of commits.
        clients: all clients, in the order they came.
        security: who is who, without threads.
        gate: what doors share.
        session_of: makes the session of a client that has logged in.
        sessions: the sessions that are looked at after a change of rules.
    """

    def __init__(
        self, settings: Settings | None = None, store: Store | None = None, clock: ManualClock | None = None,
        spool_store: Store | None = None, tracer: Tracer | None = None,
    ) -> None:  # fmt: skip
        self.settings = settings or Settings()
        self.store = store or MemoryStore()
        self.clock = clock or ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.clients: list[SteppedClient] = []
        if spool_store is None:
            spool_store = MemoryStore()
            spool_store.open()
        if store is None:
            self.store.open()
        self._turn_wanted = False
        no_reads = _NoReads()
        self.spool = Spool(StoreOnTop(spool_store, no_reads.check), self.settings.spool.limit)
        self.broker: Broker = _StrictBroker(
            no_reads, self.settings, StoreOnTop(self.store, no_reads.check), self.spool, self.clock,
            self.scheduler, self._want_turn, None, tracer,
        )  # fmt: skip
        self.writer = self.broker.turns.writer = SteppedWriter(self.store)
        self.session_of: MakesSession = partial(LocalSession, self.broker)
        self.sessions: dict[Any, ConnectedDoor] = {}
        dead_letters = dead_letter_names(self.settings.policies)
        inline = Inline()
        self.security = Security(self.settings, self.clock, self.scheduler, inline, inline, inline, dead_letters)
        self.gate = Gate(self.broker, self.security, self.sessions.values)

    def _want_turn(self) -> None:
        self._turn_wanted = True

    # Clients.

    def new_session(self, connection: RecordingConnection) -> StompDoor:
        """The broker's half of a new client."""
        return StompDoor(self.broker, self.gate, connection, self.session_of)

    def connect(self, version: str = "1.2", headers: Mapping[str, str] | None = None) -> SteppedClient:
        """A client that has connected, with a version and further headers of its CONNECT frame."""
        client = SteppedClient(self, f"client-{len(self.clients) + 1}")
        self.clients.append(client)
        client.frame("CONNECT", {"accept-version": version, "host": "/", **(headers or {})})
        client.version = client.session.version
        client.session.flush()
        return client

    def queue(self, name: str) -> Queue:
        """A queue of the broker, by name."""
        return self.broker.queue(name)

    # Steps.

    @property
    def is_turn_wanted(self) -> bool:
        """Whether the broker has asked for a turn."""
        return self._turn_wanted

    def turn(self) -> None:
        """One turn, if one is wanted. Clients that wait to be read are read first."""
        for client in self.clients:
            client.pump()
        if self._turn_wanted:
            self._turn_wanted = False
            self.broker.turns.turn()

    def commit(self, error: QuireError | None = None) -> None:
        """End the commit under way, with an error if it fails."""
        batch = self.writer.apply() if error is None else self.writer.drop()
        self.broker.turns.committed(batch, error)

    def run_turns(self) -> None:
        """Turns until none is wanted; the commit under way stays so."""
        self._run(commits=False)

    def run(self) -> None:
        """Turns and commits until there is nothing left to do at this time; a ``RuntimeError`` if there always is."""
        self._run(commits=True)

    def _run(self, *, commits: bool) -> None:
        for _ in range(MAX_STEPS):
            if not self.step(commits=commits):
                return
        raise RuntimeError(f"the broker is still busy after {MAX_STEPS} steps")

    def step(self, *, commits: bool = True) -> bool:
        """One turn, or the end of the commit under way; whether there was something to do."""
        if any([client.pump() for client in self.clients]) or self._turn_wanted:
            self.turn()
        elif commits and self.writer.batch is not None:
            self.commit()
        else:
            return False
        return True

    def advance(self, seconds: float) -> None:
        """Let time go by, and make the calls that are due then."""
        self.clock.advance(seconds)
        self.scheduler.run_due()

    def reopen(self, settings: Settings | None = None) -> "SteppedBroker":
        """Crash, and start a new broker on the same store; ``stop`` first for a clean end."""
        return SteppedBroker(settings or self.settings, self.store, self.clock)

    def stop(self, error: QuireError) -> None:
        """Stop cleanly, as the service does: clients get the error, queues store that nothing is in flight."""
        self.run()
        for client in self.clients:
            client.session.stop(error)
        self.broker.stop()
        self.run()
