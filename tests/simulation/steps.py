"""The steps that are the same in every world: what the broker, its stores, the time and any client do."""

from typing import Any, Literal

from msgspec import Struct

from quire.errors import StoreFull
from tests.simulation.client import SimulatedClient
from tests.simulation.life import Life


class Step(Struct, frozen=True, omit_defaults=True, tag_field="do", tag=str.lower):
    """A step. It is written as a line of JSON, ``do`` being the name of its class."""

    def act(self, world: Any) -> None:
        """Do it. Without anything to act on it does nothing."""
        raise NotImplementedError


class Turn(Step, frozen=True):
    """The broker has one turn, if it wants one."""

    def act(self, world: Life[SimulatedClient]) -> None:
        """Turn."""
        world.stepped.turn()


class Finish(Step, frozen=True):
    """The commit under way ends, if there is one.

    Attributes:
        fails: whether the store refuses it.
    """

    fails: bool = False

    def act(self, world: Life[SimulatedClient]) -> None:
        """End it."""
        world.end_commit(fails=self.fails)


class Run(Step, frozen=True):
    """The broker does all it can do at this time; then everything must have gone on that can.

    Attributes:
        verify: whether the store is verified too.
    """

    verify: bool = False

    def act(self, world: Life[SimulatedClient]) -> None:
        """Run."""
        world.note("the broker comes to rest")
        world.rest(verify=self.verify)


class Wait(Step, frozen=True):
    """Time goes by.

    Attributes:
        seconds: how much.
    """

    seconds: float

    def act(self, world: Life[SimulatedClient]) -> None:
        """Wait."""
        world.note(f"{self.seconds} s go by")
        world.stepped.advance(self.seconds)


class Jump(Step, frozen=True):
    """The broker's clock is set.

    Attributes:
        ahead: by how many seconds it is ahead of the right one from now on; 0 for not at all.
    """

    ahead: float = 0.0

    def act(self, world: Life[SimulatedClient]) -> None:
        """Set it."""
        world.note(f"the clock is {self.ahead} s ahead")
        world.clock.set(self.ahead)


class Fail(Step, frozen=True):
    """Calls of a kind fail.

    Attributes:
        what: a read of the store, or a write of the spool.
        at: of reads, from which on; the next is 1.
        times: of reads, how many, one after the other.
    """

    what: Literal["read", "spool"]
    at: int = 1
    times: int = 1

    def act(self, world: Life[SimulatedClient]) -> None:
        """Fail."""
        if self.what == "read":
            world.note(f"of the next reads, {self.times} fail from number {self.at} on")
            world.store.fail_reads(self.at, self.times)
        else:
            world.note("the next write of the spool fails")
            world.spool_store.write_error = StoreFull("no space in the spool")


class Crash(Step, frozen=True):
    """The broker dies, and starts again.

    Attributes:
        at: at which of the next calls of its stores; 0 for now.
        written: whether the commit under way is written, though nobody hears of it.
    """

    at: int = 0
    written: bool = False

    def act(self, world: Life[SimulatedClient]) -> None:
        """Crash."""
        world.plan_crash(self.at, written=self.written)


class Begin(Step, frozen=True):
    """A client begins a transaction.

    Attributes:
        client: who.
    """

    client: str

    def act(self, world: Life[SimulatedClient]) -> None:
        """Begin."""
        world.client(self.client).begin()


class End(Step, frozen=True):
    """A client ends its transaction.

    Attributes:
        client: who.
        commit: whether it commits; it aborts otherwise.
    """

    client: str
    commit: bool = True

    def act(self, world: Life[SimulatedClient]) -> None:
        """End."""
        if client := world.clients.get(self.client):
            client.end(commit=self.commit)


class Leave(Step, frozen=True):
    """A client goes.

    Attributes:
        client: who.
        how: without a word, with one, or only as a consumer.
    """

    client: str
    how: Literal["vanish", "disconnect", "unsubscribe"] = "vanish"

    def act(self, world: Life[SimulatedClient]) -> None:
        """Go."""
        if client := world.clients.get(self.client):
            client.leave(self.how)


class Read(Step, frozen=True):
    """A client's connection takes output, or takes none.

    Attributes:
        client: who.
        on: whether it does.
    """

    client: str
    on: bool = True

    def act(self, world: Life[SimulatedClient]) -> None:
        """Take output or not."""
        if client := world.clients.get(self.client):
            client.read(on=self.on)


CommonStep = Turn | Finish | Run | Wait | Jump | Fail | Crash | Begin | End | Leave | Read
