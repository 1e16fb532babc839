"""What a connection's transactions gave back: clients exist that roll back and then acknowledge the same delivery.

Such a late acknowledgement is no error. It settles the message if that still waits in its queue. If it was given out
again, the acknowledgement of that delivery counts. A late rejection says nothing new: the rollback was one.
"""

from itertools import islice

from quire.broker.core.subscription import AckMode, Subscription
from quire.broker.transactions.waiting_messages import find_waiting, settle_waiting, take_waiting

LIMIT = 1000
"""Of so many messages a late acknowledgement is known; of the oldest of more it is an error, as any unknown one."""


class RolledBack:
    """The messages that came back last, in the order they did."""

    def __init__(self) -> None:
        self._known: dict[tuple[Subscription, int], None] = {}

    def note(self, came_back: dict[Subscription, list[int]]) -> None:
        """A transaction was rolled back."""
        for subscription, sequences in came_back.items():
            for sequence in sequences:
                self._known.pop((subscription, sequence), None)
                self._known[subscription, sequence] = None
        for oldest in list(islice(self._known, max(0, len(self._known) - LIMIT))):
            del self._known[oldest]

    def covered(self, subscription: Subscription, sequence: int) -> list[int]:
        """What a late acknowledgement is about: a message, or in ``client`` mode all that came back up to it.

        Returns:
            Sequences; none if the message did not come back, or too long ago.
        """
        if (subscription, sequence) not in self._known:
            return []
        if subscription.ack is not AckMode.CLIENT:
            return [sequence]
        own = [known for owner, known in self._known if owner is subscription]
        return own[: own.index(sequence) + 1]

    def settle(self, subscription: Subscription, sequences: list[int]) -> None:
        """Settle those of some messages that came back and still wait.

        Raises:
            StoreError: they cannot be read. They may be settled later.
        """
        late = sorted([sequence for sequence in sequences if (subscription, sequence) in self._known])
        found = find_waiting(subscription.source, late)
        for sequence in late:
            del self._known[subscription, sequence]
        if messages := take_waiting(subscription.source, found):
            settle_waiting(subscription.source, messages)

    def forget(self, subscriptions: set[Subscription]) -> None:
        """Consumers go."""
        self._known = {key: None for key in self._known if key[0] not in subscriptions}
