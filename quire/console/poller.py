"""Asks a broker again and again, once for all pages that show the same."""

import asyncio
from collections.abc import Callable
from typing import Any

from quire.console.session import Caller
from quire.errors import QuireError

Take = Callable[[dict[str, Any] | QuireError], None]
"""Takes each answer, or why there is none."""


class Watch:
    """One page's part in a poller. It is idle until the page is seen."""

    def __init__(self, poller: "Poller", take: Take) -> None:
        self._poller = poller
        self.take = take

    def show(self, seen: bool) -> None:
        """The page is seen, or it is hidden or gone."""
        self._poller.set_active(self, seen)

    def close(self) -> None:
        """The page is gone, or asks no more."""
        self._poller.remove(self)


class Poller:
    """One question to one broker by one user."""

    def __init__(self, caller: Caller, path: str, query: dict[str, object], seconds: float) -> None:
        self._caller = caller
        self._path = path
        self._query = query
        self._seconds = seconds
        self._watches: list[Watch] = []
        self._active: list[Watch] = []
        self._task: asyncio.Task[None] | None = None

    def add(self, take: Take) -> Watch:
        """A page that is told the answers."""
        watch = Watch(self, take)
        self._watches.append(watch)
        return watch

    def remove(self, watch: Watch) -> None:
        """A page less."""
        self.set_active(watch, seen=False)
        if watch in self._watches:
            self._watches.remove(watch)

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

    @property
    def is_unused(self) -> bool:
        """Whether no page has it."""
        return not self._watches

    async def ask(self) -> None:
        """Ask once, and tell all pages."""
        answer: dict[str, Any] | QuireError
        try:
            answer = await self._caller.call("GET", self._path, **self._query)
        except QuireError as error:
            answer = error
        for watch in list(self._active):
            watch.take(answer)

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._seconds)
            await self.ask()


class Pollers:
    """All pollers: pages of one user that ask the same share one."""

    def __init__(self) -> None:
        self._pollers: dict[tuple[object, ...], Poller] = {}

    def __len__(self) -> int:
        return len(self._pollers)

    def watch(self, caller: Caller, path: str, query: dict[str, object], seconds: float, take: Take) -> Watch:
        """Have a question asked every some seconds, once ``Watch.show`` says that the page is seen."""
        for unused in [key for key, poller in self._pollers.items() if poller.is_unused]:
            del self._pollers[unused]
        key = (caller.api.key, caller.authorization, path, tuple(sorted(query.items(), key=str)), seconds)
        poller = self._pollers.setdefault(key, Poller(caller, path, query, seconds))
        return poller.add(take)
