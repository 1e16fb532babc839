"""Repair: what every store has in common. The back ends rebuild links from records; see their modules."""

from pathlib import Path

from quire.store.base import Store, StoredDestination, WriteBatch
from quire.store.maintenance.findings import RepairReport
from quire.store.maintenance.open_store import OpenStore
from quire.store.maintenance.store_maintenance import StoreMaintenance


def repair(opened: OpenStore, damaged_file: Path) -> RepairReport:
    """Repair a store.

    Records are what counts: links, counts and indexes are made to agree with them. A damaged record is taken out and
    written to a file. A lane whose destination is lost becomes a queue named ``Recovered.`` and its number.

    Args:
        opened: the store, with its lock held.
        damaged_file: where damaged records are written; it must not be there, and is made only if there are any.

    Returns:
        What was done.
    """
    report = opened.maintenance.repair(damaged_file)
    return report._replace(adopted=_adopt(opened.store, opened.maintenance))


def _adopt(store: Store, maintenance: StoreMaintenance) -> int:
    """Give lanes without a destination one.

    Returns:
        How many there were.
    """
    known = store.destinations()
    owned = {lane for destination in known for lane in destination.lanes}
    strays = [lane for lane in maintenance.lanes() if lane not in owned]
    batch = WriteBatch()
    last = max((destination.id for destination in known), default=0)
    for number, lane in enumerate(strays, last + 1):
        batch.destinations[number] = StoredDestination(number, "queue", f"Recovered.{lane}", {}, (lane,))
    store.apply(batch)
    return len(strays)
