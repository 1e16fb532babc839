"""What ACK and NACK frames are about, by the ids of their version.

In 1.2 the ``ack`` header of a MESSAGE is the message's sequence; ``-`` and the subscription's number follow from the
second subscription of a connection on. In 1.0 and 1.1 messages are acknowledged by message id. The frames that stand
for no message (the end of a browse, a pull in vain) have ``0`` for both; acknowledging them does nothing.
"""

from quire.broker.core.subscription import Subscription
from quire.errors import UnknownMessage
from quire.message import escape, unescape
from quire.protocols.stomp.frames import Head
from quire.protocols.stomp.versions import Version
from quire.server.stomp.common_consumer import unknown_message
from quire.server.stomp.consumer_table import ConsumerTable
from quire.server.stomp.member_acknowledgements import MemberAcknowledgements
from quire.server.stomp.message_frames import NO_MESSAGE
from quire.server.stomp.stomp_consumer import Covered
from quire.units import MAX_DIGITS, parse_number


class Acknowledgements:
    """The acknowledgements of one connection."""

    def __init__(self, table: ConsumerTable) -> None:
        self._table = table
        self._of_members = MemberAcknowledgements(table)

    # Runs.

    def acknowledge_run(self, ids: list[bytes]) -> None:
        """A run of ACK frames: nearly all there are. An id that is unknown is an error when the others are done."""
        if b"." in ids[0]:
            ids = self._of_members.acknowledge_run(ids)
        subscriptions = self._table.subscriptions
        only = subscriptions.get(0) if len(subscriptions) == 1 else None
        if only is None or not self._table.consumers[0].takes_runs:
            self._acknowledge_each(ids)
            return
        try:
            sequences = [int(id) for id in ids]
        except ValueError:
            self._acknowledge_each(ids)
            return
        if left := only.acknowledge(sequences):
            self._acknowledge_each([b"%d" % sequence for sequence in left])

    def _acknowledge_each(self, ids: list[bytes]) -> None:
        """Acknowledge some of several subscriptions; the first that is unknown is told when all others are done."""
        unknown: UnknownMessage | None = None
        for id in self._acknowledge_at_once(ids):
            try:
                for consumer, subscription, sequences in self._by_ack_id(unescape(id).decode(), acknowledges=True):
                    consumer.acknowledge(subscription, sequences)
            except UnknownMessage as error:
                unknown = unknown or error
        if unknown is not None:
            raise unknown

    def _acknowledge_at_once(self, ids: list[bytes]) -> list[bytes]:
        """Acknowledge the messages of each subscription at once; the ids that have to be looked at one by one."""
        runs: dict[bytes, tuple[Subscription | None, list[int]]] = {}
        others: list[bytes] = []
        for id in ids:
            sequence, _, number = id.partition(b"-")
            run = runs.get(number)
            if run is None:
                run = runs[number] = self._numbered(number or b"0"), []
            if run[0] is None or not (sequence.isdigit() and len(sequence) < MAX_DIGITS):
                others.append(id)
            else:
                run[1].append(int(sequence))
        for subscription, sequences in runs.values():
            if subscription is not None and sequences:
                end = b"-%d" % subscription.number if subscription.number else b""
                others += [b"%d%b" % (sequence, end) for sequence in subscription.acknowledge(sequences)]
        return others

    def _numbered(self, text: bytes) -> Subscription | None:
        """The subscription of a number, if it takes runs."""
        number = int(text) if text.isdigit() and len(text) < MAX_DIGITS else -1
        consumer = self._table.consumers.get(number)
        return self._table.subscriptions[number] if consumer is not None and consumer.takes_runs else None

    # Single frames.

    def find(self, head: Head, *, acknowledges: bool) -> Covered:
        """What an ACK or NACK frame is about; ``acknowledges`` if it is an ACK outside of transactions."""
        headers = head.headers
        if self._table.session.version is Version.V1_2:
            return self._by_ack_id(headers["id"], acknowledges=acknowledges)
        id = headers["message-id"]
        if id == NO_MESSAGE:
            return []
        return self._by_message_id(id, headers.get("subscription"), acknowledges=acknowledges)

    def _by_message_id(self, id: str, wanted: str | None, *, acknowledges: bool) -> Covered:
        known = self._table.message_ids.find(id, wanted)
        if not known:
            self._of_members.enter_held()
            known = self._table.message_ids.find(id, wanted)
        if not known:
            if self._of_members.is_stale(wanted):
                return []
            raise unknown_message(id)
        given = next((given for given in known if given[2] in given[1].in_flight), known[-1])
        consumer, subscription, sequence = given
        return consumer.covered(subscription, sequence, id, acknowledges=acknowledges)

    def _by_ack_id(self, id: str, *, acknowledges: bool) -> Covered:
        if id == NO_MESSAGE:
            return []
        if (covered := self._of_members.covered(escape(id.encode()), acknowledges=acknowledges)) is not None:
            return covered
        first, _, second = id.partition("-")
        sequence, number = parse_number(first), parse_number(second or "0")
        consumer = None if number is None else self._table.consumers.get(number)
        if sequence is None or number is None or consumer is None or not consumer.names_by_sequence:
            raise unknown_message(id)
        return consumer.covered(self._table.subscriptions[number], sequence, id, acknowledges=acknowledges)
