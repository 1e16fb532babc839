"""What a peer asked for is invalid, or cannot be done as asked."""

from quire.errors.quire_error import QuireError


class ProtocolViolation(QuireError):
    """A peer violated its protocol."""

    code = "protocol-violation"


class LimitExceeded(QuireError):
    """A peer exceeded a limit, such as the number of headers, the length of a line or the size of a body."""

    code = "limit-exceeded"


class UnsupportedVersion(QuireError):
    """The peer and the broker have no protocol version in common."""

    code = "unsupported-version"


class InvalidHeader(QuireError):
    """A header is missing or its value is invalid."""

    code = "invalid-header"


class InvalidSelector(QuireError):
    """A selector is invalid, or can never be true."""

    code = "invalid-selector"


class InvalidArgument(QuireError):
    """An argument is invalid."""

    code = "invalid-argument"


class IllegalState(QuireError):
    """A call is not allowed in the present state of the object, after its close say."""

    code = "illegal-state"


class UnknownOperation(QuireError):
    """There is no operation with that id, or not any more."""

    code = "unknown-operation"


class ConfirmationMismatch(QuireError):
    """The token of a dry run does not belong to this request, or its time is over."""

    code = "confirmation-mismatch"
