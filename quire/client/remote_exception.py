"""The exceptions of a broker, which OpenWire carries by the name of their class, as errors of Quire."""

from quire.client.remote_error import error_classes
from quire.errors import (
    AccessRefused,
    BrokerBusy,
    BrokerUnreachable,
    DestinationInUse,
    IllegalState,
    InvalidArgument,
    InvalidDestination,
    InvalidSelector,
    ProducerHeld,
    QuireError,
    TransactionRolledBack,
    UnknownTransaction,
)
from quire.protocols.openwire.throwable import Throwable

_ERRORS: dict[str, type[QuireError]] = {
    "InvalidClientIDException": InvalidArgument,
    "InvalidDestinationException": InvalidDestination,
    "DestinationDoesNotExistException": InvalidDestination,
    "InvalidSelectorException": InvalidSelector,
    "JMSSecurityException": AccessRefused,
    "SecurityException": AccessRefused,
    "ResourceAllocationException": ProducerHeld,
    "TransactionRolledBackException": TransactionRolledBack,
    "TransactionInProgressException": IllegalState,
    "XAException": UnknownTransaction,
    "IllegalStateException": IllegalState,
    "BrokerStoppedException": BrokerUnreachable,
    "ConnectionFailedException": BrokerUnreachable,
    "RejectedExecutionException": BrokerBusy,
}

_IN_USE = ("still has an active subscription", "durable consumer is in use")


class RemoteError(QuireError):
    """The broker refused a call, and its exception has no error of its own here; ``data`` has the ``class_name``."""


def error_of(exception: Throwable | None) -> QuireError:
    """The error for an exception that a broker sent.

    Args:
        exception: as the broker sent it.

    Returns:
        An error of the type that Quire names in the text, or that fits the class; its ``data`` has the ``class_name``.
        A class that is not known gives a ``RemoteError``.
    """
    if exception is None:
        return RemoteError("the broker refused the call and gave no reason")
    class_name = exception.class_name or ""
    text = exception.message or class_name
    code, mark, rest = text.partition(": ")
    for known in error_classes():
        # Quire writes its code before the text.
        if mark and known.code == code:
            return known(rest, class_name=class_name)
    simple = class_name.rpartition(".")[2].rpartition("$")[2]
    kind = _ERRORS.get(simple, RemoteError)
    if kind is RemoteError and any(phrase in text.lower() for phrase in _IN_USE):
        kind = DestinationInUse
    return kind(text, class_name=class_name)
