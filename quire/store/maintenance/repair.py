"""Repair: what every store has in common. Maintenance of each kind rebuilds links from records."""

from pathlib import Path

from quire.store.base import Store, StoredDestination, WriteBatch
from quire.store.maintenance.findings import RepairReport
from quire.store.maintenance.open_store import OpenStore
from quire.store.maintenance.store_maintenance import StoreMaintenance


def repair(opened: OpenStore, damaged_file: Path) -> RepairReport:
    """Repair a locked store from its records; a lane without a destination becomes a queue ``Recovered.N``."""
    report = opened.maintenance.repair(damaged_file)
    return report._replace(adopted=_adopt(opened.store, opened.maintenance))


def _adopt(store: Store, maintenance: StoreMaintenance) -> int:
    """Make destinations for lanes without one; returns how many."""
    known = store.destinations()
    owned = {lane for destination in known for lane in destination.lanes}
    strays = [lane for lane in maintenance.lanes() if lane not in owned]
    batch = WriteBatch()
    last = max((destination.id for destination in known), default=0)
    for number, lane in enumerate(strays, last + 1):
        batch.destinations[number] = StoredDestination(number, "queue", f"Recovered.{lane}", {}, (lane,))
    store.apply(batch)
    return len(strays)
