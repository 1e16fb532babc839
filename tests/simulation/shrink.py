"""Makes a history that fails shorter, until no step can be left out, and plainer, until nothing of a step can."""

from collections.abc import Callable
from typing import TypeVar

from msgspec import Struct, structs

from tests.simulation.history import History
from tests.simulation.run import failure_of, kind_of
from tests.simulation.steps import Step

_Part = TypeVar("_Part", bound=Struct)

SHORT_LIMIT = 0.3
"""How many seconds of this process each try may take: a history that never ends is tried as often as any."""

Fails = Callable[[History], bool]
"""Whether a history still fails in the way that is looked for."""


def shrink(history: History, fails: Fails) -> History:
    """Leave out runs of steps, long ones first, as long as the rest fails in the same way (delta debugging)."""
    before = None
    while history != before:  # with plainer steps, and a plainer setup, more of them may be left out
        before = history
        history = _shorter(history, fails)
        for index in range(len(history.steps)):
            history = _with_plain_step(history, index, fails)
        history = _with_plain_setup(history, fails)
    return history


def _shorter(history: History, fails: Fails) -> History:
    """Leave out runs of steps, as many as can be."""
    size = len(history.steps) // 2
    while size:
        shorter = _without_runs(history, size, fails)
        if len(shorter.steps) == len(history.steps):
            size //= 2
        history = shorter
        size = min(size, len(history.steps))
    return history


def _with_plain_setup(history: History, fails: Fails) -> History:
    return History(_plain(history.setup, lambda setup: fails(History(setup, history.steps))), history.steps)


def _with_plain_step(history: History, index: int, fails: Fails) -> History:
    def changed(step: Step) -> History:
        return History(history.setup, (*history.steps[:index], step, *history.steps[index + 1 :]))

    return changed(_plain(history.steps[index], lambda step: fails(changed(step))))


def _plain(part: _Part, fails: Callable[[_Part], bool]) -> _Part:
    """Give every field of a step or a setup its default that need not have another value."""
    for field in structs.fields(part):
        value = getattr(part, field.name)
        if not field.required and value is not field.default:
            plainer = structs.replace(part, **{field.name: field.default})
            if value == field.default or fails(plainer):
                part = plainer
    return part


def _without_runs(history: History, size: int, fails: Fails) -> History:
    """Leave out every run of so many steps that can be spared, from the end on."""
    for start in range(len(history.steps) - size, -size, -size):
        first = max(start, 0)
        shorter = History(history.setup, history.steps[:first] + history.steps[start + size :])
        if fails(shorter):
            history = shorter
    return history


def shrink_failure(history: History) -> History:
    """The shortest history found that fails as this one does."""
    failure = failure_of(history)
    if failure is None:
        return history
    kind = kind_of(failure)

    def fails(shorter: History) -> bool:
        found = failure_of(shorter, limit=SHORT_LIMIT)
        return found is not None and kind_of(found) == kind

    return shrink(history, fails)
