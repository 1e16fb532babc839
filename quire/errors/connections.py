"""Connections, and requests under way."""

from quire.errors.quire_error import QuireError


class TooManyConnections(QuireError):
    """The limit of connections is reached."""

    code = "too-many-connections"


class TlsRequired(QuireError):
    """The broker takes no connections without TLS from this address."""

    code = "tls-required"


class BrokerBusy(QuireError):
    """Requests and frames under way have reached their limit of memory."""

    code = "broker-busy"


class RequestTimeout(QuireError):
    """An HTTP request did not arrive in time."""

    code = "request-timeout"


class RequestUnanswered(QuireError, TimeoutError):
    """A request of the client library was not answered in time: the answerer is slow, or there is none."""

    code = "request-unanswered"


class ConnectionTimeout(QuireError):
    """The peer was silent for too long."""

    code = "connection-timeout"


class BrokerUnreachable(QuireError):
    """No broker answers at the address."""

    code = "broker-unreachable"


class WrongProtocol(BrokerUnreachable):
    """The port at the address speaks another protocol."""

    code = "wrong-protocol"


class CertificateNotTrusted(BrokerUnreachable):
    """The broker's certificate is from an authority that is not trusted, is for another name, or has expired."""

    code = "certificate-not-trusted"


class BrokerStopping(QuireError):
    """The broker is stopping."""

    code = "broker-stopping"


class BrokerStandby(QuireError):
    """The broker waits for its store, which another broker has."""

    code = "broker-standby"
