"""How a user of the console becomes known to a broker."""

import asyncio
import contextlib
from base64 import b64encode

from quire.console.broker_api import BrokerApi, path_of
from quire.console.session import TOKEN_LIFETIME, Caller
from quire.errors import QuireError
from quire.security import Proof
from quire.security.accounts import split_token


class Access:
    """Logs users in and out. A password goes to the broker once; what is kept is a token, which ends."""

    def __init__(self) -> None:
        self._leaving: set[asyncio.Task[None]] = set()

    async def without_login(self, api: BrokerApi) -> Caller:
        """A caller for a broker without users.

        Raises:
            LoginNeeded: it has users.
        """
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
        """Have the brokers forget the tokens; the caller does not wait for it."""
        for caller in callers:
            if caller.token:
                task = asyncio.create_task(_revoke(caller))
                self._leaving.add(task)
                task.add_done_callback(self._leaving.discard)


async def _revoke(caller: Caller) -> None:
    with contextlib.suppress(QuireError):  # it ends by itself later
        await caller.call("DELETE", path_of("tokens", caller.token))
