"""The one table that maps the code of an error to its HTTP status, exit code, and the exception of JMS."""

from dataclasses import dataclass


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
