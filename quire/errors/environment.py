"""Settings, addresses and programs of the machine."""

from quire.errors.quire_error import QuireError


class InvalidSettings(QuireError):
    """A setting is unknown or its value is invalid."""

    code = "invalid-settings"


class InsecureAddress(QuireError):
    """The address is not loopback, and no users are configured."""

    code = "insecure-address"


class AddressInUse(QuireError):
    """Another program listens at the address."""

    code = "address-in-use"


class UnsupportedEnvironment(QuireError):
    """A required program is missing or too old."""

    code = "unsupported-environment"


class SparkEnded(QuireError):
    """The Java process of a pipeline ended before its work was done."""

    code = "spark-ended"
