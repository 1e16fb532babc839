"""A history as an explicit list of steps, which can be written down, read again, and shortened."""

import msgspec
from msgspec import Struct

from tests.simulation.broker_steps import Step
from tests.simulation.setup import Setup
from tests.simulation.steps import AnyStep
from tests.simulation.streams.setup import StreamSetup
from tests.simulation.streams.steps import AnyStep as AnyStreamStep

OF_STREAMS = '{"world":"streams"'
"""How the first line of a history of streams begins."""


class History(Struct, frozen=True):
    """What happens to a broker.

    Any steps of it make a history too: one that has nothing to act on does nothing.

    Attributes:
        setup: what it begins with; it says which world it is about.
        steps: what happens.
    """

    setup: Setup | StreamSetup
    steps: tuple[Step, ...]

    def lines(self) -> list[str]:
        """The history as lines of JSON: the setup, then a step each."""
        return [msgspec.json.encode(part).decode() for part in (self.setup, *self.steps)]


def parse(text: str) -> History:
    """Read a history as ``History.lines`` writes it.

    Args:
        text: the lines; what does not begin with a brace is passed over, so that a whole report can be read.

    Raises:
        msgspec.ValidationError: a line is neither a setup nor a step.
        ValueError: there is no line.
    """
    setup, *steps = [line for line in text.splitlines() if line.startswith("{")]
    if setup.startswith(OF_STREAMS):
        return History(
            msgspec.json.decode(setup, type=StreamSetup),
            tuple([msgspec.json.decode(step, type=AnyStreamStep) for step in steps]),
        )
    return History(
        msgspec.json.decode(setup, type=Setup, strict=True),
        tuple([msgspec.json.decode(step, type=AnyStep) for step in steps]),
    )
