"""Who looks at the console, and what asks the brokers again and again, once for all pages that show the same.

A session has a secret in a cookie, and keeps the tokens of its brokers on the server.
"""

import asyncio
import contextlib
import secrets
from base64 import b64encode
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from quire.clock import Clock
from quire.console.broker_api import BrokerApi, path_of
from quire.errors import QuireError
from quire.security import Proof
from quire.security.accounts import split_token

IDLE_LIMIT = 8 * 3600.0  # after how many seconds without a request a session ends
MAX_SESSIONS = 1000  # how many sessions there are at most; the one that was not used for the longest time ends first
TOKEN_LIFETIME = 12 * 3600  # for how many seconds the console asks for a token; a session ends with it


@dataclass(eq=False)
class Caller:
    """One user of one broker: every call of a page is made as this user."""

    api: BrokerApi
    authorization: str | None = field(repr=False)  # the header that says who it is; None while the broker has no users
    who: dict[str, Any]  # what the broker says of the user (``GET /whoami``)
    token: str = ""  # the id of the token that the console has made, to revoke it; empty for none

    @property
    def permissions(self) -> frozenset[str]:
        return frozenset(self.who["permissions"])

    async def call(self, method: str, path: str, body: object = None, **query: object) -> dict[str, Any]:
        return await self.api.call(method, path, self.authorization, body, **query)


class Session:
    def __init__(self, now: float) -> None:
        self.id = secrets.token_urlsafe(32)
        self.used_at = now  # on the monotonic clock
        self.callers: dict[str, Caller] = {}  # by the broker's key

    def forget(self, caller: Caller) -> None:
        if self.callers.get(caller.api.key) is caller:
            del self.callers[caller.api.key]


class Sessions:
    """All sessions; ``ended`` is told of each one that ends."""

    def __init__(self, clock: Clock, ended: Callable[[Session], None]) -> None:
        self._clock = clock
        self._ended = ended
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # the one that was used last is at the end

    def __len__(self) -> int:
        return len(self._sessions)

    def new(self) -> Session:
        self._end_idle()
        while len(self._sessions) >= MAX_SESSIONS:
            self.end(next(iter(self._sessions.values())))
        session = Session(self._clock.monotonic())
        self._sessions[session.id] = session
        return session

    def find(self, identity: str | None) -> Session | None:
        self._end_idle()
        session = self._sessions.get(identity or "")
        if session is not None:
            session.used_at = self._clock.monotonic()
            self._sessions.move_to_end(session.id)
        return session

    def end(self, session: Session) -> None:
        if self._sessions.pop(session.id, None) is not None:
            session.callers.clear()
            self._ended(session)

    def _end_idle(self) -> None:
        least = self._clock.monotonic() - IDLE_LIMIT
        while self._sessions and (oldest := next(iter(self._sessions.values()))).used_at < least:
            self.end(oldest)


class Access:
    """Logs users in and out. A password goes to the broker once; what is kept is a token, which ends."""

    def __init__(self) -> None:
        self._leaving: set[asyncio.Task[None]] = set()

    async def without_login(self, api: BrokerApi) -> Caller:
        return Caller(api, None, await api.call("GET", "/whoami"))

    async def log_in(self, api: BrokerApi, user: str, password: str) -> Caller:
        """A caller for a user; a token or an access token may stand in the place of the password.

        Raises:
            QuireError: the broker does not accept the user.
        """
        basic = "Basic " + b64encode(f"{user}:{password}".encode()).decode()
        if split_token(password) or password.count(".") == 2:  # it may be a token, which can make no other
            who = await api.call("GET", "/whoami", basic)
            if who["proof"] in (Proof.TOKEN, Proof.JWT):
                return Caller(api, f"Bearer {password}", who)
        made = await api.call("POST", "/tokens", basic, {"expires_in": TOKEN_LIFETIME, "text": "console"})
        bearer = f"Bearer {made['secret']}"
        return Caller(api, bearer, await api.call("GET", "/whoami", bearer), made["token"]["id"])

    def leave(self, callers: list[Caller]) -> None:
        for caller in callers:
            if caller.token:
                task = asyncio.create_task(_revoke(caller))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)


async def _revoke(caller: Caller) -> None:
    with contextlib.suppress(QuireError):  # it ends by itself later
        await caller.call("DELETE", path_of("tokens", caller.token))


Take = Callable[[dict[str, Any] | QuireError], None]  # takes each answer, or why there is none


class Watch:
    """One page's part in a poller. It is idle until the page is seen."""

    def __init__(self, poller: "Poller", take: Take) -> None:
        self.poller = poller
        self.take = take

    def show(self, seen: bool) -> None:
        self.poller.set_active(self, seen)

    def close(self) -> None:
        self.show(seen=False)
        self.poller.watches.discard(self)


class Poller:
    def __init__(self, caller: Caller, path: str, query: dict[str, object], seconds: float) -> None:
        self._caller = caller
        self._path = path
        self._query = query
        self._seconds = seconds
        self.watches: set[Watch] = set()  # of pages that are seen or hidden
        self._active: list[Watch] = []
        self._task: asyncio.Task[None] | None = None

    def set_active(self, watch: Watch, seen: bool) -> None:
        """Ask while at least one page is seen."""
        if seen and watch not in self._active:
            self._active.append(watch)
        elif not seen and watch in self._active:
            self._active.remove(watch)
        if self._active and self._task is None:
            self._task = asyncio.create_task(self._run())
        elif not self._active and self._task is not None:
            self._task.cancel()
            self._task = None

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            answer: dict[str, Any] | QuireError
            try:
                answer = await self._caller.call("GET", self._path, **self._query)
            except QuireError as error:
                answer = error
            for watch in list(self._active):
                watch.take(answer)


class Pollers:
    """All pollers: pages of one user that ask the same share one."""

    def __init__(self) -> None:
        self._pollers: dict[tuple[object, ...], Poller] = {}

    def __len__(self) -> int:
        return len(self._pollers)

    def watch(self, caller: Caller, path: str, query: dict[str, object], seconds: float, take: Take) -> Watch:
        """Have a question asked every some seconds, once ``Watch.show`` says that the page is seen."""
        for unused in [key for key, poller in self._pollers.items() if not poller.watches]:
            del self._pollers[unused]
        key = (caller.api.key, caller.authorization, path, tuple(sorted(query.items(), key=str)), seconds)
        watch = Watch(self._pollers.setdefault(key, Poller(caller, path, query, seconds)), take)
        watch.poller.watches.add(watch)
        return watch
