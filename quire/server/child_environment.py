"""The environment of processes that the broker starts."""

import os
from pathlib import Path

import quire


def child_environment() -> dict[str, str]:
    """The broker's, with a path on which Python finds the very code that the broker runs, wherever it was started."""
    places = [str(Path(quire.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places))}
