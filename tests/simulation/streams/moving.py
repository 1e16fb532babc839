"""An operator moves a group: what is told of it before, what becomes of it, and what the model makes of that."""

from typing import TYPE_CHECKING, Literal

from quire.broker.streams.groups.group import Group
from quire.broker.streams.groups.groups import PartitionChange, reset, shift
from quire.broker.streams.partition import Start, StartKind
from tests.simulation.rules import Broken, Rule
from tests.simulation.streams.consumption import Consumption
from tests.simulation.streams.log import Record
from tests.simulation.streams.work import Place, State

if TYPE_CHECKING:
    from tests.simulation.streams.world import StreamWorld

To = Literal["earliest", "latest", "offset", "shift"]


def move(world: "StreamWorld", consumption: Consumption, to: To, value: int, partition: int | None) -> None:
    """Move a group."""
    group = world.group(consumption)
    told = _changes(group, to, value, partition, dry_run=True)
    done = _changes(group, to, value, partition, dry_run=False)
    if told != done:
        raise Broken(Rule.MOVED, f"{consumption} was to be moved by {told}, and was by {done}")
    places = {change.partition: change.to_offset for change in done}
    world.note(f"{consumption} is moved to {places}")
    with world.points.muted():
        world.look_at_log()
        for change in done:
            _check(world, consumption, change)
        consumption.move(places)
        world.lookout(consumption).moved(places)
        for _, acknowledged in world.commits:  # whether they fail or not is of no concern any more
            acknowledged[:] = [
                a for a in acknowledged if a.consumption is not consumption or not _is_of(a.work.record, places)
            ]


def _is_of(record: Record, places: dict[int, int]) -> bool:
    return record.partition in places


def _changes(group: Group, to: To, value: int, partition: int | None, *, dry_run: bool) -> list[PartitionChange]:
    if to == "shift":
        return shift(group, value, partition, dry_run=dry_run)
    return reset(group, Start(StartKind(to), value if to == "offset" else 0), partition, dry_run=dry_run)


def _check(world: "StreamWorld", consumption: Consumption, change: PartitionChange) -> None:
    """What is told is exact, as far as it is known."""
    here = [record for record in world.log.records[change.partition].values() if not record.is_leaving]
    works = [consumption.work(record) for record in here if consumption.is_about(record)]
    is_durable = consumption.moved_at <= world.moments.durable  # else some of it is forgotten, and still in the store
    if consumption.of.color or not is_durable or any([len(work.possible) > 1 for work in works]):
        return
    states = {work.record.offset: state for work in works for state in work.possible}
    waiting = {offset for offset, state in states.items() if state.place is Place.WAITING}
    again = len([r for r in here if r.offset >= change.to_offset and r.offset not in waiting])
    skipped = len([offset for offset in waiting if offset < change.to_offset])
    retries = len([state for state in states.values() if _is_retried(state)])
    counted = (change.again, change.skipped, change.in_flight, change.retries_dropped)
    if counted != (again, skipped, len(consumption.in_hands(change.partition)), retries):
        raise Broken(Rule.MOVED, f"{change} should say again {again}, skipped {skipped}, retries {retries}")


def _is_retried(state: State) -> bool:
    return state.place is Place.RETRY or (state.place is Place.WAITING and state.failures > 0)
