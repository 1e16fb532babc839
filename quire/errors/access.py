"""Logins, rights, users, rules and tokens."""

from quire.errors.quire_error import QuireError


class NotAuthenticated(QuireError):
    """The client did not prove which user it is, or the proof is no longer valid."""

    code = "not-authenticated"


class TooManyLogins(QuireError):
    """Too many logins have failed; ``data`` has ``retry_after`` in seconds."""

    code = "too-many-logins"


class AccessRefused(QuireError):
    """The user may not do that; it says nothing of whether the object exists."""

    code = "access-refused"


class UnknownUser(QuireError):
    """There is no user of that name."""

    code = "unknown-user"


class UnknownRule(QuireError):
    """There is no rule of that id."""

    code = "unknown-rule"


class UnknownToken(QuireError):
    """There is no token of that id."""

    code = "unknown-token"


class UserExists(QuireError):
    """A user of that name already exists."""

    code = "user-exists"
