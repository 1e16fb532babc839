"""A history as an explicit list of steps, which can be written down, read again, and shortened."""

import msgspec
from msgspec import Struct

from quire.settings import Settings
from tests.simulation.steps import Step


class Setup(Struct, frozen=True, omit_defaults=True):
    """What a history begins with: the broker's limits. Each world has its own kind."""

    def settings(self) -> Settings:
        """The settings of the broker."""
        raise NotImplementedError


class History(Struct, frozen=True):
    """What happens to a broker.

    Any steps of it make a history too: one that has nothing to act on does nothing.

    Attributes:
        setup: what it begins with; it says which world it is about.
        steps: what happens.
    """

    setup: Setup
    steps: tuple[Step, ...]

    def lines(self) -> list[str]:
        """The history as lines of JSON: the setup, then a step each."""
        return [msgspec.json.encode(part).decode() for part in (self.setup, *self.steps)]
