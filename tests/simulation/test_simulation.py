"""A number of random histories keep what was promised; ``python -m tests.simulation`` runs more of them."""

import pytest

from tests.simulation.simulation import Simulation


@pytest.mark.parametrize("seed", range(100))
def test_a_history_keeps_what_was_promised(seed: int) -> None:
    simulation = Simulation(seed)
    try:
        simulation.run()
    except Exception:
        print(f"seed {seed}", *simulation.history, sep="\n")
        raise
