"""Errors as OpenWire carries them: the class that a Java client makes of them, by name, and a text."""

from quire.errors import ERRORS, QuireError
from quire.protocols.openwire.throwable import Throwable

JAVAX, JAKARTA = "javax.jms", "jakarta.jms"
"""The packages of JMS: clients of ActiveMQ 6 know the second one alone."""


def package_for(provider_version: str) -> str:
    """The package of JMS that a client knows, by the version that it says it is of."""
    major = provider_version.partition(".")[0]
    return JAKARTA if major.isdigit() and int(major) >= 6 else JAVAX


def throwable(error: QuireError, package: str, *, xa: bool = False) -> Throwable:
    """An error as a client is told it. Its code comes first, as in every other protocol.

    Args:
        package: of JMS.
        xa: whether the command was about an XA transaction: its number stands at the end of the text.
    """
    entry = ERRORS[error.code]
    if xa:
        text = f"{error.code}: {error} xaErrorCode:{entry.xa}"
        return Throwable("javax.transaction.xa.XAException", text)
    name = entry.openwire
    return Throwable(name if "." in name else f"{package}.{name}", f"{error.code}: {error}")
