"""Histories: drawn from a seed, written down, read again, shortened."""

from collections.abc import Callable

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.simulation.history import History, Run
from tests.simulation.queues import QueueSetup, Send
from tests.simulation.run import WORLDS, failure_of, parse, shrink

SEEDS = st.integers(0, 1 << 32)
EACH_WORLD = pytest.mark.parametrize("generate", [world.generate for world in WORLDS.values()], ids=list(WORLDS))
Generate = Callable[[int], History]


@EACH_WORLD
@given(SEEDS)
def test_a_seed_gives_one_history(generate: Generate, seed: int) -> None:
    assert generate(seed) == generate(seed)


@EACH_WORLD
@given(SEEDS)
def test_a_history_is_read_as_it_was_written(generate: Generate, seed: int) -> None:
    history = generate(seed)
    assert parse("\n".join(["seed 1", *history.lines(), "", "p0 sends p0-1"])) == history


@EACH_WORLD
def test_what_is_no_step_is_refused(generate: Generate) -> None:
    text = "\n".join(generate(0).lines())
    with pytest.raises(msgspec.ValidationError):
        parse(text + '\n{"do":"dance"}')


@pytest.mark.slow
@EACH_WORLD
@given(SEEDS, st.data())
def test_any_steps_of_a_history_make_a_history(generate: Generate, seed: int, data: st.DataObject) -> None:
    history = generate(seed)
    kept = [step for step in history.steps if data.draw(st.booleans())]
    assert failure_of(History(history.setup, tuple(kept))) is None


@given(st.integers(0, 40), st.integers(0, 40))
def test_shrinking_leaves_the_steps_that_it_takes(first: int, second: int) -> None:
    needed = {Send("p0", "a", first), Send("p1", "b", second)}
    steps = [Run()] * 20 + [Send("p0", "a", size) for size in range(41)] + [Send("p1", "b", size) for size in range(41)]
    shortest = shrink(History(QueueSetup(), tuple(steps)), lambda history: needed <= set(history.steps))
    assert set(shortest.steps) == needed
    assert len(shortest.steps) == 2
