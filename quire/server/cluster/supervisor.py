"""A broker of a cluster: it tells the database that it lives, and keeps the processes of its shards."""

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from math import inf
from typing import Protocol, TypeVar

from quire.clock import Clock
from quire.cluster.directory import LEASE, Directory
from quire.cluster.view import BrokerRow, View
from quire.errors import InvalidSettings, QuireError, StoreUnreachable
from quire.logs import event
from quire.server.cluster.crew import Crew

LOOK = 0.5
"""How often the broker looks at the database, in seconds."""

HURRY = 0.1
"""The same while a shard is without an owner, or is about to get another one: clients wait for it."""

RENEWAL = 1.0
"""How often it tells that it lives, in seconds."""

HANDOVER_LIMIT = 15.0
"""How long a broker that stops waits until others stand by for its next shard, in seconds."""

T = TypeVar("T")


async def waited_for(
    call: Callable[[], Awaitable[T]], clock: Clock, patience: float, sleep: Callable[[float], Awaitable[None]]
) -> T:  # fmt: skip
    """What a call of the directory returns, as soon as the database of the cluster answers.

    Args:
        patience: how long to wait for that, in seconds.

    Raises:
        StoreUnreachable: it does not.
    """
    ends, is_told = clock.monotonic() + patience, False
    while True:
        try:
            return await call()
        except StoreUnreachable as error:
            if clock.monotonic() >= ends:
                raise
            if not is_told:
                text = f"the broker waits up to {patience:g} s for the database of the cluster: {error}"
                event("store.waited-for", text, logging.WARNING, code=error.code)
            is_told = True
        await sleep(LOOK)


class Ask(Protocol):
    """Makes a call that waits for the database, on a thread."""

    def __call__(self, call: Callable[[], T], /) -> Awaitable[T]:
        """Its result."""


class Supervisor:
    """One broker of a cluster.

    Args:
        directory: the database of the cluster.
        crew: its processes.
        row: what others see of the broker; ``run``, ``standing_by`` and ``leaving`` are set here.
        ask: makes calls of the directory.
    """

    def __init__(self, directory: Directory, crew: Crew, row: BrokerRow, clock: Clock, ask: Ask) -> None:
        self._directory = directory
        self._crew = crew
        self._row = row._replace(run=secrets.token_hex(8))
        self._clock = clock
        self._renewed = -RENEWAL
        self._renewed_row: BrokerRow | None = None
        self._ends_at: float | None = None  # it leaves; then it waits for others no longer
        self._had = 0  # so many shards run when it was looked last, while it leaves
        self._is_moving = False  # whether a shard is without an owner, or is about to get another one
        self._waits_until = inf  # for its name, which the process before it may still have
        self._is_unreachable = False
        self._wake = asyncio.Event()
        self._ask = ask

    def wake(self) -> None:
        """Look now: something happened to a process."""
        self._wake.set()

    def leave(self) -> None:
        """Give up all shards and stop; the second time at once."""
        now = self._clock.monotonic()
        if self._ends_at is None:
            event("cluster.leaving", "the broker leaves: it stops when others have taken its shards")
            self._ends_at, self._had = now + HANDOVER_LIMIT, len(self._crew.running)
        else:
            self._ends_at = now
        self._wake.set()

    async def run(self) -> None:
        """Until it has left. It may raise what makes it impossible to go on."""
        while not (self._crew.is_ending and self._crew.is_empty):
            self._wake.clear()
            await self.look()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), self.pause)
        await self._tell_end()

    @property
    def pause(self) -> float:
        """How long it is until the next look, in seconds, if nothing happens to a process."""
        return HURRY if self._is_moving else LOOK

    async def look(self) -> None:
        """Tell the database what is new, read it, and do what it makes necessary."""
        try:
            await self._tell()
            view = await self._ask(self._directory.read)
        except StoreUnreachable as error:
            if not self._is_unreachable:
                event("cluster.unreachable", f"{error}; shards that run go on", logging.WARNING)
            self._is_unreachable = True
        else:
            if self._is_unreachable:
                event("cluster.reached", "the database of the cluster answers again")
            self._is_unreachable = False
            if self._renewed_row is not None:
                self._take(view)
        self._end_when_left()

    def _take(self, view: View) -> None:
        ours = view.brokers.get(self._row.name)
        if ours is not None and ours.leaving and self._ends_at is None:  # an operator asked for it
            self.leave()
        self._is_moving = any([not row.address for row in view.shards.values()]) or any(
            [row.standing_by for row in view.brokers.values()]
        )
        self._crew.take(view)
        others = [row for row in view.brokers.values() if row.name != self._row.name and not row.leaving]
        if self._ends_at is not None and not others:
            self._ends_at = self._clock.monotonic()

    def _end_when_left(self) -> None:
        """Stop what is left once others have what they can take."""
        if self._ends_at is None or self._crew.is_ending:
            return
        now, has = self._clock.monotonic(), len(self._crew.running)
        if has < self._had and now < self._ends_at:  # it gets on
            self._had, self._ends_at = has, now + HANDOVER_LIMIT
        has_left = not has and not self._crew.is_giving_up
        if has_left or now >= self._ends_at:
            self._crew.stop_rest()

    async def _tell(self) -> None:
        """Tell who owns what, what is pinned, and that the broker lives."""
        crew, directory = self._crew, self._directory
        for shard, epoch in crew.to_withdraw():
            await self._ask(partial(directory.withdraw, shard, epoch))
            crew.withdrawn(shard, epoch)
        for row in crew.to_announce():
            crew.announced(row, await self._ask(partial(directory.announce, row)))
        for pin in crew.to_publish():
            await self._ask(partial(directory.pin, pin))
            crew.published(pin)
        ours = self._row._replace(standing_by=crew.standing_by, leaving=self._ends_at is not None)
        now = self._clock.monotonic()
        if ours != self._renewed_row or now - self._renewed >= RENEWAL:
            if await self._ask(partial(directory.renew, ours)):
                self._renewed, self._renewed_row = now, ours
            else:
                self._name_is_taken(now)

    def _name_is_taken(self, now: float) -> None:
        """Another process has the name. After a crash that is the one before, until its lease ends."""
        name = self._row.name
        if self._renewed_row is None:
            if self._waits_until == inf:
                text = f"a process of the name {name!r} was heard of less than {LEASE:g} s ago: the broker waits"
                event("cluster.name-taken", text)
                self._waits_until = now + LEASE + RENEWAL
            if now < self._waits_until:
                return
        text = f"another broker of the cluster has the name {name!r}: set another cluster.name"
        raise InvalidSettings(text, key="cluster.name", value=name)

    async def _tell_end(self) -> None:
        """The broker is no more: others need not wait until its lease ends."""
        try:
            for shard, epoch in self._crew.to_withdraw():
                await self._ask(partial(self._directory.withdraw, shard, epoch))
            await self._ask(partial(self._directory.remove, self._row))
        except QuireError as error:
            event("cluster.unreachable", f"{error}; the others see by themselves that it stopped", logging.WARNING)
