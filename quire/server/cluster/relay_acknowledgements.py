"""ACK and NACK frames of a STOMP client in a cluster.

The id in the ``ack`` header of a message of another shard begins with that shard: ``s3~17-0``. The owner puts this
before its own id, and it is taken off before the acknowledgement is passed on to it.
"""

from quire.message import escape, unescape
from quire.protocols.stomp.frames import Head
from quire.protocols.stomp.versions import Version
from quire.server.cluster.ack_prefix import ack_prefix
from quire.server.cluster.relay_subscriptions import RelaySubscriptions
from quire.server.cluster.relay_transactions import HERE, RelayTransactions
from quire.server.cluster.stomp_relay import Outcome, StompRelay
from quire.server.stomp.acknowledgements import Acknowledgements
from quire.server.stomp.consumer_table import ConsumerTable
from quire.server.stomp.member_acknowledgements import read_ack_id

_FIRST = 115  # s


class RelayAcknowledgements(Acknowledgements):
    """The acknowledgements of one client."""

    def __init__(
        self, table: ConsumerTable, relay: StompRelay, subscriptions: RelaySubscriptions,
        transactions: RelayTransactions,
    ) -> None:  # fmt: skip
        super().__init__(table)
        self._relay = relay
        self._subscriptions = subscriptions
        self._transactions_of = transactions

    def acknowledge_run(self, ids: list[bytes]) -> None:
        """A run of ACK frames: those of other shards are passed on."""
        if self._relay.shards or ids[0][0] == _FIRST:
            ids = self._pass_on(ids)
        if ids:
            super().acknowledge_run(ids)

    def _pass_on(self, ids: list[bytes]) -> list[bytes]:
        """Pass on what other shards have given; the ids of the own one."""
        own: list[bytes] = []
        runs: dict[int, list[bytes]] = {}
        is_cumulative = self._subscriptions.is_cumulative
        for id in ids:
            shard, rest = self._split(id)
            if shard is None:
                shard = self._shard_of_member(rest)
            if shard is None:
                own.append(rest)
            elif is_cumulative:
                for at, last in self._subscriptions.covered(id, None, shard):
                    runs.setdefault(at, []).append(self._split(last)[1])
            else:
                runs.setdefault(shard, []).append(rest)
        for shard, passed in runs.items():
            run = b"ACK\nid:" + b"\n\n\0ACK\nid:".join(passed) + b"\n\n\0"
            self._relay.shard(shard).connection.write(run)
        return own

    def take(self, head: Head, receipt: bytes | None) -> Outcome:
        """An ACK or NACK frame that is passed on if it is about another shard."""
        if self._relay.version is Version.V1_2:
            header, id = "id", escape(head.headers["id"].encode())
            shard, rest = self._split(id)
            if shard is None:
                shard = self._shard_of_member(rest)
        else:
            header, id = "message-id", head.headers["message-id"].encode()
            id = id if self._relay.version is Version.V1_0 else escape(id)  # as it stands in frames
            shard = self._shard_of_message(head, id)
        if shard is None:
            self._join(head, HERE)
            return Outcome.OWN
        if not self._relay.has_room(self._relay.shards):  # first: what is covered is asked only once
            return Outcome.WAITS
        covered = self._subscriptions.covered(id, head.headers.get("subscription"), shard)
        for at, _ in covered:
            self._join(head, at)
        changes: dict[int, dict[str, str | None]] = {}
        for at, last in covered:
            own = self._split(last)[1] if header == "id" else last
            changes[at] = {header: self._plain(own)}
        return self._relay.pass_to_all(changes, head, receipt)

    def without_own_prefix(self, head: Head) -> Head:
        """A frame about a message that this shard has given over another process, as it is understood here."""
        id = head.headers.get("id", "")
        start = ack_prefix(self._relay.own).decode()
        if not id.startswith(start) or self._relay.own in self._relay.shards:
            return head
        fields = [(name, value.removeprefix(start) if name == "id" else value) for name, value in head.fields]
        return Head(head.command, tuple(fields))

    def _join(self, head: Head, place: int) -> None:
        if (name := head.headers.get("transaction")) is not None:
            self._transactions_of.join(name, place, acknowledges=True)

    def _plain(self, id: bytes) -> str:
        """An id as the value of a header."""
        raw = id if self._relay.version is Version.V1_0 else unescape(id)
        return raw.decode("utf-8", "replace")

    def _split(self, id: bytes) -> tuple[int | None, bytes]:
        """The shard of an id, and the id that the shard itself has for the message; None for the own shard."""
        if not id or id[0] != _FIRST:
            return None, id
        number, mark, rest = id[1:].partition(b"~")
        if not mark or not number.isdigit() or len(number) > 4 or int(number) >= self._relay.links.cluster_map.shards:
            return None, id
        shard = int(number)
        return (None, rest) if shard == self._relay.own and shard not in self._relay.shards else (shard, rest)

    def _shard_of_member(self, id: bytes) -> int | None:
        """The shard of a member of a group that an id is about; None for the own one, and if it is about none.

        An id of an earlier connection of the member may be without a shard: it was a connection to its owner.
        """
        known = read_ack_id(id) if b"." in id else None
        places = None if known is None else self._subscriptions.is_at(known.subscription)
        return next(iter(places.shards), None) if places is not None else None

    def _shard_of_message(self, head: Head, id: bytes) -> int | None:
        """The shard that has given a message, in 1.0 and 1.1; None for the own one."""
        subscription = head.headers.get("subscription")
        places = None if subscription is None else self._subscriptions.is_at(subscription)
        if places is not None and not places.is_own and len(places.shards) == 1:
            return next(iter(places.shards))
        return self._subscriptions.take_shard_of(id)
