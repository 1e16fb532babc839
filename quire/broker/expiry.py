"""The expiry sweep: removes what has expired, through the indexes of expirations. No cursor moves.

A sweep is work in steps. A step has a budget of messages, of bytes and of time; no body is read unless a part needs
it, for a dead letter say.
"""

from collections import defaultdict
from collections.abc import Iterator

from quire.broker.core.core import Core
from quire.broker.expired_entries import ExpiredEntries
from quire.broker.expired_messages import Cost, ExpiredMessages
from quire.errors import StoreError

STEP = 4000
"""What the removals of one step may cost: about as many messages."""

STEP_BYTES = 2 << 20
"""How many bytes of messages one step reads or writes, if it is about more than one message."""

BUDGET = 0.006
"""How long one step takes, in seconds; a removal that has begun ends."""

GATHERED = 20_000
"""How many entries are gathered before they are removed, one lane after the other."""


class Expiry:
    """Sweeps all queues and topics every ``broker.expiry_interval``."""

    def __init__(self, core: Core, messages: ExpiredMessages) -> None:
        self._core = core
        self._messages = messages
        self._stored = ExpiredEntries(core.store, core.clock)
        self._spooled = ExpiredEntries(core.spool, core.clock)
        self._work: Iterator[Cost] | None = None
        self._is_sweeping = False

    def start(self) -> None:
        """Sweep from now on."""
        self._core.scheduler.call_later(self._core.settings.broker.expiry_interval, self._begin)

    def _begin(self) -> None:
        self.start()
        if not self._is_sweeping:
            self._is_sweeping = True
            self._core.steps.add(self._step, "the removal of expired messages")

    def _step(self) -> bool:
        """Remove some of what has expired; whether there is more."""
        clock = self._core.clock
        end, messages, size = clock.monotonic() + BUDGET, 0, 0
        work = self._work = self._work or self._sweep(self._core.wall.past_ms())
        try:
            for cost in work:
                messages, size = messages + cost.messages, size + cost.bytes
                if messages >= STEP or size >= STEP_BYTES or clock.monotonic() >= end:
                    return True
        except StoreError:
            self._work = None  # the next step begins a sweep anew
            raise
        self._work, self._is_sweeping = None, False
        return False

    def _sweep(self, now_ms: int) -> Iterator[Cost]:
        yield from self._sweep_index(self._stored, now_ms, persistent=True)
        yield from self._sweep_index(self._spooled, now_ms, persistent=False)
        yield from self._messages.remove_unstored(now_ms)

    def _sweep_index(self, entries: ExpiredEntries, now_ms: int, *, persistent: bool) -> Iterator[Cost]:
        gathered: defaultdict[int, list[int]] = defaultdict(list)
        count = 0
        for found in entries.sweep(now_ms):
            for _, lane, sequence in found:
                gathered[lane].append(sequence)
            count += len(found)
            yield Cost(len(found) // 4)
            if count >= GATHERED:
                yield from self._remove(entries, gathered, persistent=persistent)
                gathered.clear()
                count = 0
        yield from self._remove(entries, gathered, persistent=persistent)
        entries.end()

    def _remove(self, entries: ExpiredEntries, gathered: dict[int, list[int]], *, persistent: bool) -> Iterator[Cost]:
        for lane, sequences in gathered.items():
            for cost in self._messages.remove(lane, sorted(sequences), persistent=persistent):
                entries.stayed += cost.stayed
                yield cost
