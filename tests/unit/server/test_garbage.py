"""The collector of cycles looks at what is new; at everything only when that is short, or when much has ended."""

import gc
import weakref
from collections.abc import Iterator

import pytest

from quire.clock import ManualClock
from quire.scheduler import Scheduler
from quire.server import event_loop as event_loop_module
from quire.server.event_loop import CHECK_PERIOD, GarbageCollection

pytestmark = pytest.mark.slow  # it looks at all objects of the test run


class Node:
    def __init__(self) -> None:
        self.myself = self


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.scheduler = Scheduler(self.clock)
        self.ended = 0
        self.collection = GarbageCollection(self.scheduler, lambda: self.ended)

    def old_garbage(self) -> "weakref.ref[Node]":
        """Something that has survived a full collection, and is garbage then."""
        node = Node()
        gc.collect()
        return weakref.ref(node)

    def later(self) -> None:
        self.clock.advance(CHECK_PERIOD)
        self.scheduler.run_due()


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    rig.collection.start()
    yield rig
    rig.collection.stop()
    assert gc.get_threshold() != event_loop_module.THRESHOLDS
    assert gc.get_freeze_count() == 0
    gc.freeze()  # as tests/conftest.py has it


def test_what_was_set_aside_before_the_start_is_not_looked_at() -> None:
    rig, node = Rig(), Node()
    reference = weakref.ref(node)
    gc.freeze()
    del node
    rig.collection.start()
    assert reference() is not None
    rig.collection.collect_all()
    assert reference() is None
    rig.collection.stop()
    gc.freeze()  # as tests/conftest.py has it


def test_what_is_there_at_the_start_is_not_looked_at_again() -> None:
    rig, node = Rig(), Node()
    reference = weakref.ref(node)
    rig.collection.start()
    del node
    gc.collect()
    assert reference() is not None
    rig.collection.stop()
    gc.freeze()  # as tests/conftest.py has it


def test_what_has_survived_is_not_looked_at_again(rig: Rig) -> None:
    reference = rig.old_garbage()
    gc.collect()
    assert reference() is not None


def test_all_is_looked_at_once_a_minute_while_that_is_short(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop_module, "FEW", 10_000_000)
    reference = rig.old_garbage()
    rig.later()
    assert reference() is None


def test_or_when_much_has_ended(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(event_loop_module, "FEW", 0)
    reference = rig.old_garbage()
    rig.ended = 3
    rig.later()
    assert reference() is not None
    rig.ended = gc.get_freeze_count()
    rig.later()
    assert reference() is None
