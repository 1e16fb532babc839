"""Every error that Quire reports: typed, with data, a stable code and an advice.

``ERRORS`` is the one table that maps a code to its HTTP status, its exit code of the command line, and the exception of
JMS that an OpenWire client throws. STOMP has the code in the header ``message``.
"""

from dataclasses import dataclass
from typing import Any, ClassVar


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """A row of the table."""

    http: int  # the status of the HTTP API
    exit: int  # the exit code of the command line (0 ok, 1 failure, 2 usage, 3 not found, 4 refused, 5 unreachable)
    retriable: bool  # whether the same call may succeed later without a change to it
    advice: str  # what the user can do
    openwire: str = "JMSException"  # the class of the exception; without a package it is one of JMS
    xa: int = -3  # the number of the XAException that answers a command of an XA transaction (XA, section 4.3): RMERR


# Exceptions of JMS.
_DESTINATION = "InvalidDestinationException"
_SELECTOR = "InvalidSelectorException"
_RESOURCES = "ResourceAllocationException"
_ROLLED_BACK = "TransactionRolledBackException"
_PROTOCOL = "java.io.IOException"

ERRORS: dict[str, ErrorEntry] = {
    "protocol-violation": ErrorEntry(400, 2, False, "Correct the client: it violated the protocol.", _PROTOCOL),
    "limit-exceeded": ErrorEntry(413, 4, False, "Send less, or raise the limit in the settings.", _RESOURCES),
    "unsupported-version": ErrorEntry(400, 2, False, "Offer a protocol version that the broker supports."),
    "invalid-destination": ErrorEntry(400, 2, False, "Correct the destination's name.", _DESTINATION),
    "invalid-header": ErrorEntry(400, 2, False, "Correct the header's value."),
    "invalid-selector": ErrorEntry(
        400, 2, False, "Correct the selector at the position that the text names.", _SELECTOR
    ),
    "invalid-argument": ErrorEntry(400, 2, False, "Correct the argument."),
    "illegal-state": ErrorEntry(
        409, 2, False, "Correct the order of the calls, as the text says.", "IllegalStateException"
    ),
    "not-authenticated": ErrorEntry(
        401, 4, False, "Give the right user and password, or a valid token.", "JMSSecurityException"
    ),
    "too-many-logins": ErrorEntry(
        429, 4, True, "Wait as long as the text says, then log in with the right password.", "JMSSecurityException"
    ),
    "access-refused": ErrorEntry(
        403, 4, False, "Ask an administrator for the right; `quire rule check` explains it.", "JMSSecurityException"
    ),
    "unknown-user": ErrorEntry(404, 3, False, "`quire user ls` lists the users."),
    "unknown-rule": ErrorEntry(404, 3, False, "`quire rule ls` lists the rules."),
    "unknown-token": ErrorEntry(404, 3, False, "`quire token ls` lists the tokens."),
    "user-exists": ErrorEntry(409, 4, False, "Use another name, or change the user with `quire user`."),
    "invalid-settings": ErrorEntry(400, 2, False, "Correct the setting; `quire config check` checks a file."),
    "unknown-destination": ErrorEntry(
        404, 3, False, "Create it, or send to it; `quire queue ls` lists the queues.", _DESTINATION
    ),
    "unknown-message": ErrorEntry(404, 3, False, "The message was consumed, moved or purged, or it expired."),
    "unknown-producer": ErrorEntry(404, 3, False, "`quire producer ls` lists the known producers."),
    "unknown-group": ErrorEntry(404, 3, False, "`quire queue groups NAME` lists the groups."),
    "unknown-operation": ErrorEntry(404, 3, False, "It has ended, and is forgotten; see `GET /operations`."),
    "confirmation-mismatch": ErrorEntry(
        409, 4, False, "Make the dry run again, and send the same request with its new token."
    ),
    "unknown-consumer-group": ErrorEntry(404, 3, False, "`quire group ls` lists the consumer groups of streams."),
    "group-mismatch": ErrorEntry(409, 4, False, "Join with the group's selector and order, or use another group."),
    "data-lost": ErrorEntry(410, 4, False, "Start at a later offset, or increase the retention of the stream."),
    "stream-replaced": ErrorEntry(
        410, 4, False, "Give the query a new checkpoint, or set failOnDataLoss=false to begin with the new stream."
    ),
    "unknown-subscription": ErrorEntry(
        404, 3, False, "Subscribe first; `quire durable ls` lists durable ones.", _DESTINATION
    ),
    "unknown-transaction": ErrorEntry(400, 2, False, "BEGIN the transaction first; COMMIT and ABORT end it.", xa=-4),
    "too-many-destinations": ErrorEntry(
        409, 4, False, "Delete unused destinations, enable gc_inactive_destinations, or raise the limit.", _RESOURCES
    ),
    "too-many-subscriptions": ErrorEntry(
        409, 4, False, "Remove unused ones (`quire durable ls`, `quire group ls`), or raise the limit.", _RESOURCES
    ),
    "destination-exists": ErrorEntry(409, 4, False, "Use the existing one, or delete it first."),
    "destination-in-use": ErrorEntry(409, 4, True, "Disconnect its consumers first, or delete it with --force."),
    "producer-held": ErrorEntry(
        503, 4, True, "Consume or purge messages, free disk space, or raise the limit.", _RESOURCES
    ),
    "message-too-large": ErrorEntry(
        413, 4, False, "Send a smaller message, or raise max_message_size in the policy of the destination.", _RESOURCES
    ),
    "transaction-too-large": ErrorEntry(
        413, 4, False, "Commit smaller transactions, or raise the named limit.", _RESOURCES
    ),
    "transaction-timed-out": ErrorEntry(
        408, 4, True, "Commit sooner, or raise transaction.max_age.", _ROLLED_BACK, xa=106
    ),
    "transaction-rolled-back": ErrorEntry(
        409, 4, True, "Do the work again in a new transaction: it was not kept, or is in doubt.", _ROLLED_BACK, xa=100
    ),
    "wrong-transaction-state": ErrorEntry(
        409, 4, False, "The order of XA is start, work, end, prepare, one outcome.", xa=-6
    ),
    "unknown-stage": ErrorEntry(404, 3, False, "Write the rows again: they are discarded or were never staged."),
    "unknown-xid": ErrorEntry(404, 3, False, "It has ended or was never prepared; see `quire xa ls`.", xa=-4),
    "heuristic-outcome": ErrorEntry(
        409, 4, False, "Compare with the other participants, then forget the transaction.", xa=8
    ),
    "slow-consumer": ErrorEntry(408, 4, True, "Acknowledge faster, ask for fewer messages, or change the policy."),
    "too-many-connections": ErrorEntry(
        503, 4, True, "Close connections, or raise the limit of connections.", _RESOURCES
    ),
    "tls-required": ErrorEntry(
        403, 4, False, "Connect with TLS (ssl://, https://), or see tls.plain.", "JMSSecurityException"
    ),
    "broker-busy": ErrorEntry(503, 4, True, "Try again later, or raise memory.limit."),
    "request-timeout": ErrorEntry(408, 4, True, "Send the request without pauses, or raise the limit in [http]."),
    "request-unanswered": ErrorEntry(
        504, 4, True, "See that a consumer answers at the destination, or give it more time: timeout=."
    ),
    "connection-timeout": ErrorEntry(408, 4, True, "Send CONNECT at once, and heart-beats as agreed."),
    "store-full": ErrorEntry(
        507, 4, True, "Free disk space; the broker then accepts messages again by itself.", _RESOURCES
    ),
    "store-failed": ErrorEntry(503, 1, True, "Read the broker's log; check the disk, then `quire store verify`."),
    "store-corrupt": ErrorEntry(500, 1, False, "Stop the broker, back the store up, then run `quire store repair`."),
    "store-locked": ErrorEntry(503, 4, True, "Another broker uses this store: stop it, or use --standby."),
    "store-outdated": ErrorEntry(409, 4, False, "Run `quire store migrate`; a backup is made beside the store."),
    "store-too-new": ErrorEntry(409, 4, False, "A newer version of Quire wrote this store: start that version."),
    "store-unreachable": ErrorEntry(503, 5, True, "Check the store's URL, and that its server runs."),
    "store-unreadable": ErrorEntry(
        500, 1, False, "Restore a backup (`quire store restore`) into a new place, or name another store."
    ),
    "directory-unusable": ErrorEntry(
        500, 4, False, "Let the broker's user write what the text names (chown, chmod), or name another place: --data."
    ),
    "broker-unreachable": ErrorEntry(503, 5, True, "Start a broker: `quire broker start`; or give its address: --url."),
    "wrong-protocol": ErrorEntry(
        400, 5, False, "Give the port of this protocol: HTTP 8161, STOMP 61613, OpenWire 61616 unless set otherwise."
    ),
    "certificate-not-trusted": ErrorEntry(
        403, 5, False, "Name the certificate of the authority that signed the broker's: --tls-ca, or QUIRE_TLS_CA."
    ),
    "broker-stopping": ErrorEntry(503, 4, True, "Connect again: the broker is stopping or restarting."),
    "shard-moved": ErrorEntry(503, 4, True, "Connect again: another broker of the cluster has the destination now."),
    "shard-unavailable": ErrorEntry(503, 4, True, "Try again: a broker of the cluster takes the shard over."),
    "transaction-spans-shards": ErrorEntry(
        409, 4, False, "Acknowledge messages of a stream first, or put destinations together: `quire cluster place`.",
        _ROLLED_BACK, xa=100,
    ),
    "unknown-broker": ErrorEntry(404, 3, False, "`quire cluster status` lists the brokers of the cluster."),
    "broker-standby": ErrorEntry(503, 4, True, "Use the broker that has the store, or wait until this one takes over."),
    "insecure-address": ErrorEntry(400, 2, False, "Bind to loopback, or accept the risk with --insecure."),
    "address-in-use": ErrorEntry(409, 4, True, "Another program listens there: choose another port, or 0."),
    "spark-ended": ErrorEntry(
        500, 1, False, "Give Spark more memory with `--memory`, or free memory of the machine, then run it again."
    ),
    "unsupported-environment": ErrorEntry(500, 1, False, "Install the program that the text names, then try again."),
    "internal-error": ErrorEntry(500, 1, False, "This is a defect in Quire: please report it with the broker's log."),
}  # fmt: skip


class QuireError(Exception):
    """The root of Quire's errors."""

    code: ClassVar[str] = "internal-error"  # the stable code, a key of ``ERRORS``

    def __init_subclass__(cls, code: str | None = None) -> None:
        cls.code = code or cls.code

    def __init__(self, text: str, **data: Any) -> None:
        super().__init__(text)
        self.data = data  # the keyword arguments

    @property
    def entry(self) -> ErrorEntry:
        """Its row of the table."""
        return ERRORS[self.code]


class ProtocolViolation(QuireError, code="protocol-violation"):
    """A peer violated its protocol."""


class LimitExceeded(QuireError, code="limit-exceeded"):
    """A peer exceeded a limit, such as the number of headers, the length of a line or the size of a body."""


class UnsupportedVersion(QuireError, code="unsupported-version"):
    """The peer and the broker have no protocol version in common."""


class InvalidHeader(QuireError, code="invalid-header"):
    """A header is missing or its value is invalid."""


class InvalidSelector(QuireError, code="invalid-selector"):
    """A selector is invalid, or can never be true."""


class InvalidArgument(QuireError, code="invalid-argument"):
    """An argument is invalid."""


class IllegalState(QuireError, code="illegal-state"):
    """A call is not allowed in the present state of the object, after its close say."""


class UnknownOperation(QuireError, code="unknown-operation"):
    """There is no operation with that id, or not any more."""


class ConfirmationMismatch(QuireError, code="confirmation-mismatch"):
    """The token of a dry run does not belong to this request, or its time is over."""


class NotAuthenticated(QuireError, code="not-authenticated"):
    """The client did not prove which user it is, or the proof is no longer valid."""


class TooManyLogins(QuireError, code="too-many-logins"):
    """Too many logins have failed; ``data`` has ``retry_after`` in seconds."""


class AccessRefused(QuireError, code="access-refused"):
    """The user may not do that; it says nothing of whether the object exists."""


class UnknownUser(QuireError, code="unknown-user"):
    """There is no user of that name."""


class UnknownRule(QuireError, code="unknown-rule"):
    """There is no rule of that id."""


class UnknownToken(QuireError, code="unknown-token"):
    """There is no token of that id."""


class UserExists(QuireError, code="user-exists"):
    """A user of that name already exists."""


class InvalidDestination(QuireError, code="invalid-destination"):
    """A name is not a valid name of a destination."""


class UnknownDestination(QuireError, code="unknown-destination"):
    """There is no such destination."""


class DestinationExists(QuireError, code="destination-exists"):
    """A destination of that name already exists."""


class DestinationInUse(QuireError, code="destination-in-use"):
    """The destination has consumers."""


class TooManyDestinations(QuireError, code="too-many-destinations"):
    """The limit of destinations is reached."""


class UnknownMessage(QuireError, code="unknown-message"):
    """There is no such message."""


class UnknownProducer(QuireError, code="unknown-producer"):
    """There is no such producer among those that number their sends."""


class ProducerHeld(QuireError, code="producer-held"):
    """A producer was held longer than the limit; its message was not taken."""


class UnknownGroup(QuireError, code="unknown-group"):
    """There is no message group of that name."""


class UnknownSubscription(QuireError, code="unknown-subscription"):
    """The connection has no such subscription."""


class TooManySubscriptions(QuireError, code="too-many-subscriptions"):
    """The limit of durable subscriptions and consumer groups is reached."""


class SlowConsumer(QuireError, code="slow-consumer"):
    """A slow consumer was disconnected by its policy."""


class UnknownConsumerGroup(QuireError, code="unknown-consumer-group"):
    """The stream has no consumer group of that name."""


class GroupMismatch(QuireError, code="group-mismatch"):
    """A member asks for another selector, order or mode than its consumer group has."""


class DataLost(QuireError, code="data-lost"):
    """Messages that a read of a stream requires were removed."""


class StreamReplaced(DataLost, code="stream-replaced"):
    """The stream is not the one that was read before: it was deleted and created again, or is an older copy."""


class UnknownStage(QuireError, code="unknown-stage"):
    """There are no such staged rows."""


class UnknownTransaction(QuireError, code="unknown-transaction"):
    """The connection has no such transaction, or already has one of that name."""


class MessageTooLarge(QuireError, code="message-too-large"):
    """The policy of a destination allows no message of that ``size``; ``data`` has the ``limit``."""


class TransactionTooLarge(QuireError, code="transaction-too-large"):
    """A transaction has too many messages, or they do not fit into memory."""


class TransactionTimedOut(QuireError, code="transaction-timed-out"):
    """A transaction was open for too long and was rolled back."""


class TransactionRolledBack(QuireError, code="transaction-rolled-back"):
    """A transaction was rolled back instead of committed, or the answer to its commit was lost."""


class WrongTransactionState(QuireError, code="wrong-transaction-state"):
    """A transaction is not in the required state: it is not prepared, or already has another outcome."""


class UnknownXid(QuireError, code="unknown-xid"):
    """There is no XA transaction of that id."""


class HeuristicOutcome(QuireError, code="heuristic-outcome"):
    """An operator has resolved a prepared transaction; ``data`` has the ``outcome``: commit or rollback."""


class TooManyConnections(QuireError, code="too-many-connections"):
    """The limit of connections is reached."""


class TlsRequired(QuireError, code="tls-required"):
    """The broker takes no connections without TLS from this address."""


class BrokerBusy(QuireError, code="broker-busy"):
    """Requests and frames under way have reached their limit of memory."""


class RequestTimeout(QuireError, code="request-timeout"):
    """An HTTP request did not arrive in time."""


class RequestUnanswered(QuireError, TimeoutError, code="request-unanswered"):
    """A request of the client library was not answered in time: the answerer is slow, or there is none."""


class ConnectionTimeout(QuireError, code="connection-timeout"):
    """The peer was silent for too long."""


class BrokerUnreachable(QuireError, code="broker-unreachable"):
    """No broker answers at the address."""


class WrongProtocol(BrokerUnreachable, code="wrong-protocol"):
    """The port at the address speaks another protocol."""


class CertificateNotTrusted(BrokerUnreachable, code="certificate-not-trusted"):
    """The broker's certificate is from an authority that is not trusted, is for another name, or has expired."""


class BrokerStopping(QuireError, code="broker-stopping"):
    """The broker is stopping."""


class BrokerStandby(QuireError, code="broker-standby"):
    """The broker waits for its store, which another broker has."""


class ShardMoved(QuireError, code="shard-moved"):
    """The shard of a destination has another owner than before."""


class ShardUnavailable(QuireError, code="shard-unavailable"):
    """No broker runs the shard of a destination now."""


class TransactionSpansShards(QuireError, code="transaction-spans-shards"):
    """A transaction acknowledges messages of streams, and before that others at another shard."""


class UnknownBroker(QuireError, code="unknown-broker"):
    """The cluster has no such broker."""


class StoreError(QuireError, code="store-failed"):
    """The store failed; the base of all errors of stores."""


class StoreFull(StoreError, code="store-full"):
    """There is no space for a write. What was stored before is unchanged."""


class StoreCorrupt(StoreError, code="store-corrupt"):
    """A record is not as it was written."""


class StoreLocked(StoreError, code="store-locked"):
    """Another broker has locked the store."""


class StoreOutdated(StoreError, code="store-outdated"):
    """The store has an older format and must be migrated."""


class StoreTooNew(StoreError, code="store-too-new"):
    """The store has a newer format than this version supports."""


class StoreUnreachable(StoreError, code="store-unreachable"):
    """The store cannot be opened."""


class StoreUnreadable(StoreUnreachable, code="store-unreadable"):
    """What is in the place of the store is damaged as a whole, or is no store of Quire."""


class DirectoryUnusable(StoreUnreachable, code="directory-unusable"):
    """A directory or file that the broker needs cannot be made or written."""


class InvalidSettings(QuireError, code="invalid-settings"):
    """A setting is unknown or its value is invalid."""


class InsecureAddress(QuireError, code="insecure-address"):
    """The address is not loopback, and no users are configured."""


class AddressInUse(QuireError, code="address-in-use"):
    """Another program listens at the address."""


class UnsupportedEnvironment(QuireError, code="unsupported-environment"):
    """A required program is missing or too old."""


class SparkEnded(QuireError, code="spark-ended"):
    """The Java process of a pipeline ended before its work was done."""
