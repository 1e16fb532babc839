"""The expiry sweep: removes what has expired, through the store's index of expirations. No cursor moves."""

import logging
from typing import TYPE_CHECKING

from quire.broker.dead_letter import send_dead_letters
from quire.errors import StoreCorrupt, StoreError
from quire.logs import event
from quire.message import Message

if TYPE_CHECKING:
    from quire.broker.broker import Broker

STEP = 1000
"""How many expired messages one sweep removes."""


class Expiry:
    """Sweeps all queues and topics every ``queue.expiry_interval``.

    Args:
        broker: the broker.
    """

    def __init__(self, broker: "Broker") -> None:
        self._broker = broker
        self._failing = False

    def start(self) -> None:
        """Sweep from now on."""
        self._broker.scheduler.call_later(self._broker.settings.broker.expiry_interval, self._sweep)

    def _sweep(self) -> None:
        self.start()
        try:
            self._remove_expired()
            self._failing = False
        except StoreError as error:
            if not self._failing:
                text = f"expired messages wait until the store can be read: {error}"
                event("expiry.failed", text, logging.WARNING, code=error.code)
            self._failing = True

    def _remove_expired(self) -> None:
        broker = self._broker
        now = broker.clock.now_ms()
        if not broker.store.expired(now, 1):  # as nearly always: then no destination is looked at
            return
        queues = {lane.id: queue for queue in broker.queues.values() for lane in queue.lanes}
        topics = {topic.lane: topic for topic in broker.destinations.topics.values()}
        # Those in flight or hidden stay in the index until they are settled; they must not hide the others.
        limit = STEP + sum([source.in_flight for source in (*broker.queues.values(), *broker.durables)])
        limit += sum([len(lane.cursor.excluded) for queue in queues.values() for lane in queue.lanes])
        found: dict[int, list[int]] = {}
        for lane, sequence in broker.store.expired(now, limit):
            found.setdefault(lane, []).append(sequence)
        for lane, sequences in found.items():
            if queue := queues.get(lane):
                messages = self._load_sound(lane, queue.take_out(sequences))
                queue.removed(messages)
                send_dead_letters(broker, queue, messages, "expired", "expired before it could be delivered")
            elif topic := topics.get(lane):
                topic.expire(sequences, self._load_sound)

    def _load_sound(self, lane: int, sequences: list[int]) -> list[Message]:
        """Read messages; a damaged one is left out and stays where it is."""
        while sequences:
            try:
                return self._broker.store.load(lane, sequences)
            except StoreCorrupt as damage:
                sequences = [sequence for sequence in sequences if sequence != damage.data["sequence"]]
        return []
