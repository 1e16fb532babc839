"""Who has a queue for itself, and who has which message group."""

from quire.message import Message
from tests.simulation.queues.subscribed import Subscribed
from tests.simulation.rules import Broken, Rule


class Ownership:
    """Watches what consumers get, and of whom it must be theirs alone."""

    def __init__(self) -> None:
        self._present: dict[str, list[Subscribed]] = {}
        self._groups: dict[tuple[str, str], Subscribed] = {}
        self._subscriptions = 0

    def crash(self) -> None:
        """The broker has forgotten everybody."""
        self._present.clear()
        self._groups.clear()

    def came(self, subscribed: Subscribed, *, in_order: bool) -> None:
        """Somebody subscribes."""
        present = self._present.setdefault(subscribed.queue, [])
        subscribed.alone = in_order and not present
        present.append(subscribed)
        owner = self._exclusive(subscribed.queue)
        for other in present:
            other.alone = other.alone and (len(present) == 1 or other is owner)

    def observe(self, present: list[Subscribed]) -> None:
        """Look at what came to consumers in this step."""
        self._present = {queue: [s for s in known if s in present] for queue, known in self._present.items()}
        self._groups = {key: owner for key, owner in self._groups.items() if owner in present}
        for subscribed in present:
            for sent in subscribed.got_now:
                owner = self._exclusive(subscribed.queue)
                if owner not in (None, subscribed):
                    raise Broken(Rule.OWNER, f"{sent} came to another than the exclusive consumer of {sent.queue}")
                if sent.draft.group:
                    self._take(subscribed, sent.draft.group)

    def _take(self, subscribed: Subscribed, group: str) -> None:
        """A consumer got a message of a group. Selectors and exclusive consumers may take a group away."""
        owner = self._groups.get((subscribed.queue, group))
        strict = not any([s.color or s.exclusive for s in self._present[subscribed.queue]])
        if strict and owner not in (None, subscribed):
            raise Broken(Rule.OWNER, f"group {group} of {subscribed.queue} has two consumers")
        self._groups[subscribed.queue, group] = subscribed

    def has_exclusive(self, queue: str) -> bool:
        """Whether a queue has an exclusive consumer."""
        return self._exclusive(queue) is not None

    def _exclusive(self, queue: str) -> Subscribed | None:
        exclusive = [s for s in self._present.get(queue, ()) if s.exclusive]
        return max(exclusive, key=lambda s: s.priority) if exclusive else None

    def may_have(self, subscribed: Subscribed, message: Message) -> bool:
        """Whether a message that nobody has could be given to a consumer."""
        if self._exclusive(subscribed.queue) not in (None, subscribed):
            return False
        if not subscribed.wants(message.header(b"color") or ""):
            return False
        owner = self._groups.get((subscribed.queue, message.header(b"JMSXGroupID") or ""))
        return owner in (None, subscribed)
