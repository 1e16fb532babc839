"""A number of histories keep what was promised; ``make test-simulation`` runs many more of them."""

import pytest

from tests.simulation.__main__ import report
from tests.simulation.history import Begin, End, Finish, History, Run, Settle, Turn, Wait
from tests.simulation.queues import QueueSetup, Send, Subscribe
from tests.simulation.run import WORLDS, crashing_everywhere, failure_of

SEEDS = 300
"""So many histories of each world."""

FAST = 50
"""So many of them are run by ``make test-fast`` too."""


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize(
    "seed", [seed if seed < FAST else pytest.param(seed, marks=pytest.mark.slow) for seed in range(SEEDS)]
)
def test_a_history_keeps_what_was_promised(world: str, seed: int) -> None:
    history = WORLDS[world].generate(seed)
    if failure_of(history):
        pytest.fail(f"seed {seed} of {world}\n{report(history)}", pytrace=False)


PAGED = History(
    QueueSetup(memory_limit=2500, maximum_redeliveries=0, numbered=("p0",)),
    (
        Send("p0", "a", 200, 5),
        Send("p1", "a", 900, 5, persistent=False),
        Turn(),
        Subscribe("c0", "a", "client", 5),
        Finish(),
        Run(),
        Settle("c0", 2, receipt=True),
        Begin("c0"),
        Settle("c0", 1),
        Send("c0", "b", 10, 2),
        End("c0"),
        Turn(),
        Settle("c0", reject=True),
        Finish(),
        Run(verify=True),
        Send("p0", "b", 200, 2),
        Subscribe("c0", "a", "client", 5),
        Subscribe("c1", "b", prefetch=1),
        *[step for _ in range(4) for step in (Run(), Settle("c0", 4), Settle("c1"), Turn(), Finish(), Wait(1.0))],
    ),
)
"""Paging, the spool, a transaction over two queues, a dead letter: every kind of call of the stores."""


@pytest.mark.slow
def test_a_broker_may_crash_at_any_call_of_its_stores() -> None:
    histories = list(crashing_everywhere(PAGED))
    assert len(histories) > 100
    for history in histories:
        if failure_of(history):
            pytest.fail(report(history), pytrace=False)
