"""The duplicate check: which messages of a producer were received before, in bounded memory.

A message is known by its destination, its producer and the producer's sequence number. For each producer a sliding
window of bits says which of its latest numbers were received. Producers that were silent longest are forgotten first,
and so are destinations. What is forgotten, or below its window, is told as ``unknown``: the audit calls nothing a
duplicate that it has not seen, and nothing new that it may have seen.

A message that was finished on a connection does not reach the application again (``ConnectionAudit``).
"""

from enum import StrEnum

from quire import logs
from quire.errors import InvalidArgument
from quire.protocols.openwire.commands import Message

WINDOW = 2048
"""How many of a producer's latest sequence numbers are remembered (ActiveMQ's ``auditDepth``)."""

PRODUCERS = 64
"""How many producers of one destination are remembered (ActiveMQ's ``auditMaximumProducerNumber``)."""

DESTINATIONS = 1000
"""How many destinations are remembered, as in ActiveMQ."""


class Verdict(StrEnum):
    """What the audit knows of a message.

    ``unknown`` is a message that the audit can say nothing about: it may have been received and forgotten. The broker's
    redelivered flag, or the application, has to decide.
    """

    NEW = "new"
    DUPLICATE = "duplicate"
    UNKNOWN = "unknown"


class MessageAudit:
    """Remembers which messages were received.

    At the defaults it takes about 500 bytes a producer, and so 32 MB at the very most.

    Args:
        window: how many of a producer's latest sequence numbers are remembered; at least 1.
        producers: how many producers of a destination; at least 1.
        destinations: how many destinations; at least 1.

    Raises:
        InvalidArgument: one of them is less than 1.
    """

    def __init__(self, window: int = WINDOW, producers: int = PRODUCERS, destinations: int = DESTINATIONS) -> None:
        for name, value in (("window", window), ("producers", producers), ("destinations", destinations)):
            if value < 1:
                raise InvalidArgument(f"{name} is {value}: at least 1", argument=name)
        self._window = window
        self._most_producers = producers
        self._most_destinations = destinations
        self._destinations: dict[str, _Producers] = {}
        self._forgotten = -1

    def record(self, destination: str, producer: str, sequence: int) -> Verdict:
        """Remember a message as received.

        Args:
            destination: where it was sent to.
            producer: who sent it.
            sequence: its number, counted by the producer; not negative.

        Returns:
            What was known of it before. A message below its producer's window stays unknown.

        Raises:
            InvalidArgument: the sequence is negative.
        """
        if sequence < 0:
            raise InvalidArgument(f"sequence is {sequence}: 0 or more", argument="sequence")
        producers = self._destinations.pop(destination, None)
        if producers is None:
            if len(self._destinations) >= self._most_destinations:
                oldest = self._destinations.pop(next(iter(self._destinations)))
                self._forgotten = max(self._forgotten, oldest.highest())
            producers = _Producers(self._window, self._most_producers, self._forgotten)
        self._destinations[destination] = producers
        return producers.used(producer, sequence).record(sequence)

    def has(self, destination: str, producer: str, sequence: int) -> bool:
        """Whether a message was received; False too if that is not known any more. It changes nothing."""
        producers = self._destinations.get(destination)
        window = None if producers is None else producers.windows.get(producer)
        return window is not None and window.has(sequence)


class _Producers:
    """The producers of one destination, the one that was silent longest first.

    Attributes:
        windows: by producer.
        forgotten: no sequence above it was ever received of a producer that is not there.
    """

    __slots__ = ("_most", "_size", "forgotten", "windows")

    def __init__(self, size: int, most: int, forgotten: int) -> None:
        self._size = size
        self._most = most
        self.forgotten = forgotten
        self.windows: dict[str, _Window] = {}

    def used(self, producer: str, sequence: int) -> "_Window":
        """The window of a producer, made for a sequence if there is none; now the producer that was heard last."""
        window = self.windows.pop(producer, None)
        if window is None:
            if len(self.windows) >= self._most:
                oldest = self.windows.pop(next(iter(self.windows)))
                self.forgotten = max(self.forgotten, oldest.highest)
            window = _Window(self._size, sequence, self.forgotten)
        self.windows[producer] = window
        return window

    def highest(self) -> int:
        return max(self.forgotten, *[window.highest for window in self.windows.values()])


class _Window:
    """Which of the latest sequences of one producer were received."""

    __slots__ = ("_base", "_bits", "_forgotten", "_size")

    def __init__(self, size: int, sequence: int, forgotten: int) -> None:
        self._size = size
        self._base = max(0, sequence - size + 1)
        self._bits = 0
        self._forgotten = forgotten

    @property
    def highest(self) -> int:
        """No sequence above it was received."""
        return self._base + self._bits.bit_length() - 1

    def record(self, sequence: int) -> Verdict:
        """Set a sequence's bit. One above the window moves it up; what that costs does not grow with the jump."""
        offset = sequence - self._base
        if offset < 0:
            return Verdict.UNKNOWN
        if offset >= self._size:
            distance = offset - self._size + 1
            self._bits = self._bits >> distance if distance < self._size else 0
            self._base += distance
            offset = self._size - 1
        bit = 1 << offset
        if self._bits & bit:
            return Verdict.DUPLICATE
        self._bits |= bit
        return Verdict.NEW if sequence > self._forgotten else Verdict.UNKNOWN

    def has(self, sequence: int) -> bool:
        return 0 <= (offset := sequence - self._base) < self._size and bool(self._bits >> offset & 1)


class ConnectionAudit:
    """Knows which messages the application has finished: by queue, and by consumer for topics.

    A message that it has forgotten is no duplicate: only what it has certainly seen is one.
    """

    def __init__(self, depth: int, producers: int, enabled: bool = True) -> None:
        self._audit = MessageAudit(depth, producers) if enabled else None
        self._is_told = False
        self.suppressed = 0

    def finished(self, place: str, message: Message) -> None:
        """The application has finished a message of a queue, or of the consumer of a topic (``place``)."""
        if self._audit is not None and (known := _known(message)) is not None:
            self._audit.record(place, *known)

    def is_duplicate(self, place: str, message: Message) -> bool:
        """Whether a message was finished before; that is counted, and told once for each lost connection."""
        if self._audit is None or (known := _known(message)) is None or not self._audit.has(place, *known):
            return False
        self.suppressed += 1
        if not self._is_told:
            self._is_told = True
            text = f"{message.message_id} of {place} came again, and was acknowledged again: it was finished, and its "
            logs.event("client.duplicate", text + "acknowledgement was lost; others may follow", destination=place)
        return True

    def interrupted(self) -> None:
        """The connection is lost, and acknowledgements with it."""
        self._is_told = False


def _known(message: Message) -> tuple[str, int] | None:
    """What a message is known by; None if its id may be that of another one."""
    message_id = message.message_id
    if message_id is None or message_id.producer_id is None or message_id.producer_sequence_id < 0:
        return None
    producer, sequence, text = message_id.producer_id, message_id.producer_sequence_id, message_id.text_view
    if text is not None and not text.endswith(f"-{sequence}"):  # the number was not in it, and is that of many
        return None
    return f"{producer.connection_id}:{producer.session_id}:{producer.value}", sequence
