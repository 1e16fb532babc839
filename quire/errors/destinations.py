"""Destinations, their messages, producers and subscriptions."""

from quire.errors.quire_error import QuireError


class InvalidDestination(QuireError):
    """A name is not a valid name of a destination."""

    code = "invalid-destination"


class UnknownDestination(QuireError):
    """There is no such destination."""

    code = "unknown-destination"


class DestinationExists(QuireError):
    """A destination of that name already exists."""

    code = "destination-exists"


class DestinationInUse(QuireError):
    """The destination has consumers."""

    code = "destination-in-use"


class TooManyDestinations(QuireError):
    """The limit of destinations is reached."""

    code = "too-many-destinations"


class UnknownMessage(QuireError):
    """There is no such message."""

    code = "unknown-message"


class UnknownProducer(QuireError):
    """There is no such producer among those that number their sends."""

    code = "unknown-producer"


class ProducerHeld(QuireError):
    """A producer was held longer than the limit; its message was not taken."""

    code = "producer-held"


class UnknownGroup(QuireError):
    """There is no message group of that name."""

    code = "unknown-group"


class UnknownSubscription(QuireError):
    """The connection has no such subscription."""

    code = "unknown-subscription"


class TooManySubscriptions(QuireError):
    """The limit of durable subscriptions and consumer groups is reached."""

    code = "too-many-subscriptions"


class SlowConsumer(QuireError):
    """A slow consumer was disconnected by its policy."""

    code = "slow-consumer"
