"""What the dispatch of lanes leaves to those whose lanes they are."""

from collections.abc import Callable
from typing import NamedTuple

from quire.broker.queues.queue_part import QueuePart
from quire.message import Message


class DispatchHandlers(NamedTuple):
    """What is called where the kinds of destinations differ; None where there is nothing to do.

    Attributes:
        gathered: settles what has gathered elsewhere; called before messages are given out, and before a commit begins.
        appends_failed: refuses what came in a commit that failed, or has it come again.
        relocate: moves messages that failed elsewhere, with the open commit, and is told the cause; whether it does so.
        as_letter: makes what a message is as a dead letter; None if it is as it was.
        consumers_changed: a consumer came, or has gone.
        refuse_hiding: is told how many messages were to be hidden, where none may be.
    """

    gathered: Callable[[], None] | None = None
    appends_failed: Callable[[QueuePart], None] | None = None
    relocate: Callable[[list[Message], str], bool] | None = None
    as_letter: Callable[[Message], Message] | None = None
    consumers_changed: Callable[[], None] | None = None
    refuse_hiding: Callable[[int], None] | None = None


NO_HANDLERS = DispatchHandlers()
