"""The steps that are the same in every world: what the broker, its stores and the time do."""

from typing import Any, Literal

from msgspec import Struct

from quire.errors import StoreError, StoreFull
from tests.simulation.life import Life


class Step(Struct, frozen=True, omit_defaults=True, tag_field="do", tag=str.lower):
    """A step. It is written as a line of JSON, ``do`` being the name of its class."""

    def act(self, world: Any) -> None:
        """Do it. Without anything to act on it does nothing."""
        raise NotImplementedError


class Turn(Step, frozen=True):
    """The broker has one turn, if it wants one."""

    def act(self, world: Life) -> None:
        """Turn."""
        world.stepped.turn()


class Finish(Step, frozen=True):
    """The commit under way ends, if there is one.

    Attributes:
        fails: whether the store refuses it.
    """

    fails: bool = False

    def act(self, world: Life) -> None:
        """End it."""
        world.end_commit(fails=self.fails)


class Run(Step, frozen=True):
    """The broker does all it can do at this time; then everything must have gone on that can.

    Attributes:
        verify: whether the store is verified too.
    """

    verify: bool = False

    def act(self, world: Life) -> None:
        """Run."""
        world.note("the broker comes to rest")
        world.rest(verify=self.verify)


class Wait(Step, frozen=True):
    """Time goes by.

    Attributes:
        seconds: how much.
    """

    seconds: float

    def act(self, world: Life) -> None:
        """Wait."""
        world.note(f"{self.seconds} s go by")
        world.stepped.advance(self.seconds)


class Fail(Step, frozen=True):
    """The next call of a kind fails.

    Attributes:
        what: a read of the store, or a write of the spool.
    """

    what: Literal["read", "spool"]

    def act(self, world: Life) -> None:
        """Fail."""
        world.note(f"the next {self.what} fails")
        if self.what == "read":
            world.store.read_error = StoreError("a read failed")
        else:
            world.spool_store.write_error = StoreFull("no space in the spool")


class Crash(Step, frozen=True):
    """The broker dies, and starts again.

    Attributes:
        at: at which of the next calls of its stores; 0 for now.
        written: whether the commit under way is written, though nobody hears of it.
    """

    at: int = 0
    written: bool = False

    def act(self, world: Life) -> None:
        """Crash."""
        world.plan_crash(self.at, written=self.written)
