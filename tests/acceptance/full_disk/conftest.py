"""A small disk and a broker on it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.acceptance.full_disk.scenario import SIZE, CannotMount, FullDisk, SmallDisk, mounted

MakeFullDisk = Callable[..., FullDisk]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[SmallDisk]:
    try:
        with mounted(tmp_path / "small", SIZE) as disk:
            yield disk
    except CannotMount as error:
        pytest.skip(f"no small file system can be mounted here: {error}")


@pytest.fixture
def make_full_disk(tmp_path: Path, small_disk: SmallDisk) -> Iterator[MakeFullDisk]:
    """Makes a broker on the small disk, not started; it is killed at the end."""
    made: list[FullDisk] = []

    def make(kind: str, **settings: str) -> FullDisk:
        made.append(FullDisk(tmp_path, small_disk, kind, settings))
        return made[-1]

    yield make
    for full in made:
        full.broker.kill()
