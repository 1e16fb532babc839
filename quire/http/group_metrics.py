"""The metrics of consumer groups. None has a member as a label: there may be any number of those.

There may be any number of groups too: each member of a broadcast is one. So the first groups, by stream and name, have
metrics of their own, ``GROUPS_SHOWN`` of them; of all groups together the lag is told by stream.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from quire.http.exposition import Family, Samples, written
from quire.management.consumer_group_info import ConsumerGroupStatus, GroupCounters

GROUPS_SHOWN = 1000
"""How many groups have metrics of their own."""

_LABELS = ("stream", "group")


class _Gauge(NamedTuple):
    """A metric of a group; None if it is not known, or there is nothing to tell."""

    name: str
    text: str
    value: Callable[[ConsumerGroupStatus], float | None]


class _Counter(NamedTuple):
    """A metric of what has happened in a group."""

    name: str
    text: str
    value: Callable[[GroupCounters], float]


_GAUGES = [
    _Gauge("quire_group_lag_messages", "Messages that are not finished, without retries.", lambda g: g.lag),
    _Gauge("quire_group_in_flight_messages", "Messages that members have, retries too.", lambda g: g.in_flight),
    _Gauge("quire_group_retry_messages", "Messages in the retry lane; absent if there is none.", lambda g: g.retries),
    _Gauge("quire_group_members", "Members, those that are awaited included.", lambda g: g.members),
    _Gauge("quire_group_connected_members", "Members that have a connection.", lambda g: g.connected),
    _Gauge("quire_group_epoch", "Number of the newest assignment: rebalances and resets.", lambda g: g.epoch),
    _Gauge(
        "quire_group_oldest_message_age_seconds", "Age of the oldest message that is not finished; absent if unknown.",
        lambda g: g.oldest_message_age_seconds,
    ),
]  # fmt: skip
_COUNTERS = [
    _Counter("quire_group_delivered_messages", "Deliveries to members.", lambda c: c.delivered),
    _Counter("quire_group_acknowledged_messages", "Messages that were acknowledged in time.", lambda c: c.acknowledged),
    _Counter("quire_group_redelivered_messages", "Deliveries that came back.", lambda c: c.redelivered),
    _Counter("quire_group_timed_out_messages", "Those of them whose time was up.", lambda c: c.timed_out),
    _Counter("quire_group_late_acknowledgements", "Acknowledgements after that, that counted.", lambda c: c.late),
    _Counter("quire_group_stale_acknowledgements", "Those of messages that were done or taken.", lambda c: c.stale),
    _Counter("quire_group_fenced_acknowledgements", "Those of assignments that had ended.", lambda c: c.fenced),
    _Counter("quire_group_dead_lettered_messages", "Messages that became dead letters.", lambda c: c.dead_lettered),
    _Counter("quire_group_lost_messages", "Messages that retention removed unfinished.", lambda c: c.lost),
]


def group_metrics(groups: Sequence[ConsumerGroupStatus]) -> Iterator[bytes]:
    """All metrics of consumer groups, written in pieces.

    Args:
        groups: all groups, by stream and name.
    """
    shown = groups[:GROUPS_SHOWN]
    yield from written([_gauge(row) for row in _GAUGES], shown)
    yield from written([_counter(row) for row in _COUNTERS], shown)
    yield from written([_BLOCKED], shown)
    yield from written([_LAG, _LEFT_OUT], [groups])


def _gauge(row: _Gauge) -> Family[ConsumerGroupStatus]:
    def samples(group: ConsumerGroupStatus) -> Samples:
        value = row.value(group)
        return [] if value is None else [((group.stream, group.name), value)]

    return Family(row.name, "gauge", row.text, _LABELS, samples)


def _counter(row: _Counter) -> Family[ConsumerGroupStatus]:
    def samples(group: ConsumerGroupStatus) -> Samples:
        return [((group.stream, group.name), row.value(group.counters))]

    return Family(f"{row.name}_total", "counter", row.text, _LABELS, samples)


def _blocked(group: ConsumerGroupStatus) -> Samples:
    return [((group.stream, group.name, group.blocked.cause), group.blocked.age_seconds)] if group.blocked else []


def _lags(groups: Sequence[ConsumerGroupStatus]) -> Samples:
    lags: Counter[str] = Counter()
    for group in groups:
        lags[group.stream] += group.lag
    return [((stream,), total) for stream, total in lags.items()]


_BLOCKED = Family(
    "quire_group_blocked_seconds", "gauge", "For how long messages cannot be given out, while that is so.",
    (*_LABELS, "cause"), _blocked,
)  # fmt: skip
_LAG = Family("quire_groups_lag_messages", "gauge", "The lag of all groups of a stream.", ("stream",), _lags)
_LEFT_OUT = Family[Sequence[ConsumerGroupStatus]](
    "quire_groups_left_out", "gauge", "Groups that have no metrics of their own.", (),
    lambda groups: [((), max(len(groups) - GROUPS_SHOWN, 0))],
)  # fmt: skip
