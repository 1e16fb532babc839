"""Streams, their consumer groups and bulk writers."""

from quire.errors.quire_error import QuireError


class UnknownConsumerGroup(QuireError):
    """The stream has no consumer group of that name."""

    code = "unknown-consumer-group"


class GroupMismatch(QuireError):
    """A member asks for another selector, order or mode than its consumer group has."""

    code = "group-mismatch"


class DataLost(QuireError):
    """Messages that a read of a stream requires were removed."""

    code = "data-lost"


class StreamReplaced(DataLost):
    """The stream is not the one that was read before: it was deleted and created again, or is an older copy."""

    code = "stream-replaced"


class UnknownStage(QuireError):
    """There are no such staged rows."""

    code = "unknown-stage"
