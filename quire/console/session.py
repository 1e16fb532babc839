"""Who looks at the console: a session has a secret in a cookie, and keeps the tokens of its brokers on the server."""

import secrets
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from quire.clock import Clock
from quire.console.broker_api import BrokerApi

IDLE_LIMIT = 8 * 3600.0
"""After how many seconds without a request a session ends."""

MAX_SESSIONS = 1000
"""How many sessions there are at most; the one that was not used for the longest time ends first."""

TOKEN_LIFETIME = 12 * 3600
"""For how many seconds the console asks for a token; a session ends with it."""


class Caller:
    """One user of one broker: every call of a page is made as this user.

    Args:
        api: the broker.
        authorization: the header that says who it is; None while the broker has no users.
        who: what the broker says of the user (``GET /whoami``).
        token: the id of the token that the console has made, to revoke it; empty for none.
    """

    def __init__(self, api: BrokerApi, authorization: str | None, who: dict[str, Any], token: str = "") -> None:
        self.api = api
        self.authorization = authorization
        self.who = who
        self.token = token

    @property
    def permissions(self) -> frozenset[str]:
        """What the user may do with the broker as a whole."""
        return frozenset(self.who["permissions"])

    async def call(self, method: str, path: str, body: object = None, **query: object) -> dict[str, Any]:
        """Make one call as this user."""
        return await self.api.call(method, path, self.authorization, body, **query)


class Session:
    """One browser."""

    def __init__(self, now: float) -> None:
        self.id = secrets.token_urlsafe(32)
        self.used_at = now  # on the monotonic clock
        self.callers: dict[str, Caller] = {}  # by the broker's key

    def forget(self, caller: Caller) -> None:
        """The broker does not accept the user any more."""
        if self.callers.get(caller.api.key) is caller:
            del self.callers[caller.api.key]


class Sessions:
    """All sessions.

    Args:
        clock: the time.
        ended: told of each session that ends.
    """

    def __init__(self, clock: Clock, ended: Callable[[Session], None]) -> None:
        self._clock = clock
        self._ended = ended
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # the one that was used last is at the end

    def __len__(self) -> int:
        return len(self._sessions)

    def new(self) -> Session:
        """Begin a session."""
        self._end_idle()
        while len(self._sessions) >= MAX_SESSIONS:
            self.end(next(iter(self._sessions.values())))
        session = Session(self._clock.monotonic())
        self._sessions[session.id] = session
        return session

    def find(self, identity: str | None) -> Session | None:
        """The session with this secret, which is in use now."""
        self._end_idle()
        session = self._sessions.get(identity or "")
        if session is not None:
            session.used_at = self._clock.monotonic()
            self._sessions.move_to_end(session.id)
        return session

    def end(self, session: Session) -> None:
        """End a session; its pages end with it."""
        if self._sessions.pop(session.id, None) is not None:
            session.callers.clear()
            self._ended(session)

    def _end_idle(self) -> None:
        least = self._clock.monotonic() - IDLE_LIMIT
        while self._sessions and (oldest := next(iter(self._sessions.values()))).used_at < least:
            self.end(oldest)
