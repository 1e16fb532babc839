"""A cluster of brokers."""

from quire.errors.quire_error import QuireError


class ShardMoved(QuireError):
    """The shard of a destination has another owner than before."""

    code = "shard-moved"


class ShardUnavailable(QuireError):
    """No broker runs the shard of a destination now."""

    code = "shard-unavailable"


class TransactionSpansShards(QuireError):
    """A transaction acknowledges messages of streams, and before that others at another shard."""

    code = "transaction-spans-shards"


class UnknownBroker(QuireError):
    """The cluster has no such broker."""

    code = "unknown-broker"
