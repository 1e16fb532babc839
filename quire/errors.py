"""Every error Quire tells anybody about: typed, with data, with a stable code, and what to do.

``ERRORS`` is the one table that maps a code to what each front door says: the STOMP ``message`` header is the code, the
HTTP status and the exit code of the command line stand in the table (OpenWire's exception names join it with that
protocol).
"""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """A row of the table.

    Attributes:
        http: the status of the HTTP API.
        exit: the exit code of the command line (0 ok, 1 failure, 2 usage, 3 not found, 4 refused, 5 unreachable).
        retriable: whether the same call may succeed later without a change to it.
        advice: what the user can do.
    """

    http: int
    exit: int
    retriable: bool
    advice: str


ERRORS: dict[str, ErrorEntry] = {
    "protocol-violation": ErrorEntry(400, 2, False, "Correct the client: it sent what the protocol does not allow."),
    "limit-exceeded": ErrorEntry(413, 4, False, "Send less, or raise the limit in the settings."),
    "unsupported-version": ErrorEntry(400, 2, False, "Offer a protocol version the broker speaks."),
    "invalid-destination": ErrorEntry(400, 2, False, "Correct the destination's name."),
    "invalid-header": ErrorEntry(400, 2, False, "Correct the header's value."),
    "invalid-selector": ErrorEntry(400, 2, False, "Correct the selector at the place the text names."),
    "invalid-argument": ErrorEntry(400, 2, False, "Correct the argument."),
    "invalid-settings": ErrorEntry(400, 2, False, "Correct the setting; `quire config check` reads a file only."),
    "unknown-destination": ErrorEntry(404, 3, False, "Create it, or send to it: `quire queue ls` lists what is there."),
    "unknown-message": ErrorEntry(404, 3, False, "The message is gone: consumed, expired, moved or purged."),
    "unknown-producer": ErrorEntry(404, 3, False, "`quire producer ls` lists those that number their sends."),
    "unknown-group": ErrorEntry(404, 3, False, "`quire queue groups NAME` lists the groups that consumers have."),
    "unknown-consumer-group": ErrorEntry(404, 3, False, "`quire group ls` lists the consumer groups of streams."),
    "group-mismatch": ErrorEntry(409, 4, False, "Join with what the group has, or use another group."),
    "data-lost": ErrorEntry(410, 4, False, "Retention has passed it: start later, or keep messages longer."),
    "stream-replaced": ErrorEntry(
        410, 4, False, "Give the query a new checkpoint, or set failOnDataLoss=false to begin with what is there now."
    ),
    "unknown-subscription": ErrorEntry(404, 3, False, "Subscribe first; `quire durable ls` lists durable ones."),
    "unknown-transaction": ErrorEntry(400, 2, False, "BEGIN the transaction first; COMMIT and ABORT end it."),
    "too-many-destinations": ErrorEntry(
        409, 4, False, "Delete what is not needed, have gc_inactive_destinations do so, or raise the limit."
    ),
    "too-many-subscriptions": ErrorEntry(
        409, 4, False, "Remove those that are not needed, `quire durable ls`, `quire group ls`; or raise the limit."
    ),
    "destination-exists": ErrorEntry(409, 4, False, "Use it as it is, or delete it first."),
    "destination-in-use": ErrorEntry(409, 4, True, "Disconnect its consumers first, or delete it with --force."),
    "producer-held": ErrorEntry(503, 4, True, "A limit is reached: consume, purge, free the disk, or raise it."),
    "transaction-too-large": ErrorEntry(413, 4, False, "Commit smaller transactions, or raise the limit it names."),
    "transaction-timed-out": ErrorEntry(408, 4, True, "Commit sooner, or raise transaction.max_age."),
    "wrong-transaction-state": ErrorEntry(409, 4, False, "Keep the order: start, work, end, prepare, one outcome."),
    "unknown-stage": ErrorEntry(404, 3, False, "Write the rows again: they were thrown away, or never staged here."),
    "unknown-xid": ErrorEntry(404, 3, False, "It has ended, or was never prepared here: ask what is prepared."),
    "heuristic-outcome": ErrorEntry(409, 4, False, "Compare with the other participants, then forget the transaction."),
    "slow-consumer": ErrorEntry(408, 4, True, "Acknowledge faster, ask for fewer messages, or change the policy."),
    "too-many-connections": ErrorEntry(503, 4, True, "Close connections, or raise the limit of connections."),
    "broker-busy": ErrorEntry(503, 4, True, "Try again in a moment: others hold what there is; or raise memory.limit."),
    "request-timeout": ErrorEntry(408, 4, True, "Send the request without pauses, or raise the limit in [http]."),
    "connection-timeout": ErrorEntry(408, 4, True, "Send CONNECT at once, and heart-beats as agreed."),
    "store-full": ErrorEntry(507, 4, True, "Free disk space; the broker goes on by itself when there is room."),
    "store-failed": ErrorEntry(503, 1, True, "Read the broker's log; check the disk, then `quire store verify`."),
    "store-corrupt": ErrorEntry(500, 1, False, "Stop the broker, back the store up, then run `quire store repair`."),
    "store-locked": ErrorEntry(503, 4, True, "Another broker uses this store: stop it, or use --standby."),
    "store-outdated": ErrorEntry(409, 4, False, "Run `quire store migrate`; a backup is made beside the store."),
    "store-too-new": ErrorEntry(409, 4, False, "This store was written by a newer Quire: start that version."),
    "store-unreachable": ErrorEntry(503, 5, True, "Check the store's address and that its server runs."),
    "broker-unreachable": ErrorEntry(503, 5, True, "Start a broker: `quire broker start`; --url says where to look."),
    "broker-stopping": ErrorEntry(503, 4, True, "Connect again: the broker is going down or restarting."),
    "insecure-address": ErrorEntry(400, 2, False, "Bind to loopback, or accept the risk with --insecure."),
    "address-in-use": ErrorEntry(409, 4, True, "Another program listens there: choose another port, or 0."),
    "unsupported-environment": ErrorEntry(500, 1, False, "Install what the text names, then try again."),
    "internal-error": ErrorEntry(500, 1, False, "This is a defect in Quire: please report it with the broker's log."),
}  # fmt: skip


class QuireError(Exception):
    """The root of Quire's errors.

    Args:
        text: what went wrong, for people.
        **data: what it went wrong with; part of every machine-readable answer.

    Attributes:
        code: the stable code, a key of ``ERRORS``.
        data: the keyword arguments.
    """

    code: ClassVar[str] = "internal-error"

    def __init__(self, text: str, **data: Any) -> None:
        super().__init__(text)
        self.data = data

    @property
    def entry(self) -> ErrorEntry:
        """Its row of the table."""
        return ERRORS[self.code]


class ProtocolViolation(QuireError):
    """A peer sent what its protocol does not allow."""

    code = "protocol-violation"


class LimitExceeded(QuireError):
    """A peer sent more than a limit allows: header count, line length, body size."""

    code = "limit-exceeded"


class UnsupportedVersion(QuireError):
    """The peer and the broker have no protocol version in common."""

    code = "unsupported-version"


class InvalidDestination(QuireError):
    """A name is no name of a destination."""

    code = "invalid-destination"


class InvalidHeader(QuireError):
    """A header is missing or its value cannot be read."""

    code = "invalid-header"


class InvalidSelector(QuireError):
    """A selector cannot be read, or could never be true."""

    code = "invalid-selector"


class InvalidArgument(QuireError):
    """A call's argument is out of its range."""

    code = "invalid-argument"


class InvalidSettings(QuireError):
    """A setting is unknown or has a value that cannot be read."""

    code = "invalid-settings"


class UnknownDestination(QuireError):
    """There is no such destination."""

    code = "unknown-destination"


class UnknownMessage(QuireError):
    """There is no such message."""

    code = "unknown-message"


class UnknownProducer(QuireError):
    """There is no such producer that numbers its sends."""

    code = "unknown-producer"


class UnknownGroup(QuireError):
    """No consumer has a message group of that name."""

    code = "unknown-group"


class UnknownConsumerGroup(QuireError):
    """A stream has no consumer group of that name."""

    code = "unknown-consumer-group"


class GroupMismatch(QuireError):
    """A member wants something else of a consumer group than the group was made for."""

    code = "group-mismatch"


class DataLost(QuireError):
    """What was asked for of a stream is not there any more."""

    code = "data-lost"


class StreamReplaced(DataLost):
    """A stream is not the one that was read before: it was deleted and made again, or is an older copy."""

    code = "stream-replaced"


class UnknownSubscription(QuireError):
    """The connection has no such subscription."""

    code = "unknown-subscription"


class UnknownTransaction(QuireError):
    """The connection has no such transaction, or has one of that name already."""

    code = "unknown-transaction"


class TooManyDestinations(QuireError):
    """There are as many destinations as there may be."""

    code = "too-many-destinations"


class TooManySubscriptions(QuireError):
    """There are as many durable subscriptions and consumer groups as there may be."""

    code = "too-many-subscriptions"


class DestinationExists(QuireError):
    """A destination of that name is there already."""

    code = "destination-exists"


class DestinationInUse(QuireError):
    """The destination has consumers."""

    code = "destination-in-use"


class ProducerHeld(QuireError):
    """A producer waited for room longer than the limit; its message was not taken."""

    code = "producer-held"


class TransactionTooLarge(QuireError):
    """A transaction has too many messages, or they do not fit into memory."""

    code = "transaction-too-large"


class TransactionTimedOut(QuireError):
    """A transaction was open for too long and is rolled back."""

    code = "transaction-timed-out"


class WrongTransactionState(QuireError):
    """A transaction cannot do this now: it is not prepared, or something else is decided already."""

    code = "wrong-transaction-state"


class UnknownStage(QuireError):
    """There are no such staged rows."""

    code = "unknown-stage"


class UnknownXid(QuireError):
    """There is no XA transaction of that id."""

    code = "unknown-xid"


class HeuristicOutcome(QuireError):
    """An operator has decided over a prepared transaction; ``data`` has the ``outcome``: commit or rollback."""

    code = "heuristic-outcome"


class TooManyConnections(QuireError):
    """The limit of connections is reached."""

    code = "too-many-connections"


class BrokerBusy(QuireError):
    """Requests and frames under way hold as much memory as they may."""

    code = "broker-busy"


class RequestTimeout(QuireError):
    """An HTTP request did not come in time."""

    code = "request-timeout"


class SlowConsumer(QuireError):
    """A consumer did not keep up, and its policy ends such ones."""

    code = "slow-consumer"


class ConnectionTimeout(QuireError):
    """The peer was silent for too long."""

    code = "connection-timeout"


class StoreError(QuireError):
    """The store failed; the root of what a store can do wrong."""

    code = "store-failed"


class StoreFull(StoreError):
    """There is no space for a write. What was stored before is untouched."""

    code = "store-full"


class StoreCorrupt(StoreError):
    """A record cannot be read back as it was written."""

    code = "store-corrupt"


class StoreLocked(StoreError):
    """Another broker has the store."""

    code = "store-locked"


class StoreOutdated(StoreError):
    """The store has an older format and must be migrated."""

    code = "store-outdated"


class StoreTooNew(StoreError):
    """The store has a newer format than this version knows."""

    code = "store-too-new"


class StoreUnreachable(StoreError):
    """The store cannot be opened."""

    code = "store-unreachable"


class BrokerUnreachable(QuireError):
    """No broker answers at the address."""

    code = "broker-unreachable"


class BrokerStopping(QuireError):
    """The broker is going down."""

    code = "broker-stopping"


class InsecureAddress(QuireError):
    """The address is not loopback, and no users are configured."""

    code = "insecure-address"


class AddressInUse(QuireError):
    """Another program listens at the address."""

    code = "address-in-use"


class UnsupportedEnvironment(QuireError):
    """A program that is needed is missing or too old."""

    code = "unsupported-environment"
